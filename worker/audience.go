package worker

import (
	"slices"
	"sync"

	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/kvpool"
)

// maxEvents bounds the messages that wait for a router that reads none.
const maxEvents = 1024

// maxBlocks bounds the block events of one message, far below what a gRPC message may hold.
const maxBlocks = 16384

// audience are the routers that watch an incarnation; the engine's goroutine owns it.
type audience []*watcher

// tell says what has changed in the prefix cache.
func (a audience) tell(p *kvpool.Pool, scratch []kvpool.Event) []kvpool.Event {
	scratch = p.Events(scratch[:0])
	var events []*workerv1.BlockEvent
	if len(a) > 0 {
		events = blockEvents(scratch)
	}
	for _, w := range a {
		if w.behind() {
			w.cache(blockEvents(p.Known(nil)), true)
		} else if len(events) > 0 {
			w.cache(events, false)
		}
	}
	return scratch
}

// reset tells the whole cache anew.
func (a audience) reset(p *kvpool.Pool) {
	for _, w := range a {
		w.cache(blockEvents(p.Known(nil)), true)
	}
}

// beat has a heartbeat sent before its time: what it carries has changed for good.
func (a audience) beat() {
	for _, w := range a {
		w.beat()
	}
}

// watcher is what is to be said to one router.
type watcher struct {
	mu       sync.Mutex
	events   []*workerv1.CacheEvents
	sequence uint64
	dropped  bool // events were dropped: a reset must follow
	due      bool // a heartbeat is wanted
	wake     chan struct{}
}

// newWatcher begins with the whole cache.
func newWatcher(p *kvpool.Pool) *watcher {
	w := &watcher{wake: make(chan struct{}, 1)}
	w.cache(blockEvents(p.Known(nil)), true)
	return w
}

// cache queues events; nobody writes to them any more.
func (w *watcher) cache(blocks []*workerv1.BlockEvent, reset bool) {
	w.mu.Lock()
	defer w.nudge()
	defer w.mu.Unlock()
	if reset {
		w.events, w.dropped = nil, false
	}
	if w.dropped || len(w.events) >= maxEvents {
		w.events, w.dropped = nil, true
		return
	}
	for first := true; first || len(blocks) > 0; first = false {
		n := min(maxBlocks, len(blocks))
		w.sequence++
		w.events = append(w.events, &workerv1.CacheEvents{Sequence: w.sequence, Reset_: reset && first, Blocks: blocks[:n]})
		blocks = blocks[n:]
	}
}

// behind says that events were dropped, and that the router reads again.
func (w *watcher) behind() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

func (w *watcher) beat() {
	w.mu.Lock()
	w.due = true
	w.mu.Unlock()
	w.nudge()
}

func (w *watcher) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// pending takes what is to be sent next.
func (w *watcher) pending() (events []*workerv1.CacheEvents, beat bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events, beat = w.events, w.due
	w.events, w.due = nil, false
	return events, beat
}

func blockEvents(events []kvpool.Event) []*workerv1.BlockEvent {
	events = slices.Clone(events) // names are sent later, the caller's slice is used again
	out := make([]*workerv1.BlockEvent, len(events))
	for i := range events {
		out[i] = &workerv1.BlockEvent{Hash: events[i].Name[:], Full: events[i].Full, Window: events[i].Window}
	}
	return out
}
