package router

import (
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/consensus"
)

// A request that waits for room when the quorum goes hears of it after quorumPatience, not at the end of its queue time; one
// that runs goes on.
func TestWaitingRequestHearsOfALostQuorum(t *testing.T) {
	ledger := &sullen{}
	h := open(t, func(c *Config) {
		ledger.Node = c.Ledger.(*consensus.Node)
		c.Ledger, c.QueueTimeout = ledger, time.Minute
	})
	w := h.hire("w1", func(w *hand) { w.info.Slots = 1 })
	on := make(chan struct{})
	free := sync.OnceFunc(func() { close(on) })
	defer free()
	w.play = held(on)
	body := `{"model":"tiny","prompt":"hi","max_tokens":2}`
	runs := h.background("/v1/completions", body)
	h.await("the first one to run", func() bool { n, _ := h.router.flights.running(); return n == 1 })
	waits := h.background("/v1/completions", body)
	h.await("the second one to wait", func() bool { n, _ := h.router.queue.size(); return n == 1 })
	began := time.Now()
	ledger.lost.Store(true)
	select {
	case r := <-waits:
		if id, _ := r.fault(t); r.status != 503 || id != "LDG-001" || time.Since(began) < quorumPatience/2 {
			t.Errorf("after %v: %d %s", time.Since(began), r.status, r.body)
		}
	case <-time.After(5 * quorumPatience):
		t.Error("it waits on")
	}
	ledger.lost.Store(false)
	free()
	if r := <-runs; r.status != 200 {
		t.Errorf("the one that ran: %d %s", r.status, r.body)
	}
}
