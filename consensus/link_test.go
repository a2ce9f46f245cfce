package consensus

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// A follower whose line to the leader hangs, while raft goes on, takes no renewals that nobody hears: a sixth of the lease
// later it is not ready, so that workers renew elsewhere, and it is again once the line is.
func TestAFollowerWhoseLineHangsIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 3, 5)
		defer b.close(t)
		leader := b.leader(nil)
		const lease = 3 * time.Second
		if _, err := leader.OpenSession("r1", lease); err != nil {
			t.Fatal(err)
		}
		f := b.nodes[slices.IndexFunc(b.nodes, func(n *Node) bool { return n != leader })]
		for f.Ready() != nil || f.View().Sessions == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		if err := f.Ready(); err != nil {
			t.Fatalf("nothing hangs, and the follower is not ready: %v", err)
		}
		term, address := leader.Term(), raft.ServerAddress(f.config.ID+"/"+f.config.ID)
		b.net.hang(address, true)
		hung := time.Now()
		for f.Ready() == nil {
			if time.Since(hung) > lease/6+100*time.Millisecond {
				t.Fatalf("%v after its line began to hang the follower is ready", time.Since(hung))
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		if f.Ready() == nil || leader.Term() != term {
			t.Errorf("ready: %v, terms %d and %d", f.Ready(), term, leader.Term())
		}
		b.net.hang(address, false)
		for f.Ready() != nil {
			if time.Since(hung) > 2*time.Minute {
				t.Fatalf("the line is whole again, and the follower is not ready: %v", f.Ready())
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// A replica that does not apply what its leader has applied long ago is not ready, however alive its line is.
func TestAReplicaThatStandsIsNotReady(t *testing.T) {
	now := time.Now()
	l := &link{now: func() time.Time { return now }}
	own := uint64(7)
	for i := range 100 { // the leader moves on, the replica does not
		l.told(uint64(7+i), own)
		now = now.Add(100 * time.Millisecond)
		_, stands := l.stands(own)
		if late := time.Duration(i) * 100 * time.Millisecond; stands != (late > behindFor) {
			t.Fatalf("behind for %v, stands: %v", late, stands)
		}
	}
	for i := range 100 { // it follows, a little behind
		l.told(uint64(200+10*i), uint64(195+10*i))
		now = now.Add(100 * time.Millisecond)
		if _, stands := l.stands(uint64(195 + 10*i)); stands {
			t.Fatalf("%d rounds behind by less than a tick, and it stands", i)
		}
	}
}
