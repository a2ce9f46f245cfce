package router

import "sync"

// claims are the reservations that this router has asked for and has no answer to, by worker: the view may not show
// them yet, and whoever is placed next must know. For a moment both do, which errs to the safe side.
type claims struct {
	mu      sync.Mutex
	pending map[string]claim
	groups  map[string]uint64 // by share group, what it will claim of its cap
}

type claim struct{ pages, slots uint64 }

func (c *claims) add(group string, d *decision) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.groups[group] += d.chosen.Rise
	x := c.pending[d.Worker]
	c.pending[d.Worker] = claim{x.pages + d.chosen.Pages, x.slots + d.chosen.SlotsNeeded}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.groups[group] -= d.chosen.Rise; c.groups[group] == 0 {
			delete(c.groups, group)
		}
		x := c.pending[d.Worker]
		if x = (claim{x.pages - d.chosen.Pages, x.slots - d.chosen.SlotsNeeded}); x.slots == 0 {
			delete(c.pending, d.Worker)
			return
		}
		c.pending[d.Worker] = x
	})
}

// open says whether any answer is awaited.
func (c *claims) open() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) > 0
}

func (c *claims) of(worker string) claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[worker]
}

func (c *claims) ofGroup(group string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.groups[group]
}
