package router

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// queue holds requests until they are admitted: a lane for each model, in the order of arrival (R4). Only the first of
// a lane looks for room. A request that the ledger refuses after all takes its old place again.
type queue struct {
	maxRequests, maxTokens int

	mu       sync.Mutex
	arrivals uint64
	requests int
	tokens   int
	lanes    map[string][]*ticket // ascending arrival
}

// ticket is a request's place in the queue.
type ticket struct {
	lane    string
	arrival uint64
	tokens  int
	since   time.Time
	first   chan struct{} // closed while it is the first of its lane
	isFirst bool
	waiting bool
}

func newQueue(requests, tokens int) *queue {
	return &queue{maxRequests: requests, maxTokens: tokens, lanes: map[string][]*ticket{}}
}

// join takes a place at the end of a lane, or refuses with QUE-001. One request may exceed the bound in tokens alone.
func (q *queue) join(lane string, tokens int, now time.Time) (*ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.refuses(tokens, now); err != nil {
		return nil, err
	}
	q.arrivals++
	t := &ticket{lane: lane, arrival: q.arrivals, tokens: tokens, since: now}
	q.insert(t)
	return t, nil
}

// crowded refuses what join would refuse whatever its prompt: before work is done for it.
func (q *queue) crowded(now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refuses(0, now)
}

func (q *queue) refuses(tokens int, now time.Time) error {
	if q.requests < q.maxRequests && (q.requests == 0 || q.tokens+tokens <= q.maxTokens) {
		return nil
	}
	return q.full(tokens, now)
}

func (q *queue) full(tokens int, now time.Time) *Error {
	oldest := now
	for _, lane := range q.lanes {
		if len(lane) > 0 && lane[0].since.Before(oldest) {
			oldest = lane[0].since
		}
	}
	return &Error{kind: kindQueueFull, RetryAfter: max(time.Second, now.Sub(oldest)), Numbers: map[string]any{
		"requests": q.requests, "requests_limit": q.maxRequests, "tokens": q.tokens, "tokens_limit": q.maxTokens,
		"need": tokens,
	}, Message: fmt.Sprintf("too much work is waiting: %d of %d requests, %d of %d tokens; try again later",
		q.requests, q.maxRequests, q.tokens, q.maxTokens)}
}

// rejoin gives a ticket that had left its old place back, whatever the bounds.
func (q *queue) rejoin(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.insert(t)
}

func (q *queue) insert(t *ticket) {
	lane := q.lanes[t.lane]
	i, _ := slices.BinarySearchFunc(lane, t, func(a, b *ticket) int { return cmp.Compare(a.arrival, b.arrival) })
	q.lanes[t.lane] = slices.Insert(lane, i, t)
	q.requests++
	q.tokens += t.tokens
	t.waiting, t.isFirst, t.first = true, false, make(chan struct{})
	q.call(t.lane)
}

// leave gives the place up, for the next one of the lane. Leaving twice is leaving once.
func (q *queue) leave(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !t.waiting {
		return
	}
	t.waiting = false
	q.requests--
	q.tokens -= t.tokens
	lane := q.lanes[t.lane]
	lane = slices.DeleteFunc(lane, func(o *ticket) bool { return o == t })
	q.lanes[t.lane] = lane
	if len(lane) == 0 {
		delete(q.lanes, t.lane)
		return
	}
	q.call(t.lane)
}

// call tells the first of a lane. Who was first before an older ticket came back stays called: both look for room, and
// the older one has waited longer only by what the ledger took to refuse it.
func (q *queue) call(lane string) {
	if t := q.lanes[lane][0]; !t.isFirst {
		t.isFirst = true
		close(t.first)
	}
}

// size is what waits now.
func (q *queue) size() (requests, tokens int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.requests, q.tokens
}
