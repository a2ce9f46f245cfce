package consensus

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// N10: a second process of a living replica's name, elsewhere and with an empty disk, gets no seat: it is told so and ends,
// and the members stay as they were all the while.
func TestSecondProcessOfANameIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := full(t, 2, 20)
		defer b.close(t)
		leader := b.leader(nil)
		for _, name := range []string{"n0", "n1", "n2"} {
			before := leader.Members()
			i := b.box(b.boxes[0].founders)
			x := b.boxes[i]
			x.self.ID = name
			x.founders = slices.Clone(x.founders)
			at := slices.IndexFunc(x.founders, func(p Peer) bool { return p.ID == name })
			x.founders[at] = x.self
			second := b.start(t, i)
			for end := time.Now().Add(20 * time.Second); second.failure() == nil; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("the second %s goes on: %v", name, second.Ready())
				}
				if !slices.Equal(leader.Members(), before) {
					t.Fatalf("N10: a living member's seat was touched: %+v", leader.Members())
				}
			}
			if err := second.failure(); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "a replica "+name+" lives") {
				t.Error(err)
			}
			b.stop(t, i)
		}
		b.reserves(t, leader, w, 5)
		for _, n := range b.nodes {
			until(t, "all to have the reserves", func() bool { return n.View().Worker("w1").Granted == 25 })
		}
	})
}

// N10: a disk whose seat went to another disk of its name, because it was away, has no vote when it comes back.
func TestDiskThatLostItsSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := full(t, 4, 20)
		defer b.close(t)
		x := b.boxes[2]
		b.stop(t, 2)
		store, snapshots, identity, old := x.store, x.snapshots, x.identity, x.holder
		b.wipe(2)
		n := b.start(t, 2)
		until(t, "the new disk votes", func() bool { return n.Ready() == nil && voters(n) == 3 })
		if x.holder.instance == old.instance {
			t.Fatal("two disks of one instance")
		}
		b.reserves(t, b.leader(nil), w, 5)
		b.stop(t, 2)
		x.store, x.snapshots, x.identity, x.holder = store, snapshots, identity, old
		n = b.start(t, 2)
		until(t, "it is told", func() bool { return n.failure() != nil })
		if err := n.failure(); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "another disk") {
			t.Error(err)
		}
	})
}

// N10: on a machine's network: a process with another replica's --id, or with a copy of its folder, that the name's address
// does not lead to. Both are told and end, and the cluster goes on without a change.
func TestTwinsAreTold(t *testing.T) {
	peers := realPeers(t)
	dirs := [3]string{t.TempDir(), t.TempDir(), t.TempDir()}
	nodes, stop := realNodes(t, peers, dirs)
	for _, n := range nodes {
		eventually(t, n, func() bool { return n.Ready() == nil && claimed(n) == 3 })
	}
	stop()
	copies := [3]string{copied(t, dirs[0]), copied(t, dirs[1]), copied(t, dirs[2])}
	nodes, stop = realNodes(t, peers, dirs)
	defer stop()
	for _, n := range nodes {
		eventually(t, n, func() bool { return n.Ready() == nil })
	}
	leads := slices.Index(nodes, leaderOf(t, nodes))
	for what, c := range map[string]struct {
		of  int
		dir string
	}{
		"the leader's name, an empty disk": {leads, t.TempDir()}, "a follower's name, an empty disk": {(leads + 1) % 3, t.TempDir()},
		"the leader's folder, copied": {leads, copies[leads]}, "a follower's folder, copied": {(leads + 1) % 3, copies[(leads+1)%3]},
	} {
		twin, err := Open(Config{ID: peers[c.of].ID, Dir: c.dir, Bind: "127.0.0.1:0", Peers: peers,
			Dial: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-twin.Failed():
			if !errors.Is(err, ErrForeign) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: the twin goes on: %v", what, twin.Ready())
		}
		if err := twin.Close(); err != nil {
			t.Error(err)
		}
		if voters(nodes[0]) != 3 || leads != slices.Index(nodes, leaderOf(t, nodes)) {
			t.Errorf("%s: %+v", what, nodes[0].Members())
		}
		for _, n := range nodes {
			if err := n.failure(); err != nil {
				t.Errorf("%s: %s: %v", what, n.config.ID, err)
			}
		}
	}
}

// claimed is how many members' disks the cluster knows.
func claimed(n *Node) (count int) {
	for _, m := range n.Members() {
		if m.instance != "" {
			count++
		}
	}
	return count
}

// N10: who may speak raft with a replica whose log says which disk each member has.
func TestJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := full(t, 3, 20)
		defer b.close(t)
		n := b.leader(nil)
		until(t, "all claimed", func() bool { return claimed(n) == 3 })
		var other Member
		for _, m := range n.Members() {
			if m.ID != n.config.ID {
				other = m
			}
		}
		cluster := n.seat.identity.get()
		for _, c := range []struct {
			what  string
			hello *ledgerv1.Hello
			well  bool
		}{
			{"a member", &ledgerv1.Hello{ClusterId: cluster, Replica: other.ID, Instance: other.instance}, true},
			{"another disk", &ledgerv1.Hello{ClusterId: cluster, Replica: other.ID, Instance: "f00"}, false},
			{"another disk, of whose seat this one has not heard yet",
				&ledgerv1.Hello{ClusterId: cluster, Replica: other.ID, Instance: "f00", Applied: 1 << 40}, true},
			{"this one's name", &ledgerv1.Hello{ClusterId: cluster, Replica: n.config.ID, Instance: "f00"}, false},
			{"no member", &ledgerv1.Hello{ClusterId: cluster, Replica: "n9", Instance: "f00"}, true}, // raft gives it no vote
			{"another cluster", &ledgerv1.Hello{ClusterId: make([]byte, idBytes), Replica: other.ID, Instance: other.instance}, false},
		} {
			if err := n.judge(c.hello); (err == nil) != c.well {
				t.Errorf("%s: %v", c.what, err)
			}
		}
	})
}

// porter is a door that refuses one name.
type porter struct {
	name, refuses string
	why           chan string
}

func (p *porter) hello() *ledgerv1.Hello { return &ledgerv1.Hello{Replica: p.name} }
func (p *porter) told(peer, why string)  { p.why <- peer + ": " + why }
func (p *porter) judge(h *ledgerv1.Hello) error {
	if h.Replica == p.refuses {
		return errors.New("not you")
	}
	return nil
}

// Who calls and is refused is told why, and nothing passes.
func TestRefusedCallerIsTold(t *testing.T) {
	mine, theirs := net.Pipe()
	caller := &porter{name: "n1", why: make(chan string, 1)}
	called := &porter{name: "n2", refuses: "n1", why: make(chan string, 1)}
	ended := make(chan error, 1)
	go func() { ended <- streams{door: called}.exchange(theirs, false) }()
	if err := (streams{door: caller}).exchange(mine, true); err == nil {
		t.Error("the caller goes on")
	}
	if err := <-ended; err == nil {
		t.Error("the called goes on")
	}
	if why := <-caller.why; why != "n2: not you" {
		t.Errorf("told %q", why)
	}
}
