package ledger

import (
	"fmt"
	"slices"
)

// checkTenants proves I10.
func (s *State) checkTenants() error {
	charged, live := map[*tenant]uint64{}, map[*tenant]int{}
	for _, r := range s.reservations {
		if r.payer != nil {
			charged[r.payer] += r.charge
			live[r.payer]++
		}
	}
	keys, floors := 0, uint64(0)
	for _, g := range s.groups {
		floors += g.floor
	}
	for i, t := range s.tenants {
		for _, k := range t.put.Keys {
			if keys++; s.keys[string(k)] != t.id() {
				return fmt.Errorf("I8: a key of tenant %q is kept as %q's", t.id(), s.keys[string(k)])
			}
		}
		switch {
		case i > 0 && s.tenants[i-1].id() >= t.id():
			return fmt.Errorf("I8: tenant %q is out of order", t.id())
		case t.revision == 0 || t.revision > s.tenantsAt || s.tenantsAt > s.revision:
			return fmt.Errorf("I8: tenant %q was put at %d, the last one at %d of %d", t.id(), t.revision, s.tenantsAt, s.revision)
		case t.live != live[t] || t.charged != charged[t] || t.counter < t.charged:
			return fmt.Errorf("I10: tenant %q has %d living reservations, kept as %d, charged %d, kept as %d, of %d",
				t.id(), live[t], t.live, charged[t], t.charged, t.counter)
		case t.level > fullLevel(t.put) || t.levelAt > s.clockMs:
			return fmt.Errorf("I10: tenant %q has a level of %d at %d ms of %d", t.id(), t.level, t.levelAt, s.clockMs)
		case s.groups[t.put.ShareGroup] != t.in || !slices.Contains(t.in.members, t):
			return fmt.Errorf("I11: tenant %q is not in its share group", t.id())
		}
	}
	if keys != len(s.keys) || floors != s.floors {
		return fmt.Errorf("I8: %d keys, kept as %d; floors of %d pages, kept as %d", keys, len(s.keys), floors, s.floors)
	}
	return nil
}

// checkGroups proves that claims are what accounts come to (I11).
func (s *State) checkGroups() error {
	whole := map[*account]uint64{}
	for _, r := range s.reservations {
		whole[r.account] += r.life()
	}
	claims, accounts := map[*shareGroup]uint64{}, map[*shareGroup]int{}
	for _, w := range s.workers {
		for _, a := range w.accounts {
			if a.whole != whole[a] || a.in != s.groups[a.group] {
				return fmt.Errorf("I11: account %q of %q has lives of %d pages, kept as %d", a.group, w.name, whole[a], a.whole)
			}
			claims[a.in] += claim(a.grant(), a.whole)
			accounts[a.in]++
		}
	}
	for name, g := range s.groups {
		if g.name != name || g.claim != claims[g] || g.accounts != accounts[g] || g.accounts+len(g.members) == 0 {
			return fmt.Errorf("I11: group %q claims %d pages in %d accounts, kept as %d in %d",
				name, claims[g], accounts[g], g.claim, g.accounts)
		}
	}
	return nil
}
