package ledger

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// TestScripts runs testdata/*.txt: one command a block, its answer and the tables of all workers below it. A bar has a
// character a page: # claimed, ? granted to what no worker has claimed yet, · room. Commands:
//
//	open NAME nonce=N lease=MS
//	register NAME nonce=N lease=MS pages=P slots=S [window=W]
//	tick MS [live=A,B]                       names of routers and workers
//	reserve WORKER by=ROUTER pages=P max=P [group=G slots=S branches=N bonus=B]      names the reservation by its id
//	drop ID by=ROUTER · claim|tombstone ID by=WORKER
//	grow ID by=WORKER need=P want=P [branch=I] · withdraw ID by=WORKER [branch=I]
//	return by=WORKER G=TOTAL… · end ID by=WORKER G=TOTAL…
//	tenant ID by=ROUTER [group=G weight=W cap=P floor=P perminute=T burst=T replaces=REVISION]     puts one
//	forget ID by=ROUTER                      deletes a tenant; of a reserve: tenant=ID prompt=T tokens=T lift=C, of an end: output=T
//	raw by=NAME sequence=N acked=N           a noop with sequence and acked chosen
//	notice WORKER
//
// Every block is applied to a second state as well, restored from a snapshot before each command.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		x := &script{state: New(), clients: map[string]*client{}}
		x.state.Apply(bootstrapped())
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return x.run(t, d) })
	})
}

// client is a session as its owner knows it.
type client struct {
	session, last uint64
}

type script struct {
	state   *State
	clients map[string]*client
}

func (x *script) run(t *testing.T, d *datadriven.TestData) string {
	if d.Cmd == "notice" {
		return fmt.Sprintf("%+v\n", x.state.View().Notice(x.clients[d.CmdArgs[0].Key].session))
	}
	p := x.proposal(t, d)
	twin, err := Restore(proto.CloneOf(x.state.Snapshot()))
	if err != nil {
		t.Fatalf("%s: I8: %v", d.Pos, err)
	}
	twin.Apply(proto.CloneOf(p))
	r := x.state.Apply(p)
	if err := x.state.Check(); err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	if twin.Digest() != x.state.Digest() {
		t.Fatalf("%s: I8: a restored state goes another way", d.Pos)
	}
	if o := r.GetOpened(); o != nil {
		x.clients[d.CmdArgs[0].Key] = &client{session: o.Session, last: o.LastSequence}
	}
	return answer(r) + draw(x.state)
}

func (x *script) proposal(t *testing.T, d *datadriven.TestData) *ledgerv1.Proposal {
	a := args{t, d}
	p := &ledgerv1.Proposal{Command: &ledgerv1.Command{}}
	switch d.Cmd {
	case "open":
		p.Command.Kind = &ledgerv1.Command_OpenRouter{OpenRouter: &ledgerv1.OpenRouter{
			Router: a.first(), Nonce: []byte(a.text("nonce", "")), LeaseMs: a.number("lease", 3000)}}
		return p
	case "register":
		info := workerInfo(a.number("pages", 8), a.number("slots", 4), uint32(a.number("window", 0)))
		p.Command.Kind = &ledgerv1.Command_Register{Register: &ledgerv1.Register{
			Worker: a.first(), Nonce: []byte(a.text("nonce", "")), LeaseMs: a.number("lease", 3000), Info: info}}
		return p
	case "tick":
		return ticked(a.id(), x.sessions(a.text("live", ""))...)
	}
	c := x.clients[a.text("by", "")]
	if c == nil {
		t.Fatalf("%s: by whom?", d.Pos)
	}
	c.last++
	p.Session, p.Sequence, p.Acked = c.session, c.last, c.last-1
	if d.Cmd == "raw" {
		c.last--
		p.Sequence, p.Acked = a.number("sequence", 0), a.number("acked", 0)
		p.Command.Kind = &ledgerv1.Command_Noop{}
		return p
	}
	x.command(a, p.Command)
	return p
}

func (x *script) command(a args, c *ledgerv1.Command) {
	switch a.d.Cmd {
	case "reserve":
		m := &ledgerv1.Reserve{Worker: a.first(), ShareGroup: a.text("group", "red"), Pages: a.number("pages", 1),
			PagesMax: a.number("max", 1), Slots: a.number("slots", 1), Bonus: a.number("bonus", 0),
			Branches: uint32(a.number("branches", 0)), Tenant: a.text("tenant", ""), PromptTokens: a.number("prompt", 0),
			MaxTokens: a.number("tokens", 0), OpenEnded: a.text("tokens", "") == "", Lift: a.number("lift", 0)}
		if w := x.clients[m.Worker]; w != nil {
			m.Incarnation = w.session
		}
		c.Kind = &ledgerv1.Command_Reserve{Reserve: m}
	case "drop":
		c.Kind = &ledgerv1.Command_Drop{Drop: &ledgerv1.Drop{Reservation: a.id()}}
	case "claim":
		c.Kind = &ledgerv1.Command_Claim{Claim: &ledgerv1.Claim{Reservation: a.id(), Attempt: 1}}
	case "tombstone":
		c.Kind = &ledgerv1.Command_Tombstone{Tombstone: &ledgerv1.Tombstone{Reservation: a.id()}}
	case "grow":
		c.Kind = &ledgerv1.Command_Grow{Grow: &ledgerv1.Grow{
			Reservation: a.id(), Need: a.number("need", 0), Want: a.number("want", 0),
			Branch: uint32(a.number("branch", 0))}}
	case "withdraw":
		c.Kind = &ledgerv1.Command_Withdraw{Withdraw: &ledgerv1.Withdraw{
			Reservation: a.id(), Branch: uint32(a.number("branch", 0))}}
	case "return":
		c.Kind = &ledgerv1.Command_ReturnPages{ReturnPages: &ledgerv1.Return{Accounts: a.totals()}}
	case "end":
		c.Kind = &ledgerv1.Command_End{End: &ledgerv1.End{Reservation: a.id(), Accounts: a.totals(),
			OutputTokens: a.number("output", 0), ComputedTokens: a.number("computed", 0)}}
	case "tenant":
		c.Kind = putCommand(&ledgerv1.Tenant{Id: a.first(), ShareGroup: a.text("group", ""), Weight: uint32(a.number("weight", 0)),
			Cap: a.number("cap", 0), Floor: a.number("floor", 0), TokensPerMinute: a.number("perminute", 0),
			Burst: a.number("burst", 0)}, a.number("replaces", 0)).Kind
	case "forget":
		c.Kind = deleteTenantCommand(a.first()).Kind
	default:
		a.t.Fatalf("%s: unknown command %s", a.d.Pos, a.d.Cmd)
	}
}

func (x *script) sessions(names string) []uint64 {
	var out []uint64
	for _, c := range x.state.sessions {
		for name := range strings.SplitSeq(names, ",") {
			if k := x.clients[name]; k != nil && k.session == c.id {
				out = append(out, c.id)
			}
		}
	}
	return out
}

// args reads the arguments of a block.
type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) first() string { return a.d.CmdArgs[0].Key }

func (a args) id() uint64 {
	n, err := strconv.ParseUint(a.first(), 10, 64)
	if err != nil {
		a.t.Fatalf("%s: %v", a.d.Pos, err)
	}
	return n
}

func (a args) text(key, otherwise string) string {
	for _, x := range a.d.CmdArgs {
		if x.Key == key {
			return strings.Join(x.Vals, ",")
		}
	}
	return otherwise
}

func (a args) number(key string, otherwise uint64) uint64 {
	s := a.text(key, "")
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		a.t.Fatalf("%s: %v", a.d.Pos, err)
	}
	return n
}

func (a args) totals() []*ledgerv1.Returned {
	var out []*ledgerv1.Returned
	for _, x := range a.d.CmdArgs {
		if x.Key != "by" && x.Key != "output" && x.Key != "computed" && len(x.Vals) > 0 {
			out = append(out, &ledgerv1.Returned{ShareGroup: x.Key, Pages: a.number(x.Key, 0)})
		}
	}
	return out
}

// answer is a result in one line.
func answer(r *ledgerv1.Result) string {
	switch k := r.Kind.(type) {
	case *ledgerv1.Result_Ok:
		return fmt.Sprintf("%d: ok\n", r.Revision)
	case *ledgerv1.Result_Opened:
		return fmt.Sprintf("%d: session %d, last %d\n", r.Revision, k.Opened.Session, k.Opened.LastSequence)
	case *ledgerv1.Result_Reserved:
		return fmt.Sprintf("%d: reservation %d, rank %d\n", r.Revision, k.Reserved.Reservation, k.Reserved.Key.Rank)
	case *ledgerv1.Result_Grown:
		if !k.Grown.Served {
			return fmt.Sprintf("%d: waits\n", r.Revision)
		}
		return fmt.Sprintf("%d: grown by %d\n", r.Revision, k.Grown.Pages)
	case *ledgerv1.Result_Gap:
		return fmt.Sprintf("%d: gap, last %d\n", r.Revision, k.Gap.LastSequence)
	case *ledgerv1.Result_Refusal:
		f := k.Refusal
		line := fmt.Sprintf("%d: %s: %s", r.Revision, strings.TrimPrefix(f.Code.String(), "REFUSAL_CODE_"), f.Message)
		if f.Capacity > 0 {
			line += fmt.Sprintf(" (need %d, capacity %d, granted %d, waiters %d)",
				f.Need, f.Capacity, f.Granted, f.Waiters)
		}
		return line + "\n"
	}
	return "?\n"
}

// draw shows every worker: its accounts with their counters and bars, then who waits.
func draw(s *State) string {
	var b strings.Builder
	for _, w := range s.View().Workers {
		if w.Incarnation == 0 {
			fmt.Fprintf(&b, "%s fenced\n", w.Name)
			continue
		}
		fmt.Fprintf(&b, "%s #%d  %d/%d pages  %d/%d slots  %s\n", w.Name, w.Incarnation, w.Granted, w.Capacity,
			w.SlotsUsed, w.Info.Slots, strings.Repeat("·", int(w.Room())))
		for _, a := range w.Accounts {
			fmt.Fprintf(&b, "  %-6s%2d +%d −%d  %s%s\n", a.ShareGroup, a.Reserved, a.Grown, a.Returned,
				strings.Repeat("#", int(a.Grant()-a.Unclaimed)), strings.Repeat("?", int(a.Unclaimed)))
		}
		for _, x := range w.Waiters {
			name := fmt.Sprint(x.Reservation)
			if x.Branch > 0 {
				name += fmt.Sprint("/", x.Branch)
			}
			how := ""
			if x.Stopped {
				how = ", stopped by its group's cap"
			}
			fmt.Fprintf(&b, "  %s waits for %d, wants %d%s\n", name, x.Need, x.Want, how)
		}
		if len(w.Orphans) > 0 {
			fmt.Fprintf(&b, "  orphans %v\n", w.Orphans)
		}
	}
	for _, t := range s.View().Tenants {
		fmt.Fprintf(&b, "%s in %s  service %.1f", t.Id, t.ShareGroup, float64(t.Counter)/costUnit)
		if t.Cap > 0 {
			fmt.Fprintf(&b, "  claims %d of %d pages", t.Claim, t.Cap)
		}
		if t.TokensPerMinute > 0 {
			left, wait := t.Budget(s.clockMs, 0)
			fmt.Fprintf(&b, "  %d tokens left, %d ms to the next", left, wait)
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}
