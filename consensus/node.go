package consensus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berthd/berth/consensus/ledger"
)

// Node is a replica of the ledger. All methods may be called by many goroutines at once.
type Node struct {
	config  Config
	seat    *seat
	core    atomic.Pointer[raft.Raft] // nil until the node has its seat
	machine *machine
	log     *guard
	history bool // the disk had a log when the node was opened
	commits *committer

	stop   <-chan struct{} // closed by Close
	cancel context.CancelFunc
	scope  func() (context.Context, context.CancelFunc) // a context that ends with the node
	once   sync.Once
	closed error
	owned  sync.WaitGroup // run and the sessions

	process   []byte                // drawn at each start
	refused   atomic.Bool           // by a peer, since greet last looked
	reigns    atomic.Uint64         // the term that this node leads in with the whole log applied
	link      atomic.Pointer[link]  // to the leader, nil while there is none
	followers followers             // whose lines are up, while this node leads
	asks      atomic.Pointer[error] // why the node has no seat yet
	seats     chan struct{}         // has one while somebody changes the members

	broken chan struct{} // closed once fault is set
	failed chan error    // gives fault to one reader

	mu       sync.Mutex // also guards config.Random
	fault    error      // why the node cannot go on
	stopping bool
	heard    map[uint64]struct{} // sessions, since the last tick
}

// Open starts the node that lives in c.Dir. On an empty disk it founds a cluster of one, or, in the background, asks its
// peers for its seat (N7): before, it can neither commit nor show anything, and Ready says what it waits for.
func Open(c Config) (*Node, error) { return openOn(c, realFiles()) }

// openOn is Open with the files of the log.
func openOn(c Config, f files) (*Node, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("consensus config: %w", err)
	}
	c = c.withDefaults()
	s, err := openSeat(c, f)
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
	ctx, cancel := context.WithCancel(context.Background())
	n := &Node{
		config: c, seat: s, heard: map[uint64]struct{}{}, stop: ctx.Done(), cancel: cancel,
		scope:  func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) },
		broken: make(chan struct{}), failed: make(chan error, 1), seats: make(chan struct{}, 1),
	}
	n.machine = newMachine(s.identity, n.fail, n.committed, c.Audit)
	s.writes.report(func(why error) {
		n.fail(why)
		if s.sever != nil {
			s.sever()
		}
	})
	n.log = &guard{LogStore: s.log, writes: &s.writes, dir: c.Dir, fail: n.fail}
	exists, err := n.inspect()
	if err == nil && !exists {
		err = errors.Join(s.identity.forget(), s.holder.draw(c.Random)) // whatever it acknowledged before is lost
	}
	n.process = make([]byte, instanceBytes)
	err = errors.Join(err, n.draw(n.process))
	alone := !exists && len(s.founders) == 1
	if err == nil && (exists || alone) {
		err = n.enter(rc, alone)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	n.commits = newCommitter(n)
	n.owned.Go(func() { n.run(ctx, rc) })
	return n, nil
}

// run gets the node its seat, if it has none, and does its duties.
func (n *Node) run(ctx context.Context, rc *raft.Config) {
	if n.raft() == nil {
		found, err := n.ask(ctx)
		if err == nil {
			err = n.enter(rc, found)
		}
		if err != nil {
			if ctx.Err() == nil {
				n.fail(err)
			}
			return
		}
	}
	var duties sync.WaitGroup
	duties.Go(func() { n.lead(ctx) })
	duties.Go(func() { n.follow(ctx) })
	duties.Go(func() { n.greet(ctx) })
	duties.Wait()
}

// committed notes up to where the log is committed.
func (n *Node) committed(index uint64) { _ = n.seat.writes.check(n.seat.mark.write(index)) }

// raft is nil while the node has no seat.
func (n *Node) raft() *raft.Raft { return n.core.Load() }

// inspect says whether the disk is that of a node that has had a seat.
func (n *Node) inspect() (exists bool, err error) {
	s, dir := n.seat, n.config.Dir
	exists, err = raft.HasExistingState(n.log, s.stable, s.snapshots)
	if err != nil {
		return false, fmt.Errorf("look for a ledger in %s: %w", dir, err)
	}
	last, err := lastEntry(s)
	if err != nil {
		return false, fmt.Errorf("look for a ledger in %s: %w", dir, err)
	}
	if committed := s.mark.read(); last < committed {
		return false, fmt.Errorf("the log in %s ends at entry %d, and entries up to %d were committed: its end %w",
			dir, last, committed, errLost)
	}
	n.history = last > 1
	return exists, nil
}

// hasLog says whether there is more on the disk than the first entry of a cluster that is being founded.
func (n *Node) hasLog() bool {
	r := n.raft()
	return n.history || r != nil && r.LastIndex() > 1
}

// enter starts raft from what is on the disk, which is written first if a cluster is to be founded.
func (n *Node) enter(rc *raft.Config, found bool) error {
	s := n.seat
	s.transport = s.listen(n)
	if found {
		var first raft.Configuration
		for _, p := range s.founders {
			first.Servers = append(first.Servers, p.server())
		}
		if err := raft.BootstrapCluster(rc, n.log, s.stable, s.snapshots, s.transport, first); err != nil {
			return fmt.Errorf("found cluster: %w", err)
		}
	}
	r, err := newRaft(rc, n.machine, s, n.log, &snapshots{SnapshotStore: s.snapshots, writes: &s.writes})
	if err != nil {
		return fmt.Errorf("start from the ledger in %s: %w", n.config.Dir, err)
	}
	n.log.running.Store(true)
	if err := n.belongs(r); err != nil {
		return errors.Join(err, r.Shutdown().Error())
	}
	if s.holder.instance == "" { // the log is from before there were instances
		if err := s.holder.draw(n.config.Random); err != nil {
			return errors.Join(err, r.Shutdown().Error())
		}
	}
	n.core.Store(r)
	return nil
}

// lastEntry is the newest entry that the log or a snapshot has.
func lastEntry(s *seat) (uint64, error) {
	last, err := s.log.LastIndex()
	if err != nil {
		return 0, err
	}
	snapshots, err := s.snapshots.List()
	for _, x := range snapshots {
		last = max(last, x.Index)
	}
	return last, err
}

// belongs proves that the log is of a cluster that knows this node: under another id it would wait for votes for ever.
func (n *Node) belongs(r *raft.Raft) error {
	known := r.GetConfiguration()
	if err := known.Error(); err != nil {
		return fmt.Errorf("read the cluster's members: %w", err)
	}
	var ids []string
	for _, server := range known.Configuration().Servers {
		if string(server.ID) == n.config.ID {
			return nil
		}
		ids = append(ids, string(server.ID))
	}
	if len(ids) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the members in the log in %s are %s: it is another's folder, or %s was removed; then add it again, "+
		"and empty its --data", ErrForeign, n.config.Dir, strings.Join(ids, " and "), n.config.ID)
}

// fail says that the node cannot go on; the first reason stays.
func (n *Node) fail(why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fault != nil {
		return
	}
	n.fault = fmt.Errorf("%w: %s: %w", ErrFailed, n.config.Dir, why)
	n.failed <- n.fault
	close(n.broken)
}

// failure is why the node cannot go on, nil if it can.
func (n *Node) failure() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fault
}

// Failed gives one error when the node cannot go on: its disk takes no writes, or what is on it is damaged or written by a
// newer version. The process should end.
func (n *Node) Failed() <-chan error { return n.failed }

// Close stops the node without a snapshot: what is committed is on disk. What waits for an answer gets ErrClosed. A node
// whose raft hangs at what it cannot read or write is left to the end of its process.
func (n *Node) Close() error {
	n.once.Do(func() {
		n.mu.Lock()
		n.stopping = true
		n.mu.Unlock()
		n.cancel()
		if n.log.hung.Load() || n.seat.writes.failed() != nil {
			n.closed = n.failure()
			return
		}
		n.commits.close() // while raft still runs: it answers every entry in flight
		n.owned.Wait()
		if r := n.raft(); r != nil {
			n.closed = r.Shutdown().Error()
			n.committed(r.CommitIndex()) // entries that are no commands are not applied
		}
		n.closed = errors.Join(n.closed, n.seat.close())
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
func (n *Node) Term() uint64 {
	if r := n.raft(); r != nil {
		return r.CurrentTerm()
	}
	return 0
}

// Leader is the id of the node that leads as far as this one knows, "" if it knows none, and whether that is this one.
func (n *Node) Leader() (id string, self bool) { return n.leader().ID, n.leads() }

// leader is the replica that leads as far as this one knows; no id if it knows none.
func (n *Node) leader() Peer {
	r := n.raft()
	if r == nil {
		return Peer{}
	}
	address, id := r.LeaderWithID()
	return peerAt(string(id), address)
}

// leads says whether raft takes entries from this node.
func (n *Node) leads() bool {
	r := n.raft()
	return r != nil && r.State() == raft.Leader
}

// Ready is nil if proposals can be committed, through the leader if that is another, and View shows all that were
// committed before the node's reign, or its line to the leader, began; else it wraps ErrNoQuorum or ErrClosed.
func (n *Node) Ready() error {
	select {
	case <-n.stop:
		return ErrClosed
	case <-n.broken:
		return n.failure()
	default:
	}
	if n.raft() == nil {
		if why := n.asks.Load(); why != nil {
			return fmt.Errorf("%w: %w", ErrNoQuorum, *why)
		}
		return fmt.Errorf("%w: node %s has no seat yet", ErrNoQuorum, n.config.ID)
	}
	if n.leads() {
		if n.reigns.Load() != n.Term() {
			return fmt.Errorf("%w: node %s has not applied its log to the end", ErrNoQuorum, n.config.ID)
		}
		return nil
	}
	l := n.link.Load()
	switch {
	case n.leader().ID == "":
		return fmt.Errorf("%w: node %s knows no leader", ErrNoQuorum, n.config.ID)
	case l == nil:
		return fmt.Errorf("%w: node %s has no line to the leader %s", ErrNoQuorum, n.config.ID, n.leader().ID)
	case l.quiet() > n.silence():
		return fmt.Errorf("%w: node %s has heard nothing from the leader %s for %v", ErrNoQuorum, n.config.ID, n.leader().ID,
			l.quiet().Round(time.Millisecond))
	case n.Revision() < l.welcome:
		return fmt.Errorf("%w: node %s is behind, at revision %d of %d", ErrNoQuorum, n.config.ID, n.Revision(), l.welcome)
	}
	if wanted, stands := l.stands(n.Revision()); stands {
		return fmt.Errorf("%w: node %s stands at revision %d, and the leader had %d long ago", ErrNoQuorum, n.config.ID, n.Revision(), wanted)
	}
	return nil
}

// Digests are those of the last 64 ticks since the node started, oldest first. A node that replays the same log has the
// same ones.
func (n *Node) Digests() []Digest { return n.machine.digests.list() }

// Renew says that the session was heard from: the leader's next tick, or the next after a follower's word, lifts its lease.
func (n *Node) Renew(session uint64) {
	n.mu.Lock()
	n.heard[session] = struct{}{}
	n.mu.Unlock()
}
