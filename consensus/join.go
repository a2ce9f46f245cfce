package consensus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

const (
	// askPause is between two rounds of asking all peers.
	askPause = 200 * time.Millisecond
	// askTimeout is how long a peer has to answer.
	askTimeout = 2 * time.Second
	// greetPause is between two looks at the node's seat.
	greetPause = time.Second
)

// ask gets a node with an empty disk its seat. If all its peers answer that they know of no cluster, it founds one with
// them: found. If one is of a cluster, that cluster's leader gives it a seat without a vote (N7): a node that has lost its
// disk does not know what it has promised.
func (n *Node) ask(ctx context.Context) (found bool, err error) {
	told := ""
	for {
		leader, why := n.meet(ctx)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case why == nil && leader == nil:
			return true, nil
		case why == nil:
			if why = n.join(ctx, *leader, true); why == nil || errors.Is(why, ErrForeign) {
				return false, why
			}
		}
		n.asks.Store(&why)
		if text := why.Error(); text != told {
			told = text
			n.config.Log.Info("waits for a seat in the ledger", "node", n.config.ID, "reason", text)
		}
		select {
		case <-n.config.Clock.After(askPause):
		case <-ctx.Done():
		}
	}
}

// meet asks all peers. It gives the leader of their cluster; or neither a leader nor an error if none of them is of a
// cluster yet and all answer.
func (n *Node) meet(ctx context.Context) (leader *Peer, why error) {
	others := slices.DeleteFunc(slices.Clone(n.seat.founders), func(p Peer) bool { return p.ID == n.config.ID })
	replies, faults := make([]*ledgerv1.MeetReply, len(others)), make([]error, len(others))
	var all sync.WaitGroup
	for i, p := range others {
		all.Go(func() { replies[i], faults[i] = n.meetOne(ctx, p) })
	}
	all.Wait()
	clustered := false
	for _, m := range replies {
		if len(m.GetClusterId()) > 0 || m.GetHasLog() {
			clustered = true
			if m.Leader != nil {
				p := peerOf(m.Leader)
				leader = &p
			}
		}
	}
	switch {
	case leader != nil:
		return leader, nil
	case clustered:
		return nil, errors.New("the cluster has no leader that could give a seat")
	}
	return nil, errors.Join(faults...)
}

// meetOne asks one peer. It is an error if that was told to found another cluster.
func (n *Node) meetOne(ctx context.Context, p Peer) (*ledgerv1.MeetReply, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m, err := n.meetAt(ctx, p.RPC)
	if err != nil {
		return nil, fmt.Errorf("%s does not answer at %s: %s", p.ID, p.RPC, status.Code(err))
	}
	if m.Id != p.ID {
		return nil, fmt.Errorf("at %s is %s, not %s", p.RPC, m.Id, p.ID)
	}
	if len(m.ClusterId) == 0 && !m.HasLog && !slices.EqualFunc(m.Founders, n.seat.founders, func(m *ledgerv1.Member, p Peer) bool { return peerOf(m).at() == p.at() }) {
		return nil, fmt.Errorf("%s was started with other peers: give all the same list", p.ID)
	}
	return m, nil
}

func (n *Node) meetAt(ctx context.Context, address string) (*ledgerv1.MeetReply, error) {
	conn, err := n.seat.dial(address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return ledgerv1.NewReplicaClient(conn).Meet(ctx, &ledgerv1.MeetRequest{})
}

// join asks the leader for the seat that this node is due. ErrRemoved: it is no member.
func (n *Node) join(ctx context.Context, leader Peer, empty bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*askTimeout)
	defer cancel()
	conn, err := n.seat.dial(leader.RPC)
	if err != nil {
		return err
	}
	defer conn.Close()
	q := &ledgerv1.JoinRequest{Member: n.self().message(), Empty: empty, ClusterId: n.seat.identity.get(),
		Process: n.process}
	if m := n.member(n.config.ID); m != nil && m.instance == n.seat.holder.instance { // its log goes as far as its seat
		q.Applied = n.raft().AppliedIndex()
	}
	reply, err := ledgerv1.NewReplicaClient(conn).Join(ctx, q)
	switch status.Code(err) {
	case codes.OK:
	case codes.NotFound:
		return fmt.Errorf("%w: the leader %s knows no %s; berth members add %s", ErrRemoved, leader.ID, n.config.ID, n.seat.self)
	case codes.FailedPrecondition:
		return fmt.Errorf("%w: %s", ErrForeign, status.Convert(err).Message())
	default:
		return fmt.Errorf("the leader %s: %w", leader.ID, err)
	}
	if !empty && !reply.Voter {
		return errors.New("the node has not caught up")
	}
	return nil
}

// greet sees to it that the cluster knows where this node is and, once it has caught up, counts its vote; and finds out
// if it was removed: nobody tells who is no member any more.
func (n *Node) greet(ctx context.Context) {
	for {
		select {
		case <-n.config.Clock.After(greetPause):
		case <-ctx.Done():
			return
		}
		leader, m := n.leader(), n.member(n.config.ID)
		seated := m != nil && m.Voter && (m.Peer == n.self() || len(n.config.Peers) == 0) && !n.refused.Load()
		switch {
		case leader.ID == n.config.ID || leader.ID != "" && seated:
			continue
		case leader.ID == "" || leader.RPC == "":
			found, err := n.meet(ctx)
			if found == nil || err != nil {
				continue
			}
			leader = *found
		}
		n.refused.Store(false) // what a peer, who may be behind, says is asked of the leader
		err := n.join(ctx, leader, false)
		if errors.Is(err, ErrRemoved) || errors.Is(err, ErrForeign) {
			n.fail(err)
			return
		}
	}
}

// moved tells the cluster this leader's own address and disk, if they are others than they were.
func (n *Node) moved() error {
	m, self := n.member(n.config.ID), n.self()
	if len(n.config.Peers) == 0 || m == nil || m.Peer == self {
		return nil
	}
	n.seats <- struct{}{}
	defer func() { <-n.seats }()
	if err := n.raft().AddVoter(self.server().ID, self.seat(), 0, 0).Error(); err != nil {
		return fmt.Errorf("tell the cluster the new address: %w", err)
	}
	return nil
}
