package model

// Sampling is how a row's next token is chosen: the parameters of a request and the part of its branch that they look at.
// Names and meanings are vLLM's. The zero value is greedy.
type Sampling struct {
	Temperature       float32 // < 1e-5: greedy, the lowest id on a tie
	TopK              int     // 0: off
	TopP              float32 // 0 or 1: off
	MinP              float32 // 0: off
	RepetitionPenalty float32 // 0 or 1: off
	PresencePenalty   float32
	FrequencyPenalty  float32
	LogitBias         []Bias // ascending ids

	// Seed and Counter name the random number: the same pair gives the same one on any worker, in any batch.
	Seed    uint64
	Counter uint64 // tokens that the branch has produced so far

	// Prompt and Output are the branch's ids, for penalties.
	Prompt []int32
	Output []int32

	// Banned are ids that may not be chosen in this step (stop tokens before min_tokens).
	Banned []int32
	// Logprob asks for the log-probability of the chosen token.
	Logprob bool
	// Mask has one bit per id, least significant first, set where a grammar allows the id; nil allows all.
	Mask []uint64
}

// GreedyBelow is the temperature under which sampling is greedy.
const GreedyBelow = 1e-5

// Plain tells whether the highest logit is taken as it is.
func (s *Sampling) Plain() bool {
	penalties := s.RepetitionPenalty != 0 && s.RepetitionPenalty != 1 || s.PresencePenalty != 0 || s.FrequencyPenalty != 0
	return s.Temperature < GreedyBelow && !penalties && !s.Logprob && s.Mask == nil && len(s.LogitBias) == 0 && len(s.Banned) == 0
}

// Stream is the seed of one of several branches that were given one seed: the first has the seed itself, the others a
// SplitMix64 finaliser (Steele, Lea, Flood 2014) of both.
func Stream(seed uint64, branch uint32) uint64 {
	if branch == 0 {
		return seed
	}
	x := seed ^ uint64(branch)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Bias is added to the logit of ID.
type Bias struct {
	ID    int32
	Value float32
}
