package router

import (
	"context"
	"slices"
	"sync"
)

// gate lets a few large prompts at once be turned into tokens; tenants take turns. Small ones go past it: they are done
// before a turn would come.
type gate struct {
	mu      sync.Mutex
	free    int
	waiting map[string][]chan struct{} // by tenant, in the order they came
	tenants []string                   // with somebody waiting; the first one is next
}

// largePrompt is the bytes from which a prompt waits for its turn.
const largePrompt = 32 << 10

func newGate(most int) *gate { return &gate{free: max(1, most), waiting: map[string][]chan struct{}{}} }

// enter waits for a turn; leave must be called once after it.
func (g *gate) enter(ctx context.Context, tenant string, bytes int) (leave func(), err error) {
	if bytes < largePrompt {
		return func() {}, nil
	}
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return g.leave, nil
	}
	turn := make(chan struct{})
	if len(g.waiting[tenant]) == 0 {
		g.tenants = append(g.tenants, tenant)
	}
	g.waiting[tenant] = append(g.waiting[tenant], turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return g.leave, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting[tenant], turn); i >= 0 {
		g.drop(tenant, i)
	} else {
		g.next() // the turn came at the same time
	}
	return nil, errGone
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next()
}

// next gives a turn to the tenant whose turn it is, which goes behind the others.
func (g *gate) next() {
	if len(g.tenants) == 0 {
		g.free++
		return
	}
	tenant := g.tenants[0]
	close(g.waiting[tenant][0])
	g.drop(tenant, 0)
	if len(g.waiting[tenant]) > 0 {
		g.tenants = append(g.tenants[1:], tenant)
	}
}

func (g *gate) drop(tenant string, i int) {
	g.waiting[tenant] = slices.Delete(g.waiting[tenant], i, i+1)
	if len(g.waiting[tenant]) == 0 {
		delete(g.waiting, tenant)
		g.tenants = slices.DeleteFunc(g.tenants, func(t string) bool { return t == tenant })
	}
}
