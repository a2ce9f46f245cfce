package ledger

import (
	"maps"
	"slices"
	"strconv"
)

// How exhaustive_test.go tells worlds apart, and makes two of one.

// key names the world but for what cannot matter: revisions and sequences count only by their order.
func (x *world) key() string {
	k := make(key, 0, 256)
	k.flag(x.over)
	for _, d := range x.made[:x.count] {
		k.number('d', uint64(d.worker), d.pages, x.life(d.worker, d.incarnation))
		if r := x.state.reservations[d.id]; r != nil {
			k.number('r', uint64(r.state))
		}
	}
	for w := range x.workers {
		x.workerKey(&k, w)
	}
	for _, l := range x.lines {
		k.number('l', uint64(l.worker), x.life(l.worker, l.incarnation))
		for _, m := range l.proposals {
			k = append(append(k, m.name...), ',')
		}
	}
	return string(k)
}

func (x *world) workerKey(k *key, w int) {
	p, l := &x.worker[w], x.state.worker(workerName(w))
	order := []uint64{p.seen, p.mail.Revision}
	for _, a := range p.answers {
		order = append(order, a.revision)
	}
	slices.Sort(order)
	order = slices.Compact(order)
	rank := func(r uint64) uint64 { i, _ := slices.BinarySearch(order, r); return uint64(i) }
	k.flag(p.incarnation != 0)
	k.flag(p.posted)
	k.flag(p.mail.Fenced)
	k.number('p', uint64(p.lives), p.grown, p.returned, uint64(p.grows), rank(p.seen), rank(p.mail.Revision))
	for _, state := range p.requests[:x.requests] {
		k.number('s', uint64(state))
	}
	for _, a := range p.mail.Accounts {
		k.number('m', a.Pages)
	}
	for _, id := range p.mail.Orphans {
		k.number('o', x.index(id))
	}
	for _, a := range p.answers {
		k.number('a', a.pages, rank(a.revision))
	}
	if l.session != nil {
		k.flag(l.session.id == p.incarnation)
	}
	for _, a := range l.accounts {
		k.number('g', a.reserved, a.grown, a.returned)
	}
	for _, q := range l.waiters {
		k.number('w', x.index(q.of.id), uint64(q.branch), q.need, q.want)
	}
}

// key is written piece by piece.
type key []byte

func (k *key) flag(f bool) {
	if f {
		*k = append(*k, '+')
		return
	}
	*k = append(*k, '-')
}

func (k *key) number(name byte, numbers ...uint64) {
	*k = append(*k, name)
	for _, n := range numbers {
		*k = append(strconv.AppendUint(*k, n, 10), '.')
	}
}

// life says whether an incarnation is the process's own, and whether the ledger's.
func (x *world) life(w int, incarnation uint64) (bits uint64) {
	if x.worker[w].incarnation == incarnation {
		bits = 1
	}
	if x.state.session(incarnation) != nil {
		bits |= 2
	}
	return bits
}

func (x *world) index(id uint64) uint64 {
	return uint64(slices.IndexFunc(x.made[:], func(d dispatch) bool { return d.id == id }))
}

// clone is a world that goes its own way.
func (x *world) clone() *world {
	y := *x
	y.state = x.state.clone()
	y.lines = slices.Clone(x.lines)
	for i := range y.lines {
		y.lines[i].proposals = slices.Clip(y.lines[i].proposals)
	}
	for w := range y.worker {
		y.worker[w].answers = slices.Clip(y.worker[w].answers)
	}
	return &y
}

// clone copies what Apply may change.
func (s *State) clone() *State {
	c := *s
	workers, accounts, reservations := map[*worker]*worker{}, map[*account]*account{}, map[*reservation]*reservation{}
	tenants := c.cloneTenants(s)
	c.workers = nil
	for _, w := range s.workers {
		n := *w
		n.accounts, n.view = nil, nil
		for _, a := range w.accounts {
			x := *a
			x.in = c.groups[a.group]
			accounts[a] = &x
			n.accounts = append(n.accounts, &x)
		}
		n.fenced, n.orphans, n.waiters = slices.Clone(w.fenced), slices.Clone(w.orphans), slices.Clone(w.waiters)
		workers[w] = &n
		c.workers = append(c.workers, &n)
	}
	c.sessions = nil
	for _, o := range s.sessions {
		n := *o
		n.results = slices.Clone(o.results)
		if n.worker = workers[o.worker]; n.worker != nil {
			n.worker.session = &n
		}
		c.sessions = append(c.sessions, &n)
	}
	c.reservations = maps.Clone(s.reservations)
	for id, r := range s.reservations {
		n := *r
		n.worker, n.account, n.payer = workers[r.worker], accounts[r.account], tenants[r.payer]
		reservations[r], c.reservations[id] = &n, &n
	}
	for _, w := range c.workers {
		for i := range w.waiters {
			w.waiters[i].of = reservations[w.waiters[i].of]
		}
	}
	return &c
}

func (s *State) cloneTenants(of *State) map[*tenant]*tenant {
	s.groups, s.tenants, s.tenantViews = map[string]*shareGroup{}, nil, nil
	for name, g := range of.groups {
		n := *g
		n.state, n.members = s, nil
		s.groups[name] = &n
	}
	tenants := map[*tenant]*tenant{}
	for _, t := range of.tenants {
		n := *t
		n.in, n.view = s.groups[t.in.name], nil
		n.in.members = append(n.in.members, &n)
		tenants[t] = &n
		s.tenants = append(s.tenants, &n)
	}
	return tenants
}
