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

// Bias is added to the logit of ID.
type Bias struct {
	ID    int32
	Value float32
}
