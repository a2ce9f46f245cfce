package ledger

import ledgerv1 "github.com/berthd/berth/api/ledger/v1"

// returnPages takes pages back from accounts. Totals, not amounts: a repeat after a lost answer changes nothing.
func (s *State) returnPages(by *session, m *ledgerv1.Return) *ledgerv1.Result {
	if by.worker == nil {
		return s.invalid("return: not a worker's session")
	}
	if fault := by.worker.checkReturned(m.Accounts); fault != "" {
		return s.invalid("return: " + fault)
	}
	by.worker.takeBack(m.Accounts)
	by.worker.serve(nil, 0)
	return s.ok()
}

// end finishes a claimed reservation, whether or not the router that made it still lives.
func (s *State) end(by *session, m *ledgerv1.End) *ledgerv1.Result {
	r := s.claimed(by, m.Reservation)
	if r == nil {
		return s.noReservation("end: no such claimed reservation of this incarnation")
	}
	w := r.worker
	if fault := w.checkReturned(m.Accounts); fault != "" {
		return s.invalid("end: " + fault)
	}
	r.unwait()
	s.settleCharge(r, m)
	s.remove(r)
	w.takeBack(m.Accounts)
	w.serve(nil, 0)
	return s.ok()
}

// checkReturned says what is wrong with totals, or "". A worker cannot return what it was not granted, nor what belongs
// to requests that it has not claimed: their dispatch may still arrive and use it.
func (w *worker) checkReturned(totals []*ledgerv1.Returned) string {
	for _, t := range totals {
		a := w.account(t.GetShareGroup())
		if a == nil {
			if t.GetPages() > 0 {
				return "no such account"
			}
			continue
		}
		if t.GetPages() > a.reserved+a.grown-a.unclaimed {
			return "more pages than the account's claimed grant"
		}
	}
	return ""
}

// takeBack raises the totals of checked accounts.
func (w *worker) takeBack(totals []*ledgerv1.Returned) {
	for _, t := range totals {
		a := w.account(t.GetShareGroup())
		if a == nil || t.GetPages() <= a.returned {
			continue
		}
		w.granted -= t.GetPages() - a.returned
		a.returned = t.GetPages()
		a.recount()
		w.view = nil
	}
}
