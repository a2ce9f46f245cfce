package worker

import (
	"cmp"
	"slices"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
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

// is says whether the ledger's key is the branch's.
func (b *branch) is(k *ledgerv1.OrderKey) bool { return k.Index == b.reservation && k.Branch == b.key.branch }

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

// branch is one running or waiting sequence of the engine.
type branch struct {
	requestID   string
	reservation uint64
	attempt     uint64
	key         orderKey
	account     *account
	pages       uint64 // that its reservation brought into the account
	limits      limits
	resume      Resume

	pool    kvpool.BranchID
	holds   bool // it has started: the pool has a branch of it
	chunk   int  // tokens that the step in flight computes of it
	short   int  // pages that it needs and its account has no room for
	growth  growth
	asked   int    // pages of the growth proposed
	growRev uint64 // revision of its answer
	table   [][]kvpool.PageID
	out     *outbox
	history history
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
	preempted                     []time.Time
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
	r := model.Row{Tokens: b.resume.Tokens[at : at+b.chunk], Start: at, Pages: b.table}
	if at+b.chunk == len(b.resume.Tokens) {
		s := &b.resume.Sampling
		s.Prompt, s.Output = b.resume.Tokens[:b.resume.Prompt], b.output()
		s.Counter = uint64(len(s.Output))
		s.Banned = nil
		if len(s.Output) < b.limits.minTokens {
			s.Banned = b.limits.stopIDs
		}
		r.Outputs, r.Sampling = 1, s
	}
	return r
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
