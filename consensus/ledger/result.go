package ledger

import (
	"errors"
	"fmt"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// RefusalError is a refusal as an error, for callers that want the numbers.
type RefusalError struct {
	*ledgerv1.Refusal
}

// Error implements error.
func (e *RefusalError) Error() string {
	return fmt.Sprintf("ledger refuses: %s (%v)", e.GetMessage(), e.GetCode())
}

// Err is the refusal or gap in r, or nil if the command was carried out.
func Err(r *ledgerv1.Result) error {
	switch k := r.GetKind().(type) {
	case *ledgerv1.Result_Refusal:
		return &RefusalError{k.Refusal}
	case *ledgerv1.Result_Gap:
		return fmt.Errorf("ledger: sequences after %d are missing", k.Gap.GetLastSequence())
	case nil:
		return errors.New("ledger: a result without an answer")
	}
	return nil
}

// IsResult says whether r is the result of its command: a session that is over, a gap, and what is wrong with the number of
// a repeat are none, and may come again for another try of the same command.
func IsResult(r *ledgerv1.Result) bool {
	switch r.GetRefusal().GetCode() {
	case ledgerv1.RefusalCode_REFUSAL_CODE_FENCED, ledgerv1.RefusalCode_REFUSAL_CODE_UNACKNOWLEDGED,
		ledgerv1.RefusalCode_REFUSAL_CODE_FORGOTTEN:
		return false
	}
	return r.GetGap() == nil
}

// done is shared by all results that say nothing; like every result it is never changed.
var done = &ledgerv1.Result_Ok{Ok: &ledgerv1.Ok{}}

func (s *State) ok() *ledgerv1.Result {
	return &ledgerv1.Result{Revision: s.revision, Kind: done}
}

// reserved is one allocation for the four messages of the most frequent answer.
func (s *State) reserved(r *reservation) *ledgerv1.Result {
	m := &struct {
		result   ledgerv1.Result
		kind     ledgerv1.Result_Reserved
		reserved ledgerv1.Reserved
		key      ledgerv1.OrderKey
	}{}
	m.key.Rank, m.key.Index = r.key.rank, r.key.index
	m.reserved.Reservation, m.reserved.Key = r.id, &m.key
	m.kind.Reserved = &m.reserved
	m.result.Revision, m.result.Kind = s.revision, &m.kind
	return &m.result
}

func (s *State) opened(c *session) *ledgerv1.Result {
	return &ledgerv1.Result{Revision: s.revision, Kind: &ledgerv1.Result_Opened{Opened: &ledgerv1.Opened{
		Session: c.id, ClusterId: s.clusterID, HashKey: s.hashKey, LastSequence: c.last,
	}}}
}

func (s *State) grown(served bool, pages uint64) *ledgerv1.Result {
	return &ledgerv1.Result{Revision: s.revision, Kind: &ledgerv1.Result_Grown{Grown: &ledgerv1.Grown{
		Served: served, Pages: pages,
	}}}
}

func (s *State) gap(last uint64) *ledgerv1.Result {
	return &ledgerv1.Result{Revision: s.revision, Kind: &ledgerv1.Result_Gap{Gap: &ledgerv1.Gap{LastSequence: last}}}
}

func (s *State) refuse(code ledgerv1.RefusalCode, message string) *ledgerv1.Result {
	return &ledgerv1.Result{Revision: s.revision, Kind: &ledgerv1.Result_Refusal{Refusal: &ledgerv1.Refusal{
		Code: code, Message: message,
	}}}
}

func (s *State) invalid(message string) *ledgerv1.Result {
	return s.refuse(ledgerv1.RefusalCode_REFUSAL_CODE_INVALID, message)
}

func (s *State) noReservation(message string) *ledgerv1.Result {
	return s.refuse(ledgerv1.RefusalCode_REFUSAL_CODE_NO_RESERVATION, message)
}

func (s *State) neverFits(message string, need uint64, w *worker) *ledgerv1.Result {
	return s.refuseRoom(ledgerv1.RefusalCode_REFUSAL_CODE_NEVER_FITS, message, need, w)
}

// refuseRoom refuses for want of room, with the worker's numbers.
func (s *State) refuseRoom(code ledgerv1.RefusalCode, message string, need uint64, w *worker) *ledgerv1.Result {
	return &ledgerv1.Result{Revision: s.revision, Kind: &ledgerv1.Result_Refusal{Refusal: &ledgerv1.Refusal{
		Code: code, Message: message,
		Need: need, Capacity: w.capacity, Granted: w.granted, Waiters: uint64(len(w.waiters)),
	}}}
}
