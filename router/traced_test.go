package router

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/berthd/berth/telemetry"
)

// receiver keeps the spans that are exported to it, by name.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans map[string]*tracev1.Span
}

// Export implements the OTLP receiver.
func (r *receiver) Export(
	_ context.Context, m *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range m.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				r.spans[s.Name] = s
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func attributes(s *tracev1.Span) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes {
		out[a.Key] = strings.Trim(a.Value.String(), "\"")
	}
	return out
}

// One request makes one tree of spans under the client's, and every metric; no text of it is anywhere.
func TestTelemetry(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	spans := &receiver{spans: map[string]*tracev1.Span{}}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, spans)
	go server.Serve(l)
	defer server.Stop()
	to := telemetry.Config{Service: "berth-router", Instance: "r1", OTLP: l.Addr().String()}
	tel, err := telemetry.Setup(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	var logged lockedBuffer
	h := open(t, func(c *Config) { c.Metrics, c.Log = tel.Metrics(), slog.New(slog.NewJSONHandler(&logged, nil)) })
	parent := make(chan []string, 1)
	ids := testCard().tok.Encode(nil, "secret answer", false)
	h.hire("w1", nil).play = func(ctx context.Context, r *ask, send sender) (ending, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		parent <- md.Get("traceparent")
		return says(ids...)(ctx, r, send)
	}
	const trace = "0af7651916cd43dd8448eb211c80319c"
	r := h.do("POST", "/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"secret question"}]}`,
		"Traceparent", "00-"+trace+"-b7ad6b7169203331-01", "X-Request-Id", "asked")
	if r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	h.post("/v1/completions", `{"model":"`+strings.Repeat("x", 50)+`","prompt":"hi"}`)
	checkMetrics(t, h.do("GET", "/metrics", "").body)
	checkLog(t, logged.String())
	if err := tel.Close(); err != nil {
		t.Fatal(err)
	}
	spans.mu.Lock()
	defer spans.mu.Unlock()
	root := spans.spans["POST /v1/chat/completions"]
	if root == nil || hex.EncodeToString(root.TraceId) != trace ||
		hex.EncodeToString(root.ParentSpanId) != "b7ad6b7169203331" {
		t.Fatalf("server span: %v", root)
	}
	for _, name := range []string{"router.tokenize", "router.queue", "router.place", "ledger.reserve", "worker.generate"} {
		s := spans.spans[name]
		if s == nil || string(s.TraceId) != string(root.TraceId) || string(s.ParentSpanId) != string(root.SpanId) {
			t.Errorf("%s: %v", name, s)
		}
	}
	want := "00-" + trace + "-" + hex.EncodeToString(spans.spans["worker.generate"].SpanId) + "-01"
	if got := <-parent; len(got) != 1 || got[0] != want {
		t.Errorf("the worker's parent is %v", got)
	}
	checkServerSpans(t, root, spans.spans["POST /v1/completions"])
	for name, s := range spans.spans {
		if strings.Contains(s.String(), "secret") {
			t.Errorf("%s has the text: %v", name, s)
		}
	}
}

// checkServerSpans wants what the semantic conventions have of HTTP and of GenAI.
func checkServerSpans(t *testing.T, answered, refused *tracev1.Span) {
	t.Helper()
	a := attributes(answered)
	for key, want := range map[string]string{
		telemetry.KeyRequestID: "asked", telemetry.KeyRequestModel: "tiny",
		telemetry.KeyMethod: "POST", telemetry.KeyPath: "/v1/chat/completions", telemetry.KeyRoute: "/v1/chat/completions",
		telemetry.KeyResponseID: "chatcmpl-asked", telemetry.KeyTemperature: "1", telemetry.KeyTopP: "1", telemetry.KeyStatus: "200",
	} {
		if !strings.Contains(a[key], want) {
			t.Errorf("%s is %q, want %s", key, a[key], want)
		}
	}
	// What is the client's fault is no error of the server's span.
	if b := attributes(refused); refused.Status.GetCode() == tracev1.Status_STATUS_CODE_ERROR ||
		!strings.Contains(b[telemetry.KeyErrorType], "model_not_found") {
		t.Errorf("a refused request: %v, %v", refused.Status, b)
	}
}

// lockedBuffer is a log that many goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A request leaves one line, answered or refused, that says what became of it and nothing of its text.
func checkLog(t *testing.T, log string) {
	t.Helper()
	var lines []map[string]any
	for line := range strings.Lines(log) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m["msg"] == "request" {
			lines = append(lines, m)
		}
	}
	if len(lines) != 2 || strings.Contains(log, "secret") {
		t.Fatalf("%d lines in %s", len(lines), log)
	}
	for _, key := range []string{"prompt_tokens", "output_tokens", "cached_tokens", "queue_ms", "first_token_ms", "total_ms"} {
		if _, ok := lines[0][key]; !ok {
			t.Errorf("no %s in %v", key, lines[0])
		}
	}
	if l := lines[0]; l["request_id"] != "asked" || l["tenant"] != "default" || l["model"] != "tiny" || l["worker"] != "w1" ||
		l["finish"] == nil || l["status"] != 200.0 {
		t.Errorf("answered: %v", l)
	}
	if l := lines[1]; l["error"] != "MDL-001" || l["status"] != 404.0 || l["model"] != "other" {
		t.Errorf("refused: %v", l)
	}
}

func checkMetrics(t *testing.T, metrics string) {
	t.Helper()
	for _, want := range []string{
		`berth_requests_total{code="200",model="tiny",tenant="default"} 1`,
		`berth_requests_total{code="404",model="other",tenant="default"} 1`,
		`berth_refusals_total{code="model_not_found"} 1`,
		`berth_queue_requests 0`, `berth_queue_tokens 0`, `berth_ledger_leader 1`, `berth_ledger_revision `,
		`berth_kv_granted_pages{worker="w1"}`, `berth_kv_capacity_pages{worker="w1"} 200`,
		`berth_queue_duration_seconds_count 1`, `berth_place_duration_seconds_count 1`,
		`berth_ledger_commit_duration_seconds_count 1`,
		`gen_ai_server_request_duration_seconds_count`, `gen_ai_server_time_to_first_token_seconds_count`,
		`gen_ai_server_time_per_output_token_seconds_count`, `gen_ai_token_type="output"`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in\n%s", want, metrics)
		}
	}
	for _, want := range []string{
		`berth_refusals_total{code="queue_full"} 0`, `berth_ready 1`, `berth_workers{state="ready"} 1`, `berth_workers{state="fenced"} 0`,
		`berth_replicas{state="leads"} 1`, `berth_ledger_applied_revision `, `berth_tenant_tokens_total{kind="output",tenant="default"} `,
		`berth_build_info{`, `go_goroutines `, `process_resident_memory_bytes `,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s, which alerts and dashboards look at, in\n%s", want, metrics)
		}
	}
	if strings.Contains(metrics, "secret") {
		t.Error("metrics have the text")
	}
	faults, err := promlint.New(strings.NewReader(metrics)).Lint() // promtool check metrics
	if err != nil || len(faults) > 0 {
		t.Errorf("promtool's linter: %v, %v", faults, err)
	}
}
