package router

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// leave sends a request and closes its connection once it is where at says.
func (h *house) leave(path, body string, at func() bool) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		req, err := http.NewRequestWithContext(ctx, "POST", h.http.URL+path, strings.NewReader(body))
		if err != nil {
			return
		}
		req.Header.Set("Content-Type", "application/json")
		if res, err := h.http.Client().Do(req); err == nil {
			_, _ = io.Copy(io.Discard, res.Body) // until it is cut
			res.Body.Close()
		}
	}()
	h.await("the request to get there", at)
	cancel()
	<-done
}

// B48, B49: a client that leaves leaves nothing behind, at any stage, streamed or not.
func TestClientLeaves(t *testing.T) { // R1
	for _, stream := range []string{"false", "true"} {
		t.Run("stream "+stream, func(t *testing.T) {
			h := open(t, nil)
			never := make(chan struct{})
			w := h.hire("w1", func(w *hand) { w.info.Slots = 2 })
			w.play = held(never)
			body := `{"model":"tiny","prompt":"hi","max_tokens":40,"stream":` + stream + `}`
			running := func(n int) func() bool {
				return func() bool { got, tokens := h.router.flights.running(); return got == n && tokens == n }
			}
			h.leave("/v1/completions", body, running(1)) // while it decodes
			h.await("R1: a running request to go", h.drained)
			w.play = func(ctx context.Context, _ *ask, _ sender) (ending, error) {
				<-ctx.Done() // a long prefill
				return 0, ctx.Err()
			}
			h.leave("/v1/completions", body, func() bool { got, _ := h.router.flights.running(); return got == 1 })
			h.await("R1: a request in prefill to go", h.drained)
			w.play = held(never)
			one, two := h.background("/v1/completions", body), h.background("/v1/completions", body)
			h.await("all slots to be taken", running(2))
			h.leave("/v1/completions", body, func() bool { n, _ := h.router.queue.size(); return n == 1 })
			h.await("R1: a waiting request to go", func() bool { n, _ := h.router.queue.size(); return n == 0 })
			close(never)
			for _, c := range []<-chan response{one, two} {
				if r := <-c; r.status != 200 {
					t.Errorf("%d %s", r.status, r.body)
				}
			}
			h.await("R1: the drain", h.drained)
		})
	}
}

// Two hundred clients that do not wait leave no goroutine behind.
func TestManyClientsLeave(t *testing.T) { // R1
	h := open(t, nil)
	h.hire("w1", func(w *hand) { w.info.Slots = 4 }).play = held(make(chan struct{}))
	running := func() bool { n, _ := h.router.flights.running(); return n > 0 }
	h.leave("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":40}`, running)
	h.await("the drain", h.drained)
	h.http.Client().CloseIdleConnections()
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{}, 200)
	for i := range 200 {
		go func() {
			defer func() { left <- struct{}{} }()
			ctx, cancel := context.WithTimeout(ctx, time.Duration(i)*time.Millisecond)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, "POST", h.http.URL+"/v1/completions",
				strings.NewReader(`{"model":"tiny","prompt":"hello there","max_tokens":40}`))
			req.Header.Set("Content-Type", "application/json")
			if res, err := h.http.Client().Do(req); err == nil {
				res.Body.Close()
			}
		}()
	}
	for range 200 {
		<-left
	}
	cancel()
	h.await("R1: the drain", h.drained)
	h.http.Client().CloseIdleConnections()
	h.await("R1: the goroutines to end", func() bool { return runtime.NumGoroutine() <= before+4 })
}

// B49: a client that stops reading is gone after the write timeout, and its worker is told.
func TestSlowReader(t *testing.T) { // R1
	h := open(t, func(c *Config) { c.WriteTimeout = 200 * time.Millisecond })
	w := h.hire("w1", func(w *hand) { w.info.MaxModelLen, w.info.Pages = 1<<20, 1<<20 })
	w.play = func(_ context.Context, r *ask, send sender) (ending, error) {
		for range r.MaxTokens / 64 {
			if err := send(make([]int32, 64)...); err != nil {
				return 0, err
			}
		}
		return endLength, nil
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.http.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"model":"tiny","prompt":"hi","max_tokens":1000000,"stream":true,"return_token_ids":true}`
	head := "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " + itoa(len(body)) + "\r\n\r\n"
	if _, err = io.WriteString(conn, head+body); err != nil {
		t.Fatal(err)
	}
	h.await("the request to run", func() bool { n, _ := h.router.flights.running(); return n == 1 })
	h.await("R1: the drain", h.drained)
}

// The headers and a chat's first chunk come when the worker begins, long before the first token.
func TestHeadersComeAtOnce(t *testing.T) {
	h := open(t, nil)
	release := make(chan struct{})
	h.hire("w1", nil).play = func(ctx context.Context, _ *ask, send sender) (ending, error) {
		<-release
		return endLength, send(700)
	}
	res, err := h.http.Client().Post(h.http.URL+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":1,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if ct := res.Header.Get("Content-Type"); ct != "text/event-stream; charset=utf-8" {
		t.Errorf("content type %q", ct)
	}
	line, err := bufio.NewReader(res.Body).ReadString('\n')
	if err != nil || !strings.Contains(line, `"delta":{"role":"assistant","content":""}`) {
		t.Errorf("%q, %v", line, err)
	}
	close(release)
}
