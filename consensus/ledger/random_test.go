package ledger

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// TestRandom drives the ledger and the naive one with the same commands. After each they must answer the same and agree
// on every number, I1 to I6 must hold, and now and then the ledger goes on from its own snapshot (I8).
func TestRandom(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			x := &walk{t: t, rng: rand.New(rand.NewPCG(uint64(seed), 0)), state: New(), naive: newNaive(), tenants: seed%3 > 0}
			x.state.Apply(bootstrapped())
			x.naive.revision++
			for step := range 600 {
				what := x.step()
				if err := x.compare(); err != nil {
					t.Fatalf("step %d, %s: %v", step, what, err)
				}
			}
		})
	}
}

type walk struct {
	t       *testing.T
	rng     *rand.Rand
	state   *State
	naive   *naive
	clients []*client // newest last, ended ones too
	past    *ledgerv1.Proposal
	tenants bool // there are some
	nonces  int
}

func (x *walk) step() string {
	switch k := x.rng.IntN(100); {
	case k < 3 || len(x.clients) < 3:
		return x.open()
	case k < 9:
		var live []uint64
		for id := range x.naive.left {
			if x.rng.IntN(8) > 0 {
				live = append(live, id)
			}
		}
		slices.Sort(live)
		delta := uint64(x.rng.IntN(1200))
		if x.rng.IntN(6) == 0 { // long enough to forget the fenced
			delta *= 300
		}
		p := ticked(delta, live...)
		x.state.Apply(p)
		x.naive.tick(p.Command.GetTick())
		return fmt.Sprint("tick ", p)
	case k < 11:
		restored, err := Restore(proto.CloneOf(x.state.Snapshot()))
		if err != nil || restored.Digest() != x.state.Digest() {
			x.t.Fatalf("I8: %v", err)
		}
		encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(restored.Snapshot())
		if err != nil || sha256.Sum256(encoded) != restored.Digest() {
			x.t.Fatalf("I8: the digest is not that of the snapshot: %v", err)
		}
		x.state = restored
		return "restore"
	case k < 15 && x.past != nil:
		digest := x.state.Digest()
		x.state.Apply(x.past)
		if x.state.Digest() != digest {
			x.t.Fatalf("I7: a repeat of %v changed the state", x.past)
		}
		return "repeat"
	}
	return x.command()
}

func (x *walk) open() string {
	x.nonces++
	x.naive.revision++
	nonce := fmt.Sprint(x.nonces)
	name, pages, slots := "", uint64(0), uint64(0)
	p := opened("r", nonce)
	if x.rng.IntN(2) == 0 {
		name, pages, slots = fmt.Sprint("w", x.rng.IntN(2)), uint64(4+x.rng.IntN(12)), uint64(2+x.rng.IntN(5))
		p = registered(name, nonce, workerInfo(pages, slots, 0))
	}
	id := must(x.t, x.state.Apply(p)).GetOpened().Session
	x.clients = append(x.clients, &client{session: id})
	x.naive.left[id], x.naive.lease[id], x.naive.owner[id] = 3000, 3000, name
	if name != "" {
		if old := x.naive.alive[name]; old != 0 {
			x.naive.end(old)
		}
		delete(x.naive.forget, name)
		x.naive.alive[name], x.naive.capacity[name], x.naive.slots[name] = id, pages, slots
	}
	x.naive.resume()
	return fmt.Sprint("open ", p)
}

// command is a random one, about a request that mostly lives, by a client that mostly may.
func (x *walk) command() string {
	by := x.clients[len(x.clients)-1-x.rng.IntN(min(5, len(x.clients)))]
	id := uint64(x.rng.IntN(int(x.naive.revision) + 1))
	if live := x.liveIDs(); len(live) > 0 && x.rng.IntN(10) > 0 {
		id = live[x.rng.IntN(len(live))]
	}
	command := x.draw(by, id)
	if r := x.naive.requests[id]; r != nil && command.GetReserve() == nil && x.rng.IntN(10) > 0 {
		by = x.clientOf(r, command)
	}
	p := by.under(command)
	_, living := x.naive.left[by.session]
	got := x.state.Apply(p)
	want := fenced.String()
	if living {
		want = x.naive.command(by.session, p.Command)
		x.past = p
	}
	if word(got) != want {
		x.t.Fatalf("%v answers %s, the naive ledger %s", p, word(got), want)
	}
	return fmt.Sprint(p)
}

func (x *walk) liveIDs() (out []uint64) {
	for id := range x.naive.requests {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

func (x *walk) clientOf(r *request, command *ledgerv1.Command) *client {
	session := r.incarnation
	if command.GetDrop() != nil {
		session = r.router
	}
	for _, c := range x.clients {
		if c.session == session {
			return c
		}
	}
	panic("a request of nobody")
}

func (x *walk) draw(by *client, id uint64) *ledgerv1.Command {
	n := func(below int) uint64 { return uint64(x.rng.IntN(below)) }
	group := string(rune('a' + n(3)))
	if r := x.naive.requests[id]; r != nil {
		group = r.group
	}
	switch k := x.rng.IntN(100); {
	case k < 3 && x.tenants && x.naive.owner[by.session] == "":
		return x.drawTenant(n)
	case k < 35 && x.naive.owner[by.session] == "":
		worker := fmt.Sprint("w", n(2))
		c := reserveCommand(worker, x.naive.alive[worker], string(rune('a'+n(3))), n(4), 4+n(4))
		c.GetReserve().Slots, c.GetReserve().Bonus, c.GetReserve().Branches = 1+n(2), n(40), uint32(1+n(3))
		c.GetReserve().Pages *= uint64(c.GetReserve().Branches)
		x.drawPayer(c.GetReserve(), n)
		return c
	case k < 40:
		return dropCommand(id)
	case k < 60:
		return claimCommand(id)
	case k < 64:
		return tombstoneCommand(id)
	case k < 80:
		c := growCommand(id, 1+n(6), n(4))
		c.GetGrow().Branch = x.branch(id)
		return c
	case k < 83:
		c := withdrawCommand(id)
		c.GetWithdraw().Branch = x.branch(id)
		return c
	case k < 90:
		return returnCommand(group, x.total(by, id, group))
	}
	c := endCommand(id, group, x.total(by, id, group))
	c.GetEnd().OutputTokens, c.GetEnd().ComputedTokens, c.GetEnd().Reason = n(200), n(300), ledgerv1.FinishReason(1+2*n(2))
	return c
}

// drawPayer is mostly a tenant of the share group.
func (x *walk) drawPayer(m *ledgerv1.Reserve, n func(int) uint64) {
	m.Tenant = "t-" + string(rune('a'+n(4)))
	if g := x.naive.guests[m.Tenant]; g != nil && n(10) > 0 {
		m.ShareGroup = g.put.ShareGroup
	}
	m.PromptTokens, m.CachedTokens, m.MaxTokens, m.OpenEnded, m.Lift = n(300), n(200), n(400), n(2) == 0, n(3)*n(1<<20)
}

// drawTenant puts one of four tenants in one of three share groups, or deletes it.
func (x *walk) drawTenant(n func(int) uint64) *ledgerv1.Command {
	id := "t-" + string(rune('a'+n(4)))
	if n(6) == 0 {
		return deleteTenantCommand(id)
	}
	t := &ledgerv1.Tenant{Id: id, ShareGroup: string(rune('a' + n(3))), Weight: uint32(1 + n(5)), Cap: n(2) * n(20), Floor: n(4) * n(2)}
	if n(2) == 0 {
		t.TokensPerMinute, t.Burst = 1+n(5000), 1+n(2000)
	}
	replaces := uint64(0)
	if g := x.naive.guests[id]; g != nil && n(5) > 0 {
		replaces = g.at
	}
	return putCommand(t, replaces)
}

// branch is one of a request's, now and then one too many.
func (x *walk) branch(id uint64) uint32 {
	if r := x.naive.requests[id]; r != nil {
		return x.rng.Uint32N(r.branches + uint32(x.rng.IntN(10)/9))
	}
	return 0
}

// total is a total of returned pages that is mostly possible.
func (x *walk) total(by *client, id uint64, group string) uint64 {
	incarnation := by.session
	if r := x.naive.requests[id]; r != nil {
		incarnation = r.incarnation
	}
	returned := x.naive.returned[[2]any{incarnation, group}]
	return returned + uint64(x.rng.IntN(int(x.naive.given(incarnation, group)-returned)+2))
}

// word is an answer as the naive ledger gives it.
func word(r *ledgerv1.Result) string {
	switch k := r.Kind.(type) {
	case *ledgerv1.Result_Refusal:
		return k.Refusal.Code.String()
	case *ledgerv1.Result_Reserved:
		return fmt.Sprint("reserved ", k.Reserved.Reservation)
	case *ledgerv1.Result_Grown:
		return fmt.Sprint("grown ", k.Grown.Pages)
	}
	return "ok"
}

func (x *walk) compare() error {
	if err := x.state.Check(); err != nil {
		return err
	}
	v := x.state.View()
	if v.Revision != x.naive.revision || v.Sessions != len(x.naive.left) || v.Reservations != len(x.naive.requests) {
		return fmt.Errorf("%+v; naive: revision %d, %d sessions, %d requests",
			v, x.naive.revision, len(x.naive.left), len(x.naive.requests))
	}
	if len(v.Workers) != len(x.naive.alive) {
		return fmt.Errorf("I9: %d workers are known, naive %d", len(v.Workers), len(x.naive.alive))
	}
	if err := x.naive.compareTenants(v); err != nil {
		return err
	}
	for _, w := range v.Workers {
		if _, known := x.naive.alive[w.Name]; !known {
			return fmt.Errorf("I9: %s is not forgotten", w.Name)
		}
		if w.Incarnation != x.naive.alive[w.Name] {
			return fmt.Errorf("%s lives as %d, naive %d", w.Name, w.Incarnation, x.naive.alive[w.Name])
		}
		if w.Incarnation == 0 {
			continue
		}
		var waiting []BranchID
		var orphans []uint64
		for _, q := range x.naive.waiting(w.Name) {
			waiting = append(waiting, BranchID{q.of.id, q.branch})
		}
		for _, r := range x.naive.of(w.Name) {
			if r.state == stateOrphaned {
				orphans = append(orphans, r.id)
			}
		}
		slices.Sort(orphans)
		n := v.Notice(w.Incarnation)
		if w.Room() != x.naive.room(w.Name) || w.SlotsUsed != x.naive.slotsUsed(w.Name) ||
			!slices.Equal(n.Waiting, waiting) || !slices.Equal(n.Orphans, orphans) {
			return fmt.Errorf("%+v; naive: room %d, slots %d, waiting %v, orphans %v",
				w, x.naive.room(w.Name), x.naive.slotsUsed(w.Name), waiting, orphans)
		}
	}
	return nil
}
