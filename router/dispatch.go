package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
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
		r.drop(ctx, res.id)
		return errGone
	}
	ctx, span := r.trace.start(ctx, spanGenerate)
	defer func() { span.end(err) }()
	call, cut := context.WithCancelCause(telemetry.Inject(ctx))
	defer cut(nil)
	conn, release, err := r.conns.use(r.addressOf(res))
	if err != nil {
		r.drop(ctx, res.id)
		return &lost{err}
	}
	defer release()
	stream, err := workerv1.NewWorkerClient(conn).Generate(call, generateRequest(q, res))
	if err != nil {
		r.drop(ctx, res.id)
		return r.lostOrGone(ctx, q, err, false)
	}
	a := &arrival{r: r, q: q, out: out, detok: newDetok(q), flight: r.flights.begin(res, q.maxTokens, cut)}
	a.usage.prompt = len(q.prompt)
	defer r.flights.end(a.flight)
	if r.cfg.Ledger.View().Incarnation(res.in.Incarnation) == nil {
		cut(errFenced) // before there was a flight that the warden could cut
	}
	err = a.receive(ctx, stream)
	if !a.heard {
		cut(nil)
		r.drop(ctx, res.id)
	}
	span.generated(res, a)
	r.trace.note(ctx, func(rec *record) {
		rec.usage, rec.reason, rec.first, rec.last = a.usage, a.reason, a.first, a.last
	})
	return err
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
		ShareGroup: openGroup, Pages: res.in.Pages, CacheSalt: q.salt, Prompt: q.prompt,
		MaxTokens: uint32(q.maxTokens), MinTokens: uint32(q.minTokens), StopIds: q.stopIDsOf(), Sampling: q.sampling,
	}
}

// lostOrGone says what a broken call means: the client left, the request may go elsewhere, or it is lost. What the worker
// calls its own fault is not tried on another one: a request that one worker breaks at might break them all in turn.
func (r *Router) lostOrGone(ctx context.Context, q *request, err error, tokens bool) error {
	switch {
	case ctx.Err() != nil:
		return errGone
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

// arrival takes a worker's replies apart.
type arrival struct {
	r      *Router
	q      *request
	out    output
	detok  *detok
	flight *flight
	heard  bool // the worker has said something: it has the reservation
	over   bool // no more text may follow
	usage  usage
	reason string    // how it ended
	first  time.Time // when the first token came
	last   time.Time
}

// receive passes replies on until the branch has ended, a stop string has ended it, or something broke.
func (a *arrival) receive(ctx context.Context, stream grpc.ServerStreamingClient[workerv1.GenerateReply]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("its stream ended without a word")
			}
			if cause := context.Cause(stream.Context()); errors.Is(cause, errFenced) {
				err = cause
			}
			return a.r.lostOrGone(ctx, a.q, err, a.usage.completion > 0)
		}
		a.heard = true
		switch k := m.Kind.(type) {
		case *workerv1.GenerateReply_Started:
			if err := a.cached(k.Started.CachedTokens); err != nil {
				return err
			}
			if err := gone(a.out.begin()); err != nil {
				return err
			}
		case *workerv1.GenerateReply_Tokens:
			if err := a.tokens(k.Tokens); err != nil || a.detok.matched != "" {
				return err
			}
		case *workerv1.GenerateReply_Finished:
			return a.finished(k.Finished)
		}
	}
}

// gone makes a failed write what it means.
func gone(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// tokens passes the text of new ids on. A position that is not the next one means that tokens are missing: the answer
// cannot be right any more.
func (a *arrival) tokens(t *workerv1.Tokens) error {
	if int(t.Position) != a.usage.completion {
		return workerLost(a.q.worker, fmt.Sprintf("it sent position %d after %d tokens", t.Position, a.usage.completion))
	}
	if most := a.q.maxTokens; len(t.Ids) > most-a.usage.completion {
		return workerLost(a.q.worker, fmt.Sprintf("it sent %d tokens of at most %d", a.usage.completion+len(t.Ids), most))
	}
	a.timed()
	var text []byte
	var used []int32
	for _, id := range t.Ids {
		if a.over || id < 0 || int(id) >= a.q.card.tok.Len() {
			return workerLost(a.q.worker, fmt.Sprintf("it sent id %d, which cannot follow", id))
		}
		a.usage.completion++
		used = append(used, id)
		var part string
		part, a.over = a.detok.add(id)
		text = append(text, part...)
		if a.detok.matched != "" {
			if err := gone(a.out.delta(string(text), used)); err != nil {
				return err
			}
			return a.end(finish{"stop", a.detok.matched, a.usage})
		}
	}
	a.r.flights.produced(a.flight, len(used), a.last)
	return gone(a.out.delta(string(text), used))
}

// cached takes the number of prompt tokens that were in the cache, which cannot be more than there are.
func (a *arrival) cached(tokens uint32) error {
	if int(tokens) > a.usage.prompt {
		return workerLost(a.q.worker, fmt.Sprintf("it found %d of %d prompt tokens in its cache", tokens, a.usage.prompt))
	}
	a.usage.cached = int(tokens)
	return nil
}

func (a *arrival) timed() {
	a.last = a.r.cfg.Now()
	if a.first.IsZero() {
		a.first = a.last
	}
}

func (a *arrival) finished(f *workerv1.Finished) error {
	reason, ok := reasonOf(f.Reason)
	if !ok || int(f.OutputTokens) != a.usage.completion {
		why := fmt.Sprintf("it ended with %v after %d of %d tokens", f.Reason, a.usage.completion, f.OutputTokens)
		return workerLost(a.q.worker, why)
	}
	if err := a.cached(f.CachedTokens); err != nil {
		return err
	}
	if text := a.detok.end(); text != "" {
		if err := gone(a.out.delta(text, nil)); err != nil {
			return err
		}
	}
	end := finish{reason: reason, usage: a.usage}
	switch {
	case a.detok.matched != "":
		end.reason, end.stop = "stop", a.detok.matched
	case reason == "stop" && slices.Contains(a.q.stopIDs, a.detok.stopID):
		end.stop = a.detok.stopID
	}
	return a.end(end)
}

func (a *arrival) end(f finish) error {
	a.reason = f.reason
	return gone(a.out.end(f))
}
