package worker

import (
	"fmt"
	"slices"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// askGrowth proposes growth for the branches that are short, each for just what it lacks, and ahead of need for the first
// branch of an account that will soon be.
func (e *engine) askGrowth() {
	bs := e.pool.Geometry().BlockSize
	for _, a := range e.accounts {
		a.soon = -e.sched.spare(a, bs)
	}
	for _, b := range e.sched.branches {
		switch a := b.account(); {
		case b.short > 0:
			if b.growth == growthNone || b.growth == growthWaiting && b.short != b.asked {
				e.grow(b, b.short)
			}
		case b.holds && a.soon > 0 && a.short == nil && !a.asking && e.plan.Step >= a.aheadFrom && e.left(b) > 0:
			e.grow(b, min(a.soon, e.left(b)))
		}
	}
}

// left is the pages that the branch may yet need beyond those of the tokens that it has.
func (e *engine) left(b *branch) int {
	g := e.pool.Geometry()
	return g.Demand(b.resume.Prompt+b.limits.maxTokens).Pages - g.Demand(len(b.resume.Tokens)).Pages
}

// grow asks the ledger for pages: all or nothing, and as much again if nobody waits for it. The branch asks nothing else
// before the answer has come. A refusal says that the branch cannot go on, now or later.
func (e *engine) grow(b *branch, need int) {
	b.growth, b.asked, b.account().asking = growthAsked, need, true
	want := min(need, e.left(b)-need, len(e.pool.Geometry().Groups)*growAhead) // more would be given back at once
	cmd := &ledgerv1.Grow{Reservation: b.request.reservation, Branch: b.key.branch, Need: uint64(need), Want: uint64(max(0, want))}
	e.line.propose(&ledgerv1.Command{Kind: &ledgerv1.Command_Grow{Grow: cmd}}, func(e *engine, r *ledgerv1.Result) {
		if b.over || b.growth != growthAsked {
			return
		}
		if why := r.GetRefusal(); why != nil {
			e.endAll(b.request, ledgerv1.FinishReason_FINISH_REASON_ERROR, fmt.Errorf("grow by %d pages: %s", need, why.Message))
			return
		}
		b.growth, b.growRev = growthWaiting, r.GetRevision()
		if r.GetGrown().GetServed() {
			b.growth = growthServed
		} else if b.short == 0 {
			e.waitAhead(b)
			return
		}
		e.settleGrowth(b)
	})
}

// waitAhead drops a wish ahead of need that the ledger has no room for: a waiter would hold up others for what nobody
// lacks yet. The account wishes again some steps later.
func (e *engine) waitAhead(b *branch) {
	e.withdraw(b)
	b.account().aheadFrom = e.plan.Step + uint64(e.pool.Geometry().BlockSize)
}

// settleGrowth ends a branch's wish once a notice at least as new as the answer shows what it was served.
func (e *engine) settleGrowth(b *branch) {
	switch {
	case b.growth < growthServed || e.notice.Revision < b.growRev:
	case b.growth == growthServed, !slices.ContainsFunc(e.notice.Waiting, b.is):
		e.forgetGrowth(b)
	}
}

func (e *engine) forgetGrowth(b *branch) {
	a := b.account()
	b.growth, b.asked, a.asking = growthNone, 0, false
	for _, o := range e.sched.branches {
		a.asking = a.asking || o.account() == a && o.growth != growthNone
	}
}

// hearNotice takes what the ledger holds for the incarnation: pages served, waiters left, reservations to answer for.
func (e *engine) hearNotice(n *workerv1.Notice) {
	if n.Revision < e.notice.Revision {
		return
	}
	e.notice = n
	for _, g := range n.Accounts {
		if a := e.byGroup[g.ShareGroup]; a == nil && g.Pages > 0 || a != nil && g.Pages > a.grown {
			a = e.account(g.ShareGroup)
			a.grown = g.Pages
			e.regrant(a)
			e.trim(a) // it may come too late
		}
	}
	for _, b := range e.sched.branches {
		e.settleGrowth(b)
	}
	for _, id := range n.Orphans {
		if e.byID[id] == nil && !e.spent.has(id) {
			e.spent.add(id)
			e.line.propose(&ledgerv1.Command{Kind: &ledgerv1.Command_Tombstone{Tombstone: &ledgerv1.Tombstone{Reservation: id}}}, nil)
		}
	}
}

// relieve makes room for the first branch that is short, if the ledger has nothing for it: those behind it let go (W3),
// and it says whether any did. It comes after the step, when those before the branch have taken what they want. Pages
// that go by the ledger are on their way until a notice shows the return. A wish that room inside the account has
// fulfilled meanwhile is withdrawn.
func (e *engine) relieve() (freed bool) {
	for _, b := range e.sched.branches {
		if b.growth == growthWaiting && b.short == 0 && b.chunk > 0 {
			e.withdraw(b)
		}
	}
	b := e.sched.firstShort()
	if b == nil || b.growth != growthWaiting || e.returning || e.notice.Revision < e.returnRev {
		return false
	}
	victims, _ := e.sched.relieve(b, e.accounts)
	for _, v := range victims {
		v.history.preemptions++
		v.history.preempted = append(v.history.preempted, e.now())
	}
	if r := untold(e.accounts); len(r) > 0 {
		e.returning = true
		e.line.propose(returnPages(r), func(e *engine, r *ledgerv1.Result) { e.returning, e.returnRev = false, r.GetRevision() })
	}
	return len(victims) > 0
}

func (e *engine) withdraw(b *branch) {
	e.line.propose(withdrawal(b), nil)
	e.forgetGrowth(b)
}

func withdrawal(b *branch) *ledgerv1.Command {
	return &ledgerv1.Command{Kind: &ledgerv1.Command_Withdraw{Withdraw: &ledgerv1.Withdraw{
		Reservation: b.request.reservation, Branch: b.key.branch,
	}}}
}
