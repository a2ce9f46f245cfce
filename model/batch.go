package model

import "github.com/berthd/berth/kvpool"

// Plan is one forward pass, decided once and obeyed by every rank. A device reads it from Submit until Wait returns and
// keeps nothing of it afterwards.
type Plan struct {
	Step uint64 // ascending, never reused
	Rows []Row
}

// Row is what one branch does in a step: a decode has one token, a prefill chunk any number.
type Row struct {
	// Tokens are the ids at absolute positions [Start, Start+len(Tokens)). Keys and values of earlier positions are in
	// the pages already.
	Tokens []int32
	Start  int
	// Pages has, by layer group, the page of each block counted from position 0; kvpool.NoPage where a window has passed.
	Pages [][]kvpool.PageID
	// Outputs is how many of the last positions get logits: 0 for a chunk that does not end its prompt, 1 to sample.
	Outputs int
	// Sampling says how the last position's token is chosen; nil chooses none.
	Sampling *Sampling
	// Guesses is how many of the last Tokens are not known, but what plain sampling may choose after those before them. It
	// chooses after the last known token and after each guess, whose keys and values count only if it was right. Outputs is
	// one more than Guesses then.
	Guesses int
	// Logits asks for the logits of the Outputs positions in the result.
	Logits bool
	// Scored asks for the scores of the tokens after the Outputs positions, with the Top likeliest ones beside each. Next
	// are those tokens; the last one is left out where Sampling chooses it, or where nothing follows.
	Scored bool
	Next   []int32
	Top    int
}

// MaxTop is the most likeliest tokens that a row may ask for.
const MaxTop = 128

// Score is how likely a token was by the model: before bias, penalties, temperature and cuts.
type Score struct {
	Logprob float32
	Rank    int      // 1 for the likeliest, and for all that are as likely
	Top     []Likely // the likeliest first, lower ids first where they tie
}

// Likely is a token and its log-probability.
type Likely struct {
	ID      int32
	Logprob float32
}

// Result is what a step gave, by row of its plan.
type Result struct {
	Step uint64
	// IDs and Logprobs are the chosen token and its log-probability before any shaping; −1 and 0 where the row chose none
	// or did not ask.
	IDs      []int32
	Logprobs []float32
	// Guessed is [row][guesses]: the token chosen after each guess, if that one and all before it were right.
	Guessed [][]int32
	// Logits is [row][outputs × vocabulary], nil where the row did not ask.
	Logits [][]float32
	// Scores is [row][outputs], empty where the row did not ask; zero where no token follows.
	Scores [][]Score
}

// Tokens is the number of tokens that the plan runs.
func (p *Plan) Tokens() int {
	n := 0
	for i := range p.Rows {
		n += len(p.Rows[i].Tokens)
	}
	return n
}
