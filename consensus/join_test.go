package consensus

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// until waits for a condition in virtual time.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func voters(n *Node) (count int) {
	for _, m := range n.Members() {
		if m.Voter {
			count++
		}
	}
	return count
}

// N7: replicas with empty disks found one cluster whatever the order that they come in, and the last may come late.
func TestFoundersMeet(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 0, 1}, {1, 2, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := emptyBubble(3, uint64(order[0]))
				defer b.close(t)
				for _, i := range order[:2] {
					b.start(t, i)
					time.Sleep(3 * time.Second)
				}
				for _, n := range b.nodes {
					if err := n.Ready(); !errors.Is(err, ErrNoQuorum) {
						t.Fatalf("N7: one of three peers has not answered, and the node says %v", err)
					}
				}
				b.start(t, order[2])
				for _, n := range b.nodes {
					until(t, "all ready", func() bool { return n.Ready() == nil })
					if voters(n) != 3 {
						t.Errorf("%d voters", voters(n))
					}
				}
				name := string(b.nodes[0].View().ClusterID)
				for _, n := range b.nodes {
					if got := string(n.View().ClusterID); got != name || got == "" {
						t.Errorf("cluster %x and %x", got, name)
					}
				}
			})
		})
	}
}

// N7: replicas that were told other peers do not found a cluster.
func TestOtherPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := emptyBubble(2, 1)
		defer b.close(t)
		all := b.boxes[0].founders
		b.box(all[:1]) // knows only one other, of which there are three
		b.boxes[2].founders = append(all[:1:1], b.boxes[2].self)
		b.start(t, 2)
		b.start(t, 0)
		b.start(t, 1)
		time.Sleep(10 * time.Second)
		if err := b.boxes[2].node.Ready(); err == nil {
			t.Error("N7: a replica with other peers is ready")
		}
		if voters(b.leader(nil)) != 2 {
			t.Error("the others have not founded their cluster")
		}
	})
}

// N7: a replica that lost its disk gets a seat without a vote, and its vote once it has the log. Nothing that it had
// acknowledged before is lost.
func TestLostDisk(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			b := newBubble(t, 3, seed)
			b.config.SnapshotThreshold, b.config.SnapshotInterval = 64, 100*time.Millisecond
			defer b.close(t)
			w := register(t, b.leader(nil), "w1", 1<<20, 1<<20)
			for round := range 3 {
				lost := int(seed+uint64(round)) % 3
				other := b.boxes[(lost+1)%3].node
				until(t, "the other is ready", func() bool { return other.Ready() == nil })
				s, err := other.OpenSession(fmt.Sprint("r", round), 10*time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				for range 300 {
					do(t, s, reserve("w1", w, 1))
				}
				b.stop(t, lost)
				b.wipe(lost)
				n := b.start(t, lost)
				sat := false
				until(t, "the replica votes again", func() bool {
					m := n.member(n.config.ID)
					if m != nil && !m.Voter {
						sat = true
					}
					return n.Ready() == nil && voters(n) == 3 && m.instance == b.boxes[lost].holder.instance // not the lost disk's
				})
				if !sat {
					t.Error("N7: it had a vote at once")
				}
				if got, want := n.View().Worker("w1").Granted, uint64(300*(round+1)); got != want {
					t.Errorf("%d pages granted, want %d", got, want)
				}
				s.Close()
			}
			time.Sleep(20 * time.Second)
			sameDigests(t, b.nodes)
		})
	}
}

// A replica that was added gets a snapshot and the log, then its vote; one that was not added waits.
func TestAddMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := emptyBubble(3, 3)
		b.config.SnapshotThreshold, b.config.SnapshotInterval = 64, 100*time.Millisecond
		for i := range 3 {
			b.start(t, i)
		}
		defer b.close(t)
		w := register(t, b.leader(nil), "w1", 1<<20, 1<<20)
		n := b.boxes[0].node
		until(t, "ready", func() bool { return n.Ready() == nil })
		s, err := n.OpenSession("r1", 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for range 500 {
			do(t, s, reserve("w1", w, 1))
		}
		fourth := b.box(b.boxes[0].founders)
		x := b.boxes[fourth]
		x.founders = append(x.founders[:3:3], x.self)
		added := b.start(t, fourth)
		time.Sleep(5 * time.Second)
		if err := added.Ready(); err == nil {
			t.Fatal("a replica that nobody added is ready")
		}
		if err := n.AddMember(t.Context(), x.self); err != nil {
			t.Fatal(err)
		}
		if err := n.AddMember(t.Context(), Peer{ID: "n9", Raft: x.self.Raft, RPC: "n9"}); !errors.Is(err, ErrMember) {
			t.Errorf("an address twice: %v", err)
		}
		until(t, "the fourth votes", func() bool { return added.Ready() == nil && voters(added) == 4 })
		if got := added.View().Worker("w1").Granted; got != 500 {
			t.Errorf("%d pages granted, want 500", got)
		}
	})
}

// A member is removed while commands go on; it says so itself, and the others are a quorum without it.
func TestRemoveMember(t *testing.T) {
	for _, leads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBubble(t, 3, 5)
			defer b.close(t)
			leader := b.leader(nil)
			w := register(t, leader, "w1", 1<<20, 1<<20)
			gone := leader
			for _, n := range b.nodes {
				until(t, "ready", func() bool { return n.Ready() == nil })
				if !leads && n != leader {
					gone = n
				}
			}
			var stays *Node
			for _, n := range b.nodes {
				if n != gone {
					stays = n
				}
			}
			s, err := stays.OpenSession("r1", 10*time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			var clients sync.WaitGroup
			for range 8 {
				clients.Go(func() {
					for range 50 {
						do(t, s, reserve("w1", w, 1))
						time.Sleep(20 * time.Millisecond)
					}
				})
			}
			if err := stays.RemoveMember(t.Context(), gone.config.ID); err != nil {
				t.Fatal(err)
			}
			clients.Wait()
			until(t, "the removed one knows", func() bool { return errors.Is(gone.failure(), ErrRemoved) })
			until(t, "two members", func() bool { return voters(stays) == 2 && stays.Ready() == nil })
			if got := stays.View().Worker("w1").Granted; got != 400 {
				t.Errorf("N3: %d pages granted, want 400", got)
			}
			if err := stays.RemoveMember(t.Context(), "n7"); !errors.Is(err, ErrMember) {
				t.Errorf("remove nobody: %v", err)
			}
		})
	}
}

// N5: who renews at a follower lives, and who does not ends.
func TestFollowersSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 3, 1)
		defer b.close(t)
		leader := b.leader(nil)
		for _, n := range b.nodes {
			until(t, "ready", func() bool { return n.Ready() == nil })
			s, err := n.OpenSession("r-"+n.config.ID, 2*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			do(t, s, drop(1))
			if n != leader {
				defer s.Close()
			}
		}
		id := func() int { return leader.View().Sessions }
		time.Sleep(time.Minute)
		if id() != 3 {
			t.Errorf("N5: %d of 3 sessions live", id())
		}
	})
}

// N2: a follower gives out a result once its own view has it.
func TestFollowerShowsWhatItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 3, 2)
		defer b.close(t)
		leader := b.leader(nil)
		w := register(t, leader, "w1", 1<<20, 1<<20)
		n := b.nodes[0]
		if n == leader {
			n = b.nodes[1]
		}
		until(t, "ready", func() bool { return n.Ready() == nil })
		s, err := n.OpenSession("r1", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for i := range uint64(200) {
			r := do(t, s, reserve("w1", w, 1))
			if v := n.View(); v.Revision < r.Revision || v.Worker("w1").Granted < i+1 {
				t.Fatalf("N2: revision %d answered, %d shown", r.Revision, v.Revision)
			}
		}
		if each := time.Since(began) / 200; each > 20*time.Millisecond {
			t.Errorf("%v for a command of a follower", each)
		}
	})
}

// full starts three nodes and has them acknowledge some reserves.
func full(t *testing.T, seed uint64, pages int) (b *bubble, w uint64) {
	b = newBubble(t, 3, seed)
	w = register(t, b.leader(nil), "w1", 1<<20, 1<<20)
	for _, n := range b.nodes {
		until(t, "ready", func() bool { return n.Ready() == nil })
	}
	b.reserves(t, b.leader(nil), w, pages)
	return b, w
}

func (b *bubble) reserves(t *testing.T, n *Node, w uint64, pages int) {
	s, err := n.OpenSession("r", 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range pages {
		do(t, s, reserve("w1", w, 1))
	}
}

// N7: all replicas start anew, and one has lost its disk: those that have a log know that there is a cluster, though none
// leads it yet.
func TestLostDiskAtACommonStart(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			b, w := full(t, seed, 5)
			defer b.close(t)
			b.net.isolate(addressOf(1), true, true)
			b.reserves(t, b.leader(b.boxes[1].node), w, 100) // that node 1 does not have
			for i := range 3 {
				b.stop(t, i)
			}
			b.net.isolate("", false, false)
			b.wipe(2)
			for i := range 3 {
				b.start(t, i)
			}
			time.Sleep(20 * time.Second)
			for _, n := range b.nodes {
				if err := n.Ready(); !errors.Is(err, ErrNoQuorum) && n.View().Worker("w1").Granted != 105 {
					t.Errorf("seed %d, %s: N2: ready %v, %d of 105 pages granted", seed, n.config.ID, err, n.View().Worker("w1").Granted)
				}
			}
		})
	}
}

// N7: two of three disks are lost, and whatever the order of the starts: no cluster comes of it.
func TestTwoLostDisks(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			b, _ := full(t, seed, 20)
			defer b.close(t)
			name := string(b.nodes[0].View().ClusterID)
			for i := range 3 {
				b.stop(t, i)
			}
			b.wipe(1)
			b.wipe(2)
			for _, i := range [][]int{{1, 2, 0}, {0, 1, 2}, {2, 0, 1}}[seed%3] {
				b.start(t, i)
			}
			time.Sleep(20 * time.Second)
			for _, n := range b.nodes {
				if err := n.Ready(); err == nil || string(n.View().ClusterID) != "" && string(n.View().ClusterID) != name {
					t.Errorf("seed %d, %s: N7: ready %v, cluster %x", seed, n.config.ID, err, n.View().ClusterID)
				}
			}
		})
	}
}

// The leader is lost while a replica without its disk joins: it stays a member, and gets its vote from the next one.
func TestLeaderLostDuringAJoin(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			b, _ := full(t, seed, 1)
			defer b.close(t)
			leader, lost := b.leader(nil), 0
			if b.boxes[0].node == leader {
				lost = 1
			}
			b.stop(t, lost)
			b.wipe(lost)
			n := b.start(t, lost)
			until(t, "the leader to begin", func() bool { m := leader.member(n.config.ID); return m == nil || !m.Voter })
			time.Sleep(time.Duration(seed) * 200 * time.Microsecond)
			b.net.isolate(leader.seat.transport.LocalAddr(), true, true)
			time.Sleep(3 * time.Second)
			b.net.isolate("", false, false)
			until(t, "the replica votes", func() bool { return n.Ready() == nil && voters(n) == 3 })
		})
	}
}

// A removed replica that is added again at once gets its vote again, or says that it was removed.
func TestRemovedAndAdded(t *testing.T) {
	for _, gap := range []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			b, _ := full(t, 3, 1)
			defer b.close(t)
			leader := b.leader(nil)
			x := b.boxes[0]
			if x.node == leader {
				x = b.boxes[1]
			}
			if err := leader.RemoveMember(t.Context(), x.self.ID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(gap)
			if err := leader.AddMember(t.Context(), x.self); err != nil {
				t.Fatal(err)
			}
			until(t, "a vote, or a word", func() bool { return voters(leader) == 3 || errors.Is(x.node.failure(), ErrRemoved) })
		})
	}
}

// A removal that would leave no quorum is refused.
func TestRemoveKeepsAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := full(t, 4, 1)
		defer b.close(t)
		leader := b.leader(nil)
		var others []int
		for i, x := range b.boxes {
			if x.node != leader {
				others = append(others, i)
			}
		}
		b.stop(t, others[0])
		until(t, "the leader to miss it", func() bool { return len(leader.followers.list()) == 1 })
		if err := leader.RemoveMember(t.Context(), b.boxes[others[1]].self.ID); !errors.Is(err, ErrMember) {
			t.Errorf("the one that makes the quorum: %v", err)
		}
		if err := leader.RemoveMember(t.Context(), b.boxes[others[0]].self.ID); err != nil {
			t.Errorf("the one that is away: %v", err)
		}
		until(t, "two voters", func() bool { return voters(leader) == 2 && leader.Ready() == nil })
	})
}

// N8: a disk of another cluster, with the same names, is refused by those whose log it would take the place of.
func TestForeignDisk(t *testing.T) {
	peers := realPeers(t)
	dirs := [2][3]string{}
	for c := range dirs {
		for i := range dirs[c] {
			dirs[c][i] = t.TempDir()
		}
	}
	// The second cluster has the higher term and the longer log.
	for c, commands := range []int{20, 200} {
		nodes, stop := realNodes(t, peers, dirs[c])
		for _, n := range nodes {
			eventually(t, n, func() bool { return n.Ready() == nil })
		}
		for range c * 3 {
			if err := leaderOf(t, nodes).raft().LeadershipTransfer().Error(); err != nil {
				t.Fatal(err)
			}
			eventually(t, nodes[0], func() bool { return nodes[0].Ready() == nil })
		}
		s, err := nodes[0].OpenSession("r", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		w := register(t, nodes[0], "w1", 1<<20, 1<<20)
		for range commands {
			do(t, s, reserve("w1", w, 1))
		}
		s.Close()
		stop()
	}
	nodes, stop := realNodes(t, peers, [3]string{dirs[0][0], dirs[0][1], dirs[1][2]})
	defer stop()
	select {
	case err := <-nodes[2].Failed():
		if !errors.Is(err, ErrForeign) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the foreign replica goes on")
	}
	for _, n := range nodes[:2] {
		eventually(t, n, func() bool { return n.Ready() == nil })
		if got := n.View().Worker("w1").Granted; got != 20 || n.failure() != nil {
			t.Errorf("%s: %d pages granted, want 20; %v", n.config.ID, got, n.failure())
		}
	}
}

func leaderOf(t *testing.T, nodes []*Node) *Node {
	for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
		for _, n := range nodes {
			if n.leads() && n.Ready() == nil {
				return n
			}
		}
	}
	t.Fatal("nobody leads")
	return nil
}

// N8: who may speak raft with whom.
func TestAdmits(t *testing.T) {
	a, b := []byte("cluster a"), []byte("cluster b")
	for _, c := range []struct {
		mine, theirs []byte
		alone, well  bool
	}{
		{nil, nil, false, true}, // founders
		{nil, nil, true, true},
		{a, nil, false, true}, // a leader to one that joins
		{nil, a, false, true}, // and that one to it
		{a, a, false, true},
		{a, a, true, true},
		{a, b, false, false},
		{nil, a, true, false}, // one that lost its disk, was told to be alone, and has the address of a member
	} {
		if err := admits(c.mine, c.theirs, c.alone); (err == nil) != c.well {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
