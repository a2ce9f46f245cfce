package consensus

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// A log whose tail was cut can be read after each of the next starts: the segment that the cut seals has its index.
func TestLogIsReadAfterItsTailWasCut(t *testing.T) {
	dir := t.TempDir()
	opened := func(use func(raft.LogStore)) {
		t.Helper()
		f := realFiles()
		wal, err := openLog(dir, raftLog(Config{}.withDefaults().Log), f)
		if err != nil {
			t.Fatal(err)
		}
		use(sealed{wal})
		if err := (closers{f.meta.Close, wal.Close}).close(); err != nil {
			t.Fatal(err)
		}
	}
	opened(func(log raft.LogStore) {
		for i := range uint64(10) {
			if err := log.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: []byte{byte(i)}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.DeleteRange(8, 10); err != nil {
			t.Fatal(err)
		}
	})
	for range 2 {
		opened(func(log raft.LogStore) {
			if last, err := log.LastIndex(); err != nil || last != 7 {
				t.Errorf("the log ends at %d, %v", last, err)
			}
			for i := range uint64(7) {
				var l raft.Log
				if err := log.GetLog(i+1, &l); err != nil || l.Data[0] != byte(i) {
					t.Errorf("entry %d: %v", i+1, err)
				}
			}
		})
	}
}

// A leader that falls with entries that no other has cuts them off when it comes back, on a disk; then each replica is
// restarted twice. Four rounds of it, and nothing is lost.
func TestRestartsAfterTheLeaderFell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := emptyBubble(3, 11)
		for i := range b.boxes {
			b.boxes[i].dir = t.TempDir()
			b.start(t, i)
		}
		defer b.close(t)
		w := register(t, b.leader(nil), "w1", 1<<20, 1<<20)
		want := uint64(0)
		for round := range 4 {
			fallen := b.leader(nil)
			b.net.isolate(fallen.seat.transport.LocalAddr(), true, true)
			for range 3 { // entries that no other will have
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				_, _ = fallen.Propose(ctx, &ledgerv1.Proposal{Command: &ledgerv1.Command{
					Kind: &ledgerv1.Command_Noop{Noop: &ledgerv1.Noop{}},
				}})
				cancel()
			}
			b.reserves(t, b.leader(fallen), w, 10)
			want += 10
			at := 0
			for b.boxes[at].node != fallen {
				at++
			}
			b.stop(t, at)
			b.net.isolate("", false, false)
			b.start(t, at)
			b.settled(t)
			for range 2 {
				for i := range b.boxes {
					b.stop(t, i)
					b.start(t, i)
					b.settled(t)
				}
			}
			for _, n := range b.nodes {
				until(t, "all to have the reserves", func() bool { return n.View().Worker("w1").Granted == want })
			}
			t.Logf("round %d: %d pages", round, want)
		}
		sameDigests(t, b.nodes)
	})
}

// settled waits until all that run are ready.
func (b *bubble) settled(t *testing.T) {
	t.Helper()
	for _, n := range b.nodes {
		until(t, "ready", func() bool { return n.Ready() == nil })
	}
}
