package ledger

import (
	"cmp"
	"slices"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/kvpool"
)

// View is an immutable copy of what placement, notices and people read. Views share the entries of workers that did not
// change between them; nothing in a View may be written to.
type View struct {
	Revision    uint64
	ClusterID   []byte // nil before bootstrap
	HashKey     []byte
	NextSession uint64 // the number that the next session gets
	Sessions    int    // living, of routers and workers
	// ShortestLeaseMs is that of the living sessions, 0 if there are none.
	ShortestLeaseMs uint64
	Reservations    int
	Workers         []*WorkerView // ascending name, fenced ones included
	ClockMs         uint64        // that ticks have brought
	TenantsAt       uint64        // revision of the tenants' last change; 0: none was ever put
	Tenants         []*TenantView // ascending id
}

// WorkerView is a worker in a View. Pages and slots are those of the living incarnation.
type WorkerView struct {
	Name         string
	Incarnation  uint64 // 0 when fenced
	Info         *ledgerv1.WorkerInfo
	Geometry     kvpool.Geometry
	Overhead     uint64 // pages of account 0
	Capacity     uint64 // pages that accounts may be granted: Info.Pages − Overhead
	Granted      uint64 // Σ grants
	SlotsUsed    uint64
	Reservations int
	Accounts     []AccountView // ascending share group
	Waiters      []WaiterView  // ascending key
	Orphans      []uint64      // ascending reservation
}

// Room is the pages that no account was granted.
func (w *WorkerView) Room() uint64 { return w.Capacity - w.Granted }

// AccountView counts pages since the incarnation began: grant = Reserved + Grown − Returned.
type AccountView struct {
	ShareGroup string
	Reserved   uint64
	Grown      uint64
	Returned   uint64
	Unclaimed  uint64 // pages of reservations that the worker has not claimed, part of the grant
	Whole      uint64 // pages that its reservations have in their whole lives, at most
}

// Grant is the pages that the account has.
func (a AccountView) Grant() uint64 { return a.Reserved + a.Grown - a.Returned }

// WaiterView is a branch of a claimed reservation that needs pages before it goes on.
type WaiterView struct {
	Reservation uint64
	ShareGroup  string
	Rank, Index uint64 // the order key, with Branch
	Branch      uint32
	Need, Want  uint64 // pages
	Stopped     bool   // by the cap of its share group: it holds up that alone
}

// View copies the state. It costs one pointer a worker, and an entry for each that changed since the last call.
func (s *State) View() *View {
	v := &View{
		Revision: s.revision, ClusterID: s.clusterID, HashKey: s.hashKey, NextSession: s.nextSession,
		Sessions: len(s.sessions), Reservations: len(s.reservations), Workers: make([]*WorkerView, len(s.workers)),
		ClockMs: s.clockMs, TenantsAt: s.tenantsAt, Tenants: s.lookAtTenants(),
	}
	for i, c := range s.sessions {
		if i == 0 || c.leaseMs < v.ShortestLeaseMs {
			v.ShortestLeaseMs = c.leaseMs
		}
	}
	for i, w := range s.workers {
		if w.view == nil || len(w.waiters) > 0 && len(s.tenants) > 0 { // caps stop waiters from afar
			w.view = w.look()
		}
		v.Workers[i] = w.view
	}
	return v
}

func (w *worker) look() *WorkerView {
	v := &WorkerView{
		Name: w.name, Info: w.info, Geometry: w.geometry,
		Overhead: w.overhead, Capacity: w.capacity, Granted: w.granted,
		SlotsUsed: w.slots, Reservations: w.held, Accounts: make([]AccountView, len(w.accounts)),
		Waiters: make([]WaiterView, len(w.waiters)), Orphans: slices.Clone(w.orphans),
	}
	if w.session != nil {
		v.Incarnation = w.session.id
	}
	for i, a := range w.accounts {
		v.Accounts[i] = AccountView{
			ShareGroup: a.group, Reserved: a.reserved, Grown: a.grown, Returned: a.returned, Unclaimed: a.unclaimed,
			Whole: a.whole,
		}
	}
	var stopped halt
	for i, x := range w.waiters {
		v.Waiters[i] = WaiterView{
			Reservation: x.of.id, ShareGroup: x.of.account.group, Rank: x.of.key.rank, Index: x.of.key.index,
			Branch: x.branch, Need: x.need, Want: x.want, Stopped: stopped.at(&x),
		}
	}
	return v
}

// Worker returns the worker of that name, fenced or not, or nil.
func (v *View) Worker(name string) *WorkerView {
	i, ok := slices.BinarySearchFunc(v.Workers, name, func(w *WorkerView, n string) int { return cmp.Compare(w.Name, n) })
	if !ok {
		return nil
	}
	return v.Workers[i]
}

// Incarnation returns the worker whose living incarnation has that number, or nil.
func (v *View) Incarnation(incarnation uint64) *WorkerView {
	for _, w := range v.Workers {
		if incarnation != 0 && w.Incarnation == incarnation {
			return w
		}
	}
	return nil
}

// Notice is what the ledger holds for an incarnation that it did not itself ask for, whole each time.
type Notice struct {
	Revision uint64
	Accounts []Growth   // ascending share group; those that grew
	Waiting  []BranchID // those with a waiter not served yet, in key order
	Orphans  []uint64   // reservations to claim or tombstone, ascending
	Fenced   bool       // the incarnation has ended
}

// BranchID names a branch of a reservation.
type BranchID struct {
	Reservation uint64
	Branch      uint32
}

// Growth is the pages that an account was granted by Grow since the incarnation began: those served at once, which a
// Grown result told, and those served to waiters.
type Growth struct {
	ShareGroup string
	Pages      uint64
}

// Notice returns the notice of an incarnation. One that the view does not know yet is not fenced.
func (v *View) Notice(incarnation uint64) Notice {
	n := Notice{Revision: v.Revision}
	w := v.Incarnation(incarnation)
	if w == nil {
		n.Fenced = incarnation < v.NextSession
		return n
	}
	for _, a := range w.Accounts {
		if a.Grown > 0 {
			n.Accounts = append(n.Accounts, Growth{ShareGroup: a.ShareGroup, Pages: a.Grown})
		}
	}
	for _, x := range w.Waiters {
		n.Waiting = append(n.Waiting, BranchID{x.Reservation, x.Branch})
	}
	n.Orphans = w.Orphans
	return n
}
