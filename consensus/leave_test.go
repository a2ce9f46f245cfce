package consensus

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A leader that is about to stop gives the lead away: nobody waits as long as for a leader that is missed.
func TestLeaveLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := full(t, 2, 5)
		defer b.close(t)
		for range 5 {
			old := b.leader(nil)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			began := time.Now()
			if err := old.LeaveLead(ctx); err != nil {
				t.Error(err)
			}
			cancel()
			b.reserves(t, b.leader(old), w, 1)
			if took := time.Since(began); took > 200*time.Millisecond {
				t.Errorf("%v until another leader had committed something", took)
			}
			if old.leads() {
				t.Error("it leads still")
			}
			if err := old.LeaveLead(t.Context()); err != nil {
				t.Errorf("a follower: %v", err)
			}
			b.settled(t)
		}
	})
}

// Where nobody can take the lead, giving it away is tried for as long as the caller wants, and no longer.
func TestLeaveLeadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := full(t, 3, 5)
		defer b.close(t)
		leader := b.leader(nil)
		b.net.isolate(leader.seat.transport.LocalAddr(), true, true)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		err := leader.LeaveLead(ctx)
		if took := time.Since(began); took > 2100*time.Millisecond {
			t.Errorf("%v, %v", took, err)
		}
		b.net.isolate("", false, false)
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 1, 1)
		defer b.close(t)
		if err := b.leader(nil).LeaveLead(t.Context()); err != nil {
			t.Errorf("a cluster of one: %v", err)
		}
	})
}
