package ledger

import (
	"errors"
	"fmt"
	"slices"
)

// Check recomputes what the state keeps ready and proves I1 to I6 and I9 to I11. It joins everything that is wrong.
func (s *State) Check() error {
	var faults []error
	faults = append(faults, s.checkSessions(), s.checkFenced())
	found := map[*worker]*tally{}
	for _, w := range s.workers {
		found[w] = &tally{unclaimed: map[*account]uint64{}}
	}
	for _, id := range s.reservationIDs() {
		faults = append(faults, s.checkReservation(id, found))
	}
	faults = append(faults, s.checkTenants(), s.checkGroups())
	for i, w := range s.workers {
		if i > 0 && s.workers[i-1].name >= w.name {
			faults = append(faults, fmt.Errorf("I8: worker %q is out of order", w.name))
		}
		if err := errors.Join(w.checkGrants(), w.checkSums(found[w]), w.checkWaiters(s)); err != nil {
			faults = append(faults, fmt.Errorf("worker %q: %w", w.name, err))
		}
	}
	return errors.Join(faults...)
}

// tally is what the reservations of a worker sum up to.
type tally struct {
	slots     uint64
	held      int
	orphans   []uint64
	unclaimed map[*account]uint64
}

func (s *State) checkSessions() error {
	last := uint64(0)
	for _, c := range s.sessions {
		switch {
		case c.id <= last || c.id >= s.nextSession:
			return fmt.Errorf("I5: session %d is out of order, next is %d", c.id, s.nextSession)
		case c.worker != nil && (c.worker.session != c || c.router != ""):
			return fmt.Errorf("I5: session %d is not the living incarnation of %q", c.id, c.worker.name)
		case c.leftMs == 0 || c.leftMs > c.leaseMs:
			return fmt.Errorf("I5: session %d has %d ms left of %d", c.id, c.leftMs, c.leaseMs)
		case len(c.results) > MaxUnacked || uint64(len(c.results)) > c.last:
			return fmt.Errorf("I6: session %d keeps %d results of %d", c.id, len(c.results), c.last)
		}
		last = c.id
	}
	for _, w := range s.workers {
		if w.session != nil && s.session(w.session.id) != w.session {
			return fmt.Errorf("I5: the incarnation of %q is not a session", w.name)
		}
	}
	return nil
}

// checkFenced proves I9.
func (s *State) checkFenced() error {
	fenced := 0
	for _, w := range s.workers {
		switch {
		case w.session != nil && (w.fencedAt > 0 || w.forgetMs > 0):
			return fmt.Errorf("I9: %q lives, and is to be forgotten in %d ms", w.name, w.forgetMs)
		case w.session != nil:
			continue
		case w.fencedAt == 0 || w.fencedAt > s.revision || w.forgetMs == 0 || w.forgetMs > forgetLeases*maxLease:
			return fmt.Errorf("I9: %q was fenced at revision %d of %d, to be forgotten in %d ms",
				w.name, w.fencedAt, s.revision, w.forgetMs)
		}
		fenced++
	}
	if fenced > maxFenced {
		return fmt.Errorf("I9: %d fenced workers are remembered", fenced)
	}
	return nil
}

// checkReservation proves that a reservation belongs to a living incarnation and adds it to the worker's tally.
func (s *State) checkReservation(id uint64, found map[*worker]*tally) error {
	r := s.reservations[id]
	t := found[r.worker]
	switch {
	case t == nil || r.worker.session == nil:
		return fmt.Errorf("I3: reservation %d outlived its incarnation", id)
	case r.id != id || r.key.index != id || r.key.branch != 0 || r.key.rank > id || id > s.revision:
		return fmt.Errorf("I8: reservation %d has key %v at revision %d", id, r.key, s.revision)
	case r.worker.account(r.account.group) != r.account:
		return fmt.Errorf("I3: reservation %d has an account of another incarnation", id)
	case (r.charge > 0) != (r.payer != nil):
		return fmt.Errorf("I10: reservation %d is charged %d, and %q pays", id, r.charge, r.tenant)
	case r.branches == 0 || r.branches > maxBranches:
		return fmt.Errorf("I3: reservation %d has %d branches", id, r.branches)
	case r.state != stateReserved && r.state != stateOrphaned && r.state != stateClaimed:
		return fmt.Errorf("I3: reservation %d is in state %v", id, r.state)
	}
	t.held++
	t.slots += r.slots
	if r.state != stateClaimed {
		t.unclaimed[r.account] += r.pages
	}
	if r.state == stateOrphaned {
		t.orphans = append(t.orphans, id)
	}
	return nil
}

// checkGrants proves I1 and I2.
func (w *worker) checkGrants() error {
	sum := uint64(0)
	for i, a := range w.accounts {
		if i > 0 && w.accounts[i-1].group >= a.group {
			return fmt.Errorf("I8: account %q is out of order", a.group)
		}
		if a.returned > a.reserved+a.grown || a.grant() < a.unclaimed {
			return fmt.Errorf("I2: account %q: reserved %d + grown %d − returned %d, unclaimed %d",
				a.group, a.reserved, a.grown, a.returned, a.unclaimed)
		}
		sum += a.grant()
	}
	if sum != w.granted || sum > w.capacity {
		return fmt.Errorf("I1: grants sum to %d, kept as %d, capacity %d", sum, w.granted, w.capacity)
	}
	if w.session == nil && (sum > 0 || len(w.accounts) > 0) {
		return fmt.Errorf("I1: fenced with %d pages granted", sum)
	}
	return nil
}

// checkSums proves I3.
func (w *worker) checkSums(t *tally) error {
	if t.slots != w.slots || t.slots > w.info.Slots || t.held != w.held || !slices.Equal(t.orphans, w.orphans) {
		return fmt.Errorf("I3: %d reservations, %d slots, orphans %v; kept as %d, %d of %d, %v",
			t.held, t.slots, t.orphans, w.held, w.slots, w.info.Slots, w.orphans)
	}
	for _, a := range w.accounts {
		if t.unclaimed[a] != a.unclaimed {
			return fmt.Errorf("I3: account %q: unclaimed %d, kept as %d", a.group, t.unclaimed[a], a.unclaimed)
		}
	}
	return nil
}

// checkWaiters proves I4.
func (w *worker) checkWaiters(s *State) error {
	for i, x := range w.waiters {
		if i > 0 && w.waiters[i-1].key().compare(x.key()) >= 0 {
			return fmt.Errorf("I4: waiter %d is out of order", x.of.id)
		}
		if s.reservations[x.of.id] != x.of || x.of.state != stateClaimed || x.of.worker != w || x.need == 0 || x.branch >= x.of.branches {
			return fmt.Errorf("I4: waiter %d/%d is not a branch of a claimed reservation with a need", x.of.id, x.branch)
		}
	}
	var stopped halt
	for i := range w.waiters {
		x := &w.waiters[i]
		if stopped.at(x) {
			continue
		}
		if x.need <= w.room() {
			return fmt.Errorf("I4: waiter %d needs %d and there is room for %d", x.of.id, x.need, w.room())
		}
		break
	}
	return nil
}
