package ledger

import (
	"cmp"
	"slices"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// orderKey is the place of a branch in the order of promise P2; a reservation's own is that of its first branch.
type orderKey struct {
	rank, index uint64
	branch      uint32
}

func (k orderKey) compare(o orderKey) int {
	return cmp.Or(cmp.Compare(k.rank, o.rank), cmp.Compare(k.index, o.index), cmp.Compare(k.branch, o.branch))
}

// of is the key of one of the reservation's branches.
func (k orderKey) of(branch uint32) orderKey {
	k.branch = branch
	return k
}

// waiter is a branch of a claimed reservation that needs pages before it goes on.
type waiter struct {
	of     *reservation
	branch uint32
	need   uint64 // ≥ 1, all or nothing
	want   uint64 // on top, from what no waiter needs
}

func (x *waiter) key() orderKey { return x.of.key.of(x.branch) }

// waiterAt finds the waiter of a branch, or where it would stand.
func (w *worker) waiterAt(r *reservation, branch uint32) (int, bool) {
	return slices.BinarySearchFunc(w.waiters, r.key.of(branch), func(x waiter, k orderKey) int { return x.key().compare(k) })
}

// grow asks for pages: a waiter takes its place in key order, and serve decides as for all others. What waits from
// before does not fit (I4), so the new one is served at once exactly if it is first and fits.
func (s *State) grow(by *session, m *ledgerv1.Grow) *ledgerv1.Result {
	r := s.claimed(by, m.Reservation)
	if r == nil {
		return s.noReservation("grow: no such claimed reservation of this incarnation")
	}
	w := r.worker
	if m.Need == 0 || m.Branch >= r.branches {
		return s.invalid("grow: want a need of a page at least, of a branch that the reservation has")
	}
	if m.Need > w.capacity {
		return s.neverFits("grow: more than the worker has", m.Need, w)
	}
	i, waits := w.waiterAt(r, m.Branch)
	if !waits {
		w.waiters = slices.Insert(w.waiters, i, waiter{})
	}
	w.waiters[i] = waiter{of: r, branch: m.Branch, need: m.Need, want: m.Want}
	w.view = nil
	pages := w.serve(r, m.Branch)
	return s.grown(pages > 0, pages)
}

// withdraw ends a waiter that needs nothing any more.
func (s *State) withdraw(by *session, m *ledgerv1.Withdraw) *ledgerv1.Result {
	r := s.claimed(by, m.Reservation)
	if r == nil {
		return s.noReservation("withdraw: no such claimed reservation of this incarnation")
	}
	if i, waits := r.worker.waiterAt(r, m.Branch); waits {
		r.worker.waiters = slices.Delete(r.worker.waiters, i, i+1)
		r.worker.view = nil
	}
	r.worker.serve(nil, 0)
	return s.ok()
}

// unwait takes the waiters of all of a reservation's branches away.
func (r *reservation) unwait() {
	lo, _ := r.worker.waiterAt(r, 0)
	hi, _ := r.worker.waiterAt(r, r.branches)
	if lo < hi {
		r.worker.waiters = slices.Delete(r.worker.waiters, lo, hi)
		r.worker.view = nil
	}
}
