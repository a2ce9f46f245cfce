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

// RefusedError says why a dispatch was not taken.
type RefusedError struct {
	Reservation uint64
	Why         string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("reservation %d refused: %s", e.Reservation, e.Why)
}

// newBranch is the branch that a request asks for. The request was validated.
func newBranch(r *workerv1.GenerateRequest) *branch {
	s := r.Sampling
	b := &branch{
		requestID: r.RequestId, reservation: r.Reservation, attempt: r.Attempt, pages: r.Pages,
		key:    orderKey{r.Key.GetRank(), r.Key.GetIndex(), r.Key.GetBranch()},
		limits: limits{int(r.MaxTokens), int(r.MinTokens), r.StopIds},
		out:    newOutbox(),
	}
	tokens := make([]int32, len(r.Prompt), len(r.Prompt)+int(min(r.MaxTokens, 4096)))
	copy(tokens, r.Prompt)
	b.resume = Resume{Tokens: tokens, Prompt: len(tokens), Sampling: model.Sampling{
		Temperature: s.GetTemperature(), TopK: int(s.GetTopK()), TopP: s.GetTopP(), MinP: s.GetMinP(),
		RepetitionPenalty: s.GetRepetitionPenalty(), PresencePenalty: s.GetPresencePenalty(),
		FrequencyPenalty: s.GetFrequencyPenalty(), Seed: s.GetSeed(), LogitBias: bias(s.GetLogitBias()),
	}}
	return b
}

// admit takes a reserved request: its pages count from here on, and the ledger is told that the worker has it.
func (e *engine) admit(b *branch, r *workerv1.GenerateRequest) error {
	if r.Incarnation != e.identity.session {
		return &RefusedError{b.reservation, fmt.Sprintf("it names incarnation %d, this is %d", r.Incarnation, e.identity.session)}
	}
	if e.spent.has(b.reservation) || e.byID[b.reservation] != nil {
		return &RefusedError{b.reservation, "it was given up, or is here already"}
	}
	b.account = e.account(r.ShareGroup)
	b.account.taken += b.pages
	if err := e.pool.SetGrant(b.account.id, b.account.grant()); err != nil {
		b.account.taken -= b.pages // the ledger never granted them: it keeps A3
		return &RefusedError{b.reservation, err.Error()}
	}
	id := e.identity
	b.pool = e.pool.Open(b.account.id, b.account.key, kvpool.Root(b.account.key, id.revision, id.numerics, id.layout, r.CacheSalt))
	b.history.queued = e.now()
	e.byID[b.reservation] = b
	e.sched.add(b)
	claim := &ledgerv1.Claim{Reservation: b.reservation, Attempt: b.attempt}
	e.line.propose(&ledgerv1.Command{Kind: &ledgerv1.Command_Claim{Claim: claim}}, func(e *engine, r *ledgerv1.Result) {
		if why := r.GetRefusal(); why != nil && e.byID[b.reservation] == b {
			e.disown(b, &RefusedError{b.reservation, why.Message})
		}
	})
	return nil
}

// disown ends a branch whose claim the ledger refused: its pages were never the worker's. Who used them lets go, the last
// in order first (W3).
func (e *engine) disown(b *branch, err error) {
	e.sched.letGo(b)
	for _, v := range slices.Backward(e.sched.branches) {
		if e.pool.Charged(b.account.id) <= b.account.grant()-int(b.pages) {
			break
		}
		if v != b && v.account == b.account && v.holds {
			e.sched.letGo(v)
		}
	}
	b.account.taken -= b.pages
	mustGrant(e.pool, b.account)
	e.end(b, ledgerv1.FinishReason_FINISH_REASON_ERROR, err)
}

// cancel ends a branch whose client has left.
func (e *engine) cancel(b *branch) {
	if e.byID[b.reservation] == b {
		e.end(b, ledgerv1.FinishReason_FINISH_REASON_CANCELLED, nil)
	}
}

// account is the share group's account, opened at its first use.
func (e *engine) account(group string) *account {
	for _, a := range e.accounts {
		if a.group == group {
			return a
		}
	}
	a := &account{group: group, id: e.pool.OpenAccount(), key: kvpool.DeriveKey(e.identity.hashKey, group)}
	e.accounts = append(e.accounts, a)
	return a
}

func bias(m map[int32]float32) []model.Bias {
	var out []model.Bias
	for id, v := range m {
		out = append(out, model.Bias{ID: id, Value: v})
	}
	slices.SortFunc(out, func(a, b model.Bias) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
