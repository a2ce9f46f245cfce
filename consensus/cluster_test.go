package consensus

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// N5: a session that is renewed lives; one that is not ends within a lease and a tick, not before its lease.
func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 1, 1)
		defer b.close(t)
		n := b.leader(nil)
		kept, err := n.OpenSession("r1", 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		gone, err := n.OpenSession("r2", 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n.View().Sessions != 2 {
			t.Fatalf("%d sessions live, want 2", n.View().Sessions)
		}
		gone.Close()
		closed := time.Now()
		for n.View().Sessions == 2 {
			<-n.Changed()
		}
		if took := time.Since(closed); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("N5: the session ended after %v", took)
		}
		do(t, kept, drop(1))
	})
}

// N1, N3: with the leader cut off again and again, in every direction, each reserve is applied once.
func TestThreeNodesLosingLeaders(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { losingLeaders(t, seed) })
		})
	}
}

// awaitVotes waits until all have a seat and a vote: one that came late joins without one first, and a cluster of two votes
// does not survive the loss of its leader.
func (b *bubble) awaitVotes() {
	waits := func(n *Node) bool {
		return n.raft() == nil || slices.ContainsFunc(n.Members(), func(m Member) bool { return !m.Voter })
	}
	for slices.ContainsFunc(b.nodes, waits) {
		time.Sleep(50 * time.Millisecond)
	}
}

// losingLeaders has clients that carry their own sequences to whoever leads, as a worker's line does.
func losingLeaders(t *testing.T, seed uint64) {
	b := newBubble(t, 3, seed)
	defer b.close(t)
	b.leader(nil)
	b.awaitVotes()
	time.Sleep(10 * time.Second) // every replica has said where it is, and whose disk it has
	b.net.lose(0.01)
	w := register(t, b.leader(nil), "w1", 1<<20, 1<<20)
	var clients sync.WaitGroup
	const each = 40
	for c := range 4 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(c)))
			session := b.insist(t, &ledgerv1.Proposal{Command: &ledgerv1.Command{
				Kind: &ledgerv1.Command_OpenRouter{OpenRouter: &ledgerv1.OpenRouter{
					Router: "r", Nonce: []byte{byte(c)}, LeaseMs: 600_000,
				}},
			}}).GetOpened().GetSession()
			for i := range uint64(each) {
				r := b.insist(t, &ledgerv1.Proposal{
					Session: session, Sequence: i + 1, Acked: i, Command: reserve("w1", w, 1),
				})
				if r.GetReserved() == nil {
					t.Errorf("reserve: %v", r)
				}
				time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
			}
		})
	}
	for k := range 3 {
		time.Sleep(time.Second)
		old := b.leader(nil)
		kind := (int(seed) + k) % 3
		b.net.isolate(old.seat.transport.LocalAddr(), kind != 0, kind != 1)
		b.leader(old)
		time.Sleep(time.Second)
		b.net.isolate("", false, false)
	}
	clients.Wait()
	leader := b.leader(nil)
	if got := leader.View().Worker("w1").Granted; got != 4*each {
		t.Errorf("N3: granted %d, want %d", got, 4*each)
	}
	time.Sleep(time.Second)
	sameDigests(t, b.nodes)
}

// insist proposes to one node after the other until there is an answer, from whoever leads.
func (b *bubble) insist(t *testing.T, p *ledgerv1.Proposal) *ledgerv1.Result {
	for {
		for _, n := range b.nodes {
			answered := make(chan *ledgerv1.Result, 1)
			n.Submit(p, func(r *ledgerv1.Result, err error) {
				if err != nil && !errors.Is(err, ErrNoQuorum) {
					t.Errorf("submit: %v", err)
				}
				answered <- r
			})
			if r := <-answered; r != nil {
				return r
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// sameDigests compares the replicas at each tick that they both remember (I8 of the ledger, through raft).
func sameDigests(t *testing.T, nodes []*Node) {
	known := map[uint64]Digest{}
	compared := 0
	for _, n := range nodes {
		for _, d := range n.Digests() {
			if other, ok := known[d.Revision]; ok {
				compared++
				if other != d {
					t.Errorf("replicas differ at revision %d", d.Revision)
				}
			}
			known[d.Revision] = d
		}
	}
	if compared < 20 {
		t.Errorf("%d digests could be compared", compared)
	}
}

// N3: a session keeps many commands on their way while its node leads, follows, and is cut off.
func TestSessionThroughLostLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 3, 7)
		defer b.close(t)
		n := b.leader(nil)
		term := n.Term()
		w := register(t, n, "w1", 1<<20, 1<<20)
		s, err := n.OpenSession("r1", 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		const proposers, each = 32, 100
		for range proposers {
			all.Go(func() {
				for range each {
					r, err := s.Do(t.Context(), reserve("w1", w, 1))
					if err != nil || r.GetReserved() == nil {
						t.Errorf("%v, %v", r, err)
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		all.Go(func() {
			for range 6 {
				time.Sleep(100 * time.Millisecond)
				old := b.leader(nil)
				b.net.isolate(old.seat.transport.LocalAddr(), true, true)
				b.leader(old)
				b.net.isolate("", false, false)
			}
		})
		all.Wait()
		if n.Term() < term+6 {
			t.Errorf("the leadership was lost %d times only", n.Term()-term)
		}
		if got := n.View().Worker("w1").Granted; got != proposers*each {
			t.Errorf("N3: granted %d, want %d", got, proposers*each)
		}
	})
}
