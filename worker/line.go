package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/kvpool"
)

// ErrSuperseded says that another process has registered under the worker's name.
var ErrSuperseded = errors.New("superseded: another process runs under this worker's name")

// maxUnanswered is how many proposals of a session may be without result (design §4).
const maxUnanswered = 1024

// line is an incarnation's way to the ledger, over whichever router it is attached to. What the engine says is queued
// without waiting, sent in order, and resent after a break until it has its result.
type line struct {
	log     *slog.Logger
	deliver func(func(*engine))

	mu      sync.Mutex
	queue   []proposal // without result, ascending sequence
	sent    int        // of queue, how many the current stream carries
	next    uint64     // sequence of the next proposal
	acked   uint64
	events  []*workerv1.CacheEvents
	dropped bool // cache events were dropped: a reset must follow
	evSeq   uint64
	attach  bool // a stream is up
	due     bool // a heartbeat is wanted before its time
	wake    chan struct{}
	beat    func() *workerv1.Heartbeat
}

type proposal struct {
	sequence uint64
	command  *ledgerv1.Command
	result   func(*engine, *ledgerv1.Result)
}

func newLine(log *slog.Logger, beat func() *workerv1.Heartbeat) *line {
	return &line{log: log, next: 1, wake: make(chan struct{}, 1), beat: beat}
}

// propose queues a command. Its result, if wanted, is handed to the engine's goroutine.
func (l *line) propose(c *ledgerv1.Command, result func(*engine, *ledgerv1.Result)) {
	l.mu.Lock()
	l.queue = append(l.queue, proposal{l.next, c, result})
	l.next++
	l.mu.Unlock()
	l.nudge()
}

// maxEvents bounds the messages that wait for a router that reads none.
const maxEvents = 1024

// maxBlocks bounds the block events of one message, far below what a gRPC message may hold.
const maxBlocks = 16384

// cache queues cache events; a reset makes those before it pointless.
func (l *line) cache(events []kvpool.Event, reset bool) {
	l.mu.Lock()
	defer l.nudge()
	defer l.mu.Unlock()
	if !l.attach {
		return // the next stream begins with a reset
	}
	if reset {
		l.events, l.dropped = nil, false
	}
	if l.dropped || len(l.events) >= maxEvents {
		l.events, l.dropped = nil, true
		return
	}
	events = slices.Clone(events) // names are sent later, the caller's slice is used again
	for first := true; first || len(events) > 0; first = false {
		n := min(maxBlocks, len(events))
		l.evSeq++
		l.events = append(l.events, cacheMessage(l.evSeq, reset && first, events[:n]))
		events = events[n:]
	}
}

// lost says that cache events were dropped since the last reset.
func (l *line) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped && l.attach && len(l.events) == 0
}

func cacheMessage(sequence uint64, reset bool, events []kvpool.Event) *workerv1.CacheEvents {
	m := &workerv1.CacheEvents{Sequence: sequence, Reset_: reset, Blocks: make([]*workerv1.BlockEvent, len(events))}
	for i := range events {
		m.Blocks[i] = &workerv1.BlockEvent{Hash: events[i].Name[:], Full: events[i].Full, Window: events[i].Window}
	}
	return m
}

// beatSoon sends a heartbeat without waiting for its time: what it carries has changed for good.
func (l *line) beatSoon() {
	l.mu.Lock()
	l.due = true
	l.mu.Unlock()
	l.nudge()
}

func (l *line) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// pending takes what is to be sent next: proposals first.
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
	for _, e := range l.events {
		out = append(out, &workerv1.FromWorker{Kind: &workerv1.FromWorker_Cache{Cache: e}})
	}
	l.events = nil
	if l.due {
		l.due = false
		out = append(out, &workerv1.FromWorker{Kind: &workerv1.FromWorker_Heartbeat{Heartbeat: l.beat()}})
	}
	return out
}

// serve works one stream until it breaks or the incarnation ends; hangUp breaks it. The registration has been answered.
func (l *line) serve(ctx context.Context, hangUp func(), stream workerv1.Cluster_AttachClient, interval time.Duration) error {
	l.mu.Lock()
	l.sent, l.attach, l.events = 0, true, nil
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.attach = false
		l.mu.Unlock()
	}()
	l.deliver((*engine).tellAll)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sender := make(chan struct{})
	go func() {
		defer close(sender)
		cancel(l.send(ctx, stream, interval))
	}()
	defer func() {
		hangUp() // a sender that the router keeps waiting must not keep the line
		<-sender
	}()
	err := l.receive(stream)
	cancel(err)
	return err
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
			if err := stream.Send(&workerv1.FromWorker{Kind: &workerv1.FromWorker_Heartbeat{Heartbeat: l.beat()}}); err != nil {
				return fmt.Errorf("send to the router: %w", err)
			}
		case <-ctx.Done():
			return stream.CloseSend()
		}
	}
}

func (l *line) receive(stream workerv1.Cluster_AttachClient) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receive from the router: %w", err)
		}
		switch m := m.Kind.(type) {
		case *workerv1.ToWorker_Result:
			if err := l.answered(m.Result); err != nil {
				return err
			}
		case *workerv1.ToWorker_Notice:
			if m.Notice.Fenced {
				return ErrFenced
			}
			l.deliver(func(e *engine) { e.hearNotice(m.Notice) })
		case *workerv1.ToWorker_ResetCache:
			l.deliver((*engine).tellAll)
		}
	}
}

// answered takes a result, which comes in order of sequence; older ones are repeats.
func (l *line) answered(r *workerv1.ProposalResult) error {
	if r.Result.GetRefusal().GetCode() == ledgerv1.RefusalCode_REFUSAL_CODE_FENCED {
		return ErrFenced
	}
	if result := l.take(r); result != nil {
		l.deliver(func(e *engine) { result(e, r.Result) })
	}
	return nil
}

// take removes an answered proposal from the queue and returns what wants its result.
func (l *line) take(r *workerv1.ProposalResult) func(*engine, *ledgerv1.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gap := r.Result.GetGap(); gap != nil {
		l.log.Warn("the ledger misses proposals", "last_sequence", gap.LastSequence)
		l.sent = 0
		l.nudge()
		return nil
	}
	if len(l.queue) == 0 || l.queue[0].sequence != r.Sequence {
		return nil
	}
	p := l.queue[0]
	l.queue = l.queue[1:]
	l.sent, l.acked = max(0, l.sent-1), r.Sequence
	return p.result
}
