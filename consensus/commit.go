package consensus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus/ledger"
)

const (
	// entriesInFlight is how many entries are on their way to the disk. A third would only make smaller batches.
	entriesInFlight = 2
	// batchBytes bounds an entry; one proposal may be longer.
	batchBytes = 512 << 10
	// proposalBytes bounds a proposal: with the batch that it ends it is below what gRPC takes as one message, 4 MiB.
	proposalBytes = 3 << 20
	// retryPause is between two tries to get an unknown outcome known.
	retryPause = 20 * time.Millisecond
)

// errUnknown is an ErrNoQuorum after which the proposal may yet be in the log.
var errUnknown = fmt.Errorf("%w: leadership lost, outcome unknown", ErrNoQuorum)

// call is a proposal on its way and who wants the answer.
type call struct {
	encoded []byte
	done    func(*ledgerv1.Result, error)
}

// committer packs proposals into log entries. It needs no timer: while two entries are in flight, the next batch grows.
type committer struct {
	node  *Node
	slots chan struct{} // one a free place in flight
	owned sync.WaitGroup

	mu      sync.Mutex
	wake    sync.Cond
	pending []call
	closed  bool
}

func newCommitter(n *Node) *committer {
	c := &committer{node: n, slots: make(chan struct{}, entriesInFlight)}
	c.wake.L = &c.mu
	c.owned.Go(c.run)
	return c
}

// close answers what waits with ErrClosed and returns when nothing is in flight.
func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wake.Broadcast()
	c.owned.Wait()
}

// enqueue puts the call in line (N1). Unless there is an error, done is called once, by another goroutine.
func (c *committer) enqueue(p *ledgerv1.Proposal, done func(*ledgerv1.Result, error)) error {
	if err := ledger.Validate(p); err != nil {
		return fmt.Errorf("propose: %w", err)
	}
	encoded, err := proto.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode proposal: %w", err)
	}
	if len(encoded) > proposalBytes {
		return fmt.Errorf("propose: %d bytes, want at most %d", len(encoded), proposalBytes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.pending = append(c.pending, call{encoded, done})
	c.wake.Signal()
	return nil
}

func (c *committer) run() {
	for {
		c.slots <- struct{}{}
		batch, entry := c.next()
		if batch == nil {
			return
		}
		outcome := c.send(entry)
		c.owned.Go(func() {
			answers, revision := outcome(len(batch))
			<-c.slots
			c.tell(batch, answers, revision)
		})
	}
}

// send appends an entry to the log, through the leader if that is another node. What it gives waits for the outcome of
// each of the entry's n proposals.
func (c *committer) send(entry []byte) (outcome func(n int) ([]answer, uint64)) {
	if c.node.leads() {
		future := c.node.raft().Apply(entry, 0)
		return func(n int) ([]answer, uint64) { return committed(future, n), 0 }
	}
	l := c.node.link.Load()
	if l == nil {
		return func(n int) ([]answer, uint64) { return same(n, ErrNoQuorum), 0 }
	}
	return l.forward(entry)
}

// next waits for a batch and encodes it as a ledgerv1.Entry. A nil batch means that the committer was closed.
func (c *committer) next() ([]call, []byte) {
	c.mu.Lock()
	for len(c.pending) == 0 && !c.closed {
		c.wake.Wait()
	}
	if c.closed {
		rest := c.pending
		c.pending = nil
		c.mu.Unlock()
		for _, x := range rest {
			x.done(nil, ErrClosed)
		}
		return nil, nil
	}
	n, size := 0, 0
	for n < len(c.pending) && (n == 0 || size+len(c.pending[n].encoded) <= batchBytes) {
		size += len(c.pending[n].encoded)
		n++
	}
	batch := c.pending[:n:n]
	c.pending = c.pending[n:]
	if len(c.pending) == 0 {
		c.pending = nil
	}
	c.mu.Unlock()
	entry := make([]byte, 0, size+n*6)
	for _, x := range batch {
		entry = protowire.AppendTag(entry, 1, protowire.BytesType) // Entry.proposals
		entry = protowire.AppendBytes(entry, x.encoded)
	}
	return batch, entry
}

// answer is the outcome of a proposal.
type answer struct {
	result *ledgerv1.Result
	err    error
}

// same is one error for n proposals.
func same(n int, err error) []answer { return slices.Repeat([]answer{{err: err}}, n) }

// committed waits for an entry of this node's log.
func committed(future raft.ApplyFuture, n int) []answer {
	err := future.Error()
	if err == nil {
		results, ok := future.Response().([]*ledgerv1.Result)
		if ok {
			answers := make([]answer, n)
			for i, r := range results {
				answers[i].result = r
			}
			return answers
		}
		err, _ = future.Response().(error)
		return same(n, fmt.Errorf("%w: %w", ErrFailed, err))
	}
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		err = fmt.Errorf("%w: %w", ErrNoQuorum, err)
	case errors.Is(err, raft.ErrRaftShutdown):
		err = ErrClosed
	default:
		err = fmt.Errorf("%w: %w", errUnknown, err)
	}
	return same(n, err)
}

// tell gives each call its answer, once View shows the revision (N2).
func (c *committer) tell(batch []call, answers []answer, revision uint64) {
	if err := c.node.shows(revision); err != nil {
		answers = same(len(batch), err)
	}
	for i, x := range batch {
		x.done(answers[i].result, answers[i].err)
	}
}

// shows waits until View has the revision.
func (n *Node) shows(revision uint64) error {
	for {
		changed := n.Changed()
		if n.Revision() >= revision {
			return nil
		}
		select {
		case <-changed:
		case <-n.stop:
			return ErrClosed
		case <-n.broken:
			return n.failure()
		}
	}
}

// Submit proposes without waiting: proposals enter the log in the order of the calls. done is called once, maybe before
// Submit returns, and must not block. After ErrNoQuorum the outcome may be unknown.
func (n *Node) Submit(p *ledgerv1.Proposal, done func(*ledgerv1.Result, error)) {
	if err := n.commits.enqueue(p, done); err != nil {
		done(nil, err)
	}
}

// Propose appends a command to the log and returns its result, which nobody may write to. A refusal is a result (see
// ledger.Err). An unknown outcome is tried again until it is known or ctx is done, which is safe for all that carries a
// session or a nonce (N3).
func (n *Node) Propose(ctx context.Context, p *ledgerv1.Proposal) (*ledgerv1.Result, error) {
	unknown := false
	for {
		answered := make(chan answer, 1)
		n.Submit(p, func(r *ledgerv1.Result, err error) { answered <- answer{r, err} })
		select {
		case a := <-answered:
			unknown = unknown || errors.Is(a.err, errUnknown)
			if !unknown || !errors.Is(a.err, ErrNoQuorum) {
				return a.result, a.err
			}
		case <-n.broken:
			return nil, n.failure()
		case <-ctx.Done():
			return nil, fmt.Errorf("propose: %w", ctx.Err())
		}
		if n.pause(ctx); ctx.Err() != nil {
			return nil, fmt.Errorf("propose: %w: %w", errUnknown, ctx.Err())
		}
	}
}
