package worker

import (
	"cmp"
	"slices"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
)

// orderKey is a branch's place in the order of promise P2: the smaller goes first.
type orderKey struct {
	rank, index uint64
	branch      uint32
}

func (k orderKey) compare(o orderKey) int {
	return cmp.Or(cmp.Compare(k.rank, o.rank), cmp.Compare(k.index, o.index), cmp.Compare(k.branch, o.branch))
}

// Resume is all that a branch needs to go on anywhere: the tokens so far and how the next ones are chosen. The sampler's
// counter is the number of output tokens.
type Resume struct {
	Tokens   []int32 // prompt, then output
	Prompt   int     // length of the prompt
	Sampling model.Sampling
}

// limits are when a branch ends.
type limits struct {
	maxTokens, minTokens int
	stopIDs              []int32
}

// scores are what a branch tells of its tokens' log-probabilities; nil where it tells nothing.
type scores struct {
	of, prompt *workerv1.Scoring
	done       int // tokens of the prompt, after the first, that were told
}

// branch is one running or waiting sequence of the engine.
type branch struct {
	request *request
	key     orderKey
	limits  limits
	resume  Resume
	scores  scores
	shared  int // tokens of the prompt's whole blocks, which it has in common with others of its request; 0 if there are none

	pool    kvpool.BranchID
	holds   bool    // it has started: the pool has a branch of it
	over    bool    // it has ended
	chunk   int     // tokens that the step in flight computes of it
	kept    int     // tokens of the step that are kept for it: its prompt is a short one
	guesses []int32 // tokens after the next one that the step in flight looks at
	doubt   int     // steps without a guess
	wrong   int     // times in a row that all guesses were wrong
	fed     []int32 // what the step reads: known tokens, then guesses
	// sampling is what the step reads of resume.Sampling.
	sampling  *model.Sampling
	suspicion *suspicion // nil but after a fatal step
	short     int        // pages that it needs and its account has no room for
	growth    growth
	asked     int    // pages of the growth proposed
	growRev   uint64 // revision of its answer
	table     [][]kvpool.PageID
	history   history
}

// growth is what has become of a branch's wish for pages.
type growth uint8

const (
	growthNone    growth = iota
	growthAsked          // proposed, no answer yet
	growthServed         // answered with pages, which the next notice brings
	growthWaiting        // a waiter in the ledger
)

// history is what happened to a branch, for its trace and its usage.
type history struct {
	queued, started, first, ended time.Time
	cached                        int // tokens of the prompt that the first start did not compute
	steps, chunks, preemptions    int
	guessed, right                int // tokens guessed, and those of them that were right
	preempted                     []time.Time
}

func (b *branch) account() *account { return b.request.account }

// number is the branch's among those of its request.
func (b *branch) number() int { return int(b.key.branch) }

// is says whether the ledger's key is the branch's.
func (b *branch) is(k *ledgerv1.OrderKey) bool {
	return k.Index == b.request.reservation && k.Branch == b.key.branch
}

// known is the part of the tokens that may be taken from the cache: all, but for those whose scores are not told yet.
func (b *branch) known() []int32 {
	if b.scoresDue() {
		return b.resume.Tokens[:b.scores.done+1]
	}
	return b.resume.Tokens
}

// scoresDue says that some of the prompt's scores are not told yet.
func (b *branch) scoresDue() bool { return b.scores.prompt != nil && b.scores.done < b.resume.Prompt-1 }

// demand is what the branch will hold at a length, beside another one of its request or not.
func (b *branch) demand(g kvpool.Geometry, tokens int, beside bool) int {
	if beside {
		return g.Fork(b.resume.Prompt, tokens).Pages
	}
	return g.Demand(tokens).Pages
}

func (b *branch) output() []int32 { return b.resume.Tokens[b.resume.Prompt:] }

// remaining is how many tokens are not in pages yet; 1 is a decode.
func (b *branch) remaining(p *kvpool.Pool) int {
	if !b.holds {
		return len(b.resume.Tokens)
	}
	return len(b.resume.Tokens) - p.Tokens(b.pool)
}

// decodes says that only the branch's last token is to be computed.
func (b *branch) decodes(p *kvpool.Pool) bool { return b.holds && b.remaining(p) == 1 }

// row describes the branch's part of a step.
func (b *branch) row(p *kvpool.Pool) model.Row {
	at := p.Tokens(b.pool)
	b.table = p.Pages(b.pool, b.table[:0])
	end := at + b.chunk
	r := model.Row{Tokens: b.resume.Tokens[at:end], Start: at, Pages: b.table}
	last := end == len(b.resume.Tokens)
	if len(b.guesses) > 0 {
		b.fed = append(append(b.fed[:0], r.Tokens...), b.guesses...)
		r.Tokens, r.Guesses = b.fed, len(b.guesses)
	}
	if last && b.limits.maxTokens > 0 {
		if b.sampling == nil {
			b.sampling = new(b.resume.Sampling)
		}
		s := b.sampling
		s.Prompt, s.Output = b.resume.Tokens[:b.resume.Prompt], b.output()
		s.Counter = uint64(len(s.Output))
		s.Banned = nil
		if len(s.Output) < b.limits.minTokens {
			s.Banned = b.limits.stopIDs
		}
		r.Outputs, r.Sampling = 1+r.Guesses, s
		r.Scored, r.Top = b.scores.of != nil, int(b.scores.of.GetTop())
	}
	if from := max(at, b.scores.done); b.scores.prompt != nil && from < min(end, b.resume.Prompt-1) {
		r.Outputs, r.Scored, r.Top = end-from, true, max(r.Top, int(b.scores.prompt.Top))
		r.Next = b.resume.Tokens[from+1 : min(end+1, len(b.resume.Tokens))]
	}
	return r
}

// score hands out what a step says of the prompt's tokens, and returns what it says of the one that it chose.
func (b *branch) score(r *model.Row, given []model.Score) (chosen *workerv1.Score) {
	if !r.Scored {
		return nil
	}
	if r.Sampling != nil && b.scores.of != nil {
		chosen = scoreMessage(&given[r.Outputs-1], int(b.scores.of.Top))
	}
	first := r.Start + len(r.Tokens) - r.Outputs + 1 // the token that the first output is about
	told := min(len(r.Next), b.resume.Prompt-first)
	if told <= 0 || b.scores.prompt == nil {
		return chosen
	}
	list := make([]*workerv1.Score, told)
	for i := range list {
		list[i] = scoreMessage(&given[i], int(b.scores.prompt.Top))
	}
	b.scores.done += told
	b.request.out.putPrompt(list)
	return chosen
}

func scoreMessage(s *model.Score, top int) *workerv1.Score {
	m := &workerv1.Score{Logprob: s.Logprob, Rank: uint32(s.Rank)}
	for _, l := range s.Top[:min(top, len(s.Top))] {
		m.TopIds, m.TopLogprobs = append(m.TopIds, l.ID), append(m.TopLogprobs, l.Logprob)
	}
	return m
}

// accept appends a token and says whether it ends the branch, and why.
func (b *branch) accept(id int32) (ledgerv1.FinishReason, bool) {
	b.resume.Tokens = append(b.resume.Tokens, id)
	switch {
	case slices.Contains(b.limits.stopIDs, id):
		return ledgerv1.FinishReason_FINISH_REASON_STOP, true
	case len(b.output()) >= b.limits.maxTokens:
		return ledgerv1.FinishReason_FINISH_REASON_LENGTH, true
	}
	return 0, false
}
