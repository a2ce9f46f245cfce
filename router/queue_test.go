package router

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus/ledger"
)

// counters is a view in which tenants a, b, c, … have had as much service.
func counters(revision uint64, served ...uint64) *ledger.View {
	v := &ledger.View{Revision: revision, TenantsAt: 1}
	for i, n := range served {
		v.Tenants = append(v.Tenants, &ledger.TenantView{Tenant: &ledgerv1.Tenant{Id: string(rune('a' + i))}, Counter: n, Settled: n})
	}
	return v
}

func mustJoin(t *testing.T, q *queue, lane, tenant string, v *ledger.View) *ticket {
	t.Helper()
	x, err := q.join(entry{lane: lane, tenant: tenant, tokens: 10}, v, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func (q *queue) isFirst(t *ticket, v *ledger.View) bool {
	mine, called := q.turn(t, v)
	if mine {
		return true
	}
	select {
	case <-called:
		panic("a ticket is called that is not first")
	default:
		return false
	}
}

func TestQueueOrder(t *testing.T) { // R4
	q, v := newQueue(10, 1000), &ledger.View{}
	a, b, other := mustJoin(t, q, "m", "x", v), mustJoin(t, q, "m", "x", v), mustJoin(t, q, "n", "x", v)
	if !q.isFirst(a, v) || q.isFirst(b, v) || !q.isFirst(other, v) {
		t.Error("R4: the first of each lane, and only it")
	}
	q.leave(a)
	q.leave(a)
	if !q.isFirst(b, v) {
		t.Error("R4: the next one was not called")
	}
	q.rejoin(a, v)
	c := mustJoin(t, q, "m", "x", v)
	q.leave(b)
	if !q.isFirst(a, v) || q.isFirst(c, v) {
		t.Error("R4: who comes back has its old place")
	}
	q.leave(a)
	q.leave(other)
	if n, tokens := q.size(); n != 1 || tokens != 10 || !q.isFirst(c, v) {
		t.Errorf("%d requests, %d tokens", n, tokens)
	}
	q.leave(c)
	if n, tokens := q.size(); n != 0 || tokens != 0 || len(q.lanes) != 0 || len(q.parties) != 0 {
		t.Errorf("%d requests, %d tokens, %d lanes, %d parties", n, tokens, len(q.lanes), len(q.parties))
	}
}

// R4: the turn is the tenant's that has had least; a charge under way counts, and so does what a newer view shows.
func TestQueueTurns(t *testing.T) {
	q, v := newQueue(10, 1000), counters(1, 50, 40)
	a, b := mustJoin(t, q, "m", "a", v), mustJoin(t, q, "m", "b", v)
	b2 := mustJoin(t, q, "m", "b", v)
	if q.isFirst(a, v) || !q.isFirst(b, v) {
		t.Error("R4: b came after a pause: it begins where a is, and goes first")
	}
	if lift := q.charge(b, 5, v); lift != 50 {
		t.Errorf("R4: b is lifted to %d, want 50: a pause gives no credit", lift)
	}
	q.leave(b)
	if !q.isFirst(a, v) || q.isFirst(b2, v) {
		t.Error("R4: the charge under way does not count")
	}
	v = counters(2, 50, 55)
	q.settle(b, 5, true, v)
	if lift := q.charge(a, 20, v); lift != 0 {
		t.Errorf("a is lifted to %d", lift)
	}
	q.leave(a)
	a2 := mustJoin(t, q, "m", "a", v)
	if !q.isFirst(b2, v) || q.isFirst(a2, v) {
		t.Error("R4: not b's turn")
	}
	v = counters(3, 60, 80) // the truth of a's, and another router's charges
	q.settle(a, 20, true, v)
	if q.isFirst(b2, v) || !q.isFirst(a2, v) {
		t.Error("R4: not a's turn after all")
	}
}

// R4: who is stopped by its own cap holds up nobody, and comes back where the others are.
func TestQueueParks(t *testing.T) {
	q, v := newQueue(10, 1000), counters(1, 10, 90, 100)
	b, c := mustJoin(t, q, "m", "b", v), mustJoin(t, q, "m", "c", v)
	a := mustJoin(t, q, "m", "a", v)
	v = counters(2, 10, 95, 100)
	q.turn(a, v)
	if q.isFirst(b, v) || !q.isFirst(a, v) || q.park(b) || !q.park(a) {
		t.Fatal("a comes first, at 90, and is parked")
	}
	if !q.isFirst(b, v) || q.isFirst(a, v) {
		t.Error("R4: a parked ticket holds up another tenant's")
	}
	a2 := mustJoin(t, q, "m", "a", v)
	if q.isFirst(a2, v) {
		t.Error("R4: the tenant's next one passes the parked one")
	}
	q.leave(b)
	q.unpark(a, v)
	q.unpark(a, v)
	if lift := q.charge(a, 1, v); lift != 100 {
		t.Errorf("R4: a came back at %d, want 100: what its own cap stops gives no credit", lift)
	}
	q.settle(a, 1, false, v)
	q.leave(a)
	q.leave(c)
	if !q.isFirst(a2, v) {
		t.Error("R4: the next one after a parked one")
	}
	q.park(a2)
	q.leave(a2)
	if len(q.lanes) != 0 || len(q.parties) != 0 {
		t.Errorf("%d lanes, %d parties are left", len(q.lanes), len(q.parties))
	}
}

func TestQueueBounds(t *testing.T) {
	q, v := newQueue(2, 100), &ledger.View{}
	now := time.Unix(100, 0)
	join := func(tenant string, tokens int, now time.Time) (*ticket, error) {
		return q.join(entry{lane: "m", tenant: tenant, tokens: tokens}, v, now)
	}
	big, err := join("x", 500, now)
	if err != nil {
		t.Errorf("a long prompt alone: %v", err)
	}
	var full *Error
	_, err = join("x", 1, now.Add(7*time.Second))
	if !errors.As(err, &full) || full.ID() != "QUE-001" || full.retryAfter() != "7" {
		t.Errorf("%v", err)
	}
	q.leave(big)
	for range 2 {
		if _, err := join("x", 1, now); err != nil {
			t.Error(err)
		}
	}
	if _, err := join("x", 1, now); !errors.As(err, &full) || full.Status() != 429 {
		t.Errorf("a third request: %v", err)
	}
}

// A tenant may have half of the queue, and leaves the other half to others.
func TestQueueShares(t *testing.T) {
	q, v := newQueue(4, 100), &ledger.View{}
	join := func(tenant string, tokens int) error {
		_, err := q.join(entry{lane: "m", tenant: tenant, shared: true, tokens: tokens}, v, time.Time{})
		return err
	}
	for _, c := range []struct {
		tenant string
		tokens int
		full   bool
	}{{"a", 40, false}, {"a", 11, true}, {"a", 10, false}, {"a", 0, true}, {"b", 45, false}, {"b", 10, true}, {"b", 1, false}, {"c", 0, true}} {
		if err := join(c.tenant, c.tokens); (err != nil) != c.full {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestQueueRandom compares the queue with a list that is searched whole.
func TestQueueRandom(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 0))
		q, v := newQueue(1000, 1<<30), counters(1, 0, 0, 0, 0)
		var waiting, away []*ticket
		for step := range 400 {
			switch k := rng.IntN(10); {
			case k < 4:
				waiting = append(waiting, mustJoin(t, q, fmt.Sprint("m", rng.IntN(2)), string(rune('a'+rng.IntN(4))), v))
			case k < 6 && len(waiting) > 0:
				i := rng.IntN(len(waiting))
				q.leave(waiting[i])
				away, waiting = append(away, waiting[i]), append(waiting[:i], waiting[i+1:]...)
			case k < 7 && len(away) > 0:
				i := rng.IntN(len(away))
				q.rejoin(away[i], v)
				waiting, away = append(waiting, away[i]), append(away[:i], away[i+1:]...)
			case k < 8:
				var now []uint64
				for _, x := range v.Tenants {
					now = append(now, x.Counter+uint64(rng.IntN(30))-min(x.Counter, uint64(rng.IntN(10))))
				}
				v = counters(v.Revision+1, now...)
			case len(waiting) > 0:
				if x := waiting[rng.IntN(len(waiting))]; q.isFirst(x, v) && !q.park(x) {
					t.Fatal("the first is not parked")
				} else if rng.IntN(2) == 0 {
					q.unpark(x, v)
				}
			}
			q.mu.Lock()
			q.refresh(v)
			q.mu.Unlock()
			for name, l := range q.lanes {
				if got, want := l.first(), firstOf(q, name, waiting); got != want {
					t.Fatalf("seed %d, step %d, lane %s: %+v is first, want %+v", seed, step, name, got, want)
				}
			}
		}
	}
}

// firstOf is the oldest ticket of the tenant with the least service whose oldest ticket is not parked.
func firstOf(q *queue, lane string, waiting []*ticket) (best *ticket) {
	oldest := map[string]*ticket{}
	for _, x := range waiting {
		if o := oldest[x.tenant]; x.lane == lane && (o == nil || x.arrival < o.arrival) {
			oldest[x.tenant] = x
		}
	}
	for _, x := range oldest {
		if x.row.parked == x {
			continue
		}
		if best == nil || slices.Compare(rank(q, x), rank(q, best)) < 0 {
			best = x
		}
	}
	return best
}

// rank is a ticket's place among the first ones of all tenants, digit by digit.
func rank(q *queue, t *ticket) []uint64 {
	p := q.parties[t.tenant]
	return []uint64{p.service(), 1 - min(1, p.lift), t.arrival}
}

func BenchmarkQueue(b *testing.B) {
	served := make([]uint64, 26)
	q, v := newQueue(1<<20, 1<<40), counters(1, served...)
	for i := range 4000 {
		_, _ = q.join(entry{lane: "m", tenant: string(rune('a' + i%26))}, v, time.Time{})
	}
	for b.Loop() {
		t, _ := q.join(entry{lane: "m", tenant: "a"}, v, time.Time{})
		q.charge(t, 1, v)
		q.leave(t)
		q.settle(t, 1, true, v)
	}
}
