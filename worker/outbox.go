package worker

import (
	"context"
	"sync"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// outbox carries what a request's branches say from the engine to its stream. The engine never waits on it; what a slow
// client has not taken is bounded by the branches' max_tokens.
type outbox struct {
	mu     sync.Mutex
	boxes  []box // by branch
	prompt []*workerv1.Score
	over   bool
	err    error // why the request ended, if not by itself
	notify chan struct{}
}

// box is one branch's part.
type box struct {
	fresh  bool // there is news
	ids    []int32
	scores []*workerv1.Score
	state  outcome
}

// outcome is where a branch stands, besides its tokens.
type outcome struct {
	started bool
	cached  int
	done    bool
	reason  ledgerv1.FinishReason
	history history
	output  int
}

// news is what next found. It is filled again and again.
type news struct {
	prompt []*workerv1.Score
	parts  []part
	over   bool
	err    error
}

// part is the news of one branch.
type part struct {
	branch int
	ids    []int32
	scores []*workerv1.Score
	state  outcome
}

func newOutbox(branches int) *outbox {
	return &outbox{boxes: make([]box, branches), notify: make(chan struct{}, 1)}
}

// put adds a branch's next token, with its score if there is one.
func (o *outbox) put(branch int, id int32, score *workerv1.Score) {
	o.mu.Lock()
	b := &o.boxes[branch]
	b.fresh, b.ids = true, append(b.ids, id)
	if score != nil {
		b.scores = append(b.scores, score)
	}
	o.mu.Unlock()
	o.wake()
}

// putPrompt adds the next scores of the prompt.
func (o *outbox) putPrompt(scores []*workerv1.Score) {
	o.mu.Lock()
	o.prompt = append(o.prompt, scores...)
	o.mu.Unlock()
	o.wake()
}

func (o *outbox) update(branch int, f func(*outcome)) {
	o.mu.Lock()
	b := &o.boxes[branch]
	b.fresh = true
	f(&b.state)
	o.mu.Unlock()
	o.wake()
}

// end says that no more will come.
func (o *outbox) end(err error) {
	o.mu.Lock()
	o.over, o.err = true, err
	o.mu.Unlock()
	o.wake()
}

func (o *outbox) wake() {
	select {
	case o.notify <- struct{}{}:
	default:
	}
}

// next waits for news. It fails when ctx ends, or with ErrFenced when the engine has ended without a word about the
// request.
func (o *outbox) next(ctx context.Context, ended <-chan struct{}, n *news) error {
	var err error
	select {
	case <-o.notify:
	case <-ended:
		err = ErrFenced
	case <-ctx.Done():
		return ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	used := 0
	for i := range o.boxes {
		b := &o.boxes[i]
		if !b.fresh {
			continue
		}
		if used == len(n.parts) {
			n.parts = append(n.parts, part{})
		}
		p := &n.parts[used]
		p.branch, p.ids, p.scores, p.state = i, append(p.ids[:0], b.ids...), b.scores, b.state
		b.fresh, b.ids, b.scores = false, b.ids[:0], nil
		used++
	}
	n.parts = n.parts[:used]
	n.prompt, o.prompt = o.prompt, nil
	n.over, n.err = o.over, o.err
	if o.over {
		return nil
	}
	return err
}

// last waits for the request's end, which is a step away once it was cancelled, or for the engine's, and says how each
// branch ended.
func (o *outbox) last(ended <-chan struct{}) []outcome {
	var n news
	o.mu.Lock()
	defer o.mu.Unlock()
	for err := error(nil); !o.over && err == nil; {
		o.mu.Unlock()
		err = o.next(context.Background(), ended, &n)
		o.mu.Lock()
	}
	out := make([]outcome, len(o.boxes))
	for i := range o.boxes {
		out[i] = o.boxes[i].state
	}
	return out
}
