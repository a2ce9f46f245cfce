package sim

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/kvpool"
)

// small has a block of 4 tokens, and a window beside full attention.
var small = kvpool.Geometry{
	BlockSize: 4, Groups: []kvpool.Group{{Kind: kvpool.Full}, {Kind: kvpool.Sliding, Window: 10}},
	StepsInFlight: 1, MaxBatchTokens: 24, PrefillsInStep: 3,
}

func tokens(seed uint64, n int) []int32 { return randomTokens(rand.New(rand.NewPCG(seed, 9)), n) }

// asked are requests of one share group, all at once, of prompts that have nothing in common.
func asked(n, prompt, most int) []Request {
	var out []Request
	for i := range n {
		out = append(out, Request{Group: "g", Prompts: [][]int32{tokens(uint64(i), prompt)}, Max: most, N: 1, Seed: uint64(i), Stream: true})
	}
	return out
}

// need is the pages of the requests at their ends, all at the same time.
func need(g kvpool.Geometry, requests []Request) (pages int) {
	for _, q := range requests {
		for _, p := range q.Prompts {
			end := len(p) + q.Max
			pages += g.Demand(end).Pages + (q.N-1)*g.Fork(len(p), end).Pages
		}
	}
	return pages
}

// whole plays a scenario in which nothing may be broken.
func whole(t *testing.T, s Scenario) *Report {
	t.Helper()
	r := play(t, s)
	if r.Broken != nil {
		t.Fatal(r.Broken)
	}
	return r
}

// P1, P2: with half of the pages that all of them need in the end, all are admitted, none fails, all come to their end.
func TestHalfOfTheDemand(t *testing.T) {
	s := Scenario{Geometry: small, Slots: 12, Requests: asked(12, 8, 120)}
	s.Workers = []Worker{{Pages: s.Geometry.Overhead() + need(s.Geometry, s.Requests)/2, Speed: 1}}
	r := whole(t, s)
	if n := r.count("done"); n != 12 || r.Preemptions == 0 {
		t.Errorf("%d came to their end, with %d preemptions", n, r.Preemptions)
	}
}

// P1, P8: of a worker that is killed the requests are lost, those of others are not; what it held is granted again.
func TestAWorkerIsKilled(t *testing.T) {
	s := Scenario{Geometry: small, Slots: 8, Requests: asked(8, 8, 200), Workers: []Worker{{200, 1}, {200, 1}},
		Faults: []Fault{{At: 150 * time.Millisecond, For: 5 * time.Second, Host: "w1", Kind: Kill}}}
	r := whole(t, s)
	lost, done := r.count("lost"), r.count("done")
	if lost == 0 || lost > 6 || done != 8 || r.count("to w1") != lost {
		t.Errorf("%d were lost of %d on the killed worker, and %d came to their end", lost, r.count("to w1"), done)
	}
}

// P8: a router's death ends its connections and nothing else: workers keep their incarnations, with what they cached.
func TestTheRouterIsKilled(t *testing.T) {
	s := Scenario{Geometry: small, Slots: 8, Requests: asked(6, 40, 100), Workers: []Worker{{300, 1}},
		Faults: []Fault{{At: 150 * time.Millisecond, For: time.Second, Host: routerName, Kind: Kill}}}
	r := whole(t, s)
	if r.count("lost") < 6 || r.count("done") != 6 {
		t.Errorf("%d tries were lost, %d came to their end", r.count("lost"), r.count("done"))
	}
	if r.Cached < 6*36 {
		t.Errorf("P8: prompts of 40 tokens were asked again, and the worker had %d tokens of all six", r.Cached)
	}
}

// P8: a router dies while reservations are on their way to their worker, which has not claimed them: they come back.
func TestTheRouterIsKilledWhileItReserves(t *testing.T) {
	s := Scenario{Geometry: small, Slots: 40, Requests: asked(40, 8, 30), Workers: []Worker{{900, 1}}, Disk: 20 * time.Millisecond,
		Network: 4 * time.Millisecond}
	for i := range s.Requests {
		s.Requests[i].At = time.Duration(i) * 5 * time.Millisecond
	}
	for seed := range uint64(8) {
		s.Seed = seed
		s.Faults = []Fault{{At: time.Duration(70+7*seed) * time.Millisecond, For: time.Second, Host: routerName, Kind: Kill}}
		if r := whole(t, s); r.count("lost") == 0 || r.count("done") != 40 {
			t.Errorf("%d tries were lost, %d came to their end", r.count("lost"), r.count("done"))
		}
	}
}

// P5: a worker that nobody hears of for longer than its lease is over; what it still says goes nowhere.
func TestAWorkerIsNotHeardOf(t *testing.T) {
	s := Scenario{Geometry: small, Slots: 8, Requests: asked(4, 8, 100), Workers: []Worker{{200, 1}},
		Faults: []Fault{{At: 150 * time.Millisecond, For: 8 * time.Second, Host: "w1", Kind: Hold}}}
	if r := whole(t, s); r.count("lost") < 4 || r.count("done") != 4 {
		t.Errorf("%d tries were lost, %d came to their end", r.count("lost"), r.count("done"))
	}
	s.Faults[0].For = harmless
	if r := whole(t, s); r.count("lost") != 0 || r.count("done") != 4 {
		t.Errorf("in its lease: %d tries were lost, %d came to their end", r.count("lost"), r.count("done"))
	}
}

// W5, R1: clients leave at any time, while pages are short; the others have their answers, and nothing is left.
func TestClientsLeave(t *testing.T) {
	s := Scenario{Geometry: small, Slots: 12, Requests: asked(24, 20, 80)}
	for i := range s.Requests {
		if i%2 == 0 {
			s.Requests[i].Leaves = time.Duration(1+i*i) * time.Millisecond
		}
	}
	s.Workers = []Worker{{Pages: fits(s.Geometry, s.Requests) * 2, Speed: 1}}
	if r := whole(t, s); r.count("left") < 8 || r.count("done") < 12 {
		t.Errorf("%d left, %d came to their end", r.count("left"), r.count("done"))
	}
}

// P1, P6: four choices of each prompt, which share its pages, on a worker that has room for little more than one of them.
func TestFourChoices(t *testing.T) {
	for _, slots := range []int{2, 4, 16} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			s := Scenario{Geometry: small, Slots: slots, Requests: asked(5, 21, 90)}
			for i := range s.Requests {
				s.Requests[i].N = 4
			}
			s.Workers = []Worker{{Pages: s.Geometry.Overhead() + need(s.Geometry, s.Requests[:2])*2/3, Speed: 1}}
			r := whole(t, s)
			if r.count("done") != 5 || slots > 4 && r.Preemptions == 0 {
				t.Errorf("%d came to their end, with %d preemptions", r.count("done"), r.Preemptions)
			}
		})
	}
}

// P6: greedy branches that guess what they will say next say the same in fewer steps, with room for a half of them.
func TestGuesses(t *testing.T) {
	s := Scenario{Geometry: small, Slots: 4, Requests: asked(4, 8, 150)}
	for i := range s.Requests {
		s.Requests[i].Greedy = true
	}
	s.Workers = []Worker{{Pages: s.Geometry.Overhead() + need(s.Geometry, s.Requests)/2, Speed: 1}}
	steps := map[int]int{}
	for _, s.Guesses = range []int{0, 4} {
		r := play(t, s, sabotage{device: func(*device) { steps[s.Guesses]++ }})
		if r.Broken != nil || r.count("done") != 4 {
			t.Errorf("%d guesses: %v, %d came to their end", s.Guesses, r.Broken, r.count("done"))
		}
	}
	if steps[4] >= steps[0] {
		t.Errorf("%d steps without guesses, %d with them", steps[0], steps[4])
	}
}

// P7: two share groups ask the same, one after the other: nothing of one is found by the other, all of it by itself.
func TestTwoShareGroups(t *testing.T) {
	s := Scenario{Geometry: small, Slots: 8, Workers: []Worker{{200, 1}}}
	ask := func(at time.Duration, group string) {
		q := asked(1, 41, 10)[0]
		q.At, q.Group = at, group
		s.Requests = append(s.Requests, q)
	}
	ask(0, "a")
	ask(time.Second, "b")
	if r := whole(t, s); r.Cached != 0 {
		t.Errorf("P7: %d tokens of another share group were found", r.Cached)
	}
	ask(2*time.Second, "a")
	ask(2*time.Second, "b")
	if r := whole(t, s); r.Cached != 2*40 {
		t.Errorf("%d tokens of their own were found, want twice 40", r.Cached)
	}
}

// P2: two share groups on pages for one of them.
func TestTwoShareGroupsShortOfPages(t *testing.T) {
	s := Scenario{Geometry: small, Slots: 12, Requests: asked(12, 8, 120)}
	for i := range s.Requests {
		s.Requests[i].Group = []string{"a", "b"}[i%2]
	}
	s.Workers = []Worker{{Pages: s.Geometry.Overhead() + need(s.Geometry, s.Requests)/3, Speed: 1}}
	if r := whole(t, s); r.count("done") != 12 || r.Preemptions == 0 {
		t.Errorf("%d came to their end, with %d preemptions", r.count("done"), r.Preemptions)
	}
}

// What a seed decides it decides for good, and seeds differ.
func TestSeedsFixScenarios(t *testing.T) {
	var all []string
	for seed := range uint64(50) {
		if !reflect.DeepEqual(Random(seed), Random(seed)) {
			t.Errorf("seed %d has two scenarios", seed)
		}
		s := Random(seed)
		s.Seed = 0
		all = append(all, fmt.Sprint(s))
	}
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != 50 {
		t.Errorf("50 seeds have %d scenarios", n)
	}
}

// A drawing shows each client's line to where it stopped.
func TestDraw(t *testing.T) {
	r := &Report{Scenario: Scenario{Workers: []Worker{{Pages: 9}}}, Took: 64 * time.Second, Events: []Event{
		{0, "q0", "asks"}, {2 * time.Second, "q1", "asks"}, {4 * time.Second, "q0", "hears"}, {8 * time.Second, "q0", "done"},
	}}
	want := "   q0 ····====o\n   q1   " + strings.Repeat("·", 62) + "\n"
	if got := r.Draw(); !strings.HasSuffix(got, want) {
		t.Errorf("%s", got)
	}
}
