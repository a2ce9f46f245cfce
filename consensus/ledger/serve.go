package ledger

import "slices"

// serve grants what waits, in key order: every need before any want, and nothing past the first need that does not fit,
// or a small one late in the order could keep a large one ahead of it waiting for ever (P2). A waiter that its group's
// cap stops holds up its own group alone. It returns the pages that a branch of asker got, nil meaning nobody.
func (w *worker) serve(asker *reservation, branch uint32) uint64 {
	if len(w.waiters) == 0 {
		return 0
	}
	var served, left []waiter
	var stopped halt
	full := false
	for _, x := range w.waiters {
		switch {
		case full || stopped.at(&x):
			left = append(left, x)
		case x.need > w.room():
			full = true // what is left belongs to a need
			left = append(left, x)
		default:
			served = append(served, x)
			w.give(x.of, x.need)
		}
	}
	if len(stopped) > 0 {
		stopped[0].state.stopped = true
	}
	if len(served) == 0 {
		return 0
	}
	var pages uint64
	for _, x := range served {
		got := x.need
		if !full && !slices.Contains(stopped, x.of.account.in) {
			extra := min(x.want, w.room(), x.of.account.spare())
			w.give(x.of, extra)
			got += extra
		}
		if x.of == asker && x.branch == branch {
			pages = got
		}
	}
	w.waiters = left
	return pages
}

// give raises the grant of a reservation's account.
func (w *worker) give(r *reservation, pages uint64) {
	r.account.grown += pages
	r.account.recount()
	w.granted += pages
	w.view = nil
}

// halt is the groups whose caps have stopped one of their waiters, as a walk in key order finds them.
type halt []*shareGroup

// at says whether the next waiter of the walk is stopped: by the cap, or behind one of its group that is.
func (h *halt) at(x *waiter) bool {
	g := x.of.account.in
	if g.cap == 0 {
		return false
	}
	if slices.Contains(*h, g) {
		return true
	}
	if !x.of.account.stops(x.need) {
		return false
	}
	*h = append(*h, g)
	return true
}

// waits says whether a waiter holds up a reserve of that group.
func (w *worker) waits(group string) bool {
	var stopped halt
	for i := range w.waiters {
		x := &w.waiters[i]
		if !stopped.at(x) || x.of.account.group == group {
			return true
		}
	}
	return false
}

// resume serves waiters that a cap had stopped. Caps are of all workers: what one returns may be another's to have.
func (s *State) resume() {
	if !s.stopped {
		return
	}
	s.stopped = false
	for _, w := range s.workers {
		w.serve(nil, 0)
	}
}
