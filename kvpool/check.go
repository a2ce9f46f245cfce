package kvpool

import (
	"errors"
	"fmt"
)

// Check recomputes the pool's state from its branches and proves the invariants of the package comment. It is for tests
// and audits: its cost is that of the whole pool.
func (p *Pool) Check() error {
	holders, core, owner := p.recount()
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	charged, leaving := make([]int, len(p.accounts)), make([]int, len(p.accounts))
	for i := range p.pages {
		pg := &p.pages[i]
		if pg.holders != holders[i] || pg.core != core[i] {
			fault("K2: page %d counts %d holders, %d core; branches have %d, %d", i, pg.holders, pg.core, holders[i], core[i])
		}
		if pg.charge != nobody {
			charged[pg.charge]++
			if pg.where == inLimbo {
				leaving[pg.charge]++
			}
		}
		if err := p.checkPlace(PageID(i), owner[i]); err != nil {
			faults = append(faults, err)
		}
	}
	grants := 0
	for a, acc := range p.accounts {
		grants += acc.grant
		if acc.leaving != leaving[a] {
			fault("K5: account %d says that %d pages leave, it is %d", a, acc.leaving, leaving[a])
		}
		if acc.charged != charged[a] || acc.charged > acc.grant {
			fault("K3: account %d says %d charged, its pages are %d, its grant %d", a, acc.charged, charged[a], acc.grant)
		}
	}
	if grants != p.granted {
		fault("K3: grants add up to %d, not to %d", grants, p.granted)
	}
	if grants > len(p.pages) {
		fault("K3: grants of %d pages of %d", grants, len(p.pages))
	}
	held := 0
	for _, n := range holders {
		held += int(n)
	}
	c := p.Counts()
	if held != c.Held {
		fault("K2: branches hold %d pages, kept as %d", held, c.Held)
	}
	if spare := grants - c.Charged - c.Overhead; c.Free+c.Idle < spare {
		fault("K3: %d free and %d idle pages, but accounts may still take %d", c.Free, c.Idle, spare)
	}
	return errors.Join(append(faults, p.checkLists(), p.checkIndex())...)
}

// recount derives, by page, the holders, those whose Demand it is part of, and the account of one of these.
func (p *Pool) recount() (holders, core []int32, owner []AccountID) {
	holders, core, owner = make([]int32, len(p.pages)), make([]int32, len(p.pages)), make([]AccountID, len(p.pages))
	for i := range owner {
		owner[i] = Overhead
	}
	for b := range p.branches {
		for g := range p.branches[b].groups {
			h := &p.branches[b].groups[g]
			for i := h.lo; i < len(h.pages); i++ {
				holders[h.pages[i]]++
				if i >= h.core {
					core[h.pages[i]]++
					owner[h.pages[i]] = p.branches[b].account
				}
			}
		}
	}
	return holders, core, owner
}

func (p *Pool) checkPlace(id PageID, owner AccountID) error {
	pg := &p.pages[id]
	switch pg.where {
	case inUse:
		if pg.holders == 0 || pg.charge != owner {
			return fmt.Errorf("K2: page %d has %d holders, is charged to %d, want %d", id, pg.holders, pg.charge, owner)
		}
	case inLimbo:
		if pg.holders != 0 || pg.charge == nobody || p.begun == p.retired {
			return fmt.Errorf("K5: page %d waits for a step: %d holders, charged to %d", id, pg.holders, pg.charge)
		}
	case inFree:
		if pg.holders != 0 || pg.charge != nobody || pg.node != noNode {
			return fmt.Errorf("K1: free page %d: %d holders, charged to %d, node %d", id, pg.holders, pg.charge, pg.node)
		}
	case inIdle:
		if pg.holders != 0 || pg.charge != nobody || pg.node == noNode {
			return fmt.Errorf("K1: idle page %d: %d holders, charged to %d, node %d", id, pg.holders, pg.charge, pg.node)
		}
	}
	return nil
}

// checkLists proves that free and idle list hold exactly the pages that say so.
func (p *Pool) checkLists() error {
	rank := make(map[PageID]int, p.idle.len)
	for id := p.idle.front; id != NoPage; id = p.pages[id].next {
		rank[id] = len(rank)
	}
	free := make(map[PageID]bool, len(p.free))
	for _, id := range p.free {
		free[id] = true
	}
	if len(rank) != p.idle.len || len(free) != len(p.free) {
		return fmt.Errorf("K1: %d pages in the idle list of %d, %d in the free list of %d", len(rank), p.idle.len, len(free), len(p.free))
	}
	for i := range p.pages {
		_, idle := rank[PageID(i)]
		if idle != (p.pages[i].where == inIdle) || free[PageID(i)] != (p.pages[i].where == inFree) {
			return fmt.Errorf("K1: page %d is in a list that it does not know of", i)
		}
	}
	return p.checkLeafFirst(rank)
}

// checkLeafFirst proves that idle pages of full groups stand behind those of the nodes below them.
func (p *Pool) checkLeafFirst(rank map[PageID]int) error {
	for _, n := range p.index.byName {
		parent := p.index.nodes[n].parent
		for g, lg := range p.geometry.Groups {
			if parent == noNode || lg.Kind != Full {
				continue
			}
			below, above := p.index.pages[p.index.at(n, g)], p.index.pages[p.index.at(parent, g)]
			if below == NoPage {
				continue
			}
			if above == NoPage {
				return fmt.Errorf("K7: node %d has a page of full group %d, its parent %d has none", n, g, parent)
			}
			ra, idleAbove := rank[above]
			rb, idleBelow := rank[below]
			if idleAbove && (!idleBelow || ra < rb) {
				return fmt.Errorf("K7: page %d goes before page %d of the node below it", above, below)
			}
		}
	}
	return nil
}

// checkIndex proves that nodes and pages name each other, and that every node has a reason to live.
func (p *Pool) checkIndex() error {
	refs, pages := make([]int32, len(p.index.nodes)), 0
	for b := range p.branches {
		if n := p.branches[b].node; n != noNode {
			refs[n]++
		}
	}
	for name, n := range p.index.byName {
		nd := p.index.nodes[n]
		if nd.name != name {
			return fmt.Errorf("K6: node %d is found under a name that is not its own", n)
		}
		if nd.parent != noNode {
			refs[nd.parent]++
		}
		for g := range p.geometry.Groups {
			id := p.index.pages[p.index.at(n, g)]
			if id == NoPage {
				continue
			}
			pages++
			if p.pages[id].node != n || p.pages[id].group != int32(g) {
				return fmt.Errorf("K6: node %d has page %d, which says node %d, group %d", n, id, p.pages[id].node, p.pages[id].group)
			}
		}
	}
	for _, n := range p.index.byName {
		if p.index.nodes[n].refs != refs[n] {
			return fmt.Errorf("K6: node %d counts %d references, has %d", n, p.index.nodes[n].refs, refs[n])
		}
		if refs[n] == 0 && !p.index.held(n) {
			return fmt.Errorf("K6: nothing keeps node %d", n)
		}
	}
	for i := range p.pages {
		if p.pages[i].node != noNode {
			pages--
		}
	}
	if pages != 0 {
		return fmt.Errorf("K6: pages and nodes differ by %d in what is indexed", pages)
	}
	return nil
}
