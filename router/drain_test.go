package router

import (
	"context"
	"testing"
	"time"
)

// A router that goes down says so first, serves on, then takes nothing new; what runs ends whole.
func TestDrainServesOnBeforeItRefuses(t *testing.T) {
	h := open(t, nil)
	release := make(chan struct{})
	h.hire("w1", nil).play = held(release)
	first := h.background("/v1/completions", hello)
	h.await("the request to run", func() bool { _, n := h.router.flights.running(); return n == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- h.router.Drain(ctx, time.Hour) }() // until ctx ends it
	h.await("the router to be unready", func() bool { return h.do("GET", "/readyz", "").status == 503 })
	second := h.background("/v1/completions", hello)
	h.await("a request that came after it to run", func() bool { r, _ := h.router.flights.running(); return r == 2 })
	close(release)
	for _, answer := range []<-chan response{first, second} {
		if r := <-answer; r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	cancel()
	<-done
	r := h.post("/v1/completions", hello)
	if id, _ := r.fault(t); r.status != 503 || id != "RTR-001" || !r.retryAfter() {
		t.Errorf("after the delay: %d %s", r.status, r.body)
	}
	if err := h.router.Drain(t.Context(), 0); err != nil {
		t.Errorf("nothing runs: %v", err)
	}
	if h.do("GET", "/healthz", "").status != 200 {
		t.Error("a router that drains is alive")
	}
}
