package router

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
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

const rawHead = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"

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
		got := h.raw("POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"model\":", false)
		if !strings.HasPrefix(got, "HTTP/1.1 4") || !strings.Contains(got, "\"REQ-00") {
			t.Errorf("%s: %q", path, got)
		}
	}
	if used := h.router.bodies.used; used != 0 {
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
		"tokens":         {"/detokenize", `{"model":"tiny","tokens":` + ones(max(n, maxDetokenized+1)) + `}`},
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

// Bodies share a bound on their bytes: what is above it is refused with QUE-001, and all of it comes back.
func TestBodiesInFlight(t *testing.T) {
	h := open(t, func(c *Config) { c.MaxBodyBytes, c.BodiesBytes = 1<<20, 1<<20+1 })
	h.hire("w1", nil)
	half := `{"model":"tiny","user":"` + strings.Repeat("x", 700<<10)
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.http.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, rawHead+"Content-Length: 1000000\r\n\r\n"+half); err != nil {
		t.Fatal(err)
	}
	used := func() int64 {
		h.router.bodies.mu.Lock()
		defer h.router.bodies.mu.Unlock()
		return h.router.bodies.used
	}
	h.await("the first body to be held", func() bool { return used() >= 700<<10 })
	r := h.post("/v1/completions", half+`","prompt":"hi","max_tokens":1}`)
	if id, _ := r.fault(t); r.status != 429 || id != "QUE-001" || !r.retryAfter() {
		t.Errorf("%d %s", r.status, r.body)
	}
	conn.Close()
	h.await("the room to come back", func() bool { return used() == 0 })
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			res, err := http.Post(h.http.URL+"/v1/completions", "application/json", // a client of one request
				strings.NewReader(half+`","prompt":"hi","max_tokens":1}`))
			if err == nil {
				res.Body.Close()
			}
		})
	}
	all.Wait()
	if r := h.post("/v1/completions", half+`","prompt":"hi","max_tokens":1}`); r.status != 200 || used() != 0 {
		t.Errorf("%d %s, %d bytes held", r.status, r.body, used())
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
