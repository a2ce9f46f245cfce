package ledger

import (
	"slices"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

const (
	stateReserved = ledgerv1.ReservationState_RESERVATION_STATE_RESERVED
	stateOrphaned = ledgerv1.ReservationState_RESERVATION_STATE_ORPHANED
	stateClaimed  = ledgerv1.ReservationState_RESERVATION_STATE_CLAIMED
)

// reservation is an admitted request. It lives as long as the incarnation that it was made on, at most.
type reservation struct {
	id           uint64
	key          orderKey
	router       uint64 // session, maybe ended
	worker       *worker
	account      *account
	tenant       string
	requestID    string
	pages        uint64 // granted at admission
	slots        uint64
	branches     uint32 // ≥ 1
	pagesMax     uint64 // of one branch
	promptTokens uint64
	maxTokens    uint64
	state        ledgerv1.ReservationState
	attempt      uint64

	payer  *tenant // nil: nobody pays
	charge uint64  // of the payer's fair counter
	tokens uint64  // of its budget
}

// life is the most pages that the reservation's branches have at a time.
func (r *reservation) life() uint64 { return r.worker.life(uint64(r.branches), r.slots, r.pagesMax) }

// maxBranches bounds the branches of a reservation.
const maxBranches = 1 << 16

// reserve admits a request to a worker: room now for what its branches need together, and room alone for the whole life
// of one, since they pause for each other.
func (s *State) reserve(by *session, m *ledgerv1.Reserve) *ledgerv1.Result {
	if by.worker != nil {
		return s.invalid("reserve: not a router's session")
	}
	branches := max(m.Branches, 1)
	if branches > maxBranches || m.Slots == 0 {
		return s.invalid("reserve: want a slot, and at most 65536 branches")
	}
	if most := (m.Pages + uint64(branches) - 1) / uint64(branches); most > m.PagesMax {
		return s.invalid("reserve: want at most pages_max pages a branch")
	}
	w := s.worker(m.Worker)
	if w == nil || w.session == nil || w.session.id != m.Incarnation {
		return s.refuse(ledgerv1.RefusalCode_REFUSAL_CODE_NO_WORKER, "no such worker, or not its living incarnation")
	}
	payer, refusal := s.payer(m)
	if refusal != nil {
		return refusal
	}
	if need := max(m.PagesMax, m.Pages); need > w.capacity || m.Slots > w.info.Slots {
		return s.neverFits("does not fit on the worker alone", need, w)
	}
	if refusal := s.underCap(m, w, w.life(uint64(branches), m.Slots, m.PagesMax)); refusal != nil {
		return refusal
	}
	if reason := w.busy(m); reason != "" {
		return s.refuseRoom(ledgerv1.RefusalCode_REFUSAL_CODE_BUSY, reason, m.Pages, w)
	}
	r := &reservation{
		id: s.revision, key: orderKey{rank: s.revision - min(m.Bonus, s.revision), index: s.revision},
		router: by.id, worker: w, account: w.openAccount(s.group(m.ShareGroup)), tenant: m.Tenant, requestID: m.RequestId,
		pages: m.Pages, slots: m.Slots, branches: branches, pagesMax: m.PagesMax, promptTokens: m.PromptTokens, maxTokens: m.MaxTokens,
		state: stateReserved,
	}
	s.reservations[r.id] = r
	s.pay(r, payer, m)
	r.account.reserved += r.pages
	r.account.unclaimed += r.pages
	r.account.whole += r.life()
	r.account.recount()
	w.granted += r.pages
	w.slots += r.slots
	w.held++
	w.view = nil
	return s.reserved(r)
}

// busy says why the request cannot start now, or "". Who waits goes before who comes.
func (w *worker) busy(m *ledgerv1.Reserve) string {
	switch {
	case w.waits(m.ShareGroup):
		return "admitted requests wait for pages"
	case m.Pages > w.room():
		return "not enough pages"
	case w.slots+m.Slots > w.info.Slots:
		return "not enough slots"
	}
	return ""
}

// drop gives a reservation up. Its grant stays until the worker says that it does not have the request: the dispatch
// may be on its way.
func (s *State) drop(by *session, m *ledgerv1.Drop) *ledgerv1.Result {
	r := s.reservations[m.Reservation]
	if r == nil || r.router != by.id || r.state != stateReserved {
		return s.noReservation("drop: no such reservation of this router that its worker has not claimed")
	}
	r.orphan()
	return s.ok()
}

// orphan puts an unclaimed reservation on the list that its worker is asked about.
func (r *reservation) orphan() {
	i, _ := slices.BinarySearch(r.worker.orphans, r.id)
	r.worker.orphans = slices.Insert(r.worker.orphans, i, r.id)
	r.state = stateOrphaned
	r.worker.view = nil
}

// claim makes the worker the one that ends the reservation.
func (s *State) claim(by *session, m *ledgerv1.Claim) *ledgerv1.Result {
	r := s.unclaimed(by, m.Reservation)
	if r == nil {
		return s.noReservation("claim: no such unclaimed reservation of this incarnation")
	}
	r.settle()
	r.state, r.attempt = stateClaimed, m.Attempt
	return s.ok()
}

// tombstone ends a reservation whose request the worker does not have and will refuse. The reserve is undone, not
// returned: the worker was never told the pages, so its totals of returned pages cannot count them.
func (s *State) tombstone(by *session, m *ledgerv1.Tombstone) *ledgerv1.Result {
	r := s.unclaimed(by, m.Reservation)
	if r == nil {
		return s.noReservation("tombstone: no such unclaimed reservation of this incarnation")
	}
	r.settle()
	r.account.reserved -= r.pages
	r.worker.granted -= r.pages
	s.refund(r)
	s.remove(r)
	r.worker.serve(nil, 0)
	return s.ok()
}

// unclaimed returns a reservation that the incarnation may claim or tombstone, or nil.
func (s *State) unclaimed(by *session, id uint64) *reservation {
	r := s.reservations[id]
	if r == nil || by.worker != r.worker || r.state == stateClaimed {
		return nil
	}
	return r
}

// claimed returns a reservation that the incarnation has, or nil.
func (s *State) claimed(by *session, id uint64) *reservation {
	r := s.reservations[id]
	if r == nil || by.worker != r.worker || r.state != stateClaimed {
		return nil
	}
	return r
}

// settle ends the time in which nobody knew whether the worker has it.
func (r *reservation) settle() {
	r.account.unclaimed -= r.pages
	if r.state == stateOrphaned {
		i, _ := slices.BinarySearch(r.worker.orphans, r.id)
		r.worker.orphans = slices.Delete(r.worker.orphans, i, i+1)
	}
	r.worker.view = nil
}

// remove forgets a reservation and frees its slots.
func (s *State) remove(r *reservation) {
	delete(s.reservations, r.id)
	r.account.whole -= r.life()
	r.account.recount()
	r.worker.slots -= r.slots
	r.worker.held--
	r.worker.view = nil
}
