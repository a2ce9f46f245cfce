package router

import (
	"context"
	"errors"
	"sync"
	"time"
)

// outagePoll is between two looks at the ledger.
const outagePoll = 100 * time.Millisecond

// outage ends what waits for the ledger once that has had no quorum for quorumPatience.
type outage struct {
	mu    sync.Mutex
	ends  context.Context // nil before the first look
	ended context.CancelCauseFunc
}

// watchQuorum looks after the ledger until ctx ends.
func (r *Router) watchQuorum(ctx context.Context) {
	var since time.Time // when the quorum was missed first
	for {
		err := r.cfg.Ledger.Ready()
		switch now := r.cfg.Now(); {
		case err == nil:
			since = time.Time{}
		case since.IsZero():
			since = now
		case now.Sub(since) >= quorumPatience:
			r.outage.end(noQuorum(err))
		}
		select {
		case <-time.After(outagePoll):
		case <-ctx.Done():
			return
		}
	}
}

// end cancels every context that bound gave and that is still used; those to come have another outage to wait for.
func (o *outage) end(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil {
		o.ended(why)
		o.ended = nil
	}
}

// bound is a context that an outage ends too, with what its requests are told as the cause.
func (o *outage) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	o.mu.Lock()
	if o.ended == nil {
		o.ends, o.ended = context.WithCancelCause(context.Background())
	}
	ends := o.ends
	o.mu.Unlock()
	out, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(ends, func() { cancel(context.Cause(ends)) })
	return out, func() {
		stop()
		cancel(context.Canceled)
	}
}

// lostQuorum is what a request is told whose wait an outage ended, nil if it was not that.
func lostQuorum(wait context.Context) error {
	if why := (*Error)(nil); errors.As(context.Cause(wait), &why) {
		return why
	}
	return nil
}
