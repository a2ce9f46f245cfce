package router

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errDraining says that the router is going down in good order.
var errDraining = errors.New("the router is shutting down")

// drain is the router's way down: first it says that it is not ready, and takes work as before until those that send it
// have seen that; then it takes none; it has ended when nothing runs any more.
type drain struct {
	mu      sync.Mutex
	unready bool
	refuses bool
	running int
	idle    chan struct{} // closed when nothing runs, once it refuses
}

// begin counts a request in, unless none is taken any more.
func (d *drain) begin() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuses {
		return &Error{kind: kindDraining, RetryAfter: time.Second, Message: "this router is shutting down: ask another one, or try again"}
	}
	d.running++
	return nil
}

func (d *drain) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running--; d.refuses && d.running == 0 {
		close(d.idle)
	}
}

func (d *drain) ready() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unready {
		return errDraining
	}
	return nil
}

// refuse takes no more work; idle is closed when what runs has ended.
func (d *drain) refuse() (idle <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuses = true; d.idle == nil {
		if d.idle = make(chan struct{}); d.running == 0 {
			close(d.idle)
		}
	}
	return d.idle
}

// Drain makes the router unready, serves on for the delay, then takes no new work and waits until what runs has ended, or
// ctx has. Health, metrics and the admin API are served all the while.
func (r *Router) Drain(ctx context.Context, delay time.Duration) error {
	r.drain.mu.Lock()
	r.drain.unready = true
	r.drain.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
	}
	select {
	case <-r.drain.refuse():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
