package ledger

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// Bounds of a tenant's record.
const (
	maxTenants     = 1 << 17
	maxWeight      = 1000
	maxTokens      = 1 << 36 // of a budget
	maxKeys        = 64
	keyBytes       = 32 // SHA-256
	lowestPriority = -100
)

// tenant is who asks, and what it has used.
type tenant struct {
	put      *ledgerv1.Tenant // complete, but for cap and floor, which are its group's
	in       *shareGroup
	revision uint64 // that put it
	live     int    // reservations that it pays for

	counter               uint64 // service by weight
	charged               uint64 // of that, what living reservations were charged
	answers, answerTokens uint64
	level                 int64 // of the token budget, at levelAt
	levelAt               uint64

	view *TenantView // what View last made of it; nil once changed
}

func (t *tenant) id() string { return t.put.Id }

// touch says that what views show of the tenant has changed.
func (t *tenant) touch() {
	t.view = nil
	t.in.state.tenantViews = nil
}

// tenant returns the tenant of that name, or nil.
func (s *State) tenant(id string) *tenant {
	if i, ok := s.tenantAt(id); ok {
		return s.tenants[i]
	}
	return nil
}

func (s *State) tenantAt(id string) (int, bool) {
	return slices.BinarySearchFunc(s.tenants, id, func(t *tenant, id string) int { return cmp.Compare(t.id(), id) })
}

// putTenant makes a tenant or takes the place of its record. A repeat finds what it made and changes nothing.
func (s *State) putTenant(by *session, m *ledgerv1.PutTenant) *ledgerv1.Result {
	if by.worker != nil {
		return s.invalid("put tenant: not a router's session")
	}
	put, err := complete(m.GetTenant())
	if err == nil {
		err = s.affordable(put)
	}
	if err != nil {
		return s.invalid(err.Error())
	}
	revision := uint64(0)
	if old := s.tenant(put.Id); old != nil {
		if proto.Equal(old.message(), put) {
			return s.ok()
		}
		revision = old.revision
	}
	if revision != m.Replaces {
		return s.refuse(ledgerv1.RefusalCode_REFUSAL_CODE_CONFLICT, "the tenant was changed meanwhile")
	}
	s.enter(put)
	return s.ok()
}

// seedTenants puts the first tenants that the ledger ever has. There may be no worker yet that floors could be held
// against.
func (s *State) seedTenants(by *session, m *ledgerv1.SeedTenants) *ledgerv1.Result {
	if by.worker != nil {
		return s.invalid("seed tenants: not a router's session")
	}
	if s.tenantsAt > 0 {
		return s.refuse(ledgerv1.RefusalCode_REFUSAL_CODE_CONFLICT, "tenants have been put before")
	}
	all, err := firstTenants(m.GetTenants())
	if err != nil {
		return s.invalid(err.Error())
	}
	for _, put := range all {
		s.enter(put)
	}
	return s.ok()
}

// CheckTenants says what is wrong with tenants that are to be seeded.
func CheckTenants(list []*ledgerv1.Tenant) error {
	_, err := firstTenants(list)
	return err
}

// MaxSeed is the bytes of all tenants that are seeded together: they are one proposal.
const MaxSeed = 2 << 20

// firstTenants are complete copies of tenants that are to be seeded.
func firstTenants(list []*ledgerv1.Tenant) (all []*ledgerv1.Tenant, err error) {
	ids, groups, owners, size := map[string]bool{}, map[string]*ledgerv1.Tenant{}, map[string]string{}, 0
	for i, t := range list {
		put, err := complete(t)
		if err == nil {
			err = clash(put, ids, groups, owners)
		}
		if err != nil {
			return nil, fmt.Errorf("tenant %d: %w", i+1, err)
		}
		if size += proto.Size(put); size > MaxSeed {
			return nil, fmt.Errorf("tenant %d: the tenants up to it have %d bytes, want at most %d: put the others one by one",
				i+1, size, MaxSeed)
		}
		all = append(all, put)
	}
	if len(all) == 0 || len(all) > maxTenants {
		return nil, fmt.Errorf("%d tenants, want 1 to %d", len(all), maxTenants)
	}
	return all, nil
}

// clash says what a new tenant must not have in common with those before it, or must, and enters it.
func clash(t *ledgerv1.Tenant, ids map[string]bool, groups map[string]*ledgerv1.Tenant, owners map[string]string) error {
	if ids[t.Id] {
		return fmt.Errorf("id: %q is there twice", t.Id)
	}
	for _, k := range t.Keys {
		if owner, taken := owners[string(k)]; taken {
			return fmt.Errorf("keys: one of them is also %q's", owner)
		}
		owners[string(k)] = t.Id
	}
	if g := groups[t.ShareGroup]; g != nil && (g.Cap != t.Cap || g.Floor != t.Floor) {
		return fmt.Errorf("cap and floor: want those of %q, which is in the same share group", g.Id)
	}
	ids[t.Id], groups[t.ShareGroup] = true, t
	return nil
}

// affordable says what a tenant must not have beside the others.
func (s *State) affordable(put *ledgerv1.Tenant) error {
	known := s.tenant(put.Id) != nil
	if !known && len(s.tenants) >= maxTenants {
		return fmt.Errorf("id: there are %d tenants already", len(s.tenants))
	}
	for _, k := range put.Keys {
		if owner, taken := s.keys[string(k)]; taken && owner != put.Id {
			return fmt.Errorf("keys: one of them is also %q's", owner)
		}
	}
	if put.Floor == 0 {
		return nil
	}
	floors, capacity := s.floors+put.Floor, uint64(0)
	if old := s.tenant(put.Id); old != nil && old.put.ShareGroup != put.ShareGroup && len(old.in.members) == 1 {
		floors -= old.in.floor // it leaves an empty group
	}
	if g := s.groups[put.ShareGroup]; g != nil {
		floors -= g.floor
	}
	for _, w := range s.workers {
		if w.session != nil {
			capacity += w.capacity
		}
	}
	if put.Floor > 0 && floors > capacity {
		return fmt.Errorf("floor: all floors together are %d pages, and workers have %d", floors, capacity)
	}
	return nil
}

// enter makes a checked record the tenant's.
func (s *State) enter(put *ledgerv1.Tenant) {
	i, known := s.tenantAt(put.Id)
	if !known {
		s.tenants = slices.Insert(s.tenants, i, &tenant{})
	}
	t := s.tenants[i]
	level := fullLevel(put)
	if known && t.put.TokensPerMinute > 0 {
		level = min(level, t.left(s.clockMs))
	}
	if known {
		t.in.drop(t)
		s.dropKeys(t)
	}
	t.put, t.revision, t.level, t.levelAt = put, s.revision, level, s.clockMs
	s.group(put.ShareGroup).add(t, put.Cap, put.Floor)
	put.Cap, put.Floor = 0, 0
	s.addKeys(t)
	s.tenantsAt, s.stopped = s.revision, true
	t.touch()
}

func (s *State) addKeys(t *tenant) {
	for _, k := range t.put.Keys {
		s.keys[string(k)] = t.id()
	}
}

func (s *State) dropKeys(t *tenant) {
	for _, k := range t.put.Keys {
		delete(s.keys, string(k))
	}
}

// openCluster forgets that there ever were tenants: nobody is asked for a key any more.
func (s *State) openCluster(by *session) *ledgerv1.Result {
	switch {
	case by.worker != nil:
		return s.invalid("open the cluster: not a router's session")
	case len(s.tenants) > 0:
		return s.refuse(ledgerv1.RefusalCode_REFUSAL_CODE_CONFLICT, "there are tenants: delete them first")
	}
	s.tenantsAt = 0
	return s.ok()
}

// deleteTenant forgets a tenant: what it has reserved goes on, and nobody pays for it any more.
func (s *State) deleteTenant(by *session, m *ledgerv1.DeleteTenant) *ledgerv1.Result {
	if by.worker != nil {
		return s.invalid("delete tenant: not a router's session")
	}
	i, known := s.tenantAt(m.GetId())
	if !known {
		return s.refuse(ledgerv1.RefusalCode_REFUSAL_CODE_NO_TENANT, "no such tenant")
	}
	t := s.tenants[i]
	for _, r := range s.reservations { // each for itself: the map's order does not show
		if r.payer == t {
			r.payer, r.charge, r.tokens = nil, 0, 0
		}
	}
	s.tenants = slices.Delete(s.tenants, i, i+1)
	t.in.drop(t)
	s.dropKeys(t)
	t.touch()
	s.tenantsAt, s.stopped = s.revision, true
	return s.ok()
}

// message is the tenant's whole record.
func (t *tenant) message() *ledgerv1.Tenant {
	return &ledgerv1.Tenant{
		Id: t.put.Id, ShareGroup: t.put.ShareGroup, Weight: t.put.Weight, Cap: t.in.cap, Floor: t.in.floor,
		Priority: t.put.Priority, TokensPerMinute: t.put.TokensPerMinute, Burst: t.put.Burst,
		Models: t.put.Models, Keys: t.put.Keys,
	}
}

// complete is a copy of a tenant's record with its defaults filled in, or says what is wrong with it.
func complete(m *ledgerv1.Tenant) (*ledgerv1.Tenant, error) {
	t := &ledgerv1.Tenant{
		Id: m.GetId(), ShareGroup: m.GetShareGroup(), Weight: m.GetWeight(), Cap: m.GetCap(), Floor: m.GetFloor(),
		Priority: m.GetPriority(), TokensPerMinute: m.GetTokensPerMinute(), Burst: m.GetBurst(),
		Models: m.GetModels(), Keys: m.GetKeys(),
	}
	t.ShareGroup = cmp.Or(t.ShareGroup, t.Id)
	t.Weight = cmp.Or(t.Weight, 1)
	t.Burst = cmp.Or(t.Burst, t.TokensPerMinute)
	return t, checkTenant(t)
}

func checkTenant(t *ledgerv1.Tenant) error {
	switch {
	case t.Id == "":
		return fmt.Errorf("id: want a name")
	case t.Weight > maxWeight:
		return fmt.Errorf("weight: %d, want 1 to %d", t.Weight, maxWeight)
	case t.Cap > maxPages:
		return fmt.Errorf("cap: %d pages, want at most %d", t.Cap, uint64(maxPages))
	case t.Floor > maxPages:
		return fmt.Errorf("floor: %d pages, want at most %d", t.Floor, uint64(maxPages))
	case t.Cap > 0 && t.Floor > t.Cap:
		return fmt.Errorf("floor: %d pages, which is above the cap of %d", t.Floor, t.Cap)
	case t.Priority > 0 || t.Priority < lowestPriority:
		return fmt.Errorf("priority: %d, want %d to 0", t.Priority, lowestPriority)
	case t.TokensPerMinute > maxTokens:
		return fmt.Errorf("tokens_per_minute: %d, want at most %d", t.TokensPerMinute, uint64(maxTokens))
	case t.Burst > maxTokens || t.Burst > 0 && t.TokensPerMinute == 0:
		return fmt.Errorf("burst: %d, want at most %d, and tokens_per_minute beside it", t.Burst, uint64(maxTokens))
	case len(t.Models) > maxModels:
		return fmt.Errorf("models: %d names, want at most %d", len(t.Models), maxModels)
	case len(t.Keys) > maxKeys:
		return fmt.Errorf("keys: %d of them, want at most %d", len(t.Keys), maxKeys)
	}
	for i, k := range t.Keys {
		again := slices.ContainsFunc(t.Keys[:i], func(o []byte) bool { return bytes.Equal(k, o) })
		if len(k) != keyBytes || again {
			return fmt.Errorf("keys: want SHA-256 sums, each once")
		}
	}
	for _, name := range t.Models {
		if name == "" {
			return fmt.Errorf("models: want names")
		}
		if err := checkText("models", name, maxModel); err != nil {
			return err
		}
	}
	return cmp.Or(checkText("id", t.Id, maxName), checkText("share_group", t.ShareGroup, maxName))
}
