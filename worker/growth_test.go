package worker

import (
	"log/slog"
	"testing"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/kvpool"
)

// alone is an engine that nothing runs, with a line that reaches nobody: what it proposes stays in the line's queue.
func alone(t *testing.T, pages int) *engine {
	t.Helper()
	g := kvpool.Geometry{BlockSize: 4, Groups: []kvpool.Group{{Kind: kvpool.Full}}, StepsInFlight: 1, MaxBatchTokens: 64, PrefillsInStep: 8}
	l := newLine(slog.New(slog.DiscardHandler))
	e, err := newEngine(newHashDevice(g, pages), g, pages, identity{session: 1}, l, func(Stats) {})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// take brings a request of the account "g" whose reservation is its place in the order.
func take(t *testing.T, e *engine, reservation, pages uint64, prompt []int32, most int) *branch {
	t.Helper()
	r := &workerv1.GenerateRequest{
		Reservation: reservation, Incarnation: 1, Attempt: 1, ShareGroup: "g", Pages: pages, Prompt: prompt,
		Key: &ledgerv1.OrderKey{Rank: reservation, Index: reservation}, MaxTokens: uint32(most),
	}
	q := newRequest(r)
	if err := e.admit(q); err != nil {
		t.Fatal(err)
	}
	return q.branches[0]
}

// proposed are the commands that the line holds and has no answer to.
func proposed[T any](e *engine, of func(*ledgerv1.Command) T, is func(T) bool) (out []T, results []func(*engine, *ledgerv1.Result)) {
	for _, p := range e.line.queue {
		if c := of(p.command); is(c) {
			out, results = append(out, c), append(results, p.result)
		}
	}
	return out, results
}

func growths(e *engine) ([]*ledgerv1.Grow, []func(*engine, *ledgerv1.Result)) {
	return proposed(e, (*ledgerv1.Command).GetGrow, func(g *ledgerv1.Grow) bool { return g != nil })
}

// TestOneGrowthAtATime holds a branch to one growth without an answer: of two, the second would be a waiter that nobody
// relieves or withdraws.
func TestOneGrowthAtATime(t *testing.T) {
	e := alone(t, 100)
	b := take(t, e, 1, 1, prompt(1, 4), 100)
	b.short = 3
	e.askGrowth()
	b.short = 5
	e.askGrowth()
	asked, answers := growths(e)
	if len(asked) != 1 {
		t.Fatalf("asked %v before an answer had come", asked)
	}
	answers[0](e, &ledgerv1.Result{Revision: 7, Kind: &ledgerv1.Result_Grown{Grown: &ledgerv1.Grown{}}})
	e.askGrowth()
	if asked, _ := growths(e); len(asked) != 2 || asked[1].Need != 5 {
		t.Errorf("a waiter that needs more than it asked for said %v", asked)
	}
}

// TestRefusedGrowthEndsTheBranch: asked again it would be refused again, step after step.
func TestRefusedGrowthEndsTheBranch(t *testing.T) { // W6
	e := alone(t, 100)
	b := take(t, e, 1, 1, prompt(1, 4), 100)
	b.short = 3
	e.askGrowth()
	_, answers := growths(e)
	answers[0](e, &ledgerv1.Result{Revision: 7, Kind: &ledgerv1.Result_Refusal{Refusal: &ledgerv1.Refusal{
		Code: ledgerv1.RefusalCode_REFUSAL_CODE_NEVER_FITS, Message: "more than the worker has"}}})
	if o := b.request.out; !o.boxes[0].state.done || o.err == nil || e.byID[1] != nil {
		t.Errorf("after a refused growth: %+v", o)
	}
}

// TestAheadOfNeedAsksForOneBranch: what all branches of an account want together may be more than the worker has.
func TestAheadOfNeedAsksForOneBranch(t *testing.T) {
	e := alone(t, 60)
	first := take(t, e, 1, 2, prompt(1, 8), 8)
	for i := range uint64(10) {
		take(t, e, 2+i, 0, prompt(2+i, 40), 40)
	}
	e.sched.prefills = 1 // nothing behind the first is looked at
	if planned := e.sched.schedule(); len(planned) != 1 || planned[0] != first {
		t.Fatalf("planned %d branches", len(planned))
	}
	e.askGrowth()
	if asked, _ := growths(e); len(asked) != 1 || asked[0].Need > 2 {
		t.Errorf("a branch that lacks 2 pages of its longest asked for %v", asked)
	}
}

// TestTheFirstShortOneAsks lets a later branch of an account pause without a word while an earlier one lacks pages, and
// an earlier one ask whatever later ones lack.
func TestTheFirstShortOneAsks(t *testing.T) { // W3
	e := alone(t, 100)
	late := take(t, e, 9, 1, prompt(9, 4), 50)
	if planned := e.sched.schedule(); len(planned) != 1 {
		t.Fatal("the late branch did not start")
	}
	if err := e.step(e.sched.planned); err != nil {
		t.Fatal(err)
	}
	if e.sched.schedule(); late.short == 0 {
		t.Error("the only branch lacks a page and does not say so")
	}
	early := take(t, e, 2, 0, prompt(2, 4), 50) // preempted before: it brings no pages
	if planned := e.sched.schedule(); len(planned) != 0 || late.short != 0 || early.short == 0 {
		t.Errorf("late lacks %d pages, early %d: the early one must ask, the late one pause", late.short, early.short)
	}
}
