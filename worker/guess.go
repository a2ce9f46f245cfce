package worker

import "github.com/berthd/berth/kvpool"

// A step of few branches waits for memory, not for arithmetic: the weights are read once, however many tokens it has. So
// branches that take the likeliest token guess what comes next from what they have said before, and let one step look at
// all guesses (prompt lookup decoding, as in vLLM's n-gram speculator). Tokens depend on their prefix alone (W4), so what
// a branch says is the same; guesses cost no page, since they end with the block that the branch has.

const (
	guessTokens = 8    // of a step: where arithmetic begins to cost more than memory
	guessReach  = 4096 // tokens that are looked through for the end of the sequence
	guessMatch  = 4    // tokens of the end that are compared; two must agree
)

// guess appends to list the n tokens that may follow: those that followed the same end the last time. What ran up to the
// end itself goes on as it did.
func guess(tokens []int32, n int, list []int32) []int32 {
	last := len(tokens) - 1
	at, match := -1, 1
	for i := last - 1; i >= max(1, last-guessReach) && match < guessMatch; i-- {
		m := 0
		for m < guessMatch && m <= i && tokens[i-m] == tokens[last-m] {
			m++
		}
		if m > match {
			at, match = i, m
		}
	}
	if at < 0 {
		return list
	}
	period := last - at
	for k := range n {
		list = append(list, tokens[at+1+k%period])
	}
	return list
}

// guessAhead gives the branches of a step their guesses, if it has few of them and no prompt.
func (s *scheduler) guessAhead() {
	prompts := false
	for _, b := range s.planned {
		prompts = prompts || !b.decodes(s.pool)
	}
	if prompts {
		return
	}
	each := min(s.guesses, min(guessTokens, s.budget)/max(1, len(s.planned))-1)
	for _, b := range s.planned {
		if b.doubt > 0 {
			b.doubt--
		} else if n := min(each, b.guessable(s.pool)); n > 0 {
			b.guesses = guess(b.resume.Tokens, n, b.guesses)
		}
	}
}

// guessable is how many tokens after the branch's next one may be guessed: as many as its block and its limits hold.
func (b *branch) guessable(p *kvpool.Pool) int {
	if b.scores.of != nil || len(b.output()) < b.limits.minTokens || !b.resume.Sampling.Plain() {
		return 0
	}
	bs := p.Geometry().BlockSize
	return min(bs-1-p.Tokens(b.pool)%bs, b.limits.maxTokens-len(b.output())-1)
}

// judge notes how many of the guesses were right. A branch that keeps guessing wrong rests, longer each time.
func (b *branch) judge(right int) {
	b.history.guessed += len(b.guesses)
	b.history.right += right
	switch {
	case len(b.guesses) == 0:
	case right > 0:
		b.wrong = 0
	default:
		b.wrong = min(b.wrong+1, 5)
		b.doubt = 1<<b.wrong - 1
	}
}
