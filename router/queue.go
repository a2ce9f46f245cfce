package router

import (
	"container/heap"
	"fmt"
	"sync"
	"time"

	"github.com/berthd/berth/consensus/ledger"
)

// queue holds requests until they are admitted: a lane for each model, in a lane a row for each tenant, in the order of
// arrival. The turn is that of the row whose tenant has had the least service by weight (R4): only the first of that row
// looks for room. A request that the ledger refuses after all takes its old place again.
//
// Every operation is O(log n); but once for each view, the counters of the tenants that wait are read.
type queue struct {
	maxRequests, maxTokens int

	mu       sync.Mutex
	arrivals uint64
	seen     uint64 // revision of the view that counters are from
	waits    load
	lanes    map[string]*lane
	parties  map[string]*party // tenants that wait, or whose reserve is under way
}

// load is requests and the tokens of their prompts.
type load struct{ requests, tokens int }

func (l *load) add(requests, tokens int) { l.requests, l.tokens = l.requests+requests, l.tokens+tokens }

// ticket is a request's place in the queue.
type ticket struct {
	row      *row // while it waits
	lane     string
	tenant   string
	arrival  uint64
	tokens   int
	due      uint64 // tokens of its tenant's budget
	lift     uint64 // that its tenant got when it came
	since    time.Time
	at       int           // in its row
	called   chan struct{} // closed once it is its turn
	isCalled bool
}

func newQueue(requests, tokens int) *queue {
	return &queue{maxRequests: requests, maxTokens: tokens, lanes: map[string]*lane{}, parties: map[string]*party{}}
}

// entry is what a request brings to the queue.
type entry struct {
	lane   string
	tenant string
	shared bool // the queue is shared with other tenants: this one may take half of it
	tokens int
	due    uint64
}

// join takes a place at the end of a row, or refuses with QUE-001. One request may exceed a bound in tokens alone.
func (q *queue) join(e entry, v *ledger.View, now time.Time) (*ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.refuses(e, now); err != nil {
		return nil, err
	}
	q.arrivals++
	t := &ticket{lane: e.lane, tenant: e.tenant, arrival: q.arrivals, tokens: e.tokens, due: e.due, since: now}
	p := q.party(t.tenant, v)
	if p.waits.requests == 0 {
		p.raise(q.least(p, v))
		t.lift = p.lift
	}
	q.insert(t, p)
	return t, nil
}

// crowded refuses what join would refuse whatever its prompt: before work is done for it.
func (q *queue) crowded(e entry, now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refuses(e, now)
}

func (q *queue) refuses(e entry, now time.Time) error {
	if q.waits.requests >= q.maxRequests || q.waits.requests > 0 && q.waits.tokens+e.tokens > q.maxTokens {
		return q.full("too much work is waiting", e.tokens, q.waits, load{q.maxRequests, q.maxTokens}, now)
	}
	if !e.shared {
		return nil
	}
	var own load
	if p := q.parties[e.tenant]; p != nil {
		own = p.waits
	}
	most := load{max(1, q.maxRequests/2), q.maxTokens / 2}
	if own.requests >= most.requests || own.requests > 0 && own.tokens+e.tokens > most.tokens {
		return q.full("too much work of this tenant is waiting", e.tokens, own, most, now)
	}
	return nil
}

// full is QUE-001. What is first has waited for as long as others may have to.
func (q *queue) full(what string, need int, have, most load, now time.Time) *Error {
	oldest := now
	for _, l := range q.lanes {
		if t := l.first(); t != nil && t.since.Before(oldest) {
			oldest = t.since
		}
	}
	return &Error{kind: kindQueueFull, RetryAfter: max(time.Second, now.Sub(oldest)), Numbers: map[string]any{
		"requests": have.requests, "requests_limit": most.requests, "tokens": have.tokens, "tokens_limit": most.tokens,
		"need": need,
	}, Message: fmt.Sprintf("%s: %d of %d requests, %d of %d tokens; try again later", what,
		have.requests, most.requests, have.tokens, most.tokens)}
}

// rejoin gives a ticket that had left its old place back, whatever the bounds.
func (q *queue) rejoin(t *ticket, v *ledger.View) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.row != nil {
		return
	}
	p := q.party(t.tenant, v)
	p.lift = max(p.lift, t.lift)
	q.insert(t, p)
}

func (q *queue) insert(t *ticket, p *party) {
	n := p.rows[t.lane]
	if n == nil {
		l := q.lanes[t.lane]
		if l == nil {
			l = &lane{}
			q.lanes[t.lane] = l
		}
		n = &row{lane: l, party: p, at: -1}
		p.rows[t.lane], l.rows = n, l.rows+1
	}
	t.row, t.called, t.isCalled = n, make(chan struct{}), false
	heap.Push(&n.tickets, t)
	q.waits.add(1, t.tokens)
	p.waits.add(1, t.tokens)
	p.due += t.due
	p.fix()
	n.lane.call()
}

// leave gives the place up, for the next one. Leaving twice is leaving once.
func (q *queue) leave(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := t.row
	if n == nil {
		return
	}
	heap.Remove(&n.tickets, t.at)
	t.row = nil
	p := n.party
	q.waits.add(-1, -t.tokens)
	p.waits.add(-1, -t.tokens)
	p.due -= t.due
	n.fix()
	if len(n.tickets) == 0 {
		delete(p.rows, t.lane)
		if n.lane.rows--; n.lane.rows == 0 {
			delete(q.lanes, t.lane)
		}
	}
	q.forget(p)
	n.lane.call()
}

// turn says whether it is the ticket's turn, as the view has the counters; if not, what is closed when it may be.
func (q *queue) turn(t *ticket, v *ledger.View) (mine bool, called <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refresh(v)
	if t.row.lane.first() == t {
		return true, nil
	}
	if t.isCalled {
		t.called, t.isCalled = make(chan struct{}), false
	}
	return false, t.called
}

// park puts a ticket aside that is first and that its own tenant's cap stops: it holds up nobody else. False: it is not
// first any more.
func (q *queue) park(t *ticket) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := t.row
	if n.lane.first() != t {
		return false
	}
	n.parked = t
	n.fix()
	n.lane.call()
	return true
}

// unpark puts it back. Time in which its own cap stopped a tenant gives it no claim on others' service.
func (q *queue) unpark(t *ticket, v *ledger.View) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := t.row
	if n == nil || n.parked != t {
		return
	}
	n.parked = nil
	n.party.raise(q.least(n.party, v))
	n.party.fix()
	n.lane.call()
}

// charge counts a reserve that is under way, which views do not show yet; the ledger is to lift the tenant's counter to
// what is returned. It ends with settle.
func (q *queue) charge(t *ticket, service uint64, v *ledger.View) (lift uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.party(t.tenant, v)
	p.asking++
	p.asked += service
	p.fix()
	t.lift = p.lift
	return p.lift
}

// settle ends a charge: the view shows it, if the reserve was carried out.
func (q *queue) settle(t *ticket, service uint64, reserved bool, v *ledger.View) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.parties[t.tenant]
	p.asking--
	p.asked -= service
	if reserved {
		if p.lift == t.lift {
			p.lift = 0
		}
		t.lift = 0
	}
	p.read(v)
	p.fix()
	q.forget(p)
	for _, n := range p.rows {
		n.lane.call()
	}
}

// size is what waits now.
func (q *queue) size() (requests, tokens int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waits.requests, q.waits.tokens
}

// of is what waits of a tenant, and what it will take of the tenant's budget.
func (q *queue) of(tenant string) (requests int, due uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.parties[tenant]; p != nil {
		return p.waits.requests, p.due
	}
	return 0, 0
}
