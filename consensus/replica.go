package consensus

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// caughtUp is how many log entries a member may be behind when it gets its vote.
const caughtUp = 1024

// replica serves the other replicas.
type replica struct {
	ledgerv1.UnimplementedReplicaServer
	*Node
}

// RegisterRPC adds what other replicas call to a gRPC server, which must serve before a node of several gets its seat.
func (n *Node) RegisterRPC(s grpc.ServiceRegistrar) {
	ledgerv1.RegisterReplicaServer(s, replica{Node: n})
}

// Meet implements ledger.v1.Replica.
func (r replica) Meet(context.Context, *ledgerv1.MeetRequest) (*ledgerv1.MeetReply, error) {
	m := &ledgerv1.MeetReply{Id: r.config.ID, ClusterId: r.seat.identity.get(), HasLog: r.hasLog(), Process: r.process}
	for _, p := range r.seat.founders {
		m.Founders = append(m.Founders, p.message())
	}
	if leader := r.leader(); leader.ID != "" {
		m.Leader = leader.message()
	}
	if r.leads() {
		m.Followers = r.followers.list()
	}
	return m, nil
}

// Join implements ledger.v1.Replica.
func (r replica) Join(ctx context.Context, q *ledgerv1.JoinRequest) (*ledgerv1.JoinReply, error) {
	if err := r.rules(); err != nil {
		return nil, err
	}
	if len(q.ClusterId) > 0 && string(q.ClusterId) != string(r.seat.identity.get()) {
		return nil, status.Errorf(codes.FailedPrecondition, "%s is of another cluster", q.GetMember().GetId())
	}
	m := r.member(q.GetMember().GetId())
	if m == nil {
		return nil, status.Errorf(codes.NotFound, "%s is no member", q.GetMember().GetId())
	}
	if err := r.due(ctx, m, q); err != nil {
		r.config.Log.Warn("a replica is refused its seat", "replica", m.ID, "reason", err.Error())
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	r.seats <- struct{}{}
	defer func() { <-r.seats }()
	if now := r.member(m.ID); now == nil || *now != *m {
		return nil, status.Errorf(codes.Unavailable, "the seat of %s changed meanwhile", m.ID)
	}
	voter, err := r.seatOf(m, q)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "give %s its seat: %v", m.ID, err)
	}
	return &ledgerv1.JoinReply{Voter: voter}, nil
}

// rules is nil if this node leads and has applied all of the log.
func (n *Node) rules() error {
	if err := n.Ready(); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if !n.leads() {
		return status.Errorf(codes.Unavailable, "%s does not lead", n.config.ID)
	}
	return nil
}

// seatOf gives a member the seat that it is due, and says whether that has a vote.
func (n *Node) seatOf(m *Member, q *ledgerv1.JoinRequest) (voter bool, err error) {
	core, seat := n.raft(), peerOf(q.Member).server()
	switch {
	case m.ID == n.config.ID:
		return m.Voter, nil
	case q.Empty:
		// What it acknowledged before is lost: it may not be one of those who vote for a log without that. It stays a member
		// at each step, whoever leads after it.
		if m.Voter {
			if err := core.DemoteVoter(seat.ID, 0, 0).Error(); err != nil {
				return false, err
			}
		}
		n.config.Log.Info("replica joins", "replica", m.ID, "address", string(seat.Address))
		return false, core.AddNonvoter(seat.ID, seat.Address, 0, 0).Error()
	case !m.Voter && q.Applied > 0 && q.Applied+caughtUp >= core.AppliedIndex():
		n.config.Log.Info("replica has caught up and votes", "replica", m.ID)
		return true, core.AddVoter(seat.ID, seat.Address, 0, 0).Error()
	case m.seat() != seat.Address && m.Voter:
		return true, core.AddVoter(seat.ID, seat.Address, 0, 0).Error()
	case m.seat() != seat.Address:
		return false, core.AddNonvoter(seat.ID, seat.Address, 0, 0).Error()
	}
	return m.Voter, nil
}

// Change implements ledger.v1.Replica.
func (r replica) Change(_ context.Context, q *ledgerv1.ChangeRequest) (*ledgerv1.ChangeReply, error) {
	if err := r.rules(); err != nil {
		return nil, err
	}
	var err error
	if q.Add != nil {
		err = r.add(peerOf(q.Add))
	} else {
		err = r.remove(q.Remove)
	}
	switch {
	case errors.Is(err, ErrMember):
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	case err != nil:
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &ledgerv1.ChangeReply{}, nil
}

// Follow implements ledger.v1.Replica: it appends what a follower sends in its order, and tells the outcomes.
func (r replica) Follow(stream ledgerv1.Replica_FollowServer) error {
	if err := r.rules(); err != nil {
		return err
	}
	ctx, cancel := r.scope()
	defer cancel()
	stop := context.AfterFunc(stream.Context(), cancel)
	defer stop()
	if id := metadata.ValueFromIncomingContext(stream.Context(), "replica"); len(id) == 1 {
		defer r.followers.join(id[0])()
	}
	f := &follower{node: r.Node, stream: stream}
	welcome := &ledgerv1.ToFollower{Kind: &ledgerv1.ToFollower_Welcome{Welcome: &ledgerv1.Welcome{Revision: r.Revision()}}}
	if err := stream.Send(welcome); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- f.receive() }() // until the stream ends, which this function's return does
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return status.Errorf(codes.Unavailable, "%s is closed", r.config.ID)
	}
}

// follower is the leader's end of a follower's line.
type follower struct {
	node   *Node
	sends  sync.Mutex
	stream ledgerv1.Replica_FollowServer
}

func (f *follower) receive() error {
	for {
		m, err := f.stream.Recv()
		if err != nil {
			return err
		}
		switch m := m.Kind.(type) {
		case *ledgerv1.FromFollower_Heard:
			for _, session := range m.Heard.Sessions {
				f.node.Renew(session)
			}
			if err := f.send(&ledgerv1.ToFollower{Kind: &ledgerv1.ToFollower_Acknowledged{
				Acknowledged: &ledgerv1.Acknowledged{Revision: f.node.Revision()},
			}}); err != nil {
				return err
			}
		case *ledgerv1.FromFollower_Batch:
			if err := f.submit(m.Batch); err != nil {
				return err
			}
		}
	}
}

func (f *follower) send(m *ledgerv1.ToFollower) error {
	f.sends.Lock()
	defer f.sends.Unlock()
	return f.stream.Send(m)
}

// forwardable says whether a proposal may come from a follower: time and the cluster's name are the leader's alone, and a
// tick of a former leader says nothing of now.
func forwardable(p *ledgerv1.Proposal) bool {
	return p.GetCommand().GetTick() == nil && p.GetCommand().GetBootstrap() == nil
}

// submit puts a batch in line, behind what the follower sent before.
func (f *follower) submit(b *ledgerv1.Batch) error {
	var entry ledgerv1.Entry
	if err := proto.Unmarshal(b.Entry, &entry); err != nil {
		return status.Errorf(codes.InvalidArgument, "decode batch: %v", err)
	}
	if !known(entry.ProtoReflect()) {
		return status.Errorf(codes.FailedPrecondition, "%s is of an older version, and does not know a command of this one: upgrade the leader too",
			f.node.config.ID)
	}
	told := &ledgerv1.Answers{Number: b.Number, Answers: make([]*ledgerv1.Answer, len(entry.Proposals))}
	var open sync.WaitGroup
	open.Add(len(entry.Proposals))
	for i, p := range entry.Proposals {
		if !forwardable(p) {
			told.Answers[i] = &ledgerv1.Answer{}
			open.Done()
			continue
		}
		f.node.Submit(p, func(r *ledgerv1.Result, err error) {
			told.Answers[i] = &ledgerv1.Answer{Result: r, Unknown: err != nil && (!errors.Is(err, ErrNoQuorum) || errors.Is(err, errUnknown))}
			open.Done()
		})
	}
	go func() { // at most two a follower, and each ends with its entries
		open.Wait()
		told.Revision = f.node.Revision()
		_ = f.send(&ledgerv1.ToFollower{Kind: &ledgerv1.ToFollower_Answers{Answers: told}}) // receive says why
	}()
	return nil
}
