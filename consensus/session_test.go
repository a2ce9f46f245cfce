package consensus

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

func TestUnknownCommandStaysOutside(t *testing.T) {
	n := open(t, Config{Dir: t.TempDir()})
	if _, err := n.Propose(t.Context(), &ledgerv1.Proposal{}); err == nil {
		t.Error("a proposal without a command was accepted")
	}
	s, err := n.OpenSession("r1", 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do(t.Context(), &ledgerv1.Command{}); err == nil {
		t.Error("an empty command was accepted")
	}
	w := register(t, n, "w1", 8, 8)
	if r := do(t, s, reserve("w1", w, 1)); r.GetReserved() == nil {
		t.Errorf("the session did not go on: %v", r)
	}
}

func TestAbandonedReserveIsDropped(t *testing.T) {
	n := open(t, Config{Dir: t.TempDir()})
	s, err := n.OpenSession("r1", 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	w := register(t, n, "w1", 1000, 1000)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	abandoned := 0
	for range 50 {
		if _, err := s.Do(gone, reserve("w1", w, 1)); errors.Is(err, context.Canceled) {
			abandoned++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if abandoned == 0 {
		t.Fatal("nothing was abandoned")
	}
	eventually(t, n, func() bool {
		w := n.View().Worker("w1")
		return w.Reservations == len(w.Orphans)+50-abandoned
	})
}

func TestFencedSessionOpensAnew(t *testing.T) {
	n := open(t, Config{Dir: t.TempDir(), TickInterval: time.Hour})
	s, err := n.OpenSession("r1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	do(t, s, drop(1)) // it is open then
	first := s.ID()
	_, err = n.Propose(t.Context(), &ledgerv1.Proposal{Command: &ledgerv1.Command{
		Kind: &ledgerv1.Command_Tick{Tick: &ledgerv1.Tick{DeltaMs: 3_600_000}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do(t.Context(), drop(1)); !errors.Is(err, ErrFenced) {
		t.Errorf("got %v, want ErrFenced", err)
	}
	eventually(t, n, func() bool { return s.ID() != first })
	if r := do(t, s, drop(1)); r.GetRefusal().GetCode() != ledgerv1.RefusalCode_REFUSAL_CODE_NO_RESERVATION {
		t.Errorf("the new session does not work: %v", r)
	}
}

// Close answers everyone, and what was answered with a reservation is on disk (N2).
func TestCloseAnswersAll(t *testing.T) {
	dir := t.TempDir()
	n := open(t, Config{Dir: dir, TickInterval: time.Hour})
	s, err := n.OpenSession("r1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	w := register(t, n, "w1", 1<<30, 1<<30)
	var all sync.WaitGroup
	var granted atomic.Uint64
	for range 64 {
		all.Go(func() {
			for {
				r, err := s.Do(t.Context(), reserve("w1", w, 1))
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil || r.GetReserved() == nil {
					t.Errorf("%v, %v", r, err)
					return
				}
				granted.Add(1)
			}
		})
	}
	eventually(t, n, func() bool { return granted.Load() > 1000 })
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if err := n.Ready(); !errors.Is(err, ErrClosed) {
		t.Errorf("ready: %v", err)
	}
	if _, err := n.OpenSession("r2", time.Hour); !errors.Is(err, ErrClosed) {
		t.Errorf("open session: %v", err)
	}
	again := open(t, Config{Dir: dir})
	if got := again.View().Worker("w1").Granted; got < granted.Load() {
		t.Errorf("N2: %d of %d answered reservations are on disk", got, granted.Load())
	}
}
