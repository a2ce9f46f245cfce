package ledger

import (
	"fmt"
	"slices"
	"strconv"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// The world that exhaustive_test.go searches: the ledger itself, one router, workers as processes that know only what
// reached them, and a network that delays, repeats and loses. All pages belong to one account a worker.

const (
	maxWorkers  = 2
	maxRequests = 3
	worldPages  = 2 // of a worker
)

// bounds keep a world finite.
type bounds struct {
	workers, requests int
	lives             int    // incarnations of a worker
	grows             int    // of a process
	cap               uint64 // pages of the account's share group on all workers
}

// fault is a planted bug.
type fault string

const (
	healthy        fault = ""
	takesOld       fault = "a process takes a dispatch meant for the incarnation before it"
	forgets        fault = "a process takes a dispatch after its tombstone"
	countsTwice    fault = "a process adds a Grown result that a notice has told already"
	returnsLate    fault = "a process goes on using what it has returned"
	dropFreesAtOne fault = "a drop frees the pages before the worker's word"
	growsOverCap   fault = "a growth does not ask for the cap"
)

type world struct {
	bounds
	fault  fault
	state  *State
	router client
	over   bool // the router's session has ended
	made   [maxRequests]dispatch
	count  int
	worker [maxWorkers]process
	lines  []line // of all incarnations that have something under way
}

// dispatch is a reservation and the message that carries it, which may come at any time, again and again.
type dispatch struct {
	id, incarnation, pages uint64
	worker                 int
}

// process is a worker's own view.
type process struct {
	incarnation uint64 // 0: not registered
	last        uint64 // sequence
	lives       int
	requests    [maxRequests]int // 0 unknown, then one of the below
	grown       uint64           // pages, as far as it knows
	returned    uint64
	grows       int
	seen        uint64 // revision of the newest notice
	mail        Notice // a notice under way
	posted      bool
	answers     []grownAnswer // to Grow, under way
}

const (
	runs = iota + 1
	refuses
	ended
)

type grownAnswer struct{ pages, revision uint64 }

// line is the proposals of an incarnation that have not reached the log, first one first.
type line struct {
	incarnation uint64
	worker      int
	proposals   []sent
}

// sent is a proposal and its name without revisions.
type sent struct {
	name     string
	proposal *ledgerv1.Proposal
}

func newWorld(f fault, b bounds) *world {
	x := &world{bounds: b, fault: f, state: New()}
	x.state.Apply(bootstrapped())
	x.router.session = x.state.Apply(opened("r", "r")).GetOpened().Session
	if b.cap > 0 {
		x.state.Apply(x.router.under(putCommand(&ledgerv1.Tenant{Id: "g", Cap: b.cap}, 0)))
	}
	for w := range x.workers {
		x.register(w)
	}
	return x
}

func workerName(w int) string { return "w" + strconv.Itoa(w) }

func (x *world) register(w int) {
	p := &x.worker[w]
	nonce := fmt.Sprint(w, p.lives)
	r := x.state.Apply(registered(workerName(w), nonce, workerInfo(worldPages, 8, 0)))
	*p = process{incarnation: r.GetOpened().Session, lives: p.lives + 1}
}

// granted is the pages that the process believes it may use.
func (p *process) granted(x *world) uint64 {
	pages := p.grown
	for i, state := range p.requests {
		if state == runs || state == ended {
			pages += x.made[i].pages
		}
	}
	if x.fault == returnsLate {
		return pages
	}
	return pages - p.returned
}

func (x *world) send(w int, name string, c *ledgerv1.Command) {
	p := &x.worker[w]
	p.last++
	m := sent{name, &ledgerv1.Proposal{Session: p.incarnation, Sequence: p.last, Acked: p.last - 1, Command: c}}
	for i := range x.lines {
		if x.lines[i].incarnation == p.incarnation {
			x.lines[i].proposals = append(x.lines[i].proposals, m)
			return
		}
	}
	x.lines = append(x.lines, line{incarnation: p.incarnation, worker: w, proposals: []sent{m}})
}

// arrive lets the first proposal of a line reach the log. While the incarnation lives none of them may be refused: the
// process acted on it already.
func (x *world) arrive(i int) error {
	l := x.lines[i]
	m := l.proposals[0]
	if l.proposals = l.proposals[1:]; len(l.proposals) == 0 {
		x.lines = slices.Delete(x.lines, i, i+1)
	} else {
		x.lines[i] = l
	}
	living := x.state.session(l.incarnation) != nil
	cap := x.cap
	if g := x.state.groups["g"]; x.fault == growsOverCap && g != nil {
		cap, g.cap = g.cap, 0
	}
	r := x.state.Apply(m.proposal)
	if g := x.state.groups["g"]; x.fault == growsOverCap && g != nil {
		g.cap = cap
	}
	if living && Err(r) != nil {
		return fmt.Errorf("%s: %w", m.name, Err(r))
	}
	p := &x.worker[l.worker]
	if g := r.GetGrown(); g != nil && g.Served && p.incarnation == l.incarnation {
		p.answers = append(p.answers, grownAnswer{g.Pages, r.Revision})
	}
	return nil
}

// deliver brings a dispatch to whoever is the worker now.
func (x *world) deliver(i int) {
	d := x.made[i]
	p := &x.worker[d.worker]
	known := p.requests[i] == refuses && x.fault != forgets || p.requests[i] == runs || p.requests[i] == ended
	if p.incarnation == 0 || known || p.incarnation != d.incarnation && x.fault != takesOld {
		return
	}
	p.requests[i] = runs
	x.send(d.worker, fmt.Sprint("claim ", i), claimCommand(d.id))
}

// read takes the notice under way.
func (x *world) read(w int) {
	p := &x.worker[w]
	n := p.mail
	p.mail, p.posted = Notice{}, false
	if n.Fenced {
		p.incarnation = 0
		p.requests, p.answers = [maxRequests]int{}, nil
		p.grown, p.returned = 0, 0
		return
	}
	p.seen = max(p.seen, n.Revision)
	for _, a := range n.Accounts {
		p.grown = max(p.grown, a.Pages)
	}
	for i, d := range x.made {
		if slices.Contains(n.Orphans, d.id) && p.requests[i] == 0 {
			p.requests[i] = refuses
			x.send(w, fmt.Sprint("tombstone ", i), tombstoneCommand(d.id))
		}
	}
}

// hear takes the first answer under way. What a notice of that revision or a later one has told is in its total.
func (x *world) hear(w int) {
	p := &x.worker[w]
	a := p.answers[0]
	p.answers = slices.Clone(p.answers[1:])
	if a.revision > p.seen || x.fault == countsTwice {
		p.grown += a.pages
	}
}

// check proves what must hold in every world.
func (x *world) check() error {
	if err := x.state.Check(); err != nil {
		return err
	}
	granted := uint64(0)
	for _, w := range x.state.workers {
		granted += w.granted
	}
	if g := x.state.groups["g"]; x.cap > 0 && (granted > x.cap || g.claim > x.cap) {
		return fmt.Errorf("I11: %d pages are granted, %d claimed, the cap is %d", granted, g.claim, x.cap)
	}
	for w := range x.workers {
		p := &x.worker[w]
		if p.incarnation == 0 {
			continue
		}
		if p.granted(x) > worldPages {
			return fmt.Errorf("A1: %s uses %d pages of %d", workerName(w), p.granted(x), worldPages)
		}
		living := x.state.worker(workerName(w))
		if living.session != nil && living.session.id == p.incarnation && p.granted(x) > living.granted {
			return fmt.Errorf("A3: %s believes in %d pages, the ledger grants %d",
				workerName(w), p.granted(x), living.granted)
		}
	}
	return nil
}
