package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/telemetry"
)

// maxDispatches is how often a request may be handed to a worker that does not take it.
const maxDispatches = 3

// lost is a dispatch that came to nothing before its first token: the request may go elsewhere.
type lost struct{ why error }

func (e *lost) Error() string { return e.why.Error() }

// generate takes a bounded request from the queue to its last token.
func (r *Router) generate(ctx context.Context, q *request, out output) error {
	var last error
	for tries := range maxDispatches {
		res, err := r.admit(ctx, q, tries > 0)
		if err != nil {
			return err
		}
		q.admitted, q.worker = true, res.worker
		if q.batch != nil {
			q.batch.admitted.Store(true)
		}
		err = r.dispatch(ctx, q, res, out)
		var again *lost
		if !errors.As(err, &again) {
			return err
		}
		last = again.why
		r.cfg.Log.Warn("dispatch refused", "request_id", q.id, "worker", res.worker, "error", last.Error())
	}
	return workerLost(q.worker, fmt.Sprintf("%d workers in a row refused it, the last one with: %v", maxDispatches, last))
}

// dispatch hands a reserved request to its worker and passes on what comes of it. A reservation whose worker has said
// nothing is dropped (R2); one that it has, ends with the stream.
func (r *Router) dispatch(ctx context.Context, q *request, res *reservation, out output) (err error) {
	if ctx.Err() != nil {
		r.cfg.Session.Drop(res.id)
		return errGone
	}
	ctx, span := r.trace.start(ctx, spanGenerate)
	defer func() { span.end(err) }()
	call, cut := context.WithCancelCause(telemetry.Inject(ctx))
	defer cut(nil)
	conn, release, err := r.conns.use(r.addressOf(res))
	if err != nil {
		r.cfg.Session.Drop(res.id)
		return &lost{err}
	}
	defer release()
	client := workerv1.NewWorkerClient(conn)
	stream, err := client.Generate(call, generateRequest(q, res))
	if err != nil {
		r.cfg.Session.Drop(res.id)
		return r.lostOrGone(ctx, q, err, false)
	}
	a := newArrival(r, q, out)
	a.flight = r.flights.begin(q.guest.id, res, q.maxTokens*q.bestOf, cut)
	var stops sync.WaitGroup
	defer func() { cut(nil); stops.Wait() }()
	a.stop = func(branch int) {
		if !r.stop(call, client, q, res, branch) { // or a branch that goes on would hold its pages for nobody
			stops.Go(func() { r.stopLater(call, client, q, res, branch) })
		}
	}
	defer r.flights.end(a.flight)
	if r.cfg.Ledger.View().Incarnation(res.in.Incarnation) == nil {
		cut(errFenced) // before there was a flight that the warden could cut
	}
	err = a.receive(ctx, stream)
	if !a.heard {
		cut(nil)
		r.cfg.Session.Drop(res.id)
	}
	span.generated(res, a)
	var again *lost
	if !errors.As(err, &again) {
		q.usage = a.usage
		r.trace.note(ctx, func(rec *record) { rec.arrived(a) })
	}
	return err
}

// stopTimeout is how long a worker has to answer that it stops a branch, and stopPause is between two tries.
const (
	stopTimeout = time.Second
	stopPause   = 100 * time.Millisecond
)

// stop ends one branch of a request on its worker, and says whether the worker has heard it.
func (r *Router) stop(call context.Context, client workerv1.WorkerClient, q *request, res *reservation, branch int) bool {
	ctx, cancel := context.WithTimeout(call, stopTimeout)
	defer cancel()
	_, err := client.Stop(ctx, &workerv1.StopRequest{
		Reservation: res.id, Incarnation: res.in.Incarnation, Branch: uint32(branch),
	})
	if err != nil {
		r.cfg.Log.Warn("branch not stopped yet", "request_id", q.id, "worker", res.worker, "error", err.Error())
	}
	return err == nil
}

// stopLater tries until the worker has heard it, or the request's call is over.
func (r *Router) stopLater(call context.Context, client workerv1.WorkerClient, q *request, res *reservation, branch int) {
	for {
		select {
		case <-time.After(stopPause):
		case <-call.Done():
			return
		}
		if r.stop(call, client, q, res, branch) {
			return
		}
	}
}

func (r *Router) addressOf(res *reservation) string {
	if w := r.cfg.Ledger.View().Worker(res.worker); w != nil {
		return w.Info.GetAddress()
	}
	return ""
}

func generateRequest(q *request, res *reservation) *workerv1.GenerateRequest {
	return &workerv1.GenerateRequest{
		RequestId: q.id, Reservation: res.id, Incarnation: res.in.Incarnation, Attempt: 1, Key: res.key,
		ShareGroup: q.guest.group, Pages: res.in.Pages, CacheSalt: q.salt, Prompt: q.prompt,
		MaxTokens: uint32(q.maxTokens), MinTokens: uint32(q.minTokens), StopIds: q.stopIDsOf(), Sampling: q.sampling,
		Branches: uint32(q.bestOf), Slots: uint32(res.in.SlotsNeeded), Scoring: q.scoring(), PromptScoring: q.promptScoring(),
		FatalSteps: q.fatal,
	}
}

// maxFatal is of how many steps that did not end a request is taken for the cause.
const maxFatal = 3

// fatalSteps is the number of such steps that a worker names with the end of a call, 0 if none.
func fatalSteps(err error) uint32 {
	for _, d := range status.Convert(err).Details() {
		if f, ok := d.(*workerv1.FatalStep); ok {
			return f.Steps
		}
	}
	return 0
}

// lostOrGone says what a broken call means: the client left, the request may go elsewhere, or it is lost. What the worker
// calls its own fault is not tried on another one: a request that one worker breaks at might break them all in turn. One
// that was in a step that did not end goes to another worker with that said, until it is taken for the cause.
func (r *Router) lostOrGone(ctx context.Context, q *request, err error, tokens bool) error {
	q.fatal = max(q.fatal, fatalSteps(err))
	switch {
	case ctx.Err() != nil:
		return errGone
	case q.fatal >= maxFatal:
		return workerLost(q.worker, fmt.Sprintf("%d steps with this request did not end in time", q.fatal))
	case status.Code(err) == codes.Internal:
		r.cfg.Log.Error("worker failed", "request_id", q.id, "worker", q.worker, "error", err.Error())
		return workerFailed(q.worker)
	case tokens:
		return workerLost(q.worker, status.Convert(err).Message())
	case status.Code(err) == codes.InvalidArgument:
		return fmt.Errorf("worker %s refuses the request: %w", q.worker, err)
	}
	return &lost{err}
}
