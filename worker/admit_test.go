package worker

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// TestMorePagesThanThereAre: a dispatch that the ledger cannot have admitted is refused, and the worker lives.
func TestMorePagesThanThereAre(t *testing.T) { // W2
	c := start(t, setup{pages: 150, slots: 16})
	for pages, want := range map[uint64]codes.Code{
		150: codes.FailedPrecondition, 151: codes.InvalidArgument, math.MaxUint64: codes.InvalidArgument,
	} {
		r := c.reserve(ask{"g", prompt(1, 20), 5})
		granted := r.Pages
		r.Pages = pages
		if _, err := c.generate(t.Context(), r, 0); status.Code(err) != want {
			t.Errorf("a dispatch with %d pages: %v", pages, err)
		}
		r.Pages = granted
		if _, err := c.generate(t.Context(), r, 0); err != nil {
			t.Errorf("after one with %d pages: %v", pages, err)
		}
	}
	c.await("drain", c.drained)
}

// TestDisownedTakesFromTheLast: the pages of a refused claim come from the end of the order.
func TestDisownedTakesFromTheLast(t *testing.T) { // W3
	e := alone(t, 100)
	var all []*branch
	for i := range uint64(4) {
		all = append(all, take(t, e, 1+i, 1, prompt(i, 4), 4))
	}
	stranger := take(t, e, 9, 1, prompt(9, 40), 4) // brings one page, and would use ten
	e.sched.schedule()
	for _, b := range all {
		if !b.holds {
			t.Fatal("not all have started")
		}
	}
	all[0].account().taken--
	e.disown(stranger.request, &RefusedError{9, "no such reservation"})
	if all[3].holds || !all[0].holds {
		t.Errorf("first holds: %v, last holds: %v", all[0].holds, all[3].holds)
	}
}

func TestSamplingOutOfRange(t *testing.T) {
	c := start(t, setup{pages: 150, slots: 16})
	for _, s := range []*workerv1.Sampling{{MinP: 1.5}, {TopP: -1}, {TopP: 2}, {TopK: -1}, {Temperature: -1}} {
		r := &workerv1.GenerateRequest{Prompt: prompt(1, 3), MaxTokens: 3, Sampling: s}
		if _, err := c.generate(t.Context(), r, 0); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// TestPoolThatCannotBe: Run ends where no registration could help.
func TestPoolThatCannotBe(t *testing.T) {
	c := start(t, setup{pages: 150, slots: 16})
	cfg := c.worker.cfg
	cfg.Info = &ledgerv1.WorkerInfo{Geometry: cfg.Info.Geometry, Pages: 1, Slots: 1, MaxModelLen: 8}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	l := newLine(slog.New(slog.DiscardHandler))
	err = w.startEngine(ctx, l, &ledgerv1.Opened{Session: 1}, cancel, make(chan struct{}))
	if err == nil || context.Cause(ctx) != err { //nolint:errorlint // the very same error
		t.Errorf("a pool of one page: %v, the incarnation goes on: %v", err, context.Cause(ctx))
	}
}

// TestAnUnknownReservationTakesNothingAlong: a dispatch that the ledger knows nothing of brings many pages and uses few. None
// of them is given back as if it had been granted, and the worker lives.
func TestAnUnknownReservationTakesNothingAlong(t *testing.T) { // W2
	c := start(t, setup{pages: 150, slots: 16})
	engine := c.worker.engine.Load()
	for i := range uint64(20) {
		r := &workerv1.GenerateRequest{
			Reservation: 1<<40 + i, Incarnation: engine.identity.session, Attempt: 1, ShareGroup: "g", Pages: 100,
			Key: &ledgerv1.OrderKey{Rank: 1, Index: 1<<40 + i}, Prompt: prompt(i, 3), MaxTokens: uint32(1 + i%3*30),
		}
		_, _ = c.generate(t.Context(), r, 0) // a short one may be over before the ledger has answered
		c.await("the drain", c.drained)
	}
	p := prompt(4, 30)
	if a, err := c.generate(t.Context(), c.reserve(ask{"g", p, 10}), 0); err != nil || !slices.Equal(a.ids, say(p, 10)) {
		t.Errorf("after it: %v, %v", a.ids, err)
	}
	if c.worker.engine.Load() != engine {
		t.Error("the incarnation has ended")
	}
}

// TestImpossiblePagesEndTheIncarnation: a router tells of more pages than there are. The worker registers anew and serves.
func TestImpossiblePagesEndTheIncarnation(t *testing.T) {
	c := start(t, setup{pages: 150, slots: 16})
	engine := c.worker.engine.Load()
	engine.mail.notify(&workerv1.Notice{Revision: 1 << 60, Accounts: []*workerv1.Grown{{ShareGroup: "g", Pages: 1 << 40}}})
	c.await("a new incarnation", func() bool { e := c.worker.engine.Load(); return e != nil && e != engine })
	p := prompt(4, 30)
	if a, err := c.generate(t.Context(), c.reserve(ask{"g", p, 10}), 0); err != nil || !slices.Equal(a.ids, say(p, 10)) {
		t.Errorf("after it: %v, %v", a.ids, err)
	}
}

// TestMoreSlotsThanThereAre: dispatches that no ledger admitted do not fill a step with more rows than the device takes.
func TestMoreSlotsThanThereAre(t *testing.T) {
	e := alone(t, 100)
	e.maxSlots = 3
	for i := range uint64(5) {
		q := newRequest(&workerv1.GenerateRequest{Reservation: 1 + i, Incarnation: 1, ShareGroup: "g", Prompt: prompt(i, 4), MaxTokens: 9,
			Key: &ledgerv1.OrderKey{Index: 1 + i}})
		if err := e.admit(q); (err == nil) != (i < 3) {
			t.Errorf("dispatch %d to three slots: %v", i, err)
		}
	}
}

// TestRelieveCountsWhatAStepStillTouches: pages of a step in flight come free when it has retired. One branch is enough for
// one page.
func TestRelieveCountsWhatAStepStillTouches(t *testing.T) {
	e := alone(t, 100)
	var all []*branch
	for i := range uint64(9) {
		all = append(all, take(t, e, 1+i, 2, prompt(i, 4), 40))
	}
	e.sched.schedule()
	e.pool.Begin(1)
	all[0].short, all[0].account().short = 1, all[0]
	if victims, freed := e.sched.relieve(all[0], e.accounts); len(victims) != 1 || freed < 1 {
		t.Errorf("%d branches let go for one page, %d pages come free", len(victims), freed)
	}
	if err := e.pool.Check(); err != nil {
		t.Error(err)
	}
}

// TestAccountsThatHaveNothingRest: of a thousand share groups that were here once, a step looks at those that are.
func TestAccountsThatHaveNothingRest(t *testing.T) { // W2
	c := start(t, setup{pages: 150, slots: 16})
	const groups = 300
	for i := range groups {
		p := prompt(uint64(i), 9)
		if a, err := c.generate(t.Context(), c.reserve(ask{fmt.Sprint("g", i), p, 12}), 0); err != nil || !slices.Equal(a.ids, say(p, 12)) {
			t.Fatalf("group %d: %v, %v", i, a.ids, err)
		}
	}
	c.await("drain", c.drained)
	active := make(chan int, 1)
	count := func(e *engine) { active <- len(e.accounts) }
	for deadline := time.Now().Add(10 * time.Second); ; {
		if err := c.worker.engine.Load().mail.put(count); err != nil {
			t.Fatal(err)
		}
		n := <-active
		if n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d accounts are looked at, of %d share groups that are gone", n, groups)
		}
	}
	for i := range 5 { // they come back with the totals that they had
		p := prompt(uint64(i), 30)
		if a, err := c.generate(t.Context(), c.reserve(ask{fmt.Sprint("g", i), p, 40}), 0); err != nil || !slices.Equal(a.ids, say(p, 40)) {
			t.Fatalf("group %d again: %v, %v", i, a.ids, err)
		}
	}
	c.await("drain", c.drained)
}
