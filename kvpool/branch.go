package kvpool

// branch is one sequence of tokens: by group the pages of its blocks, counted from position 0.
type branch struct {
	account AccountID
	salt    Hash // name of the empty prefix
	key     Key
	tokens  int       // positions whose keys and values are in the pages
	tail    []int32   // tokens of the block that is not full
	node    nodeID    // index node of the last full block, noNode before the first
	name    Hash      // name of the prefix of full blocks
	groups  []holding // by layer group
}

// holding is what a branch has in one group: the pages of blocks [lo, len(pages)); those of [core, len(pages)) are part
// of its Demand.
type holding struct {
	pages    []PageID
	lo, core int
}

// Open returns a branch without tokens. Key and root name its prefixes: see DeriveKey and Root.
func (p *Pool) Open(a AccountID, key Key, root Hash) BranchID {
	var id BranchID
	if last := len(p.closed) - 1; last >= 0 {
		id = p.closed[last]
		p.closed = p.closed[:last]
	} else {
		id = BranchID(len(p.branches))
		p.branches = append(p.branches, branch{groups: make([]holding, len(p.geometry.Groups))})
	}
	b := &p.branches[id]
	b.account, b.key, b.salt = a, key, root
	b.reset()
	return id
}

func (b *branch) reset() {
	b.tokens, b.tail, b.node, b.name = 0, b.tail[:0], noNode, b.salt
	for g := range b.groups {
		b.groups[g] = holding{pages: b.groups[g].pages[:0]}
	}
}

// Tokens is the number of positions whose keys and values are in the branch's pages.
func (p *Pool) Tokens(id BranchID) int { return p.branches[id].tokens }

// Pages is the branch's block table by group: the page of each block counted from position 0, NoPage where a window has
// passed. It holds until the branch's next change.
func (p *Pool) Pages(id BranchID, out [][]PageID) [][]PageID {
	for g := range p.branches[id].groups {
		out = append(out, p.branches[id].groups[g].pages)
	}
	return out
}

// Match gives an empty branch the longest known prefix of tokens, at most ⌊(len−1)/block⌋ blocks, and returns its
// length. Everything that the hit uses is held, in every group; without room for that it fails and changes nothing.
func (p *Pool) Match(id BranchID, tokens []int32) (int, error) {
	b := &p.branches[id]
	if b.tokens != 0 || len(b.tail) != 0 {
		panic("kvpool: match on a branch that has tokens")
	}
	path := p.index.walk(b, tokens, (len(tokens)-1)/p.geometry.BlockSize)
	path = path[:p.index.longest(p.geometry, path)]
	if len(path) == 0 {
		return 0, nil
	}
	need := 0
	p.eachHit(path, func(_, _ int, page PageID) {
		if p.pages[page].core == 0 && p.pages[page].charge != b.account {
			need++
		}
	})
	if room := p.Room(b.account); need > room {
		return 0, &ShortfallError{b.account, need, room}
	}
	for g := range b.groups {
		first := p.firstNeeded(g, len(path)*p.geometry.BlockSize)
		h := &b.groups[g]
		h.lo, h.core = first, first
		for range first {
			h.pages = append(h.pages, NoPage)
		}
	}
	p.eachHit(path, func(g, _ int, page PageID) {
		p.hold(page, b.account, true)
		b.groups[g].pages = append(b.groups[g].pages, page)
	})
	b.tokens = len(path) * p.geometry.BlockSize
	p.stand(b, path[len(path)-1])
	return b.tokens, nil
}

// eachHit calls f for every page that a hit of the nodes in path uses, by group and block.
func (p *Pool) eachHit(path []nodeID, f func(group, block int, page PageID)) {
	for g := range p.geometry.Groups {
		for i := p.firstNeeded(g, len(path)*p.geometry.BlockSize); i < len(path); i++ {
			f(g, i, p.index.pages[p.index.at(path[i], g)])
		}
	}
}

// firstNeeded is the first block that the computation of the given position reads.
func (p *Pool) firstNeeded(g, position int) int {
	return p.geometry.FirstBlock(p.geometry.Groups[g], position+1)
}

// Need is what Extend to upto positions would newly charge, net of what it takes out of the branch's Demand.
func (p *Pool) Need(id BranchID, upto int) (account, overhead int) {
	b := &p.branches[id]
	for g, lg := range p.geometry.Groups {
		h := &b.groups[g]
		core := max(h.core, p.geometry.FirstBlock(lg, upto))
		for i := h.core; i < min(core, len(h.pages)); i++ {
			if p.pages[h.pages[i]].core == 1 {
				account--
				overhead++
			}
		}
		if missing := p.geometry.Blocks(upto) - len(h.pages); missing > 0 {
			inside := min(missing, p.geometry.Blocks(upto)-core)
			account += inside
			overhead += missing - inside
		}
	}
	return account, overhead
}

// Extend gives the branch every page that computing positions [Tokens, upto) needs, in all groups, or fails with a
// *ShortfallError and changes nothing.
func (p *Pool) Extend(id BranchID, upto int) error {
	b := &p.branches[id]
	account, overhead := p.Need(id, upto)
	if room := p.Room(b.account); account > room {
		return &ShortfallError{b.account, account, room}
	}
	if room := p.Room(Overhead); overhead > room {
		return &ShortfallError{Overhead, overhead, room}
	}
	for g, lg := range p.geometry.Groups {
		h := &b.groups[g]
		core := max(h.core, p.geometry.FirstBlock(lg, upto))
		for i := h.core; i < min(core, len(h.pages)); i++ {
			p.uncore(h.pages[i])
		}
		h.core = core
	}
	for g := range p.geometry.Groups {
		h := &b.groups[g]
		for i := len(h.pages); i < p.geometry.Blocks(upto); i++ {
			page := p.take(g)
			p.hold(page, b.account, i >= h.core)
			h.pages = append(h.pages, page)
		}
	}
	return nil
}

// Advance says that keys and values of tokens were computed at the branch's next positions: full blocks get their names,
// and pages that the next position cannot read are let go. The step that wrote them must have retired.
func (p *Pool) Advance(id BranchID, tokens []int32) {
	b := &p.branches[id]
	b.tokens += len(tokens)
	bs := p.geometry.BlockSize
	for len(tokens) > 0 {
		n := min(bs-len(b.tail), len(tokens))
		b.tail = append(b.tail, tokens[:n]...)
		tokens = tokens[n:]
		if len(b.tail) == bs {
			p.name(b, (b.tokens-len(tokens))/bs-1)
			b.tail = b.tail[:0]
		}
	}
	for g := range p.geometry.Groups {
		h := &b.groups[g]
		first := min(p.firstNeeded(g, b.tokens), len(h.pages))
		for ; h.lo < first; h.lo++ {
			p.drop(h.pages[h.lo], h.lo >= h.core)
			h.pages[h.lo] = NoPage
		}
		h.core = max(h.core, h.lo)
	}
}

// name enters the branch's block, whose tokens are in tail, into the index.
func (p *Pool) name(b *branch, block int) {
	n := p.index.put(b.node, Chain(b.key, b.name, b.tail), b.tail)
	changed := false
	for g := range b.groups {
		if h := &b.groups[g]; h.pages[block] != NoPage {
			changed = p.settleBlock(b, h, block, n, g) || changed
		}
	}
	p.stand(b, n)
	if changed {
		p.event(n)
	}
}

// settleBlock makes the branch's page of a block the index's, or the other way round when the index has one: their bytes
// are equal. An idle one gives way, a charged one is shared; one that waits for another account stays beside it.
func (p *Pool) settleBlock(b *branch, h *holding, block int, n nodeID, g int) (changed bool) {
	own, slot := h.pages[block], &p.index.pages[p.index.at(n, g)]
	known := *slot
	switch {
	case known == NoPage:
	case p.pages[known].where == inIdle:
		p.idle.remove(p.pages, known)
		p.pages[known].node, p.pages[known].where = noNode, inFree
		p.free = append(p.free, known)
	case known != own && p.pages[known].charge == b.account:
		core := block >= h.core
		p.hold(known, b.account, core)
		p.drop(own, core)
		h.pages[block] = known
		return false
	default:
		return false
	}
	*slot = own
	p.pages[own].node = n
	return known == NoPage
}

// stand makes n the node of the branch's last full block.
func (p *Pool) stand(b *branch, n nodeID) {
	p.index.nodes[n].refs++
	if b.node != noNode {
		p.index.nodes[b.node].refs--
		p.index.prune(b.node)
	}
	b.node, b.name = n, p.index.nodes[n].name
}

// Release lets go of everything that the branch holds; it is empty then. Full blocks stay idle until their pages are
// wanted, deep ones first.
func (p *Pool) Release(id BranchID) {
	b := &p.branches[id]
	for g := range b.groups {
		h := &b.groups[g]
		for i := len(h.pages) - 1; i >= h.lo; i-- {
			p.drop(h.pages[i], i >= h.core)
		}
	}
	if b.node != noNode {
		p.index.nodes[b.node].refs--
		p.index.prune(b.node)
	}
	b.reset()
}

// Close releases the branch and forgets it.
func (p *Pool) Close(id BranchID) {
	p.Release(id)
	p.closed = append(p.closed, id)
}
