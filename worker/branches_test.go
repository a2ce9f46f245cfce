package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
)

// sayBy is what the device answers to a prompt by a seed.
func sayBy(seed uint64, prompt []int32, n int) []int32 {
	h := uint64(0)
	for _, t := range prompt {
		h = chain(h, t)
	}
	var d hashDevice
	var out []int32
	for i := range n {
		id := d.next(h, &model.Sampling{Seed: seed, Counter: uint64(i)})
		out = append(out, id)
		h = chain(h, id)
	}
	return out
}

// TestBranchesShareThePrompt counts the pages of four branches of one prompt: it is computed once, its whole blocks are
// charged once, and each branch has what follows for itself.
func TestBranchesShareThePrompt(t *testing.T) { // rule A1
	e := alone(t, 100)
	p := prompt(1, 22) // five whole blocks, and the beginning of one
	q := newRequest(&workerv1.GenerateRequest{
		Reservation: 1, Incarnation: 1, ShareGroup: "g", Pages: 40, Prompt: p, Key: &ledgerv1.OrderKey{Rank: 1, Index: 1},
		MaxTokens: 5, Branches: 4, Slots: 4, Sampling: &workerv1.Sampling{Seed: 7},
	})
	if err := e.admit(q); err != nil {
		t.Fatal(err)
	}
	step := func() {
		t.Helper()
		if err := e.step(e.sched.schedule()); err != nil {
			t.Fatal(err)
		}
		if err := e.pool.Check(); err != nil {
			t.Fatal(err)
		}
	}
	device := e.device.(*hashDevice)
	step()
	if c := e.pool.Counts(); device.computed != 22 || c.Charged != 6 || c.Held != 6 {
		t.Fatalf("the first branch alone: %d tokens computed, %+v", device.computed, c)
	}
	step()
	if want := 22 + 1 + 3*2; device.computed != want {
		t.Errorf("%d tokens computed, want %d: the rest of the prompt for each of the others", device.computed, want)
	}
	if c := e.pool.Counts(); c.Charged != 5+4 || c.Held != 4*(5+1) {
		t.Errorf("with five blocks shared by four: %+v", c)
	}
	for range 4 {
		step()
	}
	for i := range 4 {
		if want := sayBy(model.Stream(7, uint32(i)), p, 5); !slices.Equal(q.out.boxes[i].ids, want) {
			t.Errorf("W4: branch %d said %v, want %v", i, q.out.boxes[i].ids, want)
		}
	}
	if c := e.pool.Counts(); c.Charged != 0 || c.Held != 0 || !q.out.over {
		t.Errorf("after the end: %+v, over %v", c, q.out.over)
	}
}

// TestChoices: greedy branches say the same, seeded ones repeat as a set, the first of them is what one alone would be.
func TestChoices(t *testing.T) { // W4
	c := start(t, setup{pages: 200, slots: 3})
	p := prompt(2, 30)
	for _, seed := range []uint64{0, 9} {
		for n := 1; n <= 7; n++ { // more than there are slots
			r := c.reserveAll(choices{ask{"g", p, 12}, n})
			r.Sampling.Seed = seed
			all, _, err := c.generateAll(t.Context(), r, 0)
			if err != nil {
				t.Fatal(err)
			}
			for i, a := range all {
				if want := sayBy(model.Stream(seed, uint32(i)), p, 12); seed > 0 && !slices.Equal(a.ids, want) {
					t.Errorf("%d choices by seed %d: the one of number %d is %v, want %v", n, seed, i, a.ids, want)
				}
				if a.finish.GetOutputTokens() != 12 {
					t.Errorf("branch %d ended with %v", i, a.finish)
				}
			}
		}
	}
	c.await("drain", c.drained)
}

func TestGreedyChoicesAreEqual(t *testing.T) {
	e := alone(t, 100)
	q := newRequest(&workerv1.GenerateRequest{
		Reservation: 1, Incarnation: 1, ShareGroup: "g", Pages: 40, Prompt: prompt(3, 9), Key: &ledgerv1.OrderKey{Rank: 1, Index: 1},
		MaxTokens: 20, Branches: 2, Slots: 2,
	})
	if err := e.admit(q); err != nil {
		t.Fatal(err)
	}
	q.branches[1].resume.Sampling.Seed = 0 // greedy looks at no seed, the device of these tests does
	for planned := e.sched.schedule(); len(planned) > 0; planned = e.sched.schedule() {
		if err := e.step(planned); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := q.out.boxes[0].ids, q.out.boxes[1].ids; !slices.Equal(a, b) || !slices.Equal(a, say(prompt(3, 9), 20)) {
		t.Errorf("two greedy choices: %v and %v", a, b)
	}
}

// TestChoicesShortOfPages runs requests of several branches on pools that hold a fraction of them, some little more than
// one branch: branches pause for each other, and all of them finish.
func TestChoicesShortOfPages(t *testing.T) { // P1, P2, W2, W3, W4
	for _, pages := range []int{45, 60, 150} {
		t.Run(fmt.Sprint(pages), func(t *testing.T) {
			c := start(t, setup{pages: pages, slots: 8})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			for i := range 24 {
				wg.Go(func() {
					p := prompt(uint64(i), 1+(i*7)%50)
					r := c.reserveAll(choices{ask{fmt.Sprint("g", i%3), p, 30}, 1 + i%6})
					r.Sampling.Seed = uint64(i)
					all, _, err := c.generateAll(ctx, r, 0)
					if err != nil {
						t.Errorf("request %d: %v", i, err)
						return
					}
					for k, a := range all {
						if want := sayBy(model.Stream(uint64(i), uint32(k)), p, 30); !slices.Equal(a.ids, want) {
							t.Errorf("request %d, branch %d said %v", i, k, a.ids)
						}
					}
				})
			}
			wg.Wait()
			c.await("drain", c.drained)
		})
	}
}

// TestChoicesFitAlone: a request whose branches together are several times the pool comes to its end, one branch of which
// is all that the pool has.
func TestChoicesFitAlone(t *testing.T) { // P1, P2
	const pages = 60
	c := start(t, setup{pages: pages, slots: 4})
	w, asked := c.view().Worker("w1"), 0
	for most := 20; most < 200; most++ {
		p := prompt(uint64(most), 1+most%37)
		if need := w.Geometry.Demand(len(p) + most).Pages; need < int(w.Capacity)-1 || need > int(w.Capacity) {
			continue
		}
		asked++
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		r := c.reserveAll(choices{ask{"g", p, most}, 5})
		r.Sampling.Seed = 3
		all, _, err := c.generateAll(ctx, r, 0)
		cancel()
		if err != nil {
			t.Fatalf("prompt of %d, %d tokens more: %v", len(p), most, err)
		}
		for k, a := range all {
			if !slices.Equal(a.ids, sayBy(model.Stream(3, uint32(k)), p, most)) {
				t.Fatalf("prompt of %d, branch %d of %d tokens is wrong", len(p), k, len(a.ids))
			}
		}
	}
	if asked < 3 {
		t.Errorf("only %d requests are near the pool's size", asked)
	}
	c.await("drain", c.drained)
}

// TestStopOneBranch ends one of three branches: it holds nothing, the others go on.
func TestStopOneBranch(t *testing.T) { // W5, W6
	c := start(t, setup{pages: 200, slots: 8})
	c.device.hold = make(chan struct{}) // or a slow reader would see its end before it stops anything
	p := prompt(4, 12)
	r := c.reserveAll(choices{ask{"g", p, 300}, 3})
	r.Sampling.Seed = 5
	s, err := c.client.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	got, ended := [3]int{}, [3]bool{}
	for !ended[0] || !ended[2] {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if k := m.GetTokens(); k != nil {
			if k.Branch == 1 && got[1] == 0 {
				stop := &workerv1.StopRequest{Reservation: r.Reservation, Incarnation: r.Incarnation, Branch: 1}
				for range 2 { // the second time it is over already
					if _, err := c.client.Stop(t.Context(), stop); err != nil {
						t.Fatal(err)
					}
				}
				close(c.device.hold)
			}
			got[k.Branch] += len(k.Ids)
		}
		if f := m.GetFinished(); f != nil {
			ended[f.Branch] = true
		}
	}
	if got[0] != 300 || got[2] != 300 || got[1] >= 300 || !ended[1] {
		t.Errorf("said %v tokens, ended %v", got, ended)
	}
	c.await("drain", c.drained)
}

// TestCancelledChoicesLeaveNothing has clients leave requests of several branches, those that wait for a slot included.
func TestCancelledChoicesLeaveNothing(t *testing.T) { // W5
	c := start(t, setup{pages: 80, slots: 6})
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			r := c.reserveAll(choices{ask{"g", prompt(uint64(i%9), 3+i), 60}, 1 + i%8})
			if _, _, err := c.generateAll(t.Context(), r, 1+i%20); err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	c.await("drain", c.drained)
}

// TestPromptScores: every token of the prompt is scored once and in order, whatever the cache has of it, chunks cut, and
// preemption undoes.
func TestPromptScores(t *testing.T) {
	c := start(t, setup{pages: 45, slots: 8})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			p := prompt(uint64(i/4), 20+3*(i%4))
			most := (i % 3) * 9 // 0: nothing but the prompt
			r := c.reserveAll(choices{ask{"g", p, most}, 1 + i%2})
			r.PromptScoring, r.Scoring = &workerv1.Scoring{Top: 2}, &workerv1.Scoring{Top: 1}
			all, got, err := c.generateAll(ctx, r, 0)
			if err != nil || len(got) != len(p)-1 || len(all[0].ids) != most || len(all[0].scores) != most {
				t.Errorf("request %d: %v, %d scores of %d tokens, %d of %d generated", i, err, len(got), len(p), len(all[0].scores), most)
				return
			}
			checkScores(t, p, got, 2)
			checkScores(t, append(p, all[0].ids...), append(got, all[0].scores...), 1)
		})
	}
	wg.Wait()
	c.await("drain", c.drained)
}

func checkScores(t *testing.T, tokens []int32, got []*workerv1.Score, top int) {
	h := chain(0, tokens[0])
	for i, id := range tokens[1:] {
		want := scoreOf(h, id, top)
		if got[i].Logprob != want.Logprob || int(got[i].Rank) != want.Rank || len(got[i].TopIds) < top {
			t.Errorf("score %d of %v: %v, want %v", i, tokens, got[i], want)
			return
		}
		h = chain(h, id)
	}
}

// TestTheCacheIsNotReadForScores: a prompt that is all cached is computed again where its scores are asked for.
func TestTheCacheIsNotReadForScores(t *testing.T) {
	e := alone(t, 100)
	p := prompt(5, 24)
	run := func(reservation uint64, scoring *workerv1.Scoring) *request {
		q := newRequest(&workerv1.GenerateRequest{
			Reservation: reservation, Incarnation: 1, ShareGroup: "g", Pages: 8, Prompt: p, PromptScoring: scoring,
			Key: &ledgerv1.OrderKey{Rank: reservation, Index: reservation}, MaxTokens: 1,
		})
		if err := e.admit(q); err != nil {
			t.Fatal(err)
		}
		for planned := e.sched.schedule(); len(planned) > 0; planned = e.sched.schedule() {
			if err := e.step(planned); err != nil {
				t.Fatal(err)
			}
		}
		return q
	}
	run(1, nil)
	if q := run(2, nil); q.branches[0].history.cached != 20 {
		t.Fatalf("%d tokens were cached", q.branches[0].history.cached)
	}
	q := run(3, &workerv1.Scoring{})
	if q.branches[0].history.cached != 0 || len(q.out.prompt) != 23 {
		t.Errorf("%d tokens cached, %d scores", q.branches[0].history.cached, len(q.out.prompt))
	}
	if err := e.pool.Check(); err != nil {
		t.Error(err)
	}
	if c := e.pool.Counts(); c.Idle != 6 {
		t.Errorf("%+v: the blocks computed twice are in the cache twice", c)
	}
}

// TestScoredTokensOfAStep: a step scores a bounded number of tokens of prompts, whatever its budget, and takes other work
// beside them.
func TestScoredTokensOfAStep(t *testing.T) {
	g := kvpool.Geometry{BlockSize: 4, Groups: []kvpool.Group{{Kind: kvpool.Full}}, StepsInFlight: 1, MaxBatchTokens: 1024, PrefillsInStep: 8}
	l := newLine(slog.New(slog.DiscardHandler))
	e, err := newEngine(newHashDevice(g, 1000), g, 1000, identity{session: 1}, l, func(Stats) {})
	if err != nil {
		t.Fatal(err)
	}
	var all []*request
	for i := range uint64(4) {
		r := &workerv1.GenerateRequest{
			Reservation: 1 + i, Incarnation: 1, ShareGroup: "g", Pages: 120, Prompt: prompt(i, 300), MaxTokens: 3,
			Key: &ledgerv1.OrderKey{Rank: 1 + i, Index: 1 + i},
		}
		if i < 3 {
			r.PromptScoring = &workerv1.Scoring{}
		}
		all = append(all, newRequest(r))
		if err := e.admit(all[i]); err != nil {
			t.Fatal(err)
		}
	}
	steps := 0
	for planned := e.sched.schedule(); len(planned) > 0; planned = e.sched.schedule() {
		if err := e.step(planned); err != nil {
			t.Fatal(err)
		}
		scored := 0
		for _, row := range e.plan.Rows {
			scored += len(row.Next)
		}
		if scored > maxScored {
			t.Fatalf("step %d scores %d tokens", steps, scored)
		}
		if steps++; steps == 1 && len(all[3].out.boxes[0].ids) != 1 {
			t.Error("the prompt without scores waits for the others")
		}
	}
	for i, q := range all {
		if want := say(q.ask.Prompt, 3); !slices.Equal(q.out.boxes[0].ids, want) {
			t.Errorf("request %d said %v, want %v", i, q.out.boxes[0].ids, want)
		}
		if i < 3 {
			checkScores(t, q.ask.Prompt, q.out.prompt, 0)
		}
	}
	if most := 3*300/maxScored + 8; steps > most {
		t.Errorf("%d steps, want at most %d", steps, most)
	}
}
