package router

import (
	"testing"
)

func on(worker string, edit func(*candidate)) candidate {
	c := candidate{Worker: worker, Pages: 10, PagesMax: 20, Capacity: 100, Slots: 8, MaxTokens: 4096}
	if edit != nil {
		edit(&c)
	}
	return c
}

func TestPlace(t *testing.T) {
	n := need{Prompt: 1000, Total: 1100}
	for _, c := range []struct {
		name       string
		candidates []candidate
		verdict    verdict
		worker     string
	}{
		{"nobody", nil, nowhere, ""},
		{"the cached prefix", []candidate{on("a", nil), on("b", func(c *candidate) { c.Hit = 800 })}, placed, "b"},
		{"the load outweighs the prefix", []candidate{
			on("a", nil), on("b", func(c *candidate) { c.Hit, c.SlotsUsed = 800, 4 }),
		}, placed, "a"},
		{"the load counts without hits", []candidate{
			on("a", func(c *candidate) { c.SlotsUsed = 1 }), on("b", nil),
		}, placed, "b"},
		{"the pressure counts", []candidate{on("a", func(c *candidate) { c.Granted = 80 }), on("b", nil)}, placed, "b"},
		{"not who waits", []candidate{
			on("a", func(c *candidate) { c.Waiters = 1 }), on("b", func(c *candidate) { c.SlotsUsed = 7 }),
		}, placed, "b"},
		{"no pages", []candidate{on("a", func(c *candidate) { c.Granted = 91 })}, busy, ""},
		{"exactly the pages", []candidate{on("a", func(c *candidate) { c.Granted = 90 })}, placed, "a"},
		{"no slots", []candidate{on("a", func(c *candidate) { c.SlotsUsed = 8 })}, busy, ""},
		{"never", []candidate{on("a", func(c *candidate) { c.PagesMax = 101 })}, neverFits, ""},
		{"too long", []candidate{on("a", func(c *candidate) { c.MaxTokens = 1099 })}, neverFits, ""},
		{"one could, later", []candidate{
			on("a", func(c *candidate) { c.PagesMax = 101 }), on("b", func(c *candidate) { c.Granted = 95 }),
		}, busy, ""},
	} {
		d := place(c.candidates, n)
		if d.Verdict != c.verdict || d.Worker != c.worker || d.chosen.Worker != c.worker {
			t.Errorf("%s: %v on %q, want %v on %q", c.name, d.Verdict, d.Worker, c.verdict, c.worker)
		}
		if len(d.Scored) != len(c.candidates) {
			t.Errorf("%s: %d inputs kept", c.name, len(d.Scored))
		}
	}
}

// Equal workers take turns, so that a burst between two views of the ledger does not fall on one of them.
func TestPlaceTakesTurns(t *testing.T) {
	var equal []candidate
	for _, name := range []string{"a", "b", "c"} {
		equal = append(equal, on(name, nil))
	}
	got := map[string]int{}
	for turn := range uint64(30) {
		got[place(equal, need{Prompt: 10, Total: 20, Turn: turn}).Worker]++
	}
	if got["a"] != 10 || got["b"] != 10 || got["c"] != 10 {
		t.Errorf("%v", got)
	}
}

func TestDecisionIsBounded(t *testing.T) {
	var many []candidate
	for i := range 100 {
		many = append(many, on(string(rune('a'+i)), func(c *candidate) { c.Granted = uint64(i % 7) }))
	}
	d := place(many, need{Prompt: 10, Total: 20})
	if len(d.Scored) != keptCandidates || d.Scored[0].Worker != d.Worker {
		t.Errorf("%d kept, first %q, chosen %q", len(d.Scored), d.Scored[0].Worker, d.Worker)
	}
	s := decisions{at: map[string]int{}}
	for i := range 2 * keptDecisions {
		s.keep(string(rune(i)), d)
		s.keep(string(rune(i)), d)
	}
	if len(s.at) != keptDecisions {
		t.Errorf("%d requests are remembered", len(s.at))
	}
	if _, ok := s.of(string(rune(0))); ok {
		t.Error("the oldest is still there")
	}
}
