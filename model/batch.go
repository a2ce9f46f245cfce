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
	// Logits asks for the logits of the Outputs positions in the result.
	Logits bool
}

// Result is what a step gave, by row of its plan.
type Result struct {
	Step uint64
	// IDs and Logprobs are the chosen token and its log-probability before any shaping; −1 and 0 where the row chose none
	// or did not ask.
	IDs      []int32
	Logprobs []float32
	// Logits is [row][outputs × vocabulary], nil where the row did not ask.
	Logits [][]float32
}

// Tokens is the number of tokens that the plan runs.
func (p *Plan) Tokens() int {
	n := 0
	for i := range p.Rows {
		n += len(p.Rows[i].Tokens)
	}
	return n
}
