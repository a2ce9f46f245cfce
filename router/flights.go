package router

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// flight is a request that a worker runs for this router.
type flight struct {
	tenant   string
	worker   string
	in       uint64 // incarnation
	cut      context.CancelCauseFunc
	max      int
	produced int
	first    time.Time // of the first token
}

// flights are the requests on workers, to guess when one of them will end.
type flights struct {
	mu  sync.Mutex
	all map[*flight]struct{}
}

func (s *flights) begin(tenant string, res *reservation, maxTokens int, cut context.CancelCauseFunc) *flight {
	f := &flight{tenant: tenant, worker: res.worker, in: res.in.Incarnation, max: maxTokens, cut: cut}
	s.mu.Lock()
	s.all[f] = struct{}{}
	s.mu.Unlock()
	return f
}

func (s *flights) produced(f *flight, tokens int, now time.Time) {
	s.mu.Lock()
	if f.produced == 0 {
		f.first = now
	}
	f.produced += tokens
	s.mu.Unlock()
}

func (s *flights) end(f *flight) {
	s.mu.Lock()
	delete(s.all, f)
	s.mu.Unlock()
}

// errFenced cuts a call to an incarnation that has ended: what it would still say is no longer its to say.
var errFenced = errors.New("the ledger has ended the worker's incarnation")

// fence cuts the flights of incarnations that do not live.
func (s *flights) fence(living []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.all {
		if !slices.Contains(living, f.in) {
			f.cut(errFenced)
		}
	}
}

// warden cuts off what runs on fenced incarnations, until ctx ends: a worker that hangs does not close its streams.
func (r *Router) warden(ctx context.Context) {
	var before []uint64
	for {
		changed := r.cfg.Ledger.Changed()
		var living []uint64
		for _, w := range r.cfg.Ledger.View().Workers {
			living = append(living, w.Incarnation)
		}
		if !slices.Equal(before, living) {
			r.flights.fence(living)
			r.bell.ring()
		}
		before = living
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// running is how many requests there are, and the tokens that they have produced so far.
func (s *flights) running() (requests, tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.all {
		tokens += f.produced
	}
	return len(s.all), tokens
}

// byTenant is how many requests each tenant has, and the tokens that they have produced so far.
func (s *flights) byTenant() map[string]load {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]load{}
	for f := range s.all {
		l := out[f.tenant]
		l.add(1, f.produced)
		out[f.tenant] = l
	}
	return out
}

// earliest guesses when the first of the requests on a decision's workers will have generated all that it may, at the
// speed that each has had so far.
func (s *flights) earliest(d *decision, now time.Time) time.Duration {
	workers := map[string]bool{}
	for _, c := range d.Scored {
		workers[c.Worker] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	best := time.Duration(0)
	for f := range s.all {
		if !workers[f.worker] || f.produced < 2 {
			continue
		}
		each := now.Sub(f.first) / time.Duration(f.produced-1)
		if left := each * time.Duration(f.max-f.produced); best == 0 || left < best {
			best = max(left, time.Second)
		}
	}
	if best == 0 {
		return defaultRelease
	}
	return min(best, time.Minute)
}
