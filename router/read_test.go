package router

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// raw sends bytes as they are and returns what comes until the connection ends; half closes the sending side before.
func (h *house) raw(data string, half bool) string {
	h.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.http.URL, "http://"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		h.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, data); err != nil {
		h.t.Fatal(err)
	}
	if half {
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			h.t.Fatal(err)
		}
	}
	answer, err := io.ReadAll(conn)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		h.t.Fatalf("%.60q: the connection stays open", data)
	}
	return string(answer)
}

const rawHead = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

func TestBrokenBodiesAreRefused(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	for name, data := range map[string]string{
		"chunk size":    rawHead + "Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
		"chunk breaks":  rawHead + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a",
		"short":         rawHead + "Content-Length: 1000\r\n\r\n{\"a\":",
		"nothing comes": rawHead + "Content-Length: 1000\r\n\r\n",
	} {
		if got := h.raw(data, true); !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "REQ-001") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A client that closes its sending side cannot be told from one that left: no answer then, and never a false one.
func TestHalfClosedIsNeverAFalseAnswer(t *testing.T) { // R1
	h := open(t, nil)
	h.hire("w1", nil).play = held(make(chan struct{}))
	for _, stream := range []string{"false", "true"} {
		body := `{"model":"tiny","prompt":"hi","max_tokens":2,"stream":` + stream + `}`
		got := h.raw(rawHead+"Content-Length: "+itoa(len(body))+"\r\n\r\n"+body, true)
		if whole := strings.HasSuffix(got, "0\r\n\r\n"); whole || stream == "false" && got != "" {
			t.Errorf("stream %s: %q", stream, got)
		}
	}
	h.await("R1: the drain", h.drained)
}

// A body that does not come is not waited for, whatever its path; one that comes late or an answer that takes long is
// not cut off.
func TestSlowBody(t *testing.T) {
	h := open(t, func(c *Config) { c.ReadTimeout = 150 * time.Millisecond })
	release := make(chan struct{})
	h.hire("w1", nil).play = held(release)
	for _, path := range []string{"/v1/completions", "/tokenize", "/v1/embeddings", "/nowhere", "/healthz"} {
		got := h.raw("POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"model\":", false)
		if !strings.HasPrefix(got, "HTTP/1.1 4") || !strings.Contains(got, "\"REQ-00") {
			t.Errorf("%s: %q", path, got)
		}
	}
	if used := h.bodiesHeld(); used != 0 {
		t.Errorf("%d bytes of bodies are still held", used)
	}
	body := `{"model":"tiny","prompt":"hi","max_tokens":2}`
	answer := h.background("/v1/completions", body)
	h.await("the request to run", func() bool { _, n := h.router.flights.running(); return n == 1 })
	time.Sleep(300 * time.Millisecond) // twice the time that a body has
	close(release)
	if r := <-answer; r.status != 200 {
		t.Errorf("an answer that takes longer than a body may: %d %s", r.status, r.body)
	}
	if r := h.post("/v1/completions", body); r.status != 200 {
		t.Errorf("the same connection: %d %s", r.status, r.body)
	}
}

// ones is a JSON list of n ones.
func ones(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }

// hugeBodies are refused for what they are, without much of them being kept.
func hugeBodies(n int) map[string][2]string {
	biases := strings.Builder{}
	for i := range n {
		fmt.Fprintf(&biases, `"%d":1,`, i)
	}
	members := strings.ReplaceAll(biases.String(), `:1,`, `:0,`)
	one := `{"model":"tiny","max_tokens":1,"prompt":"hi",`
	return map[string][2]string{
		"prompt":         {"/v1/completions", `{"model":"tiny","max_tokens":1,"prompt":` + ones(n) + `}`},
		"nested prompt":  {"/v1/completions", `{"model":"tiny","max_tokens":1,"prompt":[` + ones(n) + `]}`},
		"prompts":        {"/v1/completions", `{"model":"tiny","prompt":["a"` + strings.Repeat(`,"a"`, n) + `]}`},
		"stop_token_ids": {"/v1/completions", one + `"stop_token_ids":` + ones(n) + `}`},
		"stop":           {"/v1/completions", one + `"stop":` + ones(n) + `}`},
		"logit_bias":     {"/v1/completions", one + `"logit_bias":{` + biases.String() + `"0":1}}`},
		"options":        {"/v1/completions", one + `"stream":true,"stream_options":{` + members + `"a":1}}`},
		"members":        {"/v1/completions", one + members + `"a":1}`},
		"tokens":         {"/detokenize", `{"model":"tiny","tokens":` + ones(max(n, maxTokenized+1)) + `}`},
		"messages":       {"/v1/chat/completions", `{"model":"tiny","messages":[{}` + strings.Repeat(",{}", n) + `]}`},
		"parts": {"/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":[""` +
			strings.Repeat(`,""`, n) + `]}]}`},
		"kwargs": {"/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"a"}],` +
			`"chat_template_kwargs":{"a":` + ones(n) + `}}`},
	}
}

func TestHugeListsAreRefusedEarly(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	for name, c := range hugeBodies(1 << 20) {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := h.post(c[0], c[1])
		runtime.ReadMemStats(&after)
		id, _ := r.fault(t)
		want := map[string]string{"prompt": "CTX-001", "nested prompt": "CTX-001"}[name]
		if want == "" {
			want = "REQ-001"
		}
		if r.status != 400 || id != want {
			t.Errorf("%s: %d %.300s, want %s", name, r.status, r.body, want)
		}
		// The buffer of a body is at most thrice the body while it grows, and detokenize keeps 4 bytes an id.
		if used := after.TotalAlloc - before.TotalAlloc; used > uint64(4*len(c[1])+8<<20) {
			t.Errorf("%s: %d bytes were allocated for a body of %d", name, used, len(c[1]))
		}
	}
}

// bodiesHeld are the bytes that have room.
func (h *house) bodiesHeld() (used int64) {
	for _, s := range []*room{h.router.bodies.small, h.router.bodies.large} {
		s.mu.Lock()
		used += s.used
		s.mu.Unlock()
	}
	return used
}

// hang sends a body but for its end.
func (h *house) hang(body, header string) net.Conn {
	h.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.http.URL, "http://"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "%s%sContent-Length: %d\r\n\r\n%s", rawHead, header, len(body)+1, body); err != nil {
		h.t.Fatal(err)
	}
	return conn
}

// Bodies share a bound on their bytes: what is above it is refused with QUE-001, and all of it comes back. Small ones have
// a bound of their own.
func TestBodiesInFlight(t *testing.T) {
	h := open(t, func(c *Config) { c.MaxBodyBytes, c.BodiesBytes = 1<<20, 1<<20+1 }) // which makes it two
	h.hire("w1", nil)
	half := `{"model":"tiny","user":"` + strings.Repeat("x", 1000_000)
	first, second := h.hang(half, ""), h.hang(half, "")
	h.await("two bodies to be held", func() bool { return h.bodiesHeld() >= 2000_000 })
	rest := `","prompt":"hi","max_tokens":1}`
	r := h.post("/v1/completions", half+rest)
	if id, _ := r.fault(t); r.status != 429 || id != "QUE-001" || !r.retryAfter() {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := h.post("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":1}`); r.status != 200 {
		t.Errorf("a small one beside them: %d %s", r.status, r.body)
	}
	first.Close()
	second.Close()
	h.await("the room to come back", func() bool { return h.bodiesHeld() == 0 })
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			res, err := http.Post(h.http.URL+"/v1/completions", "application/json", // a client of one request
				strings.NewReader(half+rest))
			if err == nil {
				res.Body.Close()
			}
		})
	}
	all.Wait()
	if r := h.post("/v1/completions", half+rest); r.status != 200 || h.bodiesHeld() != 0 {
		t.Errorf("%d %s, %d bytes held", r.status, r.body, h.bodiesHeld())
	}
}

// However many bodies a tenant sends and does not end, another one's are read; operators' are read too.
func TestATenantsBodiesKeepNobodyOut(t *testing.T) {
	s := newRoom(64)
	for i := range 100 {
		if err := s.take("a", true, 8); err != nil && i < 4 {
			t.Errorf("body %d of half of the room: %v", i, err)
		} else if err == nil && i >= 4 {
			t.Errorf("body %d is beyond half of the room", i)
		}
	}
	if err := s.take("b", true, 16); err != nil {
		t.Errorf("another tenant, with half of the rest: %v", err)
	}
	if err := s.take("b", true, 1); err == nil {
		t.Error("another tenant has more than half of the rest")
	}
	if err := s.take("c", true, 8); err != nil {
		t.Errorf("a third one: %v", err)
	}
	s.give("a", 32)
	s.give("b", 16)
	s.give("c", 8)
	if s.used != 0 || len(s.byTenant) != 0 {
		t.Errorf("after all is given back: %d used, %v", s.used, s.byTenant)
	}
	if err := s.take("alone", false, 64); err != nil {
		t.Errorf("who shares with nobody: %v", err)
	}
}

// A body that stops is cut off after the time that one may stop, however much of it came before.
func TestABodyThatStopsHoldsNoRoom(t *testing.T) {
	h := open(t, func(c *Config) { c.ReadTimeout, c.MaxBodyBytes = 300*time.Millisecond, 4<<20 })
	h.hire("w1", nil)
	conn := h.hang(`{"model":"tiny","user":"`+strings.Repeat("x", 2<<20), "")
	h.await("the body to be held", func() bool { return h.bodiesHeld() > 2<<20 })
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
		t.Errorf("%.200q, %v", answer, err)
	}
	h.await("the room to come back", func() bool { return h.bodiesHeld() == 0 })
	now := time.Now()
	in := &intake{r: h.router, due: now.Add(h.router.cfg.ReadTimeout)}
	for range 1000 {
		in.received(1) // a byte now and then
	}
	if late := in.due.Sub(now); late > h.router.cfg.ReadTimeout+100*time.Millisecond {
		t.Errorf("bytes one by one move the deadline to %v", late)
	}
}

// A prompt that can never fit is refused by its bytes: before it is decoded, split or merged.
func TestHopelessPromptsAreRefusedByTheirBytes(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	word := strings.Repeat("a", 8<<20)
	for name, c := range map[string][2]string{
		"prompt":   {"/v1/completions", `{"model":"tiny","max_tokens":1,"prompt":"` + word + `"}`},
		"prompts":  {"/v1/completions", `{"model":"tiny","max_tokens":1,"prompt":["hi","` + word + `"]}`},
		"escapes":  {"/v1/completions", `{"model":"tiny","max_tokens":1,"prompt":"` + strings.Repeat(`\u0061`, 2<<20) + `"}`},
		"messages": {"/v1/chat/completions", `{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":"` + word + `"}]}`},
	} {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := h.post(c[0], c[1])
		runtime.ReadMemStats(&after)
		if id, _ := r.fault(t); r.status != 400 || id != "CTX-001" {
			t.Errorf("%s: %d %.300s, want CTX-001", name, r.status, r.body)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > uint64(2*len(c[1])+4<<20) {
			t.Errorf("%s: %d bytes were allocated for a body of %d", name, used, len(c[1]))
		}
	}
}

// Turns of large prompts go round the tenants, and who leaves gives its turn on.
func TestTenantsTakeTurnsAtLargePrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		leave, err := g.enter(t.Context(), "a", largePrompt)
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 16)
		wait := func(ctx context.Context, tenant string) {
			go func() {
				leave, err := g.enter(ctx, tenant, largePrompt)
				if err != nil {
					return
				}
				order <- tenant
				leave()
			}()
			synctest.Wait()
		}
		for range 3 {
			wait(t.Context(), "a")
		}
		gone, cancel := context.WithCancel(t.Context())
		wait(gone, "c")
		wait(t.Context(), "b")
		small, err := g.enter(t.Context(), "d", largePrompt-1)
		if err != nil {
			t.Fatal(err)
		}
		small()
		cancel()
		synctest.Wait()
		leave()
		synctest.Wait()
		close(order)
		if got := strings.Join(slices.Collect(channel(order)), ""); got != "abaa" || g.free != 1 || len(g.waiting) != 0 {
			t.Errorf("turns %q, %d free, %v waiting", got, g.free, g.waiting)
		}
	})
}

func channel[T any](c chan T) func(func(T) bool) {
	return func(yield func(T) bool) {
		for v := range c {
			if !yield(v) {
				return
			}
		}
	}
}

func TestIDsInPlace(t *testing.T) {
	for _, c := range []struct {
		raw    string
		isList bool
		many   int
		ids    string
	}{
		{`[]`, true, 0, "[]"}, {`[ ]`, true, 0, "[]"}, {"[ 1 ,\n2\t, 3.0 ]", true, 0, "[1 2 3]"},
		{`[1,2,3,4]`, true, 0, "[1 2 3 4]"}, {`[1,2,3,4,5]`, true, 5, "[]"}, {`[1e1]`, true, 0, "[10]"},
		{`[1,"2"]`, false, 0, "[]"}, {`[1,[2]]`, false, 0, "[]"}, {`[null]`, false, 0, "[]"}, {`{}`, false, 0, "[]"},
		{`"a"`, false, 0, "[]"}, {`[1.5]`, false, 0, "[]"}, {`[0.0000000000]`, true, 0, "[0]"},
	} {
		got, isList, many, err := ids([]byte(c.raw), "prompt", 100, 4)
		if err != nil || isList != c.isList || many != c.many || fmt.Sprint(got) != c.ids {
			t.Errorf("%s: %v, %v, %d, %v", c.raw, got, isList, many, err)
		}
	}
	if n := testing.AllocsPerRun(10, func() { ids([]byte(ones(1000)), "prompt", 100, 2000) }); n > 8 {
		t.Errorf("%v allocations for 1000 ids", n)
	}
}
