package kvpool

// Event is the state of one block of a prefix, for those who choose a worker by what it has cached.
type Event struct {
	Name   Hash
	Full   bool // there are full-attention groups, and each has the block's page
	Window bool // there are window groups, and each has the block's page
}

// event notes the state of a node for Events.
func (p *Pool) event(n nodeID) { p.events = append(p.events, p.state(n)) }

func (p *Pool) state(n nodeID) Event {
	var have, want [2]int
	for g, lg := range p.geometry.Groups {
		want[lg.Kind]++
		if p.index.pages[p.index.at(n, g)] != NoPage {
			have[lg.Kind]++
		}
	}
	return Event{
		Name:   p.index.nodes[n].name,
		Full:   want[Full] > 0 && have[Full] == want[Full],
		Window: want[Sliding] > 0 && have[Sliding] == want[Sliding],
	}
}

// Events appends what has changed since the last call to out, in order.
func (p *Pool) Events(out []Event) []Event {
	out = append(out, p.events...)
	p.events = p.events[:0]
	return out
}

// Known appends the state of every block in the index to out and forgets pending events: out is the whole truth.
func (p *Pool) Known(out []Event) []Event {
	p.events = p.events[:0]
	for _, n := range p.index.byName {
		out = append(out, p.state(n))
	}
	return out
}

// detach takes an idle page off its node, which goes when nothing else keeps it.
func (p *Pool) detach(id PageID) {
	n := p.pages[id].node
	p.index.pages[p.index.at(n, int(p.pages[id].group))] = NoPage
	p.pages[id].node = noNode
	p.event(n)
	p.index.prune(n)
}
