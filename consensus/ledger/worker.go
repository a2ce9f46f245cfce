package ledger

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/kvpool"
)

const (
	// forgetLeases is how many terms of its last lease a fenced worker is remembered for.
	forgetLeases = 100
	// maxFenced is how many fenced workers are remembered.
	maxFenced = 1024
)

// maxFencedNonces is how many ended incarnations of a worker are remembered, so that a late registration of theirs is
// refused and does not end a younger one.
const maxFencedNonces = 64

// Bounds of a registration. With them no sum in this package comes near 2^63.
const (
	maxPages    = 1 << 40
	maxGroups   = 1 << 10
	maxGeometry = 1 << 24 // tokens, steps or chunks
)

// worker is one machine's memory. Everything below info belongs to the living incarnation and ends with it.
type worker struct {
	name     string
	fenced   [][]byte // nonces of ended incarnations, newest last
	session  *session // the living incarnation; nil when fenced
	fencedAt uint64   // revision; 0 while an incarnation lives, as the next one
	forgetMs uint64   // until a fenced worker is forgotten
	info     *ledgerv1.WorkerInfo
	geometry kvpool.Geometry
	overhead uint64 // pages of account 0
	capacity uint64 // pages − overhead

	granted  uint64     // Σ grants of accounts
	slots    uint64     // used
	held     int        // reservations
	accounts []*account // ascending share group
	waiters  []waiter   // ascending key
	orphans  []uint64   // ascending reservation

	view *WorkerView // what View last made of it; nil once changed
}

// account is (incarnation, share group). Its counters only rise, but for a tombstone, which undoes a reserve.
type account struct {
	in        *shareGroup
	group     string
	reserved  uint64
	grown     uint64
	returned  uint64
	unclaimed uint64 // pages of reservations that the worker has not claimed
	whole     uint64 // Σ lives of its reservations
	counted   uint64 // its claim, as it is in the group's
}

func (a *account) grant() uint64 { return a.reserved + a.grown - a.returned }

// room is the pages that no account was granted.
func (w *worker) room() uint64 { return w.capacity - w.granted }

// account returns the account of a share group, or nil.
func (w *worker) account(group string) *account {
	i, ok := w.accountAt(group)
	if !ok {
		return nil
	}
	return w.accounts[i]
}

func (w *worker) accountAt(group string) (int, bool) {
	return slices.BinarySearchFunc(w.accounts, group, func(a *account, g string) int { return cmp.Compare(a.group, g) })
}

// openAccount returns the account of a share group, new if there is none.
func (w *worker) openAccount(in *shareGroup) *account {
	i, ok := w.accountAt(in.name)
	if !ok {
		in.accounts++
		w.accounts = slices.Insert(w.accounts, i, &account{in: in, group: in.name})
	}
	return w.accounts[i]
}

// register starts an incarnation, or answers the living one that carries the same nonce.
func (s *State) register(m *ledgerv1.Register) *ledgerv1.Result {
	i, known := s.workerAt(m.GetWorker())
	if known {
		w := s.workers[i]
		if w.session != nil && bytes.Equal(w.session.nonce, m.Nonce) {
			if !proto.Equal(w.info, m.Info) {
				return s.invalid("register: the incarnation was registered with other info")
			}
			w.session.leftMs = w.session.leaseMs
			return s.opened(w.session)
		}
		if slices.ContainsFunc(w.fenced, func(n []byte) bool { return bytes.Equal(n, m.Nonce) }) {
			return s.refuseFenced(w)
		}
	}
	if s.clusterID == nil {
		return s.invalid("the cluster has no name yet")
	}
	geometry, err := checkRegister(m)
	if err != nil {
		return s.invalid("register: " + err.Error())
	}
	if !known {
		s.workers = slices.Insert(s.workers, i, &worker{name: m.Worker})
	}
	w := s.workers[i]
	if w.session != nil {
		s.close(w.session)
	}
	w.begin(m.Info, geometry)
	w.session = s.open(&session{worker: w, nonce: m.Nonce, leaseMs: m.LeaseMs})
	return s.opened(w.session)
}

// begin takes the shape of a new incarnation.
func (w *worker) begin(info *ledgerv1.WorkerInfo, geometry kvpool.Geometry) {
	w.info, w.geometry = info, geometry
	w.overhead = uint64(geometry.Overhead())
	w.capacity = info.Pages - w.overhead
	w.fencedAt, w.forgetMs = 0, 0
	w.view = nil
}

// refuseFenced tells a process whose incarnation is over whether it may come back under a new nonce.
func (s *State) refuseFenced(w *worker) *ledgerv1.Result {
	if w.session != nil {
		return s.refuse(ledgerv1.RefusalCode_REFUSAL_CODE_SUPERSEDED, "another process of that name has taken over")
	}
	return s.refuse(ledgerv1.RefusalCode_REFUSAL_CODE_FENCED, "the incarnation was fenced")
}

// fence ends the living incarnation: its pages are never granted again. The worker's record stays for a while, for the
// nonces.
func (s *State) fence(w *worker) {
	for id, r := range s.reservations {
		if r.worker == w { // each for itself: the map's order does not show
			s.refund(r)
			delete(s.reservations, id)
		}
	}
	for _, a := range w.accounts {
		a.close()
	}
	w.fenced = append(w.fenced, w.session.nonce)
	w.fenced = slices.Delete(w.fenced, 0, max(0, len(w.fenced)-maxFencedNonces))
	w.fencedAt, w.forgetMs = s.revision, forgetLeases*w.session.leaseMs
	w.session, w.granted, w.slots, w.held = nil, 0, 0, 0
	w.accounts, w.waiters, w.orphans = nil, nil, nil
	w.view = nil
}

// forget takes out fenced workers whose time is up and, of more than maxFenced, those that were fenced first: names with
// a random part would pile up. A process that comes back later than that is a new worker.
func (s *State) forget() {
	var fenced []*worker
	for _, w := range s.workers {
		if w.session == nil && w.forgetMs > 0 {
			fenced = append(fenced, w)
		}
	}
	slices.SortFunc(fenced, func(a, b *worker) int {
		return cmp.Or(cmp.Compare(a.fencedAt, b.fencedAt), cmp.Compare(a.name, b.name))
	})
	for _, w := range fenced[:max(0, len(fenced)-maxFenced)] {
		w.forgetMs = 0
	}
	s.workers = slices.DeleteFunc(s.workers, func(w *worker) bool { return w.session == nil && w.forgetMs == 0 })
}

// checkRegister returns the geometry of a registration that makes sense.
func checkRegister(m *ledgerv1.Register) (kvpool.Geometry, error) {
	if err := cmp.Or(checkClient("worker", m.GetWorker(), m.GetNonce(), m.GetLeaseMs()), checkInfo(m.GetInfo())); err != nil {
		return kvpool.Geometry{}, err
	}
	g := m.Info.GetGeometry()
	if max(g.GetBlockSize(), g.GetStepsInFlight(), g.GetMaxBatchTokens(), g.GetPrefillsInStep()) > maxGeometry ||
		len(g.GetWindows()) > maxGroups {
		return kvpool.Geometry{}, errors.New("geometry out of bounds")
	}
	if uint64(g.GetStepsInFlight())*(uint64(g.GetMaxBatchTokens())+uint64(g.GetPrefillsInStep())) > maxPages {
		return kvpool.Geometry{}, errors.New("geometry out of bounds")
	}
	geometry := Geometry(g)
	if err := geometry.Validate(); err != nil {
		return kvpool.Geometry{}, err
	}
	if m.Info.Pages > maxPages || m.Info.Pages <= uint64(geometry.Overhead()) || m.Info.Slots == 0 {
		return kvpool.Geometry{}, errors.New("want more pages than overhead, at most 2^40, and a slot")
	}
	return geometry, nil
}

// Geometry turns the registered shape of a worker's memory into the one that kvpool computes with.
func Geometry(g *ledgerv1.Geometry) kvpool.Geometry {
	groups := make([]kvpool.Group, len(g.GetWindows()))
	for i, window := range g.GetWindows() {
		if window > 0 {
			groups[i] = kvpool.Group{Kind: kvpool.Sliding, Window: int(window)}
		}
	}
	return kvpool.Geometry{
		BlockSize:      int(g.GetBlockSize()),
		Groups:         groups,
		StepsInFlight:  int(g.GetStepsInFlight()),
		MaxBatchTokens: int(g.GetMaxBatchTokens()),
		PrefillsInStep: int(g.GetPrefillsInStep()),
	}
}
