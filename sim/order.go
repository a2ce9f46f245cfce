package sim

import (
	"sync"

	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// order is who precedes whom on workers, as far as the router's end of their streams shows: who may never have to let go.
type order struct {
	mu     sync.Mutex
	living map[uint64]map[uint64]*place // by incarnation and order key
}

// place is a dispatched request's. It is first while nobody before it can be on the worker.
type place struct {
	incarnation, key uint64
	first            bool
	left             int // branches that have not ended
}

// enter notes a dispatch. Those behind it are not first any more.
func (o *order) enter(r *workerv1.GenerateRequest) *place {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.living == nil {
		o.living = map[uint64]map[uint64]*place{}
	}
	here := o.living[r.Incarnation]
	if here == nil {
		here = map[uint64]*place{}
		o.living[r.Incarnation] = here
	}
	p := &place{incarnation: r.Incarnation, key: r.Key.GetIndex(), first: true, left: int(max(1, r.Branches))}
	for key, other := range here {
		if key < p.key {
			p.first = false
		} else {
			other.first = false
		}
	}
	here[p.key] = p
	return p
}

// finished notes the end of a branch, and says whether it let go though nobody was before it. A request that does not end
// by itself stays: nobody knows when its worker learns that nobody wants it.
func (o *order) finished(p *place, f *workerv1.Finished) (wronged bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.left--; p.left == 0 {
		delete(o.living[p.incarnation], p.key)
	}
	return p.first && f.Branch == 0 && f.Preemptions > 0
}
