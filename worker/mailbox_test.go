package worker

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// TestLivenessDoesNotWaitForTheEngine: more calls than any buffer holds come in during a step that is longer than the
// lease. The line to the ledger is kept meanwhile, and all of them are answered afterwards.
func TestLivenessDoesNotWaitForTheEngine(t *testing.T) {
	const calls = 300
	c := start(t, setup{pages: 4000, slots: calls + 1, lease: 300 * time.Millisecond})
	engine := c.worker.engine.Load()
	c.device.hold = make(chan struct{})
	var wg sync.WaitGroup
	run := func(i, n int) {
		p := prompt(uint64(i), 4)
		r := c.reserve(ask{"g", p, n})
		wg.Go(func() {
			if a, err := c.generate(t.Context(), r, 0); err != nil || !slices.Equal(a.ids, say(p, n)) {
				t.Errorf("request %d: %v, said %d tokens", i, err, len(a.ids))
			}
		})
	}
	run(0, 20)
	c.await("a step that is held", func() bool { return c.worker.stepping.Load() != 0 && c.device.held.Load() })
	for i := range calls {
		run(1+i, 1)
	}
	c.await("the calls to come in", func() bool {
		engine.mail.mu.Lock()
		defer engine.mail.mu.Unlock()
		return len(engine.mail.queue) >= calls
	})
	renewed := c.renewed.Load()
	c.await("three leases of renewals", func() bool { return c.renewed.Load() >= renewed+18 })
	close(c.device.hold)
	wg.Wait()
	if c.worker.engine.Load() != engine {
		t.Error("the incarnation has ended")
	}
	c.await("drain", c.drained)
}

// A mailbox refuses peers' calls at its limit, takes everything else, and keeps the newest notice alone.
func TestMailbox(t *testing.T) {
	m := newMailbox(0)
	ran := 0
	f := func(*engine) { ran++ }
	for range minCalls {
		if err := m.call(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.call(f); !errors.Is(err, errCrowded) {
		t.Errorf("a call beyond the limit: %v", err)
	}
	if err := m.put(f); err != nil {
		t.Errorf("what the engine itself wants: %v", err)
	}
	for _, revision := range []uint64{3, 7, 5} {
		m.notify(&workerv1.Notice{Revision: revision})
	}
	queue, notice := m.take()
	for _, f := range queue {
		f(nil)
	}
	if ran != minCalls+1 || notice.GetRevision() != 7 {
		t.Errorf("%d calls ran, the notice is of revision %d", ran, notice.GetRevision())
	}
	if queue, notice := m.take(); len(queue) != 0 || notice != nil {
		t.Error("what was taken is there again")
	}
	m.end()
	if err := fmt.Sprint(m.put(f), m.call(f)); err != fmt.Sprint(ErrFenced, ErrFenced) {
		t.Errorf("after the end: %v", err)
	}
}
