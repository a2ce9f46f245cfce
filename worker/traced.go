package worker

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/telemetry"
)

const scope = "github.com/berthd/berth/worker"

// traceGenerate starts the server's span of a request, a child of the router's.
func (w *Worker) traceGenerate(ctx context.Context, r *workerv1.GenerateRequest) (context.Context, trace.Span) {
	return otel.Tracer(scope).Start(telemetry.Extract(ctx), telemetry.SpanGenerate,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String(telemetry.KeyRequestID, r.RequestId),
			attribute.String(telemetry.KeyWorker, w.cfg.ID),
			attribute.Int(telemetry.KeyInputTokens, len(r.Prompt)),
			attribute.Int64(telemetry.KeyPages, int64(r.Pages)),
		))
}

// traceEnd writes the spans of all branches' lives, and ends the server's.
func (w *Worker) traceEnd(ctx context.Context, span trace.Span, q *request, branches []outcome, err error) {
	defer span.End()
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	for i := range branches {
		if o := &branches[i]; o.done {
			traceBranch(ctx, o)
			w.metrics.finished(len(q.ask.Prompt), o)
		}
	}
	w.logRequest(q, branches, err)
}

// logRequest writes the one line that a request leaves in the worker's log: never a token of it.
func (w *Worker) logRequest(q *request, branches []outcome, err error) {
	args := []any{"request_id", q.ask.RequestId, "reservation", q.ask.Reservation, "prompt_tokens", len(q.ask.Prompt)}
	output, done, preempted := 0, 0, 0
	for i := range branches {
		if o := &branches[i]; o.done {
			done, output, preempted = done+1, output+o.output, preempted+o.history.preemptions
		}
	}
	args = append(args, "choices", max(1, q.ask.Branches), "finished", done, "output_tokens", output, "preempted", preempted)
	if len(branches) > 0 {
		h := &branches[0].history
		args = append(args, "cached_tokens", h.cached)
		for _, part := range []struct {
			name     string
			from, to time.Time
		}{{"queue_ms", h.queued, h.started}, {"first_token_ms", h.queued, h.first}, {"total_ms", h.queued, h.ended}} {
			if !part.from.IsZero() && !part.to.IsZero() {
				args = append(args, part.name, part.to.Sub(part.from).Milliseconds())
			}
		}
	}
	if err != nil {
		args = append(args, "error", err.Error())
	}
	w.cfg.Log.Info("request", args...)
}

// traceBranch writes the spans of a branch's life from its history.
func traceBranch(ctx context.Context, o *outcome) {
	h := &o.history
	part := func(name string, from, to time.Time, attrs ...attribute.KeyValue) {
		if from.IsZero() {
			return
		}
		if to.IsZero() {
			to = h.ended
		}
		_, s := otel.Tracer(scope).Start(ctx, name, trace.WithTimestamp(from), trace.WithAttributes(attrs...))
		s.End(trace.WithTimestamp(to))
	}
	part(telemetry.SpanWaiting, h.queued, h.started)
	part(telemetry.SpanPrefill, h.started, h.first, attribute.Int(telemetry.KeyChunks, h.chunks+1),
		attribute.Int(telemetry.KeyCachedTokens, h.cached))
	part(telemetry.SpanDecode, h.first, h.ended, attribute.Int(telemetry.KeySteps, h.steps),
		attribute.Int(telemetry.KeyGuessed, h.guessed), attribute.Int(telemetry.KeyGuessedRight, h.right),
		attribute.Int(telemetry.KeyOutputTokens, o.output))
	for _, at := range h.preempted {
		part(telemetry.SpanPreempt, at, at)
	}
}

// metrics are the worker's instruments.
type metrics struct {
	stepSeconds, interToken metric.Float64Histogram
	stepTokens              metric.Int64Histogram
	preemptions             metric.Int64Counter
	prefix                  metric.Int64Counter
}

func newMetrics(w *Worker) (*metrics, error) {
	m, meter := &metrics{}, otel.Meter(scope)
	var err error
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	var e error
	m.stepSeconds, e = meter.Float64Histogram(telemetry.MetricStepDuration, metric.WithExplicitBucketBoundaries(telemetry.PerTokenBuckets...))
	keep(e)
	m.interToken, e = meter.Float64Histogram(telemetry.MetricInterToken, metric.WithExplicitBucketBoundaries(telemetry.PerTokenBuckets...))
	keep(e)
	m.stepTokens, e = meter.Int64Histogram(telemetry.MetricStepTokens, metric.WithExplicitBucketBoundaries(telemetry.TokenBuckets...))
	keep(e)
	m.preemptions, e = meter.Int64Counter(telemetry.MetricPreemptions)
	keep(e)
	m.prefix, e = meter.Int64Counter(telemetry.MetricPrefixTokens)
	keep(e)
	keep(observe(meter, w))
	if err == nil { // series that alerts look at, before there is anything to count
		m.preemptions.Add(context.Background(), 0)
		for _, result := range []string{"hit", "miss"} {
			m.prefix.Add(context.Background(), 0, metric.WithAttributes(attribute.String("result", result)))
		}
	}
	return m, err
}

// observe registers the gauges, read from the last step's state.
func observe(meter metric.Meter, w *Worker) error {
	pages, e1 := meter.Int64ObservableGauge(telemetry.MetricPages)
	running, e2 := meter.Int64ObservableGauge(telemetry.MetricRunning)
	ready, e3 := meter.Int64ObservableGauge(telemetry.MetricReady)
	for _, err := range []error{e1, e2, e3} {
		if err != nil {
			return err
		}
	}
	worker := attribute.String("worker", w.cfg.ID)
	_, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := w.Stats()
		for state, n := range map[string]int{"free": s.Pages.Free, "idle": s.Pages.Idle, "charged": s.Pages.Charged, "overhead": s.Pages.Overhead} {
			o.ObserveInt64(pages, int64(n), metric.WithAttributes(worker, attribute.String("state", state)))
		}
		o.ObserveInt64(running, int64(s.Running))
		one := int64(0)
		if w.Ready() == nil {
			one = 1
		}
		o.ObserveInt64(ready, one)
		return nil
	}, pages, running, ready)
	return err
}

func (m *metrics) step(s Stats) {
	if s.StepTokens == 0 {
		return
	}
	ctx := context.Background()
	kind := "decode"
	if s.StepChunks > 0 {
		kind = "prefill"
	}
	m.stepSeconds.Record(ctx, s.StepSeconds, metric.WithAttributes(attribute.String("kind", kind)))
	m.stepTokens.Record(ctx, int64(s.StepTokens))
}

func (m *metrics) finished(prompt int, o *outcome) {
	ctx := context.Background()
	h := &o.history
	m.preemptions.Add(ctx, int64(h.preemptions))
	m.prefix.Add(ctx, int64(h.cached), metric.WithAttributes(attribute.String("result", "hit")))
	m.prefix.Add(ctx, int64(prompt-h.cached), metric.WithAttributes(attribute.String("result", "miss")))
	if n := o.output - 1; n > 0 && !h.first.IsZero() {
		m.interToken.Record(ctx, h.ended.Sub(h.first).Seconds()/float64(n))
	}
}
