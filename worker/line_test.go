package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// lineAt is a line with as many proposals, of which the first were answered.
func lineAt(t *testing.T, proposed, answered int) *line {
	t.Helper()
	l := newLine(slog.New(slog.DiscardHandler))
	l.deliver = func(func(*engine)) {}
	for range proposed {
		l.propose(&ledgerv1.Command{Kind: &ledgerv1.Command_Noop{Noop: &ledgerv1.Noop{}}}, nil)
	}
	if got := len(l.pending()); got != proposed {
		t.Fatalf("%d of %d are sent", got, proposed)
	}
	for i := range answered {
		r := &ledgerv1.Result{Kind: &ledgerv1.Result_Ok{Ok: &ledgerv1.Ok{}}}
		if err := l.answered(&workerv1.ProposalResult{Sequence: uint64(i + 1), Result: r}); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func gapAfter(last uint64) *workerv1.ProposalResult {
	return &workerv1.ProposalResult{Sequence: 6, Result: &ledgerv1.Result{Kind: &ledgerv1.Result_Gap{Gap: &ledgerv1.Gap{LastSequence: last}}}}
}

// A ledger that has gone back in time ends the incarnation, once: nothing is sent to it again and again, and the nonce is
// not used again, whose numbers mean other commands there.
func TestALedgerOfAnotherPastEndsTheIncarnation(t *testing.T) {
	for last, past := range map[uint64]bool{0: true, 3: true, 4: false, 5: false} {
		l := lineAt(t, 6, 4)
		err := l.answered(gapAfter(last))
		if errors.Is(err, errNonceSpent) != past {
			t.Errorf("4 results were acknowledged, and the ledger has %d: %v", last, err)
		}
		if sent := len(l.pending()); past && sent != 0 || !past && sent != 2 {
			t.Errorf("after a gap at %d %d are sent again", last, sent)
		}
		if err := l.mayGoOn(&ledgerv1.Opened{LastSequence: last}); errors.Is(err, errNonceSpent) != past {
			t.Errorf("registered with %d of 4 acknowledged: %v", last, err)
		}
	}
	if err := lineAt(t, 6, 4).mayGoOn(&ledgerv1.Opened{LastSequence: 7}); !errors.Is(err, errNonceSpent) {
		t.Errorf("the ledger has more than was ever sent: %v", err)
	}
	if err := lineAt(t, 0, 0).mayGoOn(&ledgerv1.Opened{LastSequence: 1}); !errors.Is(err, errNonceSpent) {
		t.Errorf("a line begins, and its nonce has a history: %v", err)
	}
}

// What did not advance the session is no result: it is sent again.
func TestRefusalsThatAreNoResults(t *testing.T) {
	refusal := func(code ledgerv1.RefusalCode) *workerv1.ProposalResult {
		return &workerv1.ProposalResult{Sequence: 5, Result: &ledgerv1.Result{Kind: &ledgerv1.Result_Refusal{
			Refusal: &ledgerv1.Refusal{Code: code},
		}}}
	}
	l := lineAt(t, 6, 4)
	if err := l.answered(refusal(ledgerv1.RefusalCode_REFUSAL_CODE_UNACKNOWLEDGED)); err != nil || len(l.pending()) != 2 {
		t.Errorf("unacknowledged: %v", err)
	}
	if err := l.answered(refusal(ledgerv1.RefusalCode_REFUSAL_CODE_FORGOTTEN)); !errors.Is(err, errNonceSpent) {
		t.Errorf("forgotten: %v", err)
	}
}

// Workers that are told the same routers begin at different ones, and each comes to all.
func TestWorkersBeginAtDifferentRouters(t *testing.T) {
	first := map[string]int{}
	for i := range 90 {
		c := Config{ID: fmt.Sprintf("w%d", i), Routers: []string{"r1", "r2", "r3"}}
		first[c.router(0)]++
		if all := []string{c.router(0), c.router(1), c.router(2)}; len(slices.Compact(slices.Sorted(slices.Values(all)))) != 3 {
			t.Errorf("%s tries %v", c.ID, all)
		}
	}
	for _, r := range []string{"r1", "r2", "r3"} {
		if first[r] < 10 {
			t.Errorf("%d of 90 workers begin at %s", first[r], r)
		}
	}
}
