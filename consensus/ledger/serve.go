package ledger

import "slices"

// serve grants what waits, in key order: every need before any want, and nothing past the first need that does not fit,
// or a small one late in the order could keep a large one ahead of it waiting for ever (P2). It returns the pages that
// a branch of asker got, nil meaning nobody.
func (w *worker) serve(asker *reservation, branch uint32) uint64 {
	served := 0
	for served < len(w.waiters) && w.waiters[served].need <= w.room() {
		served++
		w.give(w.waiters[served-1].of, w.waiters[served-1].need)
	}
	if served == 0 {
		return 0
	}
	everyone := served == len(w.waiters) // else what is left belongs to a need
	var pages uint64
	for _, x := range w.waiters[:served] {
		got := x.need
		if everyone {
			extra := min(x.want, w.room())
			w.give(x.of, extra)
			got += extra
		}
		if x.of == asker && x.branch == branch {
			pages = got
		}
	}
	w.waiters = slices.Delete(w.waiters, 0, served)
	return pages
}

// give raises the grant of a reservation's account.
func (w *worker) give(r *reservation, pages uint64) {
	r.account.grown += pages
	w.granted += pages
	w.view = nil
}
