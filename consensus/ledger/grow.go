package ledger

import (
	"cmp"
	"slices"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// orderKey is the place of a branch in the order of promise P2. The ledger knows one branch a reservation.
type orderKey struct {
	rank, index uint64
}

func (k orderKey) compare(o orderKey) int {
	return cmp.Or(cmp.Compare(k.rank, o.rank), cmp.Compare(k.index, o.index))
}

// waiter is a claimed reservation that needs pages before it goes on.
type waiter struct {
	of   *reservation
	need uint64 // ≥ 1, all or nothing
	want uint64 // on top, from what no waiter needs
}

// waiterAt finds the waiter of a reservation, or where it would stand.
func (w *worker) waiterAt(r *reservation) (int, bool) {
	return slices.BinarySearchFunc(w.waiters, r.key, func(x waiter, k orderKey) int { return x.of.key.compare(k) })
}

// grow asks for pages: a waiter takes its place in key order, and serve decides as for all others. What waits from
// before does not fit (I4), so the new one is served at once exactly if it is first and fits.
func (s *State) grow(by *session, m *ledgerv1.Grow) *ledgerv1.Result {
	r := s.claimed(by, m.Reservation)
	if r == nil {
		return s.noReservation("grow: no such claimed reservation of this incarnation")
	}
	w := r.worker
	if m.Need == 0 {
		return s.invalid("grow: want a need of a page at least")
	}
	if m.Need > w.capacity {
		return s.neverFits("grow: more than the worker has", m.Need, w)
	}
	i, waits := w.waiterAt(r)
	if !waits {
		w.waiters = slices.Insert(w.waiters, i, waiter{})
	}
	w.waiters[i] = waiter{of: r, need: m.Need, want: m.Want}
	w.view = nil
	pages := w.serve(r)
	return s.grown(pages > 0, pages)
}

// withdraw ends a waiter that needs nothing any more.
func (s *State) withdraw(by *session, m *ledgerv1.Withdraw) *ledgerv1.Result {
	r := s.claimed(by, m.Reservation)
	if r == nil {
		return s.noReservation("withdraw: no such claimed reservation of this incarnation")
	}
	r.unwait()
	r.worker.serve(nil)
	return s.ok()
}

// unwait takes a reservation's waiter away, if there is one.
func (r *reservation) unwait() {
	if i, waits := r.worker.waiterAt(r); waits {
		r.worker.waiters = slices.Delete(r.worker.waiters, i, i+1)
		r.worker.view = nil
	}
}
