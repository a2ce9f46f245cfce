package worker

import (
	"fmt"
	"slices"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/kvpool"
)

// admit takes a reserved request: its pages count from here on, and the ledger is told that the worker has it.
func (e *engine) admit(q *request) error {
	r := q.ask
	if r.Incarnation != e.identity.session {
		return &RefusedError{r.Reservation, fmt.Sprintf("it names incarnation %d, this is %d", r.Incarnation, e.identity.session)}
	}
	if e.spent.has(r.Reservation) || e.byID[r.Reservation] != nil {
		return &RefusedError{r.Reservation, "it was given up, or is here already"}
	}
	if e.slots+q.slots > e.maxSlots {
		return &RefusedError{r.Reservation, fmt.Sprintf("%d of the worker's %d slots are taken", e.slots, e.maxSlots)}
	}
	q.account = e.account(r.ShareGroup)
	q.account.taken += r.Pages
	if err := e.pool.SetGrant(q.account.id, q.account.grant()); err != nil {
		q.account.taken -= r.Pages // the ledger never granted them: it keeps A3
		return &RefusedError{r.Reservation, err.Error()}
	}
	q.account.doubted += r.Pages
	e.slots += q.slots
	id := e.identity
	q.root = kvpool.Root(q.account.key, id.revision, id.numerics, id.layout, r.CacheSalt)
	e.byID[r.Reservation] = q
	for range q.slots {
		e.enter(q)
	}
	claim := &ledgerv1.Claim{Reservation: r.Reservation, Attempt: r.Attempt}
	e.line.propose(&ledgerv1.Command{Kind: &ledgerv1.Command_Claim{Claim: claim}}, func(e *engine, r *ledgerv1.Result) {
		q.account.doubted -= q.ask.Pages
		if why := r.GetRefusal(); why != nil {
			e.disown(q, &RefusedError{q.reservation, why.Message})
		}
		e.trim(q.account)
	})
	return nil
}

// disown takes back the pages of a claim that the ledger refused: they were never the worker's. The request ends, if it has
// not; who used its pages lets go, the last in order first (W3).
func (e *engine) disown(q *request, err error) {
	for _, b := range q.branches {
		if b.holds {
			e.sched.letGo(b)
		}
	}
	for _, v := range slices.Backward(e.sched.branches) {
		if e.pool.Charged(q.account.id) <= q.account.grant()-int(q.ask.Pages) {
			break
		}
		if v.account() == q.account && v.holds {
			e.sched.letGo(v)
		}
	}
	q.account.taken -= q.ask.Pages
	e.regrant(q.account)
	if e.byID[q.reservation] == q {
		e.endAll(q, ledgerv1.FinishReason_FINISH_REASON_ERROR, err)
	}
}

// account is the share group's account, opened at its first use, and one of those that steps look at from here on.
func (e *engine) account(group string) *account {
	a := e.byGroup[group]
	if a == nil {
		a = &account{group: group, id: noAccount, key: kvpool.DeriveKey(e.identity.hashKey, group), rested: true}
		e.byGroup[group] = a
	}
	if a.id == noAccount {
		a.id = e.pool.OpenAccount()
	}
	if a.rested {
		a.rested = false
		e.accounts = append(e.accounts, a)
	}
	return a
}

// noAccount is the pool's account of one that it does not know.
const noAccount kvpool.AccountID = -1

// rest takes the accounts out that rest: there may be ten thousand others.
func (e *engine) rest() {
	e.accounts = slices.DeleteFunc(e.accounts, func(a *account) bool {
		a.rested = a.rests()
		return a.rested
	})
}
