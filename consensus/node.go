package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/berthd/berth/consensus/ledger"
)

// Node is a replica of the ledger. All methods may be called by many goroutines at once.
type Node struct {
	config  Config
	seat    *seat
	raft    *raft.Raft
	machine *machine
	commits *committer

	stop   <-chan struct{} // closed by Close
	cancel context.CancelFunc
	scope  func() (context.Context, context.CancelFunc) // a context that ends with the node
	once   sync.Once
	closed error
	owned  sync.WaitGroup // the leader's clock and the sessions

	reigns atomic.Uint64 // the term that this node leads in with the whole log applied

	mu       sync.Mutex // also guards config.Random
	stopping bool
	heard    map[uint64]struct{} // sessions, since the last tick
}

// Open starts the node that lives in c.Dir. On an empty disk it founds a cluster of one.
func Open(c Config) (*Node, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("consensus config: %w", err)
	}
	c = c.withDefaults()
	s, err := openSeat(c)
	if err != nil {
		return nil, err
	}
	n, err := start(c, s)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return n, nil
}

// start runs a node on its seat, which the node owns if there is no error.
func start(c Config, s *seat) (*Node, error) {
	rc := raftConfig(c)
	exists, err := raft.HasExistingState(s.log, s.stable, s.snapshots)
	if err != nil {
		return nil, fmt.Errorf("look for a ledger in %s: %w", c.Dir, err)
	}
	if !exists {
		first := raft.Configuration{Servers: s.founders}
		if err := raft.BootstrapCluster(rc, s.log, s.stable, s.snapshots, s.transport, first); err != nil {
			return nil, fmt.Errorf("found cluster: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &Node{
		config: c, seat: s, machine: newMachine(), heard: map[uint64]struct{}{}, stop: ctx.Done(), cancel: cancel,
		scope: func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) },
	}
	n.raft, err = raft.NewRaft(rc, n.machine, s.log, s.stable, s.snapshots, s.transport)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start raft: %w", err)
	}
	n.commits = newCommitter(n.raft)
	n.owned.Go(func() { n.lead(ctx) })
	return n, nil
}

// Close stops the node without a snapshot: what is committed is on disk. What waits for an answer gets ErrClosed.
func (n *Node) Close() error {
	n.once.Do(func() {
		n.mu.Lock()
		n.stopping = true
		n.mu.Unlock()
		n.cancel()
		n.commits.close() // while raft still runs: it answers every entry in flight
		n.owned.Wait()
		n.closed = errors.Join(n.raft.Shutdown().Error(), n.seat.close())
	})
	return n.closed
}

// adopt runs a goroutine that Close waits for; it must end soon after stop is closed.
func (n *Node) adopt(run func()) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopping {
		return ErrClosed
	}
	n.owned.Go(run)
	return nil
}

// View is the ledger as of the last applied batch. It is immutable and costs nothing.
func (n *Node) View() *ledger.View { return n.machine.published.Load().view }

// Changed is closed when a batch was applied after the call. Who wants to miss nothing calls it before View.
func (n *Node) Changed() <-chan struct{} { return n.machine.published.Load().changed }

// Notice is what an incarnation should hear, as of View.
func (n *Node) Notice(incarnation uint64) ledger.Notice { return n.View().Notice(incarnation) }

// Revision is the number of commands applied here.
func (n *Node) Revision() uint64 { return n.View().Revision }

// Term is raft's term.
func (n *Node) Term() uint64 { return n.raft.CurrentTerm() }

// Leader is the id of the node that leads as far as this one knows, "" if it knows none, and whether that is this one.
func (n *Node) Leader() (id string, self bool) {
	_, leader := n.raft.LeaderWithID()
	return string(leader), n.raft.State() == raft.Leader
}

// Ready is nil if proposals can be committed here and View shows all that were committed before; else it wraps
// ErrNoQuorum or ErrClosed.
func (n *Node) Ready() error {
	select {
	case <-n.stop:
		return ErrClosed
	default:
	}
	if _, self := n.Leader(); !self {
		return fmt.Errorf("%w: node %s does not lead", ErrNoQuorum, n.config.ID)
	}
	if n.reigns.Load() != n.Term() {
		return fmt.Errorf("%w: node %s has not applied its log to the end", ErrNoQuorum, n.config.ID)
	}
	return nil
}

// Digests are those of the last 64 ticks since the node started, oldest first. A node that replays the same log has the
// same ones.
func (n *Node) Digests() []Digest { return n.machine.digests.list() }

// Renew says that the session was heard from: the leader's next tick lifts its lease.
func (n *Node) Renew(session uint64) {
	n.mu.Lock()
	n.heard[session] = struct{}{}
	n.mu.Unlock()
}
