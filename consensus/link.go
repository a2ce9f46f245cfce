package consensus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// follow keeps a line to whoever leads, while that is another node.
func (n *Node) follow(ctx context.Context) {
	changes := make(chan raft.Observation, 1) // who leads is read anew after each
	o := raft.NewObserver(changes, false, func(o *raft.Observation) bool {
		_, led := o.Data.(raft.LeaderObservation)
		return led
	})
	n.raft().RegisterObserver(o)
	defer n.raft().DeregisterObserver(o)
	for ctx.Err() == nil {
		leader := n.leader()
		if leader.ID == "" || leader.ID == n.config.ID {
			select {
			case <-changes:
			case <-ctx.Done():
			}
			continue
		}
		if err := n.under(ctx, leader, changes); ctx.Err() == nil {
			if status.Code(err) == codes.FailedPrecondition {
				n.fail(fmt.Errorf("the leader takes nothing: %s", status.Convert(err).Message()))
				return
			}
			n.config.Log.Debug("line to the leader ended", "node", n.config.ID, "leader", leader.ID, "error", err)
			n.pause(ctx)
		}
	}
}

// under keeps the line to one leader until it breaks, or another one leads.
func (n *Node) under(ctx context.Context, leader Peer, changes <-chan raft.Observation) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- n.line(ctx, leader) }()
	for {
		select {
		case err := <-ended:
			return err
		case <-changes:
			if n.leader() != leader {
				cancel()
			}
		}
	}
}

// line is one stream to the leader, from its welcome to its end.
func (n *Node) line(ctx context.Context, leader Peer) error {
	conn, err := n.seat.dial(leader.RPC)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "replica", n.config.ID))
	stream, err := ledgerv1.NewReplicaClient(conn).Follow(ctx)
	if err != nil {
		cancel()
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		cancel()
		return err
	}
	l := &link{conn: conn, stream: stream, welcome: first.GetWelcome().GetRevision(), waiting: map[uint64]chan *ledgerv1.Answers{}}
	l.now = n.config.Clock.Now
	l.told(first.GetWelcome().GetRevision(), n.Revision())
	n.takeHeard() // what was heard before says nothing of now
	n.link.Store(l)
	var reports sync.WaitGroup
	reports.Go(func() { n.report(ctx, l) })
	reports.Go(func() { n.listen(ctx, l, cancel) })
	err = l.receive(n.Revision)
	n.link.Store(nil)
	l.end()
	cancel()
	reports.Wait()
	return err
}

// report tells the leader of sessions that were heard from, often enough for its ticks.
func (n *Node) report(ctx context.Context, l *link) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.config.Clock.After(max(time.Millisecond, min(n.tickInterval()/2, n.silence()/3))):
		}
		heard := n.takeHeard()
		if l.send(&ledgerv1.FromFollower{Kind: &ledgerv1.FromFollower_Heard{Heard: &ledgerv1.Heard{Sessions: heard}}}) != nil {
			return // the stream has ended, as receive will say
		}
	}
}

// leastSilence is a silence of the leader that a busy machine may make.
const leastSilence = 100 * time.Millisecond

// silence is how long the leader may acknowledge nothing before the line to it is given up: a sixth of the shortest lease,
// so that workers whose renewals were taken here and not passed on have the time to renew elsewhere.
func (n *Node) silence() time.Duration {
	shortest := time.Duration(n.View().ShortestLeaseMs) * time.Millisecond
	if shortest == 0 {
		shortest = 6 * n.config.TickInterval
	}
	return max(leastSilence, shortest/6)
}

// listen ends a line whose leader says nothing, or that a send hangs on: raft's connections may live all the while.
func (n *Node) listen(ctx context.Context, l *link, cancel func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.config.Clock.After(max(time.Millisecond, n.silence()/3)):
		}
		if quiet := l.quiet(); quiet > n.silence() {
			n.config.Log.Warn("the leader acknowledges nothing: the line to it is given up", "node", n.config.ID, "silent", quiet.String())
			cancel()
			return
		}
	}
}

// behindFor is how long a replica may be behind what the leader has applied and still be ready.
const behindFor = 2 * time.Second

// link is a follower's end of its line to the leader.
type link struct {
	conn    *grpc.ClientConn
	stream  ledgerv1.Replica_FollowClient
	welcome uint64 // revision that the leader had when the line began
	now     func() time.Time

	sends   sync.Mutex // one sends at a time, and proposals in their order
	last    uint64     // batch sent; guarded by sends
	mu      sync.Mutex
	word    time.Time // when the leader last acknowledged something
	behind  time.Time // since when this replica has not applied what the leader had; zero if it has
	wanted  uint64    // revision that the leader had then
	ended   bool
	waiting map[uint64]chan *ledgerv1.Answers // by batch; closed without a value when the line ends
}

func (l *link) send(m *ledgerv1.FromFollower) error {
	l.sends.Lock()
	defer l.sends.Unlock()
	return l.stream.Send(m)
}

// forward sends an entry for the leader's log.
func (l *link) forward(entry []byte) (outcome func(n int) ([]answer, uint64)) {
	l.sends.Lock()
	defer l.sends.Unlock()
	l.last++
	answers := make(chan *ledgerv1.Answers, 1)
	l.mu.Lock()
	if l.ended {
		close(answers)
	} else {
		l.waiting[l.last] = answers
	}
	l.mu.Unlock()
	batch := &ledgerv1.Batch{Number: l.last, Entry: entry}
	// If it fails the line ends, and the answer with it.
	_ = l.stream.Send(&ledgerv1.FromFollower{Kind: &ledgerv1.FromFollower_Batch{Batch: batch}})
	return func(n int) ([]answer, uint64) {
		told := <-answers
		if len(told.GetAnswers()) != n {
			return same(n, errUnknown), 0
		}
		out := make([]answer, n)
		for i, a := range told.Answers {
			switch {
			case a.Result != nil:
				out[i].result = a.Result
			case a.Unknown:
				out[i].err = errUnknown
			default:
				out[i].err = ErrNoQuorum
			}
		}
		return out, told.Revision
	}
}

// told takes a word of the leader's, which had applied a revision; own is this replica's.
func (l *link) told(revision, own uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.word = l.now()
	switch {
	case own >= revision:
		l.behind = time.Time{}
	case l.behind.IsZero() || own >= l.wanted: // it has come as far as was wanted, and the leader is further
		l.behind, l.wanted = l.word, revision
	}
}

// quiet is how long the leader has acknowledged nothing.
func (l *link) quiet() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now().Sub(l.word)
}

// stands says that this replica has not applied for too long what the leader had; own is its revision.
func (l *link) stands(own uint64) (wanted uint64, stands bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted, !l.behind.IsZero() && own < l.wanted && l.now().Sub(l.behind) > behindFor
}

// receive takes what the leader says until the line ends; revision is this replica's.
func (l *link) receive(revision func() uint64) error {
	for {
		m, err := l.stream.Recv()
		if err != nil {
			return err
		}
		if ack := m.GetAcknowledged(); ack != nil {
			l.told(ack.Revision, revision())
			continue
		}
		told := m.GetAnswers()
		l.mu.Lock()
		answers := l.waiting[told.GetNumber()]
		delete(l.waiting, told.GetNumber())
		l.mu.Unlock()
		if answers == nil {
			return fmt.Errorf("the leader answers batch %d, which is not under way", told.GetNumber())
		}
		answers <- told
	}
}

// end leaves all that is under way without an answer.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, answers := range l.waiting {
		close(answers)
	}
	l.waiting = nil
}
