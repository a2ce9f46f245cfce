package ledger

import (
	"cmp"
	"fmt"
	"slices"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// State is the ledger after some prefix of the log. It is not safe for concurrent use; a View is.
type State struct {
	revision     uint64
	clusterID    []byte
	hashKey      []byte
	nextSession  uint64
	sessions     []*session // ascending id
	workers      []*worker  // ascending name
	reservations map[uint64]*reservation

	clockMs   uint64                 // that ticks have brought
	tenantsAt uint64                 // revision of their last change; 0: none was ever put
	tenants   []*tenant              // ascending id
	groups    map[string]*shareGroup // those with a tenant or an account
	keys      map[string]string      // tenant by SHA-256 of each of its keys
	floors    uint64                 // Σ floors of groups with a tenant
	stopped   bool                   // a waiter may have been stopped by its group's cap

	tenantViews []*TenantView // what View last made of the tenants; nil once one has changed
}

// New is the empty ledger: nothing but Bootstrap and Tick does anything in it.
func New() *State {
	return &State{nextSession: 1, reservations: map[uint64]*reservation{}, groups: map[string]*shareGroup{}, keys: map[string]string{}}
}

// Revision counts the commands applied. It is the admission index and the name of a reservation made by that command.
func (s *State) Revision() uint64 { return s.revision }

// Apply carries out the next proposal of the log. Repeats, gaps and proposals of ended sessions change nothing and do
// not count in the revision; a refused command does. State keeps parts of p and of the result: both must not be changed
// afterwards. It panics on a command that it does not know (see Validate).
func (s *State) Apply(p *ledgerv1.Proposal) *ledgerv1.Result {
	if err := Validate(p); err != nil {
		panic("ledger: " + err.Error())
	}
	if p.Session != 0 {
		return s.once(p)
	}
	defer s.resume()
	switch c := p.Command.Kind.(type) {
	case *ledgerv1.Command_Bootstrap:
		s.revision++
		return s.bootstrap(c.Bootstrap)
	case *ledgerv1.Command_Tick:
		s.revision++
		return s.tick(c.Tick)
	case *ledgerv1.Command_OpenRouter:
		s.revision++
		return s.openRouter(c.OpenRouter)
	case *ledgerv1.Command_Register:
		s.revision++
		return s.register(c.Register)
	}
	return s.refuse(ledgerv1.RefusalCode_REFUSAL_CODE_FENCED, "the command needs a session")
}

// run carries out a command under a session.
func (s *State) run(by *session, command *ledgerv1.Command) *ledgerv1.Result {
	switch c := command.Kind.(type) {
	case *ledgerv1.Command_Noop:
		return s.ok()
	case *ledgerv1.Command_Reserve:
		return s.reserve(by, c.Reserve)
	case *ledgerv1.Command_Drop:
		return s.drop(by, c.Drop)
	case *ledgerv1.Command_Claim:
		return s.claim(by, c.Claim)
	case *ledgerv1.Command_Tombstone:
		return s.tombstone(by, c.Tombstone)
	case *ledgerv1.Command_Grow:
		return s.grow(by, c.Grow)
	case *ledgerv1.Command_Withdraw:
		return s.withdraw(by, c.Withdraw)
	case *ledgerv1.Command_ReturnPages:
		return s.returnPages(by, c.ReturnPages)
	case *ledgerv1.Command_End:
		return s.end(by, c.End)
	case *ledgerv1.Command_PutTenant:
		return s.putTenant(by, c.PutTenant)
	case *ledgerv1.Command_DeleteTenant:
		return s.deleteTenant(by, c.DeleteTenant)
	case *ledgerv1.Command_OpenCluster:
		return s.openCluster(by)
	case *ledgerv1.Command_SeedTenants:
		return s.seedTenants(by, c.SeedTenants)
	}
	return s.invalid("the command takes no session")
}

// Validate says whether Apply knows the command of p. Who appends to the log asks first, because every replica stops at
// a command that it does not know.
func Validate(p *ledgerv1.Proposal) error {
	if p.GetCommand() == nil {
		return fmt.Errorf("proposal (%d, %d) has no command", p.GetSession(), p.GetSequence())
	}
	switch p.Command.Kind.(type) {
	case *ledgerv1.Command_Noop, *ledgerv1.Command_Bootstrap, *ledgerv1.Command_Tick, *ledgerv1.Command_OpenRouter,
		*ledgerv1.Command_Register, *ledgerv1.Command_Reserve, *ledgerv1.Command_Drop, *ledgerv1.Command_Claim,
		*ledgerv1.Command_Tombstone, *ledgerv1.Command_Grow, *ledgerv1.Command_Withdraw,
		*ledgerv1.Command_ReturnPages, *ledgerv1.Command_End, *ledgerv1.Command_PutTenant,
		*ledgerv1.Command_DeleteTenant, *ledgerv1.Command_SeedTenants, *ledgerv1.Command_OpenCluster:
		return nil
	}
	return fmt.Errorf("proposal (%d, %d) has an unknown command %T", p.Session, p.Sequence, p.Command.Kind)
}

// bootstrap names the cluster, once.
func (s *State) bootstrap(m *ledgerv1.Bootstrap) *ledgerv1.Result {
	if s.clusterID != nil {
		return s.invalid("the cluster has a name")
	}
	if len(m.GetClusterId()) != 16 || len(m.GetHashKey()) != 16 {
		return s.invalid("cluster id and hash key: want 16 bytes each")
	}
	s.clusterID, s.hashKey = m.ClusterId, m.HashKey
	return s.ok()
}

// session returns the living session of that number, or nil.
func (s *State) session(id uint64) *session {
	i, ok := slices.BinarySearchFunc(s.sessions, id, func(c *session, id uint64) int { return cmp.Compare(c.id, id) })
	if !ok {
		return nil
	}
	return s.sessions[i]
}

// worker returns the worker of that name, living or fenced, or nil.
func (s *State) worker(name string) *worker {
	if i, ok := s.workerAt(name); ok {
		return s.workers[i]
	}
	return nil
}

func (s *State) workerAt(name string) (int, bool) {
	return slices.BinarySearchFunc(s.workers, name, func(w *worker, n string) int { return cmp.Compare(w.name, n) })
}
