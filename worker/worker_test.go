package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
)

func prompt(seed uint64, n int) []int32 {
	rng := rand.New(rand.NewPCG(seed, 9))
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(rng.IntN(vocab))
	}
	return out
}

func TestOneRequest(t *testing.T) {
	c := start(t, setup{pages: 200, slots: 8})
	p := prompt(1, 70) // three chunks
	for _, cached := range []uint32{0, 68} {
		a, err := c.generate(t.Context(), c.reserve(ask{"g", p, 20}), 0)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a.ids, say(p, 20)) {
			t.Errorf("W4: said %v, want %v", a.ids, say(p, 20))
		}
		if a.finish.Reason != ledgerv1.FinishReason_FINISH_REASON_LENGTH || a.finish.CachedTokens != cached {
			t.Errorf("finished %v, want %d tokens cached", a.finish, cached)
		}
	}
	c.await("drain", c.drained)
}

func TestStopID(t *testing.T) {
	c := start(t, setup{pages: 200, slots: 8})
	p := prompt(2, 9)
	r := c.reserve(ask{"g", p, 50})
	r.StopIds = []int32{say(p, 7)[6]}
	a, err := c.generate(t.Context(), r, 0)
	if err != nil || !slices.Equal(a.ids, say(p, 7)) || a.finish.Reason != ledgerv1.FinishReason_FINISH_REASON_STOP {
		t.Errorf("%v %v %v", a.ids, a.finish, err)
	}
}

// TestShortOfPages runs many requests of three groups on a pool that holds a fraction of them: nothing fails, nothing is
// cut, every answer is as alone, and all pages come back.
func TestShortOfPages(t *testing.T) { // W2, W3, W4, W6
	for _, pages := range []int{45, 60, 150} {
		t.Run(fmt.Sprint(pages), func(t *testing.T) {
			c := start(t, setup{pages: pages, slots: 16})
			shared := prompt(3, 24)
			var wg sync.WaitGroup
			preempted := make(chan uint32, 40)
			for i := range 40 {
				wg.Go(func() {
					p := append(slices.Clone(shared[:(i%4)*8]), prompt(uint64(i), 1+i%50)...)
					a, err := c.generate(t.Context(), c.reserve(ask{fmt.Sprint("g", i%3), p, 30}), 0)
					if err != nil || !slices.Equal(a.ids, say(p, 30)) {
						t.Errorf("request %d: %v, said %v", i, err, a.ids)
						return
					}
					preempted <- a.finish.Preemptions
				})
			}
			wg.Wait()
			c.await("drain", c.drained)
			close(preempted)
			n := 0
			for p := range preempted {
				n += int(p)
			}
			t.Logf("%d preemptions, %d steps", n, c.device.steps)
			if pages < 100 && n == 0 {
				t.Error("nothing was preempted: the pool is too large for this test")
			}
		})
	}
}

// TestFitsAlone runs requests one by one whose longest need is all that the pool has, or nearly: each comes to its end.
func TestFitsAlone(t *testing.T) { // P1, P2
	const pages = 60
	c := start(t, setup{pages: pages, slots: 4})
	w := c.view().Worker("w1")
	asked := 0
	for n := 1; n < 90; n += 2 {
		for most := 20; most < 200; most += 13 {
			if need := w.Geometry.Demand(n + most).Pages; need < int(w.Capacity)-2 || need > int(w.Capacity) {
				continue
			}
			asked++
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			p := prompt(uint64(n), n)
			a, err := c.generate(ctx, c.reserve(ask{"g", p, most}), 0)
			cancel()
			if err != nil || !slices.Equal(a.ids, say(p, most)) {
				t.Fatalf("prompt of %d, %d tokens more: %v, said %d", n, most, err, len(a.ids))
			}
		}
	}
	if asked < 20 {
		t.Errorf("only %d requests are near the pool's size", asked)
	}
	c.await("drain", c.drained)
}

func TestCancelsLeaveNothing(t *testing.T) { // W5
	c := start(t, setup{pages: 150, slots: 64})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			p := prompt(uint64(i%20), 3+i)
			r := c.reserve(ask{"g", p, 100})
			a, err := c.generate(t.Context(), r, 1+i%40)
			if err != nil || !slices.Equal(a.ids, say(p, len(a.ids))) {
				t.Errorf("request %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	c.await("drain", c.drained)
}

func TestNoTokenToChoose(t *testing.T) { // W6
	c := start(t, setup{pages: 150, slots: 4})
	c.device.broken.Store(true)
	if _, err := c.generate(t.Context(), c.reserve(ask{"g", prompt(1, 9), 5}), 0); status.Code(err) != codes.Internal {
		t.Errorf("ended with %v", err)
	}
	c.await("drain", c.drained)
	c.device.broken.Store(false)
	if a, err := c.generate(t.Context(), c.reserve(ask{"g", prompt(1, 9), 5}), 0); err != nil || len(a.ids) != 5 {
		t.Errorf("after it: %v, %v", a.ids, err)
	}
}

// TestLogitsThatAreNoNumbers: a prompt whose scores are none fails too, and nothing of its step is found in the cache.
func TestLogitsThatAreNoNumbers(t *testing.T) { // W6
	c := start(t, setup{pages: 150, slots: 4})
	for _, scored := range []bool{false, true} {
		c.device.broken.Store(true)
		p := prompt(uint64(7), 20)
		r := c.reserve(ask{"g", p, 5})
		if scored {
			r = c.reserve(ask{"g", p, 0})
			r.PromptScoring = &workerv1.Scoring{}
		}
		if _, err := c.generate(t.Context(), r, 0); status.Code(err) != codes.Internal {
			t.Errorf("scored %v: ended with %v", scored, err)
		}
	}
	c.device.broken.Store(false)
	a, err := c.generate(t.Context(), c.reserve(ask{"g", prompt(7, 20), 5}), 0)
	if err != nil || len(a.ids) != 5 || a.finish.CachedTokens > firstChunk { // a chunk before it had no logits
		t.Errorf("after it: %v, %v, %v", a.ids, a.finish, err)
	}
}

func TestBrokenLine(t *testing.T) {
	c := start(t, setup{pages: 120, slots: 16})
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			p := prompt(uint64(i), 20)
			a, err := c.generate(t.Context(), c.reserve(ask{"g", p, 60}), 0)
			if err != nil || !slices.Equal(a.ids, say(p, 60)) {
				t.Errorf("request %d: %v, said %d tokens", i, err, len(a.ids))
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for {
		select {
		case <-done:
			c.await("drain", c.drained)
			return
		case <-time.After(5 * time.Millisecond):
			c.breakStreams()
		}
	}
}

// A router that hangs is left before the lease is up; the incarnation, and what it runs, goes on.
func TestSilentRouter(t *testing.T) {
	c := start(t, setup{pages: 150, slots: 16, lease: 1500 * time.Millisecond})
	before := c.worker.engine.Load()
	c.silent.Store(true)
	attached := c.attached.Load()
	c.await("the worker to attach elsewhere", func() bool { return c.attached.Load() > attached })
	c.silent.Store(false)
	if _, err := c.generate(t.Context(), c.reserve(ask{"g", prompt(1, 30), 20}), 0); err != nil {
		t.Error(err)
	}
	if c.worker.engine.Load() != before {
		t.Error("the incarnation has ended")
	}
	attached = c.attached.Load()
	time.Sleep(2 * c.worker.cfg.Lease)
	if c.attached.Load() > attached+1 { // it may just have lost patience
		t.Error("a router that answers is left")
	}
}

func TestFencedWorkerStartsAnew(t *testing.T) {
	c := start(t, setup{pages: 150, slots: 16})
	c.device.hold = make(chan struct{})
	r := c.reserve(ask{"g", prompt(1, 20), 300})
	failed := make(chan error, 1)
	first := make(chan struct{}, 1)
	go func() {
		s, err := c.client.Generate(t.Context(), r)
		for err == nil {
			if _, err = s.Recv(); err == nil {
				select {
				case first <- struct{}{}:
				default:
				}
			}
		}
		failed <- err
	}()
	<-first
	was := c.view().Worker("w1").Incarnation
	c.apply(&ledgerv1.Proposal{Command: &ledgerv1.Command{Kind: &ledgerv1.Command_Tick{Tick: &ledgerv1.Tick{DeltaMs: 1 << 30, Live: []uint64{c.router}}}}})
	close(c.device.hold)
	if err := <-failed; status.Code(err) != codes.Aborted {
		t.Errorf("the request of a fenced incarnation ended with %v", err)
	}
	c.await("a new incarnation", func() bool {
		is := c.view().Worker("w1").Incarnation
		return is != 0 && is != was && c.worker.Ready() == nil
	})
	p := prompt(4, 30)
	a, err := c.generate(t.Context(), c.reserve(ask{"g", p, 10}), 0)
	if err != nil || !slices.Equal(a.ids, say(p, 10)) {
		t.Errorf("after a fence: %v, %v", a.ids, err)
	}
	c.await("drain", c.drained)
}

func TestOrphansAreBuried(t *testing.T) {
	c := start(t, setup{pages: 150, slots: 16})
	r := c.reserve(ask{"g", prompt(1, 20), 30})
	c.propose(&ledgerv1.Command{Kind: &ledgerv1.Command_Drop{Drop: &ledgerv1.Drop{Reservation: r.Reservation}}})
	c.await("drain", c.drained)
	if _, err := c.generate(context.Background(), r, 0); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a dropped reservation was dispatched: %v", err)
	}
}
