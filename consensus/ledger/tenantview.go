package ledger

import (
	"cmp"
	"slices"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// TenantView is a tenant in a View.
type TenantView struct {
	*ledgerv1.Tenant        // complete
	Revision         uint64 // that put it
	Counter          uint64 // service by weight, that of living reservations as estimated
	Settled          uint64 // that of ended reservations
	Mean             uint64 // length of its answers, in tokens
	Live             int    // reservations that it pays for
	Claim            uint64 // pages of the cap that its share group's grants and lives hold

	level   int64
	levelAt uint64
}

// Tenant returns the tenant of that name, or nil.
func (v *View) Tenant(id string) *TenantView {
	i, ok := slices.BinarySearchFunc(v.Tenants, id, func(t *TenantView, id string) int { return cmp.Compare(t.Id, id) })
	if !ok {
		return nil
	}
	return v.Tenants[i]
}

// Estimate is what a reserve would be charged: service by weight, and tokens of the budget.
func (t *TenantView) Estimate(m *ledgerv1.Reserve) (charge, tokens uint64) {
	return estimate(t.Weight, t.Mean, m)
}

// Budget is the tokens that are left at a time of the ledger's clock, below 0 those that are owed, and the milliseconds
// until there is one more than the given number.
func (t *TenantView) Budget(clockMs, beyond uint64) (left int64, waitMs uint64) {
	full := fullLevel(t.Tenant)
	level := levelAt(t.TokensPerMinute, full, t.level, clockMs-t.levelAt)
	left = level / tokenUnit
	if want := min(int64(min(beyond, maxTokens)+1)*tokenUnit, full) - level; want > 0 && t.TokensPerMinute > 0 {
		waitMs = (uint64(want) + t.TokensPerMinute - 1) / t.TokensPerMinute
	}
	return left, waitMs
}

// Rise is what the share group's claim would rise by if a worker reserved pages for it, and a life.
func (w *WorkerView) Rise(group string, pages, life uint64) uint64 {
	a := w.account(group)
	return rise(a.Grant(), a.Whole, pages, life)
}

// Ahead is the waiters that go before a reserve of a share group.
func (w *WorkerView) Ahead(group string) (n int) {
	for _, x := range w.Waiters {
		if !x.Stopped || x.ShareGroup == group {
			n++
		}
	}
	return n
}

// Life is the most pages that a request's branches have at a time on the worker.
func (w *WorkerView) Life(branches, slots, pagesMax uint64) uint64 {
	return min(min(branches, slots)*pagesMax, w.Capacity)
}

func (w *WorkerView) account(group string) AccountView {
	i, ok := slices.BinarySearchFunc(w.Accounts, group, func(a AccountView, g string) int { return cmp.Compare(a.ShareGroup, g) })
	if !ok {
		return AccountView{}
	}
	return w.Accounts[i]
}

// lookAtTenants is the tenants in a view: the slice of the last one if none has changed.
func (s *State) lookAtTenants() []*TenantView {
	if s.tenantViews != nil || len(s.tenants) == 0 {
		return s.tenantViews
	}
	s.tenantViews = make([]*TenantView, len(s.tenants))
	for i, t := range s.tenants {
		if t.view == nil {
			t.view = &TenantView{
				Tenant: t.message(), Revision: t.revision, Counter: t.counter, Settled: t.counter - t.charged, Mean: mean(t.answers, t.answerTokens),
				Live: t.live, Claim: t.in.claim, level: t.level, levelAt: t.levelAt,
			}
		}
		s.tenantViews[i] = t.view
	}
	return s.tenantViews
}
