package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// gate lets waiters through when it opens, once for each opening: they spin, then let other goroutines run, then sleep.
type gate struct {
	generation atomic.Uint32
	asleep     atomic.Int32
	mu         sync.Mutex
	wake       sync.Cond
}

func (g *gate) init() { g.wake.L = &g.mu }

// open lets through all who wait for the next generation.
func (g *gate) open() {
	g.generation.Add(1)
	if g.asleep.Load() > 0 { // who is counted later looks at the generation again
		g.mu.Lock()
		g.wake.Broadcast()
		g.mu.Unlock()
	}
}

// wait returns when the generation is another than the given one.
func (g *gate) wait(was uint32) {
	var start time.Time
	for s := 1; g.generation.Load() == was; s++ {
		if s%spins != 0 {
			continue
		}
		runtime.Gosched()
		if start.IsZero() {
			start = time.Now()
		} else if time.Since(start) > idleLimit {
			g.sleep(was)
			return
		}
	}
}

func (g *gate) sleep(was uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asleep.Add(1)
	for g.generation.Load() == was {
		g.wake.Wait()
	}
	g.asleep.Add(-1)
}

// barrier is where a fixed number of goroutines meet: none goes on before all have come. What each wrote before is seen
// by all after.
type barrier struct {
	size    int32
	arrived atomic.Int32
	gate    gate
}

func (b *barrier) init(size int) {
	b.size = int32(size)
	b.gate.init()
}

func (b *barrier) meet() {
	if b.size == 1 {
		return
	}
	was := b.gate.generation.Load() // it can't change before this one arrives
	if b.arrived.Add(1) < b.size {
		b.gate.wait(was)
		return
	}
	b.arrived.Store(0)
	b.gate.open()
}
