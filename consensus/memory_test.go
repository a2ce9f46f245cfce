package consensus

import (
	"testing"
	"testing/synctest"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus/ledger"
)

// N4: what a node left in memory is there for the next one, and an audit sees every revision, again from the first.
func TestMemoryOutlivesItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		m.Write = func() { time.Sleep(time.Millisecond) }
		var seen []uint64
		config := Config{ID: "r1", Audit: func(s *ledger.State, _ *ledgerv1.Proposal, _ *ledgerv1.Result) {
			if r := s.Revision(); len(seen) == 0 || r != seen[len(seen)-1] {
				seen = append(seen, r)
			}
		}}
		ready := func() *Node {
			n, err := m.Open(config)
			if err != nil {
				t.Fatal(err)
			}
			for n.Ready() != nil {
				time.Sleep(time.Millisecond)
			}
			return n
		}
		n := ready()
		register(t, n, "w1", 100, 8)
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		before := len(seen)
		n = ready()
		time.Sleep(time.Second) // of ticks
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		if w := n.View().Worker("w1"); w == nil || w.Capacity != 100 {
			t.Errorf("N4: %+v", w)
		}
		if before < 3 || len(seen) < 2*before+1 || seen[before] != 1 {
			t.Errorf("audited %v, the first node's %d among them", seen, before)
		}
	})
}
