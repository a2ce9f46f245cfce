package worker

import (
	"context"
	"sync"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// outbox carries a branch's tokens from the engine to its stream. The engine never waits on it; what a slow client has
// not taken is bounded by the branch's max_tokens.
type outbox struct {
	mu     sync.Mutex
	ids    []int32
	state  outcome
	notify chan struct{}
}

// outcome is where a branch stands, besides its tokens.
type outcome struct {
	started bool
	cached  int
	done    bool
	reason  ledgerv1.FinishReason
	err     error // why it ended, if not by itself
	history history
	output  int
}

func newOutbox() *outbox { return &outbox{notify: make(chan struct{}, 1)} }

func (o *outbox) put(id int32) {
	o.mu.Lock()
	o.ids = append(o.ids, id)
	o.mu.Unlock()
	o.wake()
}

func (o *outbox) update(f func(*outcome)) {
	o.mu.Lock()
	f(&o.state)
	o.mu.Unlock()
	o.wake()
}

func (o *outbox) wake() {
	select {
	case o.notify <- struct{}{}:
	default:
	}
}

// next waits for news and appends new tokens to ids[:0]. It fails when ctx ends, or with ErrFenced when the engine has
// ended without a word about the branch.
func (o *outbox) next(ctx context.Context, ended <-chan struct{}, ids []int32) ([]int32, outcome, error) {
	var err error
	select {
	case <-o.notify:
	case <-ended:
		err = ErrFenced
	case <-ctx.Done():
		return ids, outcome{}, ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	ids = append(ids[:0], o.ids...)
	o.ids = o.ids[:0]
	if o.state.done {
		err = nil
	}
	return ids, o.state, err
}

// last waits for the branch's end, which is a step away once it was cancelled, or for the engine's.
func (o *outbox) last(ended <-chan struct{}) outcome {
	for {
		_, state, err := o.next(context.Background(), ended, nil)
		if state.done || err != nil {
			return state
		}
	}
}
