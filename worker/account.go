package worker

import (
	"errors"
	"fmt"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/kvpool"
)

// account is a share group's part of the worker, counted as the ledger counts it: totals since the incarnation began.
type account struct {
	group    string
	id       kvpool.AccountID
	key      kvpool.Key
	taken    uint64  // pages of reservations that arrived
	grown    uint64  // pages that waiters and growths were served, as the ledger says
	returned uint64  // pages given back
	doubted  uint64  // of taken, those of reservations whose claim has no answer: they may never have been granted
	told     uint64  // of returned, what a proposal has carried
	short    *branch // in this step's schedule: the first of its branches that wants pages, nil if none
	live     int     // branches in order
	rested   bool    // steps do not look at it
	soon     int     // pages that its branches will want within a block
	asking   bool    // a growth of one of its branches is under way
	// aheadFrom is the first step in which growth ahead of need may be asked for again.
	aheadFrom uint64
}

// grant is what the account may charge (W2).
func (a *account) grant() int { return int(a.taken + a.grown - a.returned) }

// errImpossible says that what the ledger or a router said cannot be: the counters would break a rule of the pool. It ends
// the incarnation, and never the process.
var errImpossible = errors.New("the ledger's pages and the worker's do not agree")

// rests says that the account has nothing and wants nothing: steps do not look at it. Its counters are kept, since they are
// totals.
func (a *account) rests() bool {
	return a.live == 0 && a.grant() == 0 && a.doubted == 0 && a.told == a.returned
}

// giveBack returns up to n pages of room to the ledger, by the next proposal, and says how many. Those of reservations that
// are not claimed stay: the ledger may have granted none of them.
func (a *account) giveBack(p *kvpool.Pool, n int) int {
	n = min(n, p.Room(a.id), a.grant()-int(a.doubted))
	if n <= 0 {
		return 0
	}
	a.returned += uint64(n)
	if err := p.SetGrant(a.id, a.grant()); err != nil {
		panic("worker: " + err.Error()) // a smaller grant that holds what is charged
	}
	return n
}

// regrant makes the pool's grant what the counters say. It fails only if a peer has said what cannot be, and the
// incarnation ends then.
func (e *engine) regrant(a *account) {
	if err := e.pool.SetGrant(a.id, a.grant()); err != nil && e.fault == nil {
		e.fault = fmt.Errorf("%w: share group %q: %w", errImpossible, a.group, err)
	}
}

// untold is the totals that the ledger has not been sent.
func untold(accounts []*account) []*ledgerv1.Returned {
	var out []*ledgerv1.Returned
	for _, a := range accounts {
		if a.told != a.returned {
			a.told = a.returned
			out = append(out, &ledgerv1.Returned{ShareGroup: a.group, Pages: a.returned})
		}
	}
	return out
}
