package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// Snapshot is the whole state in canonical order. Later commands do not change it; it shares what never changes.
func (s *State) Snapshot() *ledgerv1.Snapshot {
	out := &ledgerv1.Snapshot{
		Revision: s.revision, ClusterId: s.clusterID, HashKey: s.hashKey, NextSession: s.nextSession,
		ClockMs: s.clockMs, TenantsAt: s.tenantsAt,
	}
	for _, c := range s.sessions {
		out.Sessions = append(out.Sessions, c.snapshot())
	}
	for _, w := range s.workers {
		out.Workers = append(out.Workers, w.snapshot())
	}
	for _, id := range s.reservationIDs() {
		out.Reservations = append(out.Reservations, s.reservations[id].snapshot())
	}
	for _, t := range s.tenants {
		out.Tenants = append(out.Tenants, t.snapshot())
	}
	return out
}

// reservationIDs is the canonical order of the reservations.
func (s *State) reservationIDs() []uint64 {
	ids := make([]uint64, 0, len(s.reservations))
	for id := range s.reservations {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (c *session) snapshot() *ledgerv1.Session {
	out := &ledgerv1.Session{
		Id: c.id, Router: c.router, Nonce: c.nonce, LeaseMs: c.leaseMs, LeftMs: c.leftMs,
		LastSequence: c.last, Results: slices.Clone(c.results),
	}
	if c.worker != nil {
		out.Worker = c.worker.name
	}
	return out
}

func (w *worker) snapshot() *ledgerv1.Worker {
	out := &ledgerv1.Worker{Name: w.name, Info: w.info, FencedNonces: slices.Clone(w.fenced),
		FencedAt: w.fencedAt, ForgetMs: w.forgetMs}
	if w.session != nil {
		out.Incarnation = w.session.id
	}
	for _, a := range w.accounts {
		out.Accounts = append(out.Accounts, &ledgerv1.Account{
			ShareGroup: a.group, Reserved: a.reserved, Grown: a.grown, Returned: a.returned,
		})
	}
	for _, x := range w.waiters {
		out.Waiters = append(out.Waiters, &ledgerv1.Waiter{
			Key: x.key().snapshot(), Reservation: x.of.id, ShareGroup: x.of.account.group, Need: x.need, Want: x.want,
		})
	}
	return out
}

func (t *tenant) snapshot() *ledgerv1.TenantRecord {
	return &ledgerv1.TenantRecord{
		Tenant: t.message(), Revision: t.revision, Counter: t.counter, Answers: t.answers, AnswerTokens: t.answerTokens,
		Level: t.level, LevelAtMs: t.levelAt,
	}
}

func (r *reservation) snapshot() *ledgerv1.Reservation {
	out := &ledgerv1.Reservation{Key: &ledgerv1.OrderKey{}}
	r.fill(out)
	return out
}

// fill sets every field of a record that has a key.
func (r *reservation) fill(m *ledgerv1.Reservation) {
	m.Id, m.Router, m.Worker, m.Incarnation = r.id, r.router, r.worker.name, r.worker.session.id
	m.Key.Rank, m.Key.Index = r.key.rank, r.key.index
	m.ShareGroup, m.Tenant, m.RequestId = r.account.group, r.tenant, r.requestID
	m.Pages, m.Slots, m.PagesMax, m.Branches = r.pages, r.slots, r.pagesMax, r.branches
	m.PromptTokens, m.MaxTokens, m.State, m.Attempt = r.promptTokens, r.maxTokens, r.state, r.attempt
	m.Charge, m.Tokens = r.charge, r.tokens
}

func (k orderKey) snapshot() *ledgerv1.OrderKey {
	return &ledgerv1.OrderKey{Rank: k.rank, Index: k.index, Branch: k.branch}
}

// Restore is the state that a snapshot was taken of. It keeps parts of the snapshot, and refuses one that is not
// canonical or breaks an invariant: a replica that started from it would differ from the others.
func Restore(from *ledgerv1.Snapshot) (*State, error) {
	s := New()
	s.revision, s.nextSession = from.GetRevision(), from.GetNextSession()
	if len(from.GetClusterId()) > 0 {
		s.clusterID, s.hashKey = from.ClusterId, from.HashKey
	}
	s.clockMs, s.tenantsAt = from.GetClockMs(), from.GetTenantsAt()
	for _, m := range from.GetTenants() {
		if err := s.restoreTenant(m); err != nil {
			return nil, fmt.Errorf("restore tenant %q: %w", m.GetTenant().GetId(), err)
		}
	}
	for _, m := range from.GetWorkers() {
		if err := s.restoreWorker(m); err != nil {
			return nil, fmt.Errorf("restore worker %q: %w", m.GetName(), err)
		}
	}
	for _, m := range from.GetSessions() {
		if err := s.restoreSession(m); err != nil {
			return nil, fmt.Errorf("restore session %d: %w", m.GetId(), err)
		}
	}
	for _, m := range from.GetReservations() {
		if err := s.restoreReservation(m); err != nil {
			return nil, fmt.Errorf("restore reservation %d: %w", m.GetId(), err)
		}
	}
	for _, m := range from.GetWorkers() {
		if err := s.restoreWaiters(m); err != nil {
			return nil, fmt.Errorf("restore waiters of %q: %w", m.GetName(), err)
		}
	}
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	return s, s.same(from)
}

func (s *State) restoreTenant(m *ledgerv1.TenantRecord) error {
	put, err := complete(m.GetTenant())
	if err != nil {
		return err
	}
	t := &tenant{
		put: put, revision: m.GetRevision(), counter: m.GetCounter(), answers: m.GetAnswers(), answerTokens: m.GetAnswerTokens(),
		level: m.GetLevel(), levelAt: m.GetLevelAtMs(),
	}
	s.tenants = append(s.tenants, t)
	s.group(put.ShareGroup).add(t, put.Cap, put.Floor)
	put.Cap, put.Floor = 0, 0
	s.addKeys(t)
	return nil
}

func (s *State) restoreWorker(m *ledgerv1.Worker) error {
	w := &worker{name: m.GetName(), fenced: m.GetFencedNonces()}
	s.workers = append(s.workers, w)
	geometry, err := checkRegister(&ledgerv1.Register{Worker: w.name, Nonce: []byte{0}, LeaseMs: minLease, Info: m.GetInfo()})
	if err != nil {
		return err
	}
	w.begin(m.Info, geometry)
	w.fencedAt, w.forgetMs = m.GetFencedAt(), m.GetForgetMs()
	for _, a := range m.GetAccounts() {
		in := s.group(a.GetShareGroup())
		in.accounts++
		w.accounts = append(w.accounts, &account{
			in: in, group: in.name, reserved: a.GetReserved(), grown: a.GetGrown(), returned: a.GetReturned(),
		})
		w.granted += w.accounts[len(w.accounts)-1].grant()
	}
	return nil
}

func (s *State) restoreSession(m *ledgerv1.Session) error {
	c := &session{
		id: m.GetId(), router: m.GetRouter(), nonce: m.GetNonce(), leaseMs: m.GetLeaseMs(), leftMs: m.GetLeftMs(),
		last: m.GetLastSequence(), results: m.GetResults(),
	}
	s.sessions = append(s.sessions, c)
	if m.GetWorker() == "" {
		return nil
	}
	c.worker = s.worker(m.GetWorker())
	if c.worker == nil || c.worker.session != nil {
		return errors.New("the worker is missing or has another session")
	}
	c.worker.session = c
	return nil
}

func (s *State) restoreReservation(m *ledgerv1.Reservation) error {
	w := s.worker(m.GetWorker())
	if w == nil || w.session == nil || w.session.id != m.GetIncarnation() {
		return errors.New("the incarnation does not live")
	}
	r := &reservation{
		id: m.GetId(), key: orderKey{rank: m.GetKey().GetRank(), index: m.GetKey().GetIndex()},
		router: m.GetRouter(), worker: w, account: w.account(m.GetShareGroup()), tenant: m.GetTenant(),
		requestID: m.GetRequestId(), pages: m.GetPages(), slots: m.GetSlots(), branches: m.GetBranches(), pagesMax: m.GetPagesMax(),
		promptTokens: m.GetPromptTokens(), maxTokens: m.GetMaxTokens(), state: m.GetState(), attempt: m.GetAttempt(),
		charge: m.GetCharge(), tokens: m.GetTokens(),
	}
	if r.charge > 0 {
		if r.payer = s.tenant(r.tenant); r.payer == nil {
			return errors.New("its tenant is missing")
		}
		r.payer.live++
		r.payer.charged += r.charge
	}
	if r.account == nil {
		return errors.New("the account is missing")
	}
	s.reservations[r.id] = r
	r.account.whole += r.life()
	w.held++
	w.slots += r.slots
	if r.state != stateClaimed {
		r.account.unclaimed += r.pages
	}
	if r.state == stateOrphaned {
		w.orphans = append(w.orphans, r.id)
	}
	return nil
}

func (s *State) restoreWaiters(m *ledgerv1.Worker) error {
	w := s.worker(m.GetName())
	for _, a := range w.accounts {
		a.recount()
	}
	s.stopped = s.stopped || len(m.GetWaiters()) > 0
	for _, x := range m.GetWaiters() {
		r := s.reservations[x.GetReservation()]
		if r == nil || r.worker != w {
			return fmt.Errorf("reservation %d is not the worker's", x.GetReservation())
		}
		w.waiters = append(w.waiters, waiter{of: r, branch: x.GetKey().GetBranch(), need: x.GetNeed(), want: x.GetWant()})
	}
	return nil
}

// same proves that nothing in the snapshot was lost on the way.
func (s *State) same(from *ledgerv1.Snapshot) error {
	encode := proto.MarshalOptions{Deterministic: true}
	want, err := encode.Marshal(from)
	if err != nil {
		return fmt.Errorf("restore: encode: %w", err)
	}
	got, err := encode.Marshal(s.Snapshot())
	if err != nil {
		return fmt.Errorf("restore: encode: %w", err)
	}
	if !bytes.Equal(got, want) {
		return errors.New("restore: the snapshot is not canonical, or was written by a newer version")
	}
	return nil
}
