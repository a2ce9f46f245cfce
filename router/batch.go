package router

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// batch is the prompts of one request. Each is reserved for itself; they are queued together or not at all, and once one
// of them is admitted, the others wait as long as it takes: the request is admitted.
type batch struct {
	admitted atomic.Bool
}

// generateAll takes the prompts of a request from the queue to the end of all their choices. The first that fails ends
// the others.
func (r *Router) generateAll(ctx context.Context, qs []*request, out output) error {
	for i, q := range qs {
		if err := r.enter(q); err != nil {
			for _, before := range qs[:i] {
				r.queue.leave(before.ticket)
			}
			return err
		}
	}
	err := r.generateEach(ctx, qs, out)
	if err != nil {
		return err
	}
	var u usage
	for _, q := range qs {
		u.add(q.usage)
	}
	return gone(out.done(u))
}

func (r *Router) generateEach(ctx context.Context, qs []*request, out output) error {
	if len(qs) == 1 {
		return r.generate(ctx, qs[0], out)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, q := range qs {
		all.Go(func() {
			defer func() { // nobody else would, and the process would end
				if fault := recover(); fault != nil {
					cancel(fmt.Errorf("panic: %v\n%s", fault, debug.Stack()))
				}
			}()
			if err := r.generate(ctx, q, out); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return errGone
	}
	return context.Cause(ctx)
}

// patient says whether a request that found no room in its time goes on waiting.
func (q *request) patient(err error) bool {
	var e *Error
	return q.batch != nil && q.batch.admitted.Load() && errors.As(err, &e) && (e.kind == kindBusy || e.kind == kindCap && e.Param == "")
}
