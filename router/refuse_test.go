package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus"
)

// berth are the numbers that an error carries.
func (r response) berth(t *testing.T) map[string]any {
	t.Helper()
	e, _ := r.json(t)["error"].(map[string]any)
	b, _ := e["berth"].(map[string]any)
	return b
}

func (r response) retryAfter() bool {
	after := r.header.Get("Retry-After")
	var n int
	_, err := fmt.Sscan(after, &n)
	return err == nil && n >= 1 && n <= 60
}

// held plays a request that runs until it is let go, after one token.
func held(release <-chan struct{}) play {
	return func(ctx context.Context, _ *ask, send sender) (ending, error) {
		if err := send(700); err != nil {
			return 0, err
		}
		select {
		case <-release:
			return endLength, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// background sends a request that a test does not wait for; its answer comes on the channel.
func (h *house) background(path, body string) <-chan response {
	out := make(chan response, 1)
	go func() {
		defer close(out)
		res, err := h.http.Client().Post(h.http.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			return
		}
		defer res.Body.Close()
		var buf strings.Builder
		_, _ = copyAll(&buf, res.Body) // a cut body is part of some tests
		out <- response{res.StatusCode, res.Header, buf.String()}
	}()
	return out
}

func TestErrorShape(t *testing.T) {
	h := open(t, func(c *Config) { c.MaxBodyBytes = 1000 })
	r := h.do("POST", "/v1/completions", `{"model":"nobody","prompt":"hi"}`, "X-Request-Id", "mine-1")
	var got struct {
		Error struct {
			Message, Type, Param, Code string
			Berth                      map[string]any
		}
	}
	if err := json.Unmarshal([]byte(r.body), &got); err != nil {
		t.Fatal(err)
	}
	e := got.Error
	if r.status != 404 || e.Type != "invalid_request_error" || e.Param != "model" || e.Code != "model_not_found" ||
		e.Berth["id"] != "MDL-001" || !strings.Contains(e.Message, "nobody") || r.header.Get("X-Request-Id") != "mine-1" {
		t.Errorf("%d %v %s", r.status, r.header, r.body)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		id                 string
	}{
		{"POST", "/v1/completions", `{"prompt":"` + strings.Repeat("x", 1000) + `"}`, 413, "REQ-003"},
		{"GET", "/v1/completions", "", 405, "REQ-001"},
		{"POST", "/v1/models", "", 405, "REQ-001"},
		{"GET", "/v1/models/nobody", "", 404, "MDL-001"},
		{"GET", "/nowhere", "", 404, "REQ-001"},
		{"POST", "//v1//completions", "{}", 404, "REQ-001"},
		{"GET", "/v1/models/../../x", "", 404, "REQ-001"},
		{"GET", "/v1/./models", "", 404, "REQ-001"},
		{"GET", "/v1/models/a//b", "", 404, "REQ-001"},
		{"GET", "/v1/models/org%2Fname", "", 404, "MDL-001"},
		{"POST", "/v1/embeddings", "{}", 400, "REQ-002"},
		{"POST", "/v1/responses", "{}", 400, "REQ-002"},
		{"POST", "/v1/messages", "{}", 400, "REQ-002"},
	} {
		r := h.do(c.method, c.path, c.body, "X-Request-Id", "bad id\t")
		if id, _ := r.fault(t); r.status != c.status || id != c.id || len(r.header.Get("X-Request-Id")) != 32 {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, r.status, r.body, c.status, c.id)
		}
	}
}

func TestHealth(t *testing.T) { // R5
	h := open(t, nil)
	if r := h.do("GET", "/healthz", ""); r.status != 200 {
		t.Errorf("%d", r.status)
	}
	if r := h.do("GET", "/readyz", ""); r.status != 503 || !strings.Contains(r.body, "no worker is attached") {
		t.Errorf("%d %s", r.status, r.body)
	}
	w := h.hire("w1", nil)
	if r := h.do("GET", "/readyz", ""); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	w.isUnready("its step hangs")
	h.await("unreadiness", func() bool { return h.do("GET", "/readyz", "").status == 503 })
	r := h.post("/v1/completions", `{"model":"tiny","prompt":"hi"}`)
	if id, _ := r.fault(t); r.status != 503 || id != "WRK-001" || !r.retryAfter() {
		t.Errorf("R5: an unready worker: %d %s", r.status, r.body)
	}
	w.isUnready("")
	h.await("readiness", func() bool { return h.do("GET", "/readyz", "").status == 200 })
	w.detach()
	h.await("the worker to be gone", func() bool { return h.do("GET", "/readyz", "").status == 503 })
	r = h.post("/v1/completions", `{"model":"tiny","prompt":"hi"}`)
	if id, _ := r.fault(t); r.status != 503 || id != "WRK-001" {
		t.Errorf("R5: a worker without a stream: %d %s", r.status, r.body)
	}
	w.attach()
	h.await("the worker to be back", func() bool { return h.do("GET", "/readyz", "").status == 200 })
	if r := h.post("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":2}`); r.status != 200 {
		t.Errorf("R5: the worker is back: %d %s", r.status, r.body)
	}
}

// sullen is a ledger whose quorum can be taken away.
type sullen struct {
	*consensus.Node
	lost atomic.Bool
}

func (s *sullen) Ready() error {
	if s.lost.Load() {
		return consensus.ErrNoQuorum
	}
	return s.Node.Ready()
}

func TestNoQuorum(t *testing.T) {
	ledger := &sullen{}
	h := open(t, func(c *Config) {
		ledger.Node = c.Ledger.(*consensus.Node)
		c.Ledger = ledger
	})
	h.hire("w1", nil)
	ledger.lost.Store(true)
	r := h.post("/v1/completions", `{"model":"tiny","prompt":"hi"}`)
	if id, _ := r.fault(t); r.status != 503 || id != "LDG-001" || !r.retryAfter() {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := h.do("GET", "/readyz", ""); r.status != 503 || !strings.Contains(r.body, "quorum") {
		t.Errorf("%d %s", r.status, r.body)
	}
	answer := h.background("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":2}`)
	time.Sleep(quorumPatience / 4)
	ledger.lost.Store(false)
	if r := <-answer; r.status != 200 {
		t.Errorf("a request that came while a leader was elected: %d %s", r.status, r.body)
	}
}

// KV-001 comes at once, with what is needed and what there is, in tokens and pages.
func TestNeverFits(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", func(w *hand) { w.info.Pages, w.info.MaxModelLen = 9+20, 1000 }) // 4 window pages, so 16 blocks
	alone := aloneLimit(h.node.View().Worker("w1"))
	r := h.post("/v1/completions", `{"model":"tiny","prompt":[5,6,7,8],"max_tokens":100}`)
	b := r.berth(t)
	if r.status != 400 || b["id"] != "KV-001" || b["need_tokens"] != 104.0 || b["capacity_tokens"] != float64(alone) ||
		b["need_pages"] != float64(h.node.View().Worker("w1").Geometry.Demand(104).Pages) || b["capacity_pages"] != 20.0 {
		t.Errorf("%d %s", r.status, r.body)
	}
	r = h.post("/v1/completions", `{"model":"tiny","prompt":[5,6,7,8]}`)
	if u, _ := r.json(t)["usage"].(map[string]any); r.status != 200 || u["total_tokens"] != float64(alone) {
		t.Errorf("omitted max_tokens is what fits: %d %s", r.status, r.body)
	}
	r = h.post("/v1/completions", fmt.Sprintf(`{"model":"tiny","prompt":[5,6,7,8],"max_tokens":%d}`, alone-4))
	if r.status != 200 {
		t.Errorf("exactly what fits: %d %s", r.status, r.body)
	}
}

// KV-002 comes when the time in the queue is up; until then the request waits for room, and gets it if there is any.
func TestWaitsForRoom(t *testing.T) { // R4
	h := open(t, func(c *Config) { c.QueueTimeout, c.QueueRequests = 300*time.Millisecond, 2 })
	release := make(chan struct{})
	w := h.hire("w1", func(w *hand) { w.info.Slots = 1 })
	h.hire("w2", func(w *hand) { w.info.Models = []string{"other"} })
	w.play = held(release)
	body := `{"model":"tiny","prompt":"hi","max_tokens":2}`
	first := h.background("/v1/completions", body)
	h.await("the first to run", func() bool { n, _ := h.router.flights.running(); return n == 1 })
	r := h.post("/v1/completions", body)
	b := r.berth(t)
	if r.status != 503 || b["id"] != "KV-002" || !r.retryAfter() || b["slots_used"] != 1.0 ||
		b["need"] == 0.0 || b["granted"] == 0.0 {
		t.Errorf("%d %v %s", r.status, r.header, r.body)
	}
	waiting := []<-chan response{h.background("/v1/completions", body), h.background("/v1/completions", body)}
	h.await("the queue to fill", func() bool { n, _ := h.router.queue.size(); return n == 2 })
	r = h.post("/v1/completions", body)
	if b := r.berth(t); r.status != 429 || b["id"] != "QUE-001" || !r.retryAfter() {
		t.Errorf("%d %s", r.status, r.body)
	}
	close(release)
	for _, c := range append(waiting, first) {
		if r := <-c; r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	h.await("the drain", h.drained)
}

func TestOtherModelsAreNotHeldUp(t *testing.T) { // R4
	h := open(t, nil)
	release := make(chan struct{})
	w := h.hire("w1", func(w *hand) { w.info.Slots = 1 })
	h.hire("w2", func(w *hand) { w.info.Models = []string{"other"} })
	w.play = held(release)
	first := h.background("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":2}`)
	h.await("the first to run", func() bool { n, _ := h.router.flights.running(); return n == 1 })
	second := h.background("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":2}`)
	h.await("the second to wait", func() bool { n, _ := h.router.queue.size(); return n == 1 })
	if r := h.post("/v1/completions", `{"model":"other","prompt":"hi","max_tokens":2}`); r.status != 200 {
		t.Errorf("R4: %d %s", r.status, r.body)
	}
	close(release)
	for _, c := range []<-chan response{first, second} {
		if r := <-c; r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
}

// A refused dispatch goes elsewhere, its reservation is dropped, and the client notices nothing.
func TestRefusedDispatchGoesElsewhere(t *testing.T) { // R2
	h := open(t, nil)
	var refused atomic.Int32
	no := func(*ask) error {
		if refused.Add(1) == 1 {
			return status.Error(codes.FailedPrecondition, "not now")
		}
		return nil
	}
	h.hire("w1", func(w *hand) { w.refuse = no })
	h.hire("w2", func(w *hand) { w.refuse = no })
	r := h.post("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":3}`)
	if r.status != 200 || refused.Load() != 2 {
		t.Errorf("R2: %d %s after %d dispatches", r.status, r.body, refused.Load())
	}
	h.await("the drain", h.drained)
}

func TestNobodyTakesIt(t *testing.T) { // R2
	h := open(t, nil)
	h.hire("w1", func(w *hand) {
		w.refuse = func(*ask) error { return status.Error(codes.Unavailable, "no") }
	})
	r := h.post("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":3}`)
	if id, _ := r.fault(t); r.status != 502 || id != "WRK-002" {
		t.Errorf("%d %s", r.status, r.body)
	}
	h.await("the drain", h.drained)
}

// breaks plays two tokens and then a broken worker.
func breaks(ctx context.Context, _ *ask, send sender) (ending, error) {
	if err := send(700, 701); err != nil {
		return 0, err
	}
	return 0, errors.New("the device is gone")
}

// After the first token a lost worker is WRK-002 at once: 502, or an event and the end of the connection.
func TestLostWorker(t *testing.T) { // R2
	h := open(t, nil)
	w := h.hire("w1", func(w *hand) { w.play = breaks })
	h.hire("w2", func(w *hand) { w.play = breaks })
	r := h.post("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":3}`)
	if id, _ := r.fault(t); r.status != 502 || id != "WRK-002" {
		t.Errorf("%d %s", r.status, r.body)
	}
	each := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
		res, err := each.Post(h.http.URL+path, "application/json", strings.NewReader(
			`{"model":"tiny","prompt":"hi","messages":[{"role":"user","content":"hi"}],"max_tokens":3,"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		var buf strings.Builder
		if _, err := copyAll(&buf, res.Body); err != nil {
			t.Errorf("%s: the body does not end as it should: %v", path, err)
		}
		res.Body.Close()
		events, done := response{res.StatusCode, res.Header, buf.String()}.sse(t)
		last := events[len(events)-1]
		e, _ := last["error"].(map[string]any)
		if res.StatusCode != 200 || done || e["code"] != "worker_lost" {
			t.Errorf("%s: %d %s", path, res.StatusCode, buf.String())
		}
	}
	w.mu.Lock()
	asked := len(w.asked)
	w.mu.Unlock()
	if asked > 3 {
		t.Errorf("R2: %d dispatches", asked)
	}
	h.await("the drain", h.drained)
}

// A worker that hangs keeps its streams open; the end of its lease cuts them off.
func TestFencedWorkerIsCutOff(t *testing.T) {
	h := open(t, nil)
	stuck := make(chan struct{})
	defer close(stuck)
	w := h.hire("w1", func(w *hand) { w.play = held(stuck) })
	got := h.background("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":3}`)
	h.await("a token", func() bool { _, n := h.router.flights.running(); return n == 1 })
	other := &ledgerv1.Register{Worker: "w1", Nonce: []byte("another process"), LeaseMs: 60_000, Info: w.info}
	if _, err := (cluster{Router: h.router}).register(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.status != 502 || !strings.Contains(r.body, "incarnation") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// Who waits when its model's only worker goes for a moment is served when it is back; who comes meanwhile hears so.
func TestWaitingOutlivesAnAbsence(t *testing.T) { // R4, R5
	h := open(t, nil)
	release := make(chan struct{})
	w := h.hire("w1", func(w *hand) { w.info.Slots = 1 })
	w.play = held(release)
	body := `{"model":"tiny","prompt":"hi","max_tokens":2}`
	first := h.background("/v1/completions", body)
	h.await("the first to run", func() bool { _, tokens := h.router.flights.running(); return tokens == 1 })
	second := h.background("/v1/completions", body)
	h.await("the second to wait", func() bool { n, _ := h.router.queue.size(); return n == 1 })
	w.detach()
	h.await("the worker to be gone", func() bool { return len(h.router.members.snapshot()) == 0 })
	if id, _ := h.post("/v1/completions", body).fault(t); id != "WRK-001" {
		t.Errorf("R5: %s", id)
	}
	if n, _ := h.router.flights.running(); n != 1 {
		t.Error("what ran was cut with the worker's line")
	}
	w.attach()
	close(release)
	for _, c := range []<-chan response{first, second} {
		if r := <-c; r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	h.await("the drain", h.drained)
}

// All that goes to a worker shares one connection, which goes with the worker.
func TestOneConnection(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	users := func() (n int) {
		h.router.conns.mu.Lock()
		defer h.router.conns.mu.Unlock()
		for _, c := range h.router.conns.open {
			n += c.users
		}
		return n
	}
	h.await("the card's fetch to end", func() bool { return users() == 1 })
	h.router.conns.mu.Lock()
	before := h.router.conns.open[w.info.Address]
	h.router.conns.mu.Unlock()
	for range 3 {
		h.post("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":2}`)
	}
	h.router.conns.mu.Lock()
	if h.router.conns.open[w.info.Address] != before {
		t.Error("another connection")
	}
	h.router.conns.mu.Unlock()
	w.detach()
	h.await("the connection to be closed", func() bool { return users() == 0 })
}

// KV-002 of a request whose turn never came says so, with the numbers of a decision taken then.
func TestWhoseTurnNeverCameHearsSo(t *testing.T) { // R4
	h := open(t, func(c *Config) { c.QueueTimeout = 600 * time.Millisecond })
	release := make(chan struct{})
	w := h.hire("w1", func(w *hand) { w.info.Slots = 1 })
	w.play = held(release)
	body := `{"model":"tiny","prompt":"hi","max_tokens":2}`
	first := h.background("/v1/completions", body)
	h.await("the first to run", func() bool { n, _ := h.router.flights.running(); return n == 1 })
	second := h.background("/v1/completions", body)
	h.await("the second to wait", func() bool { n, _ := h.router.queue.size(); return n == 1 })
	third := h.background("/v1/completions", body)
	for i, r := range []response{<-second, <-third} {
		b := r.berth(t)
		if r.status != 503 || b["id"] != "KV-002" || b["need"] == 0.0 || b["capacity"] == 0.0 || strings.Contains(r.body, "needs 0 pages") {
			t.Errorf("%d %s", r.status, r.body)
		}
		if i == 0 && b["reached_head"] != true {
			t.Errorf("the head of the queue: %s", r.body)
		}
	}
	close(release)
	<-first
	h.await("the drain", h.drained)
}
