package router

import "sync"

// bell tells any number of waiters that something changed.
type bell struct {
	mu      sync.Mutex
	changed chan struct{}
}

func newBell() *bell { return &bell{changed: make(chan struct{})} }

// heard is closed by the next ring after the call. Who wants to miss nothing calls it before looking.
func (b *bell) heard() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.changed)
	b.changed = make(chan struct{})
}
