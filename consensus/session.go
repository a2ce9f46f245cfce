package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// windowPlaces is how many commands of a session may wait for an answer. Half of ledger.MaxUnacked: while an answer is
// missing, as many others again may arrive and stay unacknowledged.
const windowPlaces = 512

// Session is a router's client of the log: it numbers commands, keeps many on their way at once, resends what got no
// answer, renews its lease and opens anew once fenced. All methods may be called by many goroutines at once.
type Session struct {
	node   *Node
	router string
	lease  time.Duration

	lane   atomic.Pointer[lane] // of the current session, nil before the first
	opened chan struct{}        // closed by the first, or by the end of keep
	places chan struct{}        // one a command without an answer
	retry  chan struct{}        // a lane wants its window resent after a pause
	fenced chan struct{}        // a lane learned that its session ended
	cancel context.CancelFunc   // ends keep
	done   chan struct{}        // closed when keep has ended
}

// OpenSession opens a session for a router and keeps it until Close. It does not wait: commands do, for a quorum.
func (n *Node) OpenSession(router string, lease time.Duration) (*Session, error) {
	s := &Session{
		node: n, router: router, lease: lease,
		places: make(chan struct{}, windowPlaces),
		retry:  make(chan struct{}, 1), fenced: make(chan struct{}, 1),
		opened: make(chan struct{}), done: make(chan struct{}),
	}
	ctx, cancel := n.scope()
	s.cancel = cancel
	if err := n.adopt(func() { s.keep(ctx) }); err != nil {
		cancel()
		return nil, err
	}
	return s, nil
}

// ID is the number of the current session, 0 before the first. It changes when a fenced session was opened anew.
func (s *Session) ID() uint64 {
	if l := s.lane.Load(); l != nil {
		return l.session
	}
	return 0
}

// Close stops renewing: the ledger ends the session a lease later. Commands without an answer get ErrClosed.
func (s *Session) Close() {
	s.cancel()
	<-s.done
}

// Do applies a command once and returns its result, which nobody may write to; a refusal is a result (see ledger.Err).
// Commands are applied in the order of the calls. ErrFenced: the session ended, and with it maybe the command; the next
// session is being opened. If ctx ends first the command goes on alone, and a reservation that comes of it is dropped.
func (s *Session) Do(ctx context.Context, command *ledgerv1.Command) (*ledgerv1.Result, error) {
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a place in the session: %w", ctx.Err())
	}
	select {
	case <-s.opened:
	case <-ctx.Done():
		<-s.places
		return nil, fmt.Errorf("wait for a session: %w", ctx.Err())
	}
	l := s.lane.Load()
	if l == nil {
		<-s.places
		return nil, ErrClosed
	}
	x := &item{command: command, answered: make(chan struct{}), free: func() { <-s.places }}
	l.add(x)
	select {
	case <-x.answered:
		return x.result, x.err
	case <-ctx.Done():
		l.abandon(x)
		return nil, fmt.Errorf("wait for the ledger: %w", ctx.Err())
	}
}

// Drop gives a reservation up, without waiting. It cannot be lost but with the session, whose end gives up all of them: no
// place is needed for it, and it is resent until it is applied.
func (s *Session) Drop(reservation uint64) {
	if l := s.lane.Load(); l != nil {
		l.add(dropItem(reservation))
	}
}

// keep renews, resends and reopens until the session or the node is closed.
func (s *Session) keep(ctx context.Context) {
	defer close(s.done)
	err := s.open(ctx)
	close(s.opened)
	if err != nil {
		if ctx.Err() == nil {
			s.node.fail(fmt.Errorf("open a session of %s: %w", s.router, err))
		}
		return
	}
	defer func() { s.lane.Load().die(ErrClosed) }()
	clock := s.node.config.Clock
	renew := clock.After(s.lease / 4)
	for {
		select {
		case <-ctx.Done():
			return
		case <-renew:
			s.node.Renew(s.ID())
			renew = clock.After(s.lease / 4)
		case <-s.retry:
			s.node.pause(ctx)
			s.lane.Load().resend()
		case <-s.fenced:
			s.node.config.Log.Warn("router session fenced", "router", s.router, "session", s.ID())
			if err := s.open(ctx); err != nil && ctx.Err() == nil {
				s.node.config.Log.Error("router session cannot be opened", "router", s.router, "error", err.Error())
			}
		}
	}
}

// open starts a session with a new nonce and makes it the current one, trying again while there is no quorum.
func (s *Session) open(ctx context.Context) error {
	nonce := make([]byte, 16)
	if err := s.node.draw(nonce); err != nil {
		return fmt.Errorf("draw a nonce: %w", err)
	}
	m := &ledgerv1.OpenRouter{Router: s.router, Nonce: nonce, LeaseMs: uint64(s.lease.Milliseconds())}
	p := &ledgerv1.Proposal{Command: &ledgerv1.Command{Kind: &ledgerv1.Command_OpenRouter{OpenRouter: m}}}
	for {
		named := s.node.View().ClusterID != nil // a cluster without a name refuses, and may get one meanwhile
		r, err := s.node.Propose(ctx, p)
		switch {
		case err == nil && r.GetOpened() != nil:
			s.lane.Store(&lane{
				session: r.GetOpened().Session, enqueue: s.node.commits.enqueue, retry: s.retry, fenced: s.fenced,
			})
			return nil
		case err == nil && named:
			return errors.New(r.GetRefusal().GetMessage())
		case err != nil && !errors.Is(err, ErrNoQuorum):
			return err
		}
		if s.node.pause(ctx); ctx.Err() != nil {
			return fmt.Errorf("%w: %w", ErrNoQuorum, ctx.Err())
		}
	}
}

// draw fills b from the node's source of randomness.
func (n *Node) draw(b []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, err := io.ReadFull(n.config.Random, b)
	return err
}
