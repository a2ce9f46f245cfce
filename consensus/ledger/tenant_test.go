package ledger

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

func sum(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

// What is wrong with a tenant is said with the name of its field.
func TestPutTenantRefuses(t *testing.T) {
	s, router, worker := start(t)
	must(t, s.Apply(router.under(putCommand(&ledgerv1.Tenant{Id: "red", Floor: 5, Cap: 6, Keys: [][]byte{sum(1)}}, 0))))
	before := s.Digest()
	for _, c := range []struct {
		put   *ledgerv1.Tenant
		field string
	}{
		{nil, "id"},
		{&ledgerv1.Tenant{Id: strings.Repeat("x", 254)}, "id"},
		{&ledgerv1.Tenant{Id: "a", ShareGroup: "\x00"}, "share_group"},
		{&ledgerv1.Tenant{Id: "a", Weight: 1001}, "weight"},
		{&ledgerv1.Tenant{Id: "a", Cap: 1<<40 + 1}, "cap"},
		{&ledgerv1.Tenant{Id: "a", Floor: 1<<40 + 1}, "floor"},
		{&ledgerv1.Tenant{Id: "a", Floor: 4}, "floor"}, // 5 + 4 of 8
		{&ledgerv1.Tenant{Id: "a", Floor: 2, Cap: 1}, "floor"},
		{&ledgerv1.Tenant{Id: "a", Priority: 1}, "priority"},
		{&ledgerv1.Tenant{Id: "a", Priority: -101}, "priority"},
		{&ledgerv1.Tenant{Id: "a", TokensPerMinute: 1<<36 + 1}, "tokens_per_minute"},
		{&ledgerv1.Tenant{Id: "a", Burst: 1}, "burst"},
		{&ledgerv1.Tenant{Id: "a", Models: []string{""}}, "models"},
		{&ledgerv1.Tenant{Id: "a", Models: []string{"\n"}}, "models"},
		{&ledgerv1.Tenant{Id: "a", Models: make([]string, 65)}, "models"},
		{&ledgerv1.Tenant{Id: "a", Keys: [][]byte{{1}}}, "keys"},
		{&ledgerv1.Tenant{Id: "a", Keys: [][]byte{sum(2), sum(2)}}, "keys"},
		{&ledgerv1.Tenant{Id: "a", Keys: [][]byte{sum(1)}}, "keys"}, // red's
		{&ledgerv1.Tenant{Id: "a", Keys: make([][]byte, 65)}, "keys"},
	} {
		r := s.Apply(router.under(putCommand(c.put, 0))).GetRefusal()
		if r.GetCode() != invalid || !strings.HasPrefix(r.GetMessage(), c.field+": ") {
			t.Errorf("%v: %v, want a refusal that names %s", c.put, r, c.field)
		}
	}
	refused(t, s.Apply(worker.under(putCommand(&ledgerv1.Tenant{Id: "a"}, 0))), invalid)
	refused(t, s.Apply(worker.under(deleteTenantCommand("red"))), invalid)
	refused(t, s.Apply(worker.under(seedCommand(&ledgerv1.Tenant{Id: "a"}))), invalid)
	refused(t, s.Apply(router.under(deleteTenantCommand("a"))), ledgerv1.RefusalCode_REFUSAL_CODE_NO_TENANT)
	if len(s.tenants) != 1 || before == s.Digest() {
		t.Errorf("%d tenants", len(s.tenants))
	}
}

// A seed puts all tenants or none, and only where none was ever put: a restart does not undo what operators did.
func TestSeed(t *testing.T) {
	s, router, _ := start(t)
	conflict := ledgerv1.RefusalCode_REFUSAL_CODE_CONFLICT
	a := &ledgerv1.Tenant{Id: "a", Floor: 100, Cap: 200, Keys: [][]byte{sum(1)}}
	for _, wrong := range []*ledgerv1.Tenant{
		{Id: "a"}, {Id: "b", ShareGroup: "a", Cap: 1}, {Id: "b", Keys: [][]byte{sum(1)}}, {Id: ""},
	} {
		refused(t, s.Apply(router.under(seedCommand(a, wrong))), invalid)
	}
	refused(t, s.Apply(router.under(seedCommand())), invalid)
	if s.tenantsAt != 0 {
		t.Fatal("a refused seed put something")
	}
	must(t, s.Apply(router.under(seedCommand(a, &ledgerv1.Tenant{Id: "b", ShareGroup: "a", Cap: 200, Floor: 100}))))
	refused(t, s.Apply(router.under(seedCommand(a))), conflict)
	must(t, s.Apply(router.under(deleteTenantCommand("a"))))
	must(t, s.Apply(router.under(deleteTenantCommand("b"))))
	refused(t, s.Apply(router.under(seedCommand(a))), conflict)
	// Without any tenant left, nobody is served: to delete the last one does not open the cluster.
	refused(t, s.Apply(router.under(reserveCommand("w1", 2, "default", 1, 1))), ledgerv1.RefusalCode_REFUSAL_CODE_NO_TENANT)
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// I10: what never ran, or ran in vain, costs nothing; what ran costs what it came to.
func TestChargesSettle(t *testing.T) {
	s, router, worker := start(t)
	must(t, s.Apply(router.under(putCommand(&ledgerv1.Tenant{Id: "red", Weight: 3, TokensPerMinute: 6000, Burst: 1000}, 0))))
	reserve := func() uint64 {
		c := reserveBy("red", reserveCommand("w1", 2, "red", 1, 4))
		c.GetReserve().PromptTokens, c.GetReserve().MaxTokens = 30, 100
		return must(t, s.Apply(router.under(c))).GetReserved().Reservation
	}
	state := func() (counter uint64, left int64) {
		v := s.View()
		left, _ = v.Tenants[0].Budget(v.ClockMs, 0)
		return v.Tenants[0].Counter, left
	}
	dropped, ended := reserve(), reserve()
	if counter, left := state(); counter != 2*(230*costUnit+2)/3 || left != 1000-2*130 {
		t.Errorf("charged %d, %d tokens left", counter, left)
	}
	must(t, s.Apply(router.under(dropCommand(dropped))))
	must(t, s.Apply(worker.under(tombstoneCommand(dropped))))
	must(t, s.Apply(worker.under(claimCommand(ended))))
	end := endCommand(ended, "red", 1)
	end.GetEnd().ComputedTokens, end.GetEnd().OutputTokens = 14, 20
	must(t, s.Apply(worker.under(end)))
	if counter, left := state(); counter != 54*costUnit/3 || left != 1000-50 {
		t.Errorf("I10: %d, want %d; %d tokens left", counter, 54*costUnit/3, left)
	}
	reserve()
	must(t, s.Apply(ticked(3000, router.session))) // the worker's end
	if counter, left := state(); counter != 54*costUnit/3 || left != 1000 || s.tenants[0].live != 0 {
		t.Errorf("I10: %d, %d tokens left", counter, left)
	}
}

func BenchmarkTenants(b *testing.B) {
	s := New()
	must(b, s.Apply(bootstrapped()))
	router := &client{session: must(b, s.Apply(opened("r1", "a"))).GetOpened().Session}
	worker := &client{session: must(b, s.Apply(registered("w1", "x", workerInfo(1<<20, 1<<20, 0)))).GetOpened().Session}
	must(b, s.Apply(router.under(putCommand(&ledgerv1.Tenant{Id: "red", Cap: 1 << 20, TokensPerMinute: 1 << 36}, 0))))
	reserve := reserveBy("red", reserveCommand("w1", worker.session, "red", 4, 64))
	claim, end := claimCommand(0), endCommand(0, "red", 0)
	b.ReportAllocs()
	cycles := uint64(0)
	for b.Loop() {
		cycles++
		id := must(b, s.Apply(router.under(reserve))).GetReserved().Reservation
		claim.GetClaim().Reservation, end.GetEnd().Reservation = id, id
		end.GetEnd().Accounts[0].Pages = 4 * cycles
		must(b, s.Apply(worker.under(claim)))
		must(b, s.Apply(worker.under(end)))
	}
	b.ReportMetric(3*float64(cycles)/b.Elapsed().Seconds(), "commands/s")
}

// Tenants that are seeded together are one proposal, which must be one that a leader takes; their check is linear.
func TestManyTenantsAreSeeded(t *testing.T) {
	many := func(n, keys int) (out []*ledgerv1.Tenant) {
		for i := range n {
			x := &ledgerv1.Tenant{Id: fmt.Sprintf("t%06d", i)}
			for k := range keys {
				x.Keys = append(x.Keys, fmt.Appendf(nil, "%032d", i*keys+k))
			}
			out = append(out, x)
		}
		return out
	}
	if err := CheckTenants(many(16_000, 1)); err != nil {
		t.Errorf("16,000 tenants: %v", err)
	}
	if err := CheckTenants(many(2000, 64)); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("more than a proposal may have: %v", err)
	}
	s, router, _ := start(t)
	must(t, s.Apply(router.under(&ledgerv1.Command{Kind: &ledgerv1.Command_SeedTenants{SeedTenants: &ledgerv1.SeedTenants{Tenants: many(2000, 2)}}})))
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
