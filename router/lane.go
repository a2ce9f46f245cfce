package router

import (
	"container/heap"
	"math"

	"github.com/berthd/berth/consensus/ledger"
)

// party is a tenant in the queue, with all its rows.
type party struct {
	tenant  string
	waits   load
	due     uint64          // tokens of its budget that what waits will take
	counter uint64          // of its service, in the newest view
	settled uint64          // of that, what has ended
	lift    uint64          // what the counter is to be at least, once a reserve tells the ledger
	asking  int             // reserves under way
	asked   uint64          // their charges
	rows    map[string]*row // by lane
}

// read takes the tenant's counters from a view, and says whether they are others.
func (p *party) read(v *ledger.View) (changed bool) {
	var counter, settled uint64
	if t := v.Tenant(p.tenant); t != nil {
		counter, settled = t.Counter, t.Settled
	}
	changed = counter != p.counter || settled != p.settled
	p.counter, p.settled = counter, settled
	return changed
}

// service is what the tenant has had by weight, as far as it is known here.
func (p *party) service() uint64 { return max(p.counter, p.lift) + p.asked }

// past is the part of it that is certain: what runs was charged an estimate, of which some may come back.
func (p *party) past() uint64 { return max(p.settled, p.lift) }

// raise takes credit away that was not earned by waiting.
func (p *party) raise(to uint64) {
	if to > p.service() {
		p.lift = to - p.asked
	}
}

// fix puts all rows where the tenant's service has them.
func (p *party) fix() {
	for _, n := range p.rows {
		n.fix()
	}
}

// party is a tenant's, new if it has nothing here.
func (q *queue) party(tenant string, v *ledger.View) *party {
	p := q.parties[tenant]
	if p == nil {
		p = &party{tenant: tenant, rows: map[string]*row{}}
		p.read(v)
		q.parties[tenant] = p
	}
	return p
}

func (q *queue) forget(p *party) {
	if p.waits.requests == 0 && p.asking == 0 {
		delete(q.parties, p.tenant)
	}
}

// least is the least past service of the tenants that are active beside one: of those whose turn is near here or, if none
// waits, of those that run anywhere. A tenant that comes after a pause begins there, as in the paper on VTC: idleness is no
// credit, and what others run already is not held against who comes.
func (q *queue) least(but *party, v *ledger.View) uint64 {
	least := uint64(math.MaxUint64)
	for _, l := range q.lanes {
		for _, n := range l.order[:min(3, len(l.order))] { // a heap's least, or the least beside it
			if n.party != but {
				least = min(least, n.party.past())
			}
		}
	}
	if least < math.MaxUint64 {
		return least
	}
	for _, t := range v.Tenants {
		if t.Live > 0 && t.Id != but.tenant {
			least = min(least, t.Settled)
		}
	}
	if least < math.MaxUint64 {
		return least
	}
	return 0
}

// refresh takes the counters of a newer view.
func (q *queue) refresh(v *ledger.View) {
	if v.Revision <= q.seen {
		return
	}
	q.seen = v.Revision
	if len(v.Tenants) == 0 {
		return
	}
	for _, p := range q.parties {
		if p.read(v) {
			p.fix()
		}
	}
	for _, l := range q.lanes {
		l.call()
	}
}

// lane is what waits for one model.
type lane struct {
	order rowHeap // rows that may have a turn
	rows  int     // all
}

// first is the ticket whose turn it is, nil if all are parked.
func (l *lane) first() *ticket {
	if len(l.order) == 0 {
		return nil
	}
	return l.order[0].tickets[0]
}

// call tells the first of a lane. Who was called before it finds out when it asks for its turn.
func (l *lane) call() {
	if t := l.first(); t != nil && !t.isCalled {
		t.isCalled = true
		close(t.called)
	}
}

// row is what waits of one tenant in a lane.
type row struct {
	lane    *lane
	party   *party
	tickets ticketHeap
	parked  *ticket // the first, while the tenant's own cap stops it
	at      int     // in the lane's order, −1 while it is not in it
}

// fix puts the row where it belongs in its lane: nowhere, if it is empty or its first ticket is parked.
func (n *row) fix() {
	if n.parked != nil && (len(n.tickets) == 0 || n.tickets[0] != n.parked) {
		n.parked = nil // another one is first
	}
	waits := len(n.tickets) > 0 && n.parked == nil
	switch {
	case waits && n.at < 0:
		heap.Push(&n.lane.order, n)
	case waits:
		heap.Fix(&n.lane.order, n.at)
	case n.at >= 0:
		heap.Remove(&n.lane.order, n.at)
	}
}

// rowHeap has the row of the least service first; of equal ones that of a tenant that comes after a pause, then that
// whose first ticket came first.
type rowHeap []*row

func (h rowHeap) Len() int { return len(h) }

func (h rowHeap) Less(i, j int) bool {
	a, b := h[i].party, h[j].party
	switch {
	case a.service() != b.service():
		return a.service() < b.service()
	case (a.lift > 0) != (b.lift > 0):
		return a.lift > 0
	case len(h[i].tickets) == 0 || len(h[j].tickets) == 0:
		return false
	}
	return h[i].tickets[0].arrival < h[j].tickets[0].arrival
}

func (h rowHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *rowHeap) Push(x any) {
	n := x.(*row)
	n.at = len(*h)
	*h = append(*h, n)
}

// Pop implements heap.Interface.
func (h *rowHeap) Pop() any {
	last := len(*h) - 1
	n := (*h)[last]
	n.at = -1
	(*h)[last], *h = nil, (*h)[:last]
	return n
}

// ticketHeap has the ticket that came first first.
type ticketHeap []*ticket

func (h ticketHeap) Len() int           { return len(h) }
func (h ticketHeap) Less(i, j int) bool { return h[i].arrival < h[j].arrival }

func (h ticketHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *ticketHeap) Push(x any) {
	t := x.(*ticket)
	t.at = len(*h)
	*h = append(*h, t)
}

// Pop implements heap.Interface.
func (h *ticketHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return t
}
