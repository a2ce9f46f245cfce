package ledger

import (
	"bytes"
	"testing"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// What the tests of this package build a cluster from.

func bootstrapped() *ledgerv1.Proposal {
	m := &ledgerv1.Bootstrap{ClusterId: bytes.Repeat([]byte{1}, 16), HashKey: bytes.Repeat([]byte{2}, 16)}
	return &ledgerv1.Proposal{Command: &ledgerv1.Command{Kind: &ledgerv1.Command_Bootstrap{Bootstrap: m}}}
}

func opened(router, nonce string) *ledgerv1.Proposal {
	m := &ledgerv1.OpenRouter{Router: router, Nonce: []byte(nonce), LeaseMs: 3000}
	return &ledgerv1.Proposal{Command: &ledgerv1.Command{Kind: &ledgerv1.Command_OpenRouter{OpenRouter: m}}}
}

func registered(worker, nonce string, info *ledgerv1.WorkerInfo) *ledgerv1.Proposal {
	m := &ledgerv1.Register{Worker: worker, Nonce: []byte(nonce), LeaseMs: 3000, Info: info}
	return &ledgerv1.Proposal{Command: &ledgerv1.Command{Kind: &ledgerv1.Command_Register{Register: m}}}
}

func ticked(deltaMs uint64, live ...uint64) *ledgerv1.Proposal {
	return &ledgerv1.Proposal{Command: &ledgerv1.Command{Kind: &ledgerv1.Command_Tick{Tick: &ledgerv1.Tick{
		DeltaMs: deltaMs, Live: live,
	}}}}
}

// workerInfo has no overhead unless there is a window.
func workerInfo(pages, slots uint64, window uint32) *ledgerv1.WorkerInfo {
	g := &ledgerv1.Geometry{BlockSize: 16, Windows: []uint32{0}, StepsInFlight: 1, MaxBatchTokens: 16, PrefillsInStep: 1}
	if window > 0 {
		g.Windows = append(g.Windows, window)
	}
	return &ledgerv1.WorkerInfo{Address: "w:1", Pages: pages, Slots: slots, Geometry: g, MaxModelLen: 4096}
}

// under is the client's next command.
func (c *client) under(command *ledgerv1.Command) *ledgerv1.Proposal {
	c.last++
	return &ledgerv1.Proposal{Session: c.session, Sequence: c.last, Acked: c.last - 1, Command: command}
}

func reserveCommand(worker string, incarnation uint64, group string, pages, pagesMax uint64) *ledgerv1.Command {
	return &ledgerv1.Command{Kind: &ledgerv1.Command_Reserve{Reserve: &ledgerv1.Reserve{
		Worker: worker, Incarnation: incarnation, ShareGroup: group, Pages: pages, PagesMax: pagesMax, Slots: 1,
	}}}
}

func claimCommand(id uint64) *ledgerv1.Command {
	return &ledgerv1.Command{Kind: &ledgerv1.Command_Claim{Claim: &ledgerv1.Claim{Reservation: id, Attempt: 1}}}
}

func dropCommand(id uint64) *ledgerv1.Command {
	return &ledgerv1.Command{Kind: &ledgerv1.Command_Drop{Drop: &ledgerv1.Drop{Reservation: id}}}
}

func tombstoneCommand(id uint64) *ledgerv1.Command {
	return &ledgerv1.Command{Kind: &ledgerv1.Command_Tombstone{Tombstone: &ledgerv1.Tombstone{Reservation: id}}}
}

func growCommand(id, need, want uint64) *ledgerv1.Command {
	m := &ledgerv1.Grow{Reservation: id, Need: need, Want: want}
	return &ledgerv1.Command{Kind: &ledgerv1.Command_Grow{Grow: m}}
}

func withdrawCommand(id uint64) *ledgerv1.Command {
	return &ledgerv1.Command{Kind: &ledgerv1.Command_Withdraw{Withdraw: &ledgerv1.Withdraw{Reservation: id}}}
}

func returnCommand(group string, total uint64) *ledgerv1.Command {
	return &ledgerv1.Command{Kind: &ledgerv1.Command_ReturnPages{ReturnPages: &ledgerv1.Return{
		Accounts: []*ledgerv1.Returned{{ShareGroup: group, Pages: total}},
	}}}
}

func endCommand(id uint64, group string, total uint64) *ledgerv1.Command {
	return &ledgerv1.Command{Kind: &ledgerv1.Command_End{End: &ledgerv1.End{
		Reservation: id, Accounts: []*ledgerv1.Returned{{ShareGroup: group, Pages: total}},
	}}}
}

// reserveBy names the tenant of a reserve.
func reserveBy(tenant string, c *ledgerv1.Command) *ledgerv1.Command {
	c.GetReserve().Tenant = tenant
	return c
}

func putCommand(t *ledgerv1.Tenant, replaces uint64) *ledgerv1.Command {
	return &ledgerv1.Command{Kind: &ledgerv1.Command_PutTenant{PutTenant: &ledgerv1.PutTenant{Tenant: t, Replaces: replaces}}}
}

func deleteTenantCommand(id string) *ledgerv1.Command {
	return &ledgerv1.Command{Kind: &ledgerv1.Command_DeleteTenant{DeleteTenant: &ledgerv1.DeleteTenant{Id: id}}}
}

func seedCommand(tenants ...*ledgerv1.Tenant) *ledgerv1.Command {
	return &ledgerv1.Command{Kind: &ledgerv1.Command_SeedTenants{SeedTenants: &ledgerv1.SeedTenants{Tenants: tenants}}}
}

func noopCommand() *ledgerv1.Command {
	return &ledgerv1.Command{Kind: &ledgerv1.Command_Noop{Noop: &ledgerv1.Noop{}}}
}

// start is a bootstrapped ledger with a router and a worker of 8 pages and 4 slots.
func start(t testing.TB) (s *State, router, worker *client) {
	t.Helper()
	s = New()
	must(t, s.Apply(bootstrapped()))
	router = &client{session: must(t, s.Apply(opened("r1", "a"))).GetOpened().GetSession()}
	worker = &client{session: must(t, s.Apply(registered("w1", "x", workerInfo(8, 4, 0)))).GetOpened().GetSession()}
	return s, router, worker
}

// must is r, which is no refusal.
func must(t testing.TB, r *ledgerv1.Result) *ledgerv1.Result {
	t.Helper()
	if err := Err(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// refused fails unless r is a refusal of that code.
func refused(t testing.TB, r *ledgerv1.Result, code ledgerv1.RefusalCode) {
	t.Helper()
	if got := r.GetRefusal().GetCode(); got != code {
		t.Errorf("got %v, want refusal %v", r, code)
	}
}
