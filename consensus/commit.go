package consensus

import (
	"context"
	"errors"
	"fmt"
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
	raft  *raft.Raft
	slots chan struct{} // one a free place in flight
	owned sync.WaitGroup

	mu      sync.Mutex
	wake    sync.Cond
	pending []call
	closed  bool
}

func newCommitter(r *raft.Raft) *committer {
	c := &committer{raft: r, slots: make(chan struct{}, entriesInFlight)}
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
		future := c.raft.Apply(entry, 0)
		c.owned.Go(func() {
			c.answer(batch, future)
			<-c.slots
		})
	}
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

// answer waits for an entry and gives each call its result.
func (c *committer) answer(batch []call, future raft.ApplyFuture) {
	err := future.Error()
	if err == nil {
		results, ok := future.Response().([]*ledgerv1.Result)
		if ok {
			for i, r := range results {
				batch[i].done(r, nil)
			}
			return
		}
		err, _ = future.Response().(error)
		err = fmt.Errorf("%w: %w", ErrFailed, err)
	}
	switch {
	case errors.Is(err, ErrFailed):
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		err = fmt.Errorf("%w: %w", ErrNoQuorum, err)
	case errors.Is(err, raft.ErrRaftShutdown):
		err = ErrClosed
	default:
		err = fmt.Errorf("%w: %w", errUnknown, err)
	}
	for _, x := range batch {
		x.done(nil, err)
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
	type answer struct {
		result *ledgerv1.Result
		err    error
	}
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
