package ledger

import (
	"slices"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// shareGroup is all accounts of a name, on all workers, and the tenants that are in it.
type shareGroup struct {
	state      *State
	name       string
	cap, floor uint64 // pages; 0: none
	members    []*tenant
	accounts   int
	claim      uint64 // Σ claims of the accounts: what a cap is held against
}

// group returns the share group of a name, new if there is none.
func (s *State) group(name string) *shareGroup {
	g := s.groups[name]
	if g == nil {
		g = &shareGroup{state: s, name: name}
		s.groups[name] = g
	}
	return g
}

// add takes a tenant in: the group has its cap and floor from now on.
func (g *shareGroup) add(t *tenant, cap, floor uint64) {
	t.in, g.members = g, append(g.members, t)
	g.state.floors += floor - g.floor // modulo 2^64
	g.cap, g.floor = cap, floor
	g.touch()
}

// drop lets a tenant go; the last one takes cap and floor with it.
func (g *shareGroup) drop(t *tenant) {
	g.members = slices.DeleteFunc(g.members, func(o *tenant) bool { return o == t })
	if len(g.members) == 0 {
		g.state.floors -= g.floor
		g.cap, g.floor = 0, 0
	}
	g.forget()
}

// forget takes a group out that nobody is in and that has no account.
func (g *shareGroup) forget() {
	if g.accounts == 0 && len(g.members) == 0 {
		delete(g.state.groups, g.name)
	}
}

func (g *shareGroup) touch() {
	for _, t := range g.members {
		t.touch()
	}
}

// claim is what an account holds of its group's cap: its grant, and at least the whole lives of its reservations, so that
// none of them ever waits for the cap.
func claim(grant, whole uint64) uint64 { return max(grant, whole) }

// recount enters a changed account into its group's claim.
func (a *account) recount() {
	now := claim(a.grant(), a.whole)
	if now == a.counted {
		return
	}
	a.in.claim += now - a.counted // modulo 2^64
	a.counted = now
	a.in.touch()
}

// close takes an account that ends out of its group.
func (a *account) close() {
	a.in.claim -= a.counted
	a.in.accounts--
	a.in.touch()
	a.in.forget()
}

// rise is what a group's claim rises by if an account is granted pages, and lives are added to it.
func rise(grant, whole, pages, life uint64) uint64 {
	return claim(grant+pages, whole+life) - claim(grant, whole)
}

// over says whether a rise would take a claim above its cap (I11). What does not rise was promised before the cap was
// lowered.
func over(cap, claimed, rise uint64) bool { return cap > 0 && rise > 0 && claimed+rise > cap }

// stops says whether the account's group is at its cap for as many pages more.
func (a *account) stops(pages uint64) bool {
	return over(a.in.cap, a.in.claim, rise(a.grant(), a.whole, pages, 0))
}

// spare is the pages that the account may be granted under its group's cap.
func (a *account) spare() uint64 {
	if a.in.cap == 0 {
		return maxPages
	}
	return claim(a.grant(), a.whole) - a.grant() + a.in.cap - min(a.in.cap, a.in.claim)
}

// life is the most pages that a reservation's branches have at a time.
func (w *worker) life(branches, slots, pagesMax uint64) uint64 {
	return min(min(branches, slots)*pagesMax, w.capacity)
}

// underCap refuses a reserve that its group's cap forbids, now or for ever.
func (s *State) underCap(m *ledgerv1.Reserve, w *worker, life uint64) *ledgerv1.Result {
	g := s.groups[m.ShareGroup]
	if g == nil || g.cap == 0 {
		return nil
	}
	var grant, whole uint64
	if a := w.account(m.ShareGroup); a != nil {
		grant, whole = a.grant(), a.whole
	}
	code, message := ledgerv1.RefusalCode_REFUSAL_CODE_CAP_FULL, "the share group's cap is full"
	switch {
	case max(life, m.Pages) > g.cap:
		code, message = ledgerv1.RefusalCode_REFUSAL_CODE_OVER_CAP, "longer than the share group's cap"
	case !over(g.cap, g.claim, rise(grant, whole, m.Pages, life)):
		return nil
	}
	return &ledgerv1.Result{Revision: s.revision, Kind: &ledgerv1.Result_Refusal{Refusal: &ledgerv1.Refusal{
		Code: code, Message: message, Need: life, Capacity: g.cap, Granted: g.claim, Waiters: uint64(len(w.waiters)),
	}}}
}
