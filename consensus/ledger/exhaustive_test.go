package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// event is one way that a world goes on. It reports what went wrong at once; check sees the rest.
type event struct {
	name string
	do   func(x *world) error
}

// events are all ways that x can go on.
func events(x *world) []event {
	out := routerEvents(x)
	for w := range x.workers {
		out = append(out, workerEvents(x, w)...)
	}
	for i, l := range x.lines {
		name := fmt.Sprintf("a proposal of %s's #%d reaches the log", workerName(l.worker), l.incarnation)
		out = append(out, event{name, func(x *world) error { return x.arrive(i) }})
	}
	return out
}

func routerEvents(x *world) (out []event) {
	add := func(name string, do func(x *world)) {
		out = append(out, event{name, func(x *world) error { do(x); return nil }})
	}
	if x.count < x.requests && !x.over {
		for w := range x.workers {
			for pages := range uint64(worldPages) {
				add(fmt.Sprintf("reserve %d on %s", pages+1, workerName(w)), func(x *world) { x.reserve(w, pages+1) })
			}
		}
	}
	for i, d := range x.made[:x.count] {
		add(fmt.Sprintf("dispatch %d arrives", i), func(x *world) { x.deliver(i) })
		if r := x.state.reservations[d.id]; r != nil && r.state == stateReserved && !x.over {
			add(fmt.Sprintf("drop %d", i), func(x *world) { x.drop(d) })
		}
	}
	if !x.over && x.count > 0 {
		add("the router's session ends", func(x *world) {
			x.over = true
			x.expire(x.router.session)
		})
	}
	return out
}

func (x *world) reserve(w int, pages uint64) {
	living := x.state.worker(workerName(w)).session
	if living == nil {
		return
	}
	most := uint64(worldPages)
	if x.cap > 0 { // so that growth goes beyond what a request was taken for
		most = pages
	}
	r := x.state.Apply(x.router.under(reserveBy("g", reserveCommand(workerName(w), living.id, "g", pages, most))))
	if k := r.GetReserved(); k != nil {
		x.made[x.count] = dispatch{id: k.Reservation, incarnation: living.id, pages: pages, worker: w}
		x.count++
	}
}

func (x *world) drop(d dispatch) {
	x.state.Apply(x.router.under(dropCommand(d.id)))
	if x.fault == dropFreesAtOne {
		r := x.state.reservations[d.id]
		r.settle()
		r.account.reserved -= r.pages
		r.worker.granted -= r.pages
		x.state.refund(r)
		x.state.remove(r)
		r.worker.serve(nil, 0)
	}
}

// expire lets a term pass in which everyone but one session was heard from.
func (x *world) expire(session uint64) {
	var live []uint64
	for _, c := range x.state.sessions {
		if c.id != session {
			live = append(live, c.id)
		}
	}
	x.state.Apply(ticked(3000, live...))
}

func workerEvents(x *world, w int) (out []event) {
	p, name := &x.worker[w], workerName(w)
	add := func(what string, do func(x *world)) {
		out = append(out, event{name + " " + what, func(x *world) error { do(x); return nil }})
	}
	if p.lives < x.lives {
		add("starts again", func(x *world) { x.register(w) })
		if x.state.session(p.incarnation) != nil {
			add("is fenced", func(x *world) { x.expire(x.worker[w].incarnation) })
		}
	}
	if p.incarnation == 0 {
		return out
	}
	if n := x.state.View().Notice(p.incarnation); len(n.Accounts)+len(n.Orphans) > 0 || n.Fenced {
		add("is sent a notice", func(x *world) { x.worker[w].mail, x.worker[w].posted = n, true })
	}
	if p.posted {
		add("reads the notice", func(x *world) { x.read(w) })
	}
	if len(p.answers) > 0 {
		add("hears an answer", func(x *world) { x.hear(w) })
	}
	if p.granted(x) > 0 && p.returned == 0 {
		add("returns a page", func(x *world) {
			x.worker[w].returned++
			x.send(w, fmt.Sprint("return ", x.worker[w].returned), returnCommand("g", x.worker[w].returned))
		})
	}
	for i, state := range p.requests {
		if state == runs {
			out = append(out, x.requestEvents(w, i)...)
		}
	}
	return out
}

func (x *world) requestEvents(w, i int) (out []event) {
	add := func(what string, do func(x *world)) {
		name := fmt.Sprintf("%s %s %d", workerName(w), what, i)
		out = append(out, event{name, func(x *world) error { do(x); return nil }})
	}
	if x.worker[w].grows < x.grows {
		add("grows", func(x *world) {
			x.worker[w].grows++
			x.send(w, fmt.Sprint("grow ", i), growCommand(x.made[i].id, 1, 1))
		})
	}
	add("ends", func(x *world) {
		q := &x.worker[w]
		q.returned += min(x.made[i].pages, q.granted(x))
		q.requests[i] = ended
		x.send(w, fmt.Sprint("end ", i, " ", q.returned), endCommand(x.made[i].id, "g", q.returned))
	})
	return out
}

// search goes through all worlds that can be reached, nearest first, at most limit of them (0: all). It returns how
// many it saw and the shortest way to one that is wrong.
func search(f fault, b bounds, limit int) (worlds, steps int, wrong error, path []string) {
	first := newWorld(f, b)
	frontier := []*world{first}
	origins := []origin{{from: -1}}
	seen := map[string]struct{}{first.key(): {}}
	for at := 0; at < len(frontier); at++ {
		for _, e := range events(frontier[at]) {
			next := frontier[at].clone()
			steps++
			err := e.do(next)
			if err == nil {
				err = next.check()
			}
			if err != nil {
				return len(frontier), steps, err, append(way(origins, at), e.name)
			}
			key := next.key()
			if _, known := seen[key]; known {
				continue
			}
			if limit > 0 && len(frontier) == limit {
				return len(frontier), steps, nil, nil
			}
			seen[key] = struct{}{}
			frontier, origins = append(frontier, next), append(origins, origin{at, e.name})
		}
		frontier[at] = nil
	}
	return len(frontier), steps, nil, nil
}

// origin is how a world was reached first.
type origin struct {
	from int
	name string
}

func way(origins []origin, to int) (path []string) {
	for i := to; origins[i].from >= 0; i = origins[i].from {
		path = append(path, origins[i].name)
	}
	slices.Reverse(path)
	return path
}

// A1, A3: no process ever believes in more pages than it has or than the ledger grants it, whatever is late, lost or
// repeated; and nothing that a living process has acted on is refused.
func TestExhaustive(t *testing.T) {
	for _, c := range []struct {
		bounds
		limit int // worlds, 0: all
	}{
		{bounds{workers: 1, requests: 1, lives: 2, grows: 1}, 0},
		{bounds{workers: 1, requests: 2, lives: 1, grows: 1}, 0},
		{bounds{workers: 2, requests: 2, lives: 2, grows: 1}, 20_000},
		{bounds{workers: 2, requests: 3, lives: 2, grows: 2}, 20_000},
		{bounds{workers: 2, requests: 2, lives: 1, grows: 2, cap: 2}, 20_000},
	} {
		if testing.Short() {
			c.limit = 3_000
		}
		began := time.Now()
		worlds, steps, wrong, path := search(healthy, c.bounds, c.limit)
		if wrong != nil {
			t.Fatalf("%v after\n%s", wrong, strings.Join(path, "\n"))
		}
		t.Logf("%+v: %d worlds, %d steps in %v", c.bounds, worlds, steps, time.Since(began).Round(time.Millisecond))
	}
}

// The search finds each planted bug: it is not blind.
func TestExhaustiveFindsFaults(t *testing.T) {
	for _, f := range []fault{takesOld, forgets, countsTwice, returnsLate, dropFreesAtOne, growsOverCap} {
		b := bounds{workers: 1, requests: 1, lives: 2, grows: 1}
		if f == growsOverCap {
			b = bounds{workers: 2, requests: 2, lives: 1, grows: 3, cap: 2}
		}
		worlds, _, wrong, path := search(f, b, 20_000)
		if wrong == nil {
			t.Errorf("not found in %d worlds: %s", worlds, f)
			continue
		}
		t.Logf("%s: found after %d worlds: %v\n    %s", f, worlds, wrong, strings.Join(path, "\n    "))
	}
}
