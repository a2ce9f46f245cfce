package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/router"
)

// crowd is a scenario without faults that is short of pages: several share groups, prompts that begin alike, choices.
func crowd() Scenario {
	s := Scenario{Geometry: small, Slots: 8}
	shared := tokens(1, 24)
	for i := range 16 {
		s.Requests = append(s.Requests, Request{
			At: time.Duration(i) * 20 * time.Millisecond, Group: []string{"a", "b"}[i%2],
			Prompts: [][]int32{append(shared[:8+i%16:8+i%16], tokens(uint64(i), 10+i)...)}, Max: 60, N: 1 + i%3, Seed: uint64(i), Stream: i%2 == 0,
		})
	}
	s.Workers = []Worker{{Pages: fits(s.Geometry, s.Requests) * 3 / 2, Speed: 1}}
	return s
}

// twisted changes commands on their way to the ledger, and results on their way back.
type twisted struct {
	router.Ledger
	command func(*ledgerv1.Command)
	result  func(*ledgerv1.Command, *ledgerv1.Result) *ledgerv1.Result
}

// Submit implements router.Ledger.
func (t twisted) Submit(p *ledgerv1.Proposal, done func(*ledgerv1.Result, error)) {
	asked := &ledgerv1.Command{Kind: p.Command.Kind}
	if t.command != nil {
		t.command(p.Command)
	}
	t.Ledger.Submit(p, func(r *ledgerv1.Result, err error) {
		if err == nil && t.result != nil {
			r = t.result(asked, r)
		}
		done(r, err)
	})
}

func twist(t twisted) sabotage {
	return sabotage{ledger: func(l router.Ledger) router.Ledger { t.Ledger = l; return t }}
}

// skip makes the commands of a kind do nothing, from the first-th to the last-th.
func skip(first, last int, is func(*ledgerv1.Command) bool) sabotage {
	n := 0
	return twist(twisted{command: func(c *ledgerv1.Command) {
		if !is(c) {
			return
		}
		if n++; first <= n && n <= last {
			c.Kind = &ledgerv1.Command_Noop{Noop: &ledgerv1.Noop{}}
		}
	}})
}

func isEnd(c *ledgerv1.Command) bool    { return c.GetEnd() != nil }
func isReturn(c *ledgerv1.Command) bool { return c.GetReturnPages() != nil }

// refuseGrowth answers as if an admitted request could be refused its pages.
func refuseGrowth(c *ledgerv1.Command, r *ledgerv1.Result) *ledgerv1.Result {
	if c.GetGrow() == nil {
		return r
	}
	return &ledgerv1.Result{Revision: r.Revision, Kind: &ledgerv1.Result_Refusal{
		Refusal: &ledgerv1.Refusal{Code: ledgerv1.RefusalCode_REFUSAL_CODE_BUSY, Message: "planted"}}}
}

// overwrite is a device that loses what pages hold, once.
func overwrite() sabotage {
	steps := 0
	return sabotage{device: func(d *device) {
		if steps++; steps != 60 {
			return
		}
		for _, page := range d.memory {
			for slot := range page {
				page[slot]++
			}
		}
	}}
}

// leak takes a page of the first share group that has room, for nobody.
func leak() sabotage {
	const first = kvpool.Overhead + 1
	done := false
	return sabotage{pool: func(p *kvpool.Pool) {
		if c := p.Counts(); done || c.Charged == 0 || p.Room(first) < len(small.Groups) {
			return
		}
		done = p.Extend(p.Open(first, kvpool.Key{}, kvpool.Hash{}), 1) == nil
	}}
}

// planted are bugs, each with the promise that it breaks; two, where it depends on who waits then which of them is first.
var planted = []struct {
	promise, what string
	bug           func() sabotage
}{
	{"P1", "a growth is refused", func() sabotage { return twist(twisted{result: refuseGrowth}) }},
	{"P2 P8", "an end is forgotten while others wait", func() sabotage { return skip(7, 7, isEnd) }},
	{"P2", "what is let go does not come back", func() sabotage { return skip(1, 1000, isReturn) }},
	{"P1 P2", "a worker counts pages that nobody reserved", func() sabotage {
		return sabotage{pages: func(n uint64) uint64 { return n + 20 }}
	}},
	{"P6", "pages lose what they hold", overwrite},
	{"P2 P8", "pages are taken by nobody", leak},
	{"P8", "the last end is forgotten", func() sabotage { return skip(16, 16, isEnd) }},
}

// What is broken on purpose is noticed, under its promise's name; the same scenario without it is whole.
func TestPlantedBugsAreFound(t *testing.T) {
	r := play(t, crowd())
	if r.Broken != nil || r.Preemptions == 0 || r.Cached == 0 {
		t.Fatalf("without a bug: %v, %d preemptions, %d cached\n%s", r.Broken, r.Preemptions, r.Cached, r.Draw())
	}
	if r.Audited < 100 || r.Inspected < 100 {
		t.Errorf("the ledger was checked %d times, pools %d times", r.Audited, r.Inspected)
	}
	for _, p := range planted {
		t.Run(p.promise+" "+p.what, func(t *testing.T) {
			r := play(t, crowd(), p.bug())
			if r.Broken == nil || !slices.ContainsFunc(strings.Fields(p.promise), func(name string) bool {
				return strings.Contains(r.Broken.Error(), name+":")
			}) {
				t.Errorf("want %s, found %v", p.promise, r.Broken)
			}
			t.Log(r.Broken)
		})
	}
}
