package router

import (
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

var null = json.RawMessage("null")

// events writes an answer as server-sent events, each flushed at once.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration // a client that takes nothing for as long is gone
	q       *request      // what all of the request's prompts have in common
	created int64
	chunked bool // HTTP/1.1: the body ends with an empty chunk

	mu    sync.Mutex // prompts are answered at the same time
	begun bool
	wrote time.Time // when the last bytes were
	told  []bool    // by choice: it has begun
	used  []int     // by choice: its tokens
}

func newEvents(w http.ResponseWriter, timeout time.Duration, qs []*request, created int64) *events {
	return &events{
		w: w, control: http.NewResponseController(w), timeout: timeout, q: qs[0], created: created,
		told: make([]bool, len(qs)*qs[0].n), used: make([]int, len(qs)*qs[0].n),
	}
}

// begin sends the headers, and the first chunk of each of a chat's choices, which names the role.
func (s *events) begin(q *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		s.begun = true
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		s.w.WriteHeader(http.StatusOK)
		if !q.chat {
			return s.flush()
		}
	}
	if !q.chat || s.told[q.first] {
		return nil
	}
	empty := ""
	for i := range q.n {
		if err := s.chunk(q, choice{Index: q.first + i, Delta: &message{Role: "assistant", Content: &empty}}); err != nil {
			return err
		}
	}
	return nil
}

func (s *events) delta(q *request, branch int, p piece) error {
	if err := s.begin(q); err != nil {
		return err
	}
	c := choice{Index: q.first + branch}
	if len(p.tokens) > 0 {
		c.Logprobs = logprobsOf(q, p.tokens)
	}
	if q.returnIDs {
		c.TokenIDs = p.ids
	}
	s.used[c.Index] += len(p.ids) // by this choice's goroutine alone
	if p.text == "" && len(c.TokenIDs) == 0 && c.Logprobs == nil {
		return nil
	}
	if q.chat {
		c.Delta = &message{Content: &p.text}
	} else {
		c.Text = &p.text
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chunk(q, c)
}

func (s *events) end(q *request, branch int, f finish) error {
	if err := s.begin(q); err != nil {
		return err
	}
	c := choice{Index: q.first + branch, Finish: &f.reason, Stop: f.stop}
	if q.chat {
		c.Delta = &message{}
	} else {
		c.Text = new(string)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chunk(q, c)
}

// keepAlive writes a comment whenever nothing else was written for a while, so that no proxy on the way takes the stream
// for dead. The returned function ends it, and waits until it has ended.
func (s *events) keepAlive(every time.Duration) (stop func()) {
	ended, end := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.comment(every)
			case <-end:
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(end)
		<-ended
	})
}

// comment is written if nothing was for a while. A client that is gone is found out by what is written next.
func (s *events) comment(quiet time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun || time.Since(s.wrote) < quiet || s.deadline() != nil {
		return
	}
	if _, err := s.w.Write([]byte(": keep-alive\n\n")); err == nil {
		_ = s.control.Flush()
	}
	s.wrote = time.Now()
}

func (s *events) done(u usage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.q.includeUsage {
		r := newReply(s.q, s.created, true)
		r.Choices, r.Usage = []choice{}, u.json()
		if err := s.event(encode(r)); err != nil {
			return err
		}
	}
	return s.event([]byte("[DONE]"))
}

// chunk sends one choice. The first one brings the prompt's ids if they were asked for.
func (s *events) chunk(q *request, c choice) error {
	r := newReply(q, s.created, true)
	if !s.told[c.Index] {
		s.told[c.Index] = true
		switch {
		case !q.returnIDs:
		case !q.chat:
			c.PromptIDs = q.prompt
		case c.Index == 0:
			r.PromptIDs = q.prompt
		}
	}
	switch {
	case q.usageSoFar:
		r.Usage = usage{prompt: len(q.prompt), completion: s.used[c.Index]}.soFar()
	case q.includeUsage:
		r.Usage = null
	}
	r.Choices = []choice{c}
	return s.event(encode(r))
}

func (s *events) event(data []byte) error {
	if err := s.deadline(); err != nil {
		return err
	}
	s.wrote = time.Now()
	line := make([]byte, 0, len(data)+8)
	line = append(append(append(line, "data: "...), data...), "\n\n"...)
	if _, err := s.w.Write(line); err != nil {
		return err
	}
	return s.control.Flush()
}

func (s *events) flush() error {
	if err := s.deadline(); err != nil {
		return err
	}
	return s.control.Flush()
}

func (s *events) deadline() error { return extend(s.control, s.timeout) }

// extend gives the client time to take what is written next. Writers without deadlines have their own way to end.
func extend(c *http.ResponseController, timeout time.Duration) error {
	err := c.SetWriteDeadline(time.Now().Add(timeout))
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// fail ends a stream that has begun: one event with the error, the end of the body, and the end of the connection, so
// that no client takes what it has for a whole answer.
func (s *events) fail(e *Error) {
	if s.event(encode(e.body())) != nil || !s.chunked {
		return
	}
	conn, buffered, err := s.control.Hijack()
	if err != nil {
		return // the handler's end is all that there is
	}
	defer func() { _ = conn.Close() }()
	if _, err := buffered.WriteString("0\r\n\r\n"); err == nil {
		_ = buffered.Flush() // the connection closes either way
	}
}
