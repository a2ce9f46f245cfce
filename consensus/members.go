package consensus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// Member is a replica of the cluster.
type Member struct {
	Peer
	// Voter: it counts for a quorum. Before, it only receives the log.
	Voter bool
}

// Members are the cluster's replicas as far as this one knows, by ascending id.
func (n *Node) Members() []Member {
	r := n.raft()
	if r == nil {
		return nil
	}
	known := r.GetConfiguration()
	if known.Error() != nil {
		return nil // it is closed
	}
	var out []Member
	for _, s := range known.Configuration().Servers {
		out = append(out, Member{peerAt(string(s.ID), s.Address), s.Suffrage == raft.Voter})
	}
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// member is the replica of that name, nil if there is none.
func (n *Node) member(id string) *Member {
	all := n.Members()
	if i := slices.IndexFunc(all, func(m Member) bool { return m.ID == id }); i >= 0 {
		return &all[i]
	}
	return nil
}

// Online are the replicas that the leader hears of, itself included; none if there is no leader.
func (n *Node) Online(ctx context.Context) []string {
	if n.leads() {
		return append(n.followers.list(), n.config.ID)
	}
	l := n.link.Load()
	if l == nil {
		return nil
	}
	m, err := ledgerv1.NewReplicaClient(l.conn).Meet(ctx, &ledgerv1.MeetRequest{})
	if err != nil {
		return nil
	}
	return append(m.Followers, m.Id)
}

// followers are those whose lines to this leader are up, with how many each has.
type followers struct {
	mu    sync.Mutex
	lines map[string]int
}

// join counts a line until the function that it gives is called.
func (f *followers) join(id string) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lines == nil {
		f.lines = map[string]int{}
	}
	f.lines[id]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.lines[id]--; f.lines[id] == 0 {
			delete(f.lines, id)
		}
	}
}

func (f *followers) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.lines))
}

// AddMember makes a replica a member, which then receives the log and gets a vote once it has caught up. It goes through
// the leader. ErrMember: the cluster has that name, or address, already.
func (n *Node) AddMember(ctx context.Context, p Peer) error {
	return n.change(ctx, &ledgerv1.ChangeRequest{Add: p.message()}, func() error { return n.add(p) })
}

// RemoveMember takes a replica out of the cluster, for ever or until it is added again with an empty disk. It goes through
// the leader, which may be the one. ErrMember: there is none of that name, or no other.
func (n *Node) RemoveMember(ctx context.Context, id string) error {
	return n.change(ctx, &ledgerv1.ChangeRequest{Remove: id}, func() error { return n.remove(id) })
}

func (n *Node) change(ctx context.Context, q *ledgerv1.ChangeRequest, here func() error) error {
	if err := n.Ready(); err != nil {
		return err
	}
	if n.leads() {
		return here()
	}
	leader := n.leader()
	conn, err := n.seat.dial(leader.RPC)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = ledgerv1.NewReplicaClient(conn).Change(ctx, q)
	switch status.Code(err) {
	case codes.OK:
		n.showsChange(ctx, q)
		return nil
	case codes.FailedPrecondition:
		return fmt.Errorf("%w: %s", ErrMember, strings.TrimPrefix(status.Convert(err).Message(), ErrMember.Error()+": "))
	}
	return fmt.Errorf("%w: the leader %s: %w", ErrNoQuorum, leader.ID, err)
}

// showsChange waits until this node's own list of members has a change that the leader made, if that does not take long.
func (n *Node) showsChange(ctx context.Context, q *ledgerv1.ChangeRequest) {
	for range 100 {
		if there := n.member(q.GetAdd().GetId()+q.GetRemove()) != nil; there == (q.Add != nil) {
			return
		}
		select {
		case <-n.config.Clock.After(10 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// HandOver has another replica lead, if this one does and there is another, so that a planned stop does not cost the time
// that it takes to miss a leader. It returns once the leadership is given up or cannot be.
func (n *Node) HandOver() {
	if !n.leads() || len(n.Members()) < 2 {
		return
	}
	if err := n.raft().LeadershipTransfer().Error(); err != nil {
		n.config.Log.Warn("ledger leadership not handed over", "node", n.config.ID, "error", err.Error())
		return
	}
	n.config.Log.Info("ledger leadership handed over", "node", n.config.ID)
}

func (n *Node) add(p Peer) error {
	n.seats.Lock()
	defer n.seats.Unlock()
	if len(n.config.Peers) == 0 {
		return fmt.Errorf("%w: the others cannot reach %s: start it with --peers first, of itself alone if there are no others", ErrMember, n.config.ID)
	}
	for _, m := range n.Members() {
		switch {
		case m.Peer == p:
			return nil
		case m.ID == p.ID:
			return fmt.Errorf("%w: %s is %s already; remove it first", ErrMember, p.ID, m.Peer)
		case m.Raft == p.Raft || m.RPC == p.RPC:
			return fmt.Errorf("%w: %s has an address of %s", ErrMember, m.ID, p)
		}
	}
	server := p.server()
	if err := n.raft().AddNonvoter(server.ID, server.Address, 0, 0).Error(); err != nil {
		return fmt.Errorf("%w: add %s: %w", ErrNoQuorum, p.ID, err)
	}
	n.config.Log.Info("replica added", "replica", p.ID)
	return nil
}

func (n *Node) remove(id string) error {
	n.seats.Lock()
	defer n.seats.Unlock()
	voters, online := 0, 0
	heard := append(n.followers.list(), n.config.ID)
	for _, m := range n.Members() {
		if m.Voter && m.ID != id {
			voters++
			if slices.Contains(heard, m.ID) {
				online++
			}
		}
	}
	switch {
	case n.member(id) == nil:
		return fmt.Errorf("%w: there is no replica %s", ErrMember, id)
	case voters == 0:
		return fmt.Errorf("%w: no other replica than %s has a vote", ErrMember, id)
	case 2*online <= voters:
		return fmt.Errorf("%w: without %s, %d of %d votes would be there, which is no quorum: remove who is away first, or start it",
			ErrMember, id, online, voters)
	}
	if err := n.raft().RemoveServer(raft.ServerID(id), 0, 0).Error(); err != nil {
		return fmt.Errorf("%w: remove %s: %w", ErrNoQuorum, id, err)
	}
	n.config.Log.Info("replica removed", "replica", id)
	return nil
}
