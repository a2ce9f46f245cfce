package worker

import (
	"cmp"
	"fmt"
	"slices"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
)

// request is a reservation at work: a branch for each choice of a prompt. As many branches are in order at once as it has
// slots; the next one enters when one has ended.
//
//	admit ─▶ enter × slots ─▶ end, enter, end … ─▶ the last one has ended: finish
type request struct {
	ask         *workerv1.GenerateRequest
	reservation uint64
	account     *account
	root        kvpool.Hash
	count       int       // branches of it
	slots       int       // branches that may be in order at once
	branches    []*branch // those that have entered, by number
	live        int       // of them, those that have not ended
	output      int       // tokens of those that have
	out         *outbox
	fatal       int // steps with it that did not end
}

// newRequest is what a dispatch asks for. It was validated.
func newRequest(r *workerv1.GenerateRequest) *request {
	n := int(max(1, r.Branches))
	return &request{
		ask: r, reservation: r.Reservation, count: n, slots: min(n, int(max(1, r.Slots))), out: newOutbox(n), fatal: int(r.FatalSteps),
	}
}

// newBranch is the request's next branch.
func (q *request) newBranch(blockSize int) *branch {
	r, s, number := q.ask, q.ask.Sampling, uint32(len(q.branches))
	b := &branch{
		request: q, key: orderKey{r.Key.GetRank(), r.Key.GetIndex(), number},
		limits: limits{int(r.MaxTokens), int(r.MinTokens), r.StopIds},
		scores: scores{of: r.Scoring},
	}
	if q.count > 1 {
		b.shared = (len(r.Prompt) - 1) / blockSize * blockSize
	}
	if number == 0 {
		b.scores.prompt = r.PromptScoring
	}
	if r.FatalSteps > 0 {
		b.suspicion = &suspicion{upto: len(r.Prompt), chunk: 1, most: len(r.Prompt)}
	}
	tokens := make([]int32, len(r.Prompt), len(r.Prompt)+int(min(r.MaxTokens, 4096)))
	copy(tokens, r.Prompt)
	b.resume = Resume{Tokens: tokens, Prompt: len(tokens), Sampling: model.Sampling{
		Temperature: s.GetTemperature(), TopK: int(s.GetTopK()), TopP: s.GetTopP(), MinP: s.GetMinP(),
		RepetitionPenalty: s.GetRepetitionPenalty(), PresencePenalty: s.GetPresencePenalty(),
		FrequencyPenalty: s.GetFrequencyPenalty(), Seed: model.Stream(s.GetSeed(), number), LogitBias: bias(s.GetLogitBias()),
	}}
	return b
}

// enter puts the request's next branch in order.
func (e *engine) enter(q *request) {
	b := q.newBranch(e.pool.Geometry().BlockSize)
	b.pool = e.pool.Open(q.account.id, q.account.key, q.root)
	b.history.queued = e.now()
	q.branches = append(q.branches, b)
	q.live++
	q.account.live++
	e.sched.add(b)
}

// end finishes a branch by itself: another one of its request takes its slot, or the request is finished.
func (e *engine) end(b *branch, reason ledgerv1.FinishReason) {
	q, asked := b.request, b.growth != growthNone
	e.leave(b, reason)
	if len(q.branches) < q.count {
		e.enter(q)
	}
	if q.live == 0 {
		e.finish(q, reason, nil)
		return
	}
	if asked {
		e.line.propose(withdrawal(b), nil)
	}
	e.trim(q.account)
}

// endAll finishes a request with all of its branches.
func (e *engine) endAll(q *request, reason ledgerv1.FinishReason, err error) {
	for _, b := range q.branches {
		if !b.over {
			e.leave(b, reason)
		}
	}
	e.finish(q, reason, err)
}

// leave takes a branch out of the order: it holds nothing any more (W5).
func (e *engine) leave(b *branch, reason ledgerv1.FinishReason) {
	b.over = true
	e.sched.remove(b)
	e.pool.Close(b.pool)
	e.forgetGrowth(b)
	b.history.ended = e.now()
	q, output := b.request, len(b.output())
	q.live--
	q.account.live--
	q.output += output
	q.out.update(b.number(), func(o *outcome) { o.done, o.reason, o.history, o.output = true, reason, b.history, output })
}

// finish tells the ledger that a request is over, with the pages that come back (W6).
func (e *engine) finish(q *request, reason ledgerv1.FinishReason, err error) {
	delete(e.byID, q.reservation)
	e.spent.add(q.reservation)
	e.slots -= q.slots
	if spare := e.sched.spare(q.account, growAhead*e.pool.Geometry().BlockSize); spare > 0 {
		q.account.giveBack(e.pool, spare)
	}
	e.line.propose(&ledgerv1.Command{Kind: &ledgerv1.Command_End{End: &ledgerv1.End{
		Reservation: q.reservation, Reason: reason, OutputTokens: uint64(q.output), Accounts: untold(e.accounts),
		ComputedTokens: q.computed(),
	}}}, nil)
	q.out.end(err)
}

// computed is how much of the prompt its first branch did not find in the cache; the others find what that computed.
func (q *request) computed() uint64 {
	if b := q.branches[0]; !b.history.started.IsZero() {
		return uint64(b.resume.Prompt - b.history.cached)
	}
	return 0
}

// cancel ends a request whose client has left.
func (e *engine) cancel(q *request) {
	if e.byID[q.reservation] == q {
		e.endAll(q, ledgerv1.FinishReason_FINISH_REASON_CANCELLED, nil)
	}
}

// stop ends a branch of which its router wants no more.
func (e *engine) stop(reservation uint64, number int) {
	if q := e.byID[reservation]; q != nil && number < len(q.branches) && !q.branches[number].over {
		e.end(q.branches[number], ledgerv1.FinishReason_FINISH_REASON_STOP)
	}
}

func bias(m map[int32]float32) []model.Bias {
	var out []model.Bias
	for id, v := range m {
		out = append(out, model.Bias{ID: id, Value: v})
	}
	slices.SortFunc(out, func(a, b model.Bias) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// RefusedError says why a dispatch was not taken.
type RefusedError struct {
	Reservation uint64
	Why         string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("reservation %d refused: %s", e.Reservation, e.Why)
}
