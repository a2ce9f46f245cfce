package worker

import (
	"errors"
	"sync"

	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// errCrowded refuses a call because too many already wait for the step in flight to end.
var errCrowded = errors.New("too many calls wait for the step in flight to end")

// minCalls is the least number of peers' calls that a mailbox holds.
const minCalls = 4096

// mailbox holds what is to be done by the engine's goroutine, which reads it between steps only. Putting never waits: who
// receives from the ledger or from a router must not, since a step may be longer than a lease. Memory is bounded all the
// same: answers of the ledger by the proposals that may be without one, notices because only the newest is kept, cancels by
// admitted requests, and calls of peers by a limit.
type mailbox struct {
	mu     sync.Mutex
	queue  []func(*engine)
	notice *workerv1.Notice // the newest not heard yet
	limit  int              // of queue, for calls of peers
	ended  bool
	wake   chan struct{}
}

func newMailbox(limit int) *mailbox {
	return &mailbox{limit: max(limit, minCalls), wake: make(chan struct{}, 1)}
}

// put queues f. It fails when the engine has ended.
func (m *mailbox) put(f func(*engine)) error { return m.add(f, false) }

// call queues what a peer asks for. It fails with errCrowded at the limit.
func (m *mailbox) call(f func(*engine)) error { return m.add(f, true) }

func (m *mailbox) add(f func(*engine), peer bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.ended:
		return ErrFenced
	case peer && len(m.queue) >= m.limit:
		return errCrowded
	}
	m.queue = append(m.queue, f)
	m.nudge()
	return nil
}

// notify puts a notice in the place of an older one.
func (m *mailbox) notify(n *workerv1.Notice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.notice == nil || m.notice.Revision <= n.Revision {
		m.notice = n
		m.nudge()
	}
}

func (m *mailbox) nudge() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take empties the mailbox.
func (m *mailbox) take() ([]func(*engine), *workerv1.Notice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	queue, notice := m.queue, m.notice
	m.queue, m.notice = nil, nil
	return queue, notice
}

// end refuses everything from here on.
func (m *mailbox) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended, m.queue, m.notice = true, nil, nil
}
