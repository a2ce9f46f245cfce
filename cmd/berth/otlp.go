package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/berthd/berth/telemetry"
)

// span is one span as `berth trace` draws it.
type span struct {
	ID         string            `json:"id"`
	Parent     string            `json:"parent,omitempty"`
	Name       string            `json:"name"`
	Service    string            `json:"service"`
	Start      uint64            `json:"start_ns"`
	End        uint64            `json:"end_ns"`
	Failed     string            `json:"failed,omitempty"`
	Attributes map[string]string `json:"attributes"`
}

// maxTraces bounds what the receiver remembers; the oldest trace goes first.
const maxTraces = 2000

// receiver is a small OTLP trace store in memory, for one machine.
type receiver struct {
	collectorv1.UnimplementedTraceServiceServer
	mu     sync.Mutex
	traces map[string][]span // by trace id
	order  []string          // trace ids, oldest first
	byID   map[string]string // request id → trace id
}

func newReceiver() *receiver {
	return &receiver{traces: map[string][]span{}, byID: map[string]string{}}
}

// Export implements the OTLP trace service.
func (r *receiver) Export(_ context.Context, m *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range m.ResourceSpans {
		service := attributes(rs.Resource.GetAttributes())
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				r.add(s, service["service.name"]+" "+service["service.instance.id"])
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func (r *receiver) add(s *tracev1.Span, service string) {
	trace := hex.EncodeToString(s.TraceId)
	if _, ok := r.traces[trace]; !ok {
		r.order = append(r.order, trace)
		if len(r.order) > maxTraces {
			r.forget(r.order[0])
			r.order = r.order[1:]
		}
	}
	attrs := attributes(s.Attributes)
	if id := attrs[telemetry.KeyRequestID]; id != "" {
		r.byID[id] = trace
	}
	failed := ""
	if s.Status.GetCode() == tracev1.Status_STATUS_CODE_ERROR {
		failed = s.Status.Message
	}
	r.traces[trace] = append(r.traces[trace], span{
		ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId), Name: s.Name, Service: service,
		Start: s.StartTimeUnixNano, End: s.EndTimeUnixNano, Failed: failed, Attributes: attrs,
	})
}

func (r *receiver) forget(trace string) {
	for _, s := range r.traces[trace] {
		delete(r.byID, s.Attributes[telemetry.KeyRequestID])
	}
	delete(r.traces, trace)
}

// ServeHTTP answers GET /traces/{request} with the spans of a request's trace.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	spans, ok := r.traces[r.byID[q.PathValue("request")]]
	spans = append([]span(nil), spans...)
	r.mu.Unlock()
	if !ok {
		http.Error(w, "no trace of that request is known", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(spans)
}

func attributes(kvs []*commonv1.KeyValue) map[string]string {
	out := make(map[string]string, len(kvs))
	for _, kv := range kvs {
		out[kv.Key] = text(kv.Value)
	}
	return out
}

func text(v *commonv1.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *commonv1.AnyValue_StringValue:
		return v.StringValue
	case *commonv1.AnyValue_IntValue:
		return strconv.FormatInt(v.IntValue, 10)
	case *commonv1.AnyValue_DoubleValue:
		return strconv.FormatFloat(v.DoubleValue, 'g', 6, 64)
	case *commonv1.AnyValue_BoolValue:
		return strconv.FormatBool(v.BoolValue)
	case *commonv1.AnyValue_ArrayValue:
		parts := make([]string, len(v.ArrayValue.GetValues()))
		for i, p := range v.ArrayValue.GetValues() {
			parts[i] = text(p)
		}
		return strings.Join(parts, ",")
	}
	return ""
}
