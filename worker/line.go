package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// ErrSuperseded says that another process has registered under the worker's name.
var ErrSuperseded = errors.New("superseded: another process runs under this worker's name")

// maxUnanswered is how many proposals of a session may be without result (design §4).
const maxUnanswered = 1024

// line is an incarnation's way to the ledger, over whichever router it is attached to. What the engine says is queued
// without waiting, sent in order, and resent after a break until it has its result.
type line struct {
	log     *slog.Logger
	deliver func(func(*engine))    // never waits
	notify  func(*workerv1.Notice) // never waits

	mu    sync.Mutex
	queue []proposal // without result, ascending sequence
	sent  int        // of queue, how many the current stream carries
	next  uint64     // sequence of the next proposal
	acked uint64
	wake  chan struct{}
	heard atomic.Int64 // when the router last said something, Unix nanoseconds
}

type proposal struct {
	sequence uint64
	command  *ledgerv1.Command
	result   func(*engine, *ledgerv1.Result)
}

func newLine(log *slog.Logger) *line {
	return &line{log: log, next: 1, wake: make(chan struct{}, 1)}
}

// propose queues a command. Its result, if wanted, is handed to the engine's goroutine.
func (l *line) propose(c *ledgerv1.Command, result func(*engine, *ledgerv1.Result)) {
	l.mu.Lock()
	l.queue = append(l.queue, proposal{l.next, c, result})
	l.next++
	l.mu.Unlock()
	l.nudge()
}

func (l *line) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// pending takes the proposals that are to be sent next.
func (l *line) pending() []*workerv1.FromWorker {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*workerv1.FromWorker
	for ; l.sent < min(len(l.queue), maxUnanswered); l.sent++ {
		p := l.queue[l.sent]
		out = append(out, &workerv1.FromWorker{Kind: &workerv1.FromWorker_Proposal{Proposal: &ledgerv1.Proposal{
			Sequence: p.sequence, Acked: l.acked, Command: p.command,
		}}})
	}
	return out
}

// serve works one stream until it breaks or the incarnation ends; hangUp breaks it. The registration has been answered.
func (l *line) serve(ctx context.Context, hangUp func(), stream workerv1.Cluster_AttachClient, interval time.Duration) error {
	l.mu.Lock()
	l.sent = 0
	l.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.heard.Store(time.Now().UnixNano())
	sender := make(chan struct{})
	go func() {
		defer close(sender)
		cancel(l.send(ctx, stream, interval))
		hangUp() // or who receives from a silent router would wait for ever
	}()
	defer func() {
		hangUp() // a sender that the router keeps waiting must not keep the line
		<-sender
	}()
	cancel(l.receive(stream))
	return context.Cause(ctx)
}

func (l *line) send(ctx context.Context, stream workerv1.Cluster_AttachClient, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		for _, m := range l.pending() {
			if err := stream.Send(m); err != nil {
				return fmt.Errorf("send to the router: %w", err)
			}
		}
		select {
		case <-l.wake:
		case <-tick.C:
			if silent := time.Since(time.Unix(0, l.heard.Load())); silent > 3*interval/2 {
				return fmt.Errorf("the router has said nothing for %v", silent.Round(time.Millisecond))
			}
			if err := stream.Send(renewal); err != nil {
				return fmt.Errorf("send to the router: %w", err)
			}
		case <-ctx.Done():
			return stream.CloseSend()
		}
	}
}

var renewal = &workerv1.FromWorker{Kind: &workerv1.FromWorker_Renewal{Renewal: &workerv1.Renewal{}}}

func (l *line) receive(stream workerv1.Cluster_AttachClient) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receive from the router: %w", err)
		}
		l.heard.Store(time.Now().UnixNano())
		switch m := m.Kind.(type) {
		case *workerv1.ToWorker_Result:
			if err := l.answered(m.Result); err != nil {
				return err
			}
		case *workerv1.ToWorker_Notice:
			if m.Notice.Fenced {
				return ErrFenced
			}
			l.notify(m.Notice)
		}
	}
}

// errPast says that the ledger has lost what it acknowledged to this incarnation: it has gone back in time, as a disk that
// was put back from a copy makes it. The incarnation's numbers mean other commands there, so its nonce is spent.
var errPast = fmt.Errorf("%w: the ledger has lost what it had acknowledged", errNonceSpent)

// answered takes a result, which comes in order of sequence; older ones are repeats.
func (l *line) answered(r *workerv1.ProposalResult) error {
	switch r.Result.GetRefusal().GetCode() {
	case ledgerv1.RefusalCode_REFUSAL_CODE_FENCED:
		return ErrFenced
	case ledgerv1.RefusalCode_REFUSAL_CODE_FORGOTTEN:
		return errPast
	case ledgerv1.RefusalCode_REFUSAL_CODE_UNACKNOWLEDGED: // no result: it is sent again with what follows
		return l.again(r.Sequence)
	}
	if gap := r.Result.GetGap(); gap != nil {
		return l.again(gap.LastSequence + 1)
	}
	if result := l.take(r); result != nil {
		l.deliver(func(e *engine) { result(e, r.Result) })
	}
	return nil
}

// again sends everything without a result anew, if the ledger is where it can be: its next sequence is one of them.
func (l *line) again(next uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if next <= l.acked {
		return errPast
	}
	l.log.Warn("the ledger misses proposals", "next_sequence", next)
	l.sent = 0
	l.nudge()
	return nil
}

// mayGoOn says whether a registration was answered by the ledger that this line's results are from.
func (l *line) mayGoOn(opened *ledgerv1.Opened) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if opened.LastSequence < l.acked || opened.LastSequence >= l.next {
		return errPast
	}
	return nil
}

// take removes an answered proposal from the queue and returns what wants its result.
func (l *line) take(r *workerv1.ProposalResult) func(*engine, *ledgerv1.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 || l.queue[0].sequence != r.Sequence {
		return nil
	}
	p := l.queue[0]
	l.queue = l.queue[1:]
	l.sent, l.acked = max(0, l.sent-1), r.Sequence
	return p.result
}
