package router

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/berthd/berth/telemetry"
)

const scope = "github.com/berthd/berth/router"

// statusGone is how a request whose client left is counted; nobody is sent it.
const statusGone = 499

// Spans of the package's other files.
const (
	spanTokenize = telemetry.SpanTokenize
	spanQueue    = telemetry.SpanQueue
	spanReserve  = telemetry.SpanReserve
	spanGenerate = telemetry.SpanGenerate
)

// span is a part of a request's trace.
type span struct{ trace.Span }

// start begins a child of the span in ctx.
func (t *traces) start(ctx context.Context, name string) (context.Context, span) {
	kind := trace.SpanKindInternal
	if name == spanGenerate {
		kind = trace.SpanKindClient
	}
	ctx, s := otel.Tracer(scope).Start(ctx, name, trace.WithSpanKind(kind))
	return ctx, span{s}
}

func (s span) end(err error) {
	if err != nil {
		s.SetStatus(codes.Error, err.Error())
	}
	s.End()
}

func (s span) reserving(c *candidate) {
	s.SetAttributes(attribute.String(telemetry.KeyWorker, c.Worker), attribute.Int64(telemetry.KeyPages, int64(c.Pages)))
}

func (s span) reserved(revision uint64) {
	s.SetAttributes(attribute.Int64(telemetry.KeyRevision, int64(revision)))
}

// placed writes the span of a placement that chose a worker: those that found none are many while a request waits.
func (t *traces) placed(ctx context.Context, from, to time.Time, d *decision) {
	t.placeSeconds.Record(ctx, to.Sub(from).Seconds())
	if d.Verdict != placed {
		return
	}
	_, s := otel.Tracer(scope).Start(ctx, telemetry.SpanPlace, trace.WithTimestamp(from), trace.WithAttributes(
		attribute.String(telemetry.KeyWorker, d.Worker), attribute.Int64(telemetry.KeyPages, int64(d.chosen.Pages)),
		attribute.Int(telemetry.KeyCachedTokens, d.chosen.Hit), attribute.Int64(telemetry.KeyRevision, int64(d.Revision)),
	))
	s.End(trace.WithTimestamp(to))
}

// generated ends what is known of a worker's part.
func (s span) generated(res *reservation, a *arrival) {
	s.SetAttributes(
		attribute.String(telemetry.KeyWorker, res.worker), attribute.Int64(telemetry.KeyPages, int64(res.in.Pages)),
		attribute.Int(telemetry.KeyCachedTokens, a.usage.cached),
		attribute.Int(telemetry.KeyOutputTokens, a.usage.completion),
	)
}

// record is what is learnt of a request on its way, for its server span and the metrics at its end.
type record struct {
	mu          sync.Mutex
	model       string
	answer      string  // its id
	asked       *params // once they are read
	prompt      int
	fault       error
	reason      string
	usage       usage
	first, last time.Time
	admitted    time.Time // when the last of its prompts was
	worker      string    // last one that ran one of them
}

// arrived adds what came of a prompt: a request may have several.
func (r *record) arrived(a *arrival) {
	r.usage.add(a.usage)
	r.reason = a.reason
	r.worker = a.q.worker
	if !a.first.IsZero() && (r.first.IsZero() || a.first.Before(r.first)) {
		r.first = a.first
	}
	if a.last.After(r.last) {
		r.last = a.last
	}
}

type recordKey struct{}

// note edits the record of the request that ctx belongs to.
func (t *traces) note(ctx context.Context, edit func(*record)) {
	if r, ok := ctx.Value(recordKey{}).(*record); ok {
		r.mu.Lock()
		edit(r)
		r.mu.Unlock()
	}
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(data []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(data)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// traced makes the server's span of a request, a child of the client's, and counts it.
func (r *Router) traced(name, operation string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		began := r.cfg.Now()
		ctx := otel.GetTextMapPropagator().Extract(req.Context(), propagation.HeaderCarrier(req.Header))
		rec := &record{}
		ctx, s := otel.Tracer(scope).Start(context.WithValue(ctx, recordKey{}, rec), name,
			trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
				attribute.String(telemetry.KeyRequestID, requestID(ctx)),
				attribute.String(telemetry.KeyOperation, operation),
				attribute.String(telemetry.KeyProvider, telemetry.Provider),
				attribute.String(telemetry.KeyTenant, guestOf(ctx).id),
				attribute.String(telemetry.KeyMethod, req.Method),
				attribute.String(telemetry.KeyPath, req.URL.Path),
				attribute.String(telemetry.KeyRoute, req.URL.Path),
			))
		sw := &statusWriter{ResponseWriter: w}
		defer func() {
			r.finish(ctx, s, rec, sw.status, operation, began)
			s.End()
		}()
		next(sw, req.WithContext(ctx))
	}
}

func (r *Router) finish(ctx context.Context, s trace.Span, rec *record, status int, operation string, began time.Time) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	gone := status == 0 || errors.Is(rec.fault, errGone)
	switch {
	case gone:
		status = statusGone
	case rec.fault != nil:
		status = asError(rec.fault).Status() // a stream that broke off had begun well
	}
	model := "other"
	if knownModel(r.cfg.Ledger.View(), rec.model) {
		model = rec.model
	}
	s.SetAttributes(
		attribute.String(telemetry.KeyRequestModel, model), attribute.Int(telemetry.KeyInputTokens, rec.prompt),
		attribute.Int(telemetry.KeyStatus, status))
	if rec.fault != nil && !gone {
		e := asError(rec.fault)
		if e.Status() >= http.StatusInternalServerError { // what a client did wrong is no error of the server's
			s.SetStatus(codes.Error, e.Code())
		}
		s.SetAttributes(attribute.String(telemetry.KeyErrorID, e.ID()), attribute.String(telemetry.KeyErrorType, e.Code()))
	}
	if p := rec.asked; p != nil {
		s.SetAttributes(attribute.Int(telemetry.KeyMaxTokens, p.maxTokens),
			attribute.Float64(telemetry.KeyTemperature, float64(p.sampling.GetTemperature())),
			attribute.Float64(telemetry.KeyTopP, float64(p.sampling.GetTopP())))
	}
	if rec.reason != "" {
		s.SetAttributes(attribute.String(telemetry.KeyModel, model), attribute.String(telemetry.KeyResponseID, rec.answer),
			attribute.StringSlice(telemetry.KeyFinish, []string{rec.reason}),
			attribute.Int(telemetry.KeyOutputTokens, rec.usage.completion),
			attribute.Int(telemetry.KeyCacheRead, rec.usage.cached))
	}
	r.trace.requests.Add(ctx, 1, metric.WithAttributes(attribute.String("tenant", r.trace.tenant(guestOf(ctx).id)),
		attribute.String("model", model), attribute.String("code", strconv.Itoa(status))))
	r.trace.genAI(ctx, rec, operation, model, began, r.cfg.Now())
	r.trace.spent(ctx, guestOf(ctx).id, rec.usage)
	r.logRequest(ctx, rec, status, model, began)
}

// spent counts a tenant's tokens.
func (t *traces) spent(ctx context.Context, tenant string, u usage) {
	for kind, n := range map[string]int{"input": u.prompt, "output": u.completion} {
		t.tenantTokens.Add(ctx, int64(n), metric.WithAttributes(attribute.String("tenant", t.tenant(tenant)),
			attribute.String("kind", kind)))
	}
}

// genAI records the histograms of the GenAI conventions.
func (t *traces) genAI(ctx context.Context, rec *record, operation, model string, began, now time.Time) {
	common := []attribute.KeyValue{
		attribute.String(telemetry.KeyOperation, operation), attribute.String(telemetry.KeyProvider, telemetry.Provider),
		attribute.String(telemetry.KeyRequestModel, model),
	}
	with := metric.WithAttributes(common...)
	t.requestSeconds.Record(ctx, now.Sub(began).Seconds(), with)
	if rec.first.IsZero() {
		return
	}
	t.firstSeconds.Record(ctx, rec.first.Sub(began).Seconds(), with)
	if n := rec.usage.completion - 1; n > 0 {
		t.tokenSeconds.Record(ctx, rec.last.Sub(rec.first).Seconds()/float64(n), with)
	}
	for kind, n := range map[string]int{"input": rec.usage.prompt, "output": rec.usage.completion} {
		t.tokens.Record(ctx, int64(n), with, metric.WithAttributes(attribute.String(telemetry.KeyTokenType, kind)))
	}
}

// traces are the router's instruments, and the counts that operators see.
type traces struct {
	requests, refusals                         metric.Int64Counter
	expectedTokens, tenantTokens               metric.Int64Counter
	queueSeconds, placeSeconds, commitSeconds  metric.Float64Histogram
	requestSeconds, firstSeconds, tokenSeconds metric.Float64Histogram
	tokens                                     metric.Int64Histogram
	gauges                                     metric.Registration

	mu      sync.Mutex
	told    map[string]uint64 // by code, for operators
	tenants map[string]bool   // that may be labels
}

func newTraces(r *Router) (*traces, error) {
	t, meter := &traces{told: map[string]uint64{}, tenants: map[string]bool{}}, otel.Meter(scope)
	var faults []error
	counter := func(into *metric.Int64Counter, name string) {
		c, err := meter.Int64Counter(name)
		*into, faults = c, append(faults, err)
	}
	seconds := func(into *metric.Float64Histogram, name string, buckets []float64) {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(buckets...))
		*into, faults = h, append(faults, err)
	}
	counter(&t.requests, telemetry.MetricRequests)
	counter(&t.refusals, telemetry.MetricRefusals)
	counter(&t.expectedTokens, telemetry.MetricPrefixExpected)
	counter(&t.tenantTokens, telemetry.MetricTenantTokens)
	seconds(&t.queueSeconds, telemetry.MetricQueueDuration, telemetry.DurationBuckets)
	seconds(&t.placeSeconds, telemetry.MetricPlaceDuration, telemetry.FastBuckets)
	seconds(&t.commitSeconds, telemetry.MetricCommitDuration, telemetry.FastBuckets)
	seconds(&t.requestSeconds, telemetry.MetricRequestDuration, telemetry.DurationBuckets)
	seconds(&t.firstSeconds, telemetry.MetricFirstToken, telemetry.FirstBuckets)
	seconds(&t.tokenSeconds, telemetry.MetricPerToken, telemetry.PerTokenBuckets)
	tokens, err := meter.Int64Histogram(telemetry.MetricTokenUsage,
		metric.WithExplicitBucketBoundaries(telemetry.TokenBuckets...))
	t.tokens, faults = tokens, append(faults, err)
	t.gauges, err = observe(meter, r)
	if err = errors.Join(append(faults, err)...); err == nil {
		t.begin()
	}
	return t, err
}

// begin makes the series of counters that alerts look at, before there is anything to count.
func (t *traces) begin() {
	ctx := context.Background()
	t.expectedTokens.Add(ctx, 0)
	for _, k := range errorKinds {
		t.refusals.Add(ctx, 0, metric.WithAttributes(attribute.String("code", k.code)))
	}
}

// observe registers the gauges.
func observe(meter metric.Meter, r *Router) (metric.Registration, error) {
	var faults []error
	var all []metric.Observable
	gauge := func(name string) metric.Int64ObservableGauge {
		g, err := meter.Int64ObservableGauge(name)
		faults, all = append(faults, err), append(all, g)
		return g
	}
	requests, tokens, limit := gauge(telemetry.MetricQueueRequests), gauge(telemetry.MetricQueueTokens), gauge(telemetry.MetricQueueLimit)
	ready, workers, replicas := gauge(telemetry.MetricReady), gauge(telemetry.MetricWorkers), gauge(telemetry.MetricReplicas)
	applied, revision, leader := gauge(telemetry.MetricApplied), gauge(telemetry.MetricRevision), gauge(telemetry.MetricLeader)
	granted, capacity := gauge(telemetry.MetricGranted), gauge(telemetry.MetricCapacity)
	pages := gauge(telemetry.MetricTenantPages)
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		g := r.gauges()
		with := func(key, value string) metric.ObserveOption {
			return metric.WithAttributes(attribute.String(key, value))
		}
		o.ObserveInt64(requests, int64(g.queueRequests))
		o.ObserveInt64(tokens, int64(g.queueTokens))
		o.ObserveInt64(limit, int64(g.queueLimit))
		o.ObserveInt64(ready, bit(g.ready))
		o.ObserveInt64(applied, int64(g.applied))
		o.ObserveInt64(leader, bit(g.leads))
		for state, n := range g.workers {
			o.ObserveInt64(workers, int64(n), with("state", state))
		}
		for state, n := range g.replicas {
			o.ObserveInt64(replicas, int64(n), with("state", state))
		}
		if !g.leads {
			return nil
		}
		o.ObserveInt64(revision, int64(g.applied))
		for _, w := range g.view.Workers {
			if w.Incarnation != 0 {
				o.ObserveInt64(granted, int64(w.Granted), with("worker", w.Name))
				o.ObserveInt64(capacity, int64(w.Capacity), with("worker", w.Name))
			}
		}
		for label, n := range g.tenantPages {
			o.ObserveInt64(pages, n, with("tenant", label))
		}
		return nil
	}, all...)
}

func bit(set bool) int64 {
	if set {
		return 1
	}
	return 0
}

func (t *traces) queued(d time.Duration) { t.queueSeconds.Record(context.Background(), d.Seconds()) }

func (t *traces) committed(d time.Duration) {
	t.commitSeconds.Record(context.Background(), d.Seconds())
}

func (t *traces) expected(tokens int) { t.expectedTokens.Add(context.Background(), int64(tokens)) }

// maxTenantLabels is how many tenants have series of their own; the others share one.
const maxTenantLabels = 100

// tenant is the label of a tenant: those that come first keep their names.
func (t *traces) tenant(id string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.tenants[id] {
		if len(t.tenants) == maxTenantLabels {
			return "other"
		}
		t.tenants[id] = true
	}
	return id
}

// refused counts an error that a client was told.
func (t *traces) refused(e *Error) {
	t.refusals.Add(context.Background(), 1, metric.WithAttributes(attribute.String("code", e.Code())))
	t.mu.Lock()
	t.told[e.Code()]++
	t.mu.Unlock()
}

// refusalCounts are the errors told so far, by code.
func (t *traces) refusalCounts() map[string]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]uint64, len(t.told))
	for code, n := range t.told {
		out[code] = n
	}
	return out
}

func (t *traces) close() error { return t.gauges.Unregister() }
