package worker

import (
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
	told     uint64  // of returned, what a proposal has carried
	short    *branch // in this step's schedule: the first of its branches that wants pages, nil if none
	soon     int     // pages that its branches will want within a block
	asking   bool    // a growth of one of its branches is under way
	// aheadFrom is the first step in which growth ahead of need may be asked for again.
	aheadFrom uint64
}

// grant is what the account may charge (W2).
func (a *account) grant() int { return int(a.taken + a.grown - a.returned) }

// giveBack returns n pages of room to the ledger, by the next proposal.
func (a *account) giveBack(p *kvpool.Pool, n int) {
	if n <= 0 {
		return
	}
	a.returned += uint64(n)
	mustGrant(p, a)
}

// mustGrant makes the pool's grant what the counters say. It cannot fail while the ledger keeps A3 and the worker gives
// back only room.
func mustGrant(p *kvpool.Pool, a *account) {
	if err := p.SetGrant(a.id, a.grant()); err != nil {
		panic("worker: " + err.Error())
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
