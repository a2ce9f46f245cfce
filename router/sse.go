package router

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

var null = json.RawMessage("null")

// events writes an answer as server-sent events, each flushed at once.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration // a client that takes nothing for as long is gone
	q       *request
	created int64
	chunked bool // HTTP/1.1: the body ends with an empty chunk
	begun   bool
	told    bool // the prompt's ids have been given
}

// begin sends the headers, and a chat's first chunk, which names the role.
func (s *events) begin() error {
	if s.begun {
		return nil
	}
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	if !s.q.chat {
		return s.flush()
	}
	empty := ""
	return s.chunk(choice{Delta: &message{Role: "assistant", Content: &empty}})
}

func (s *events) delta(text string, ids []int32) error {
	if err := s.begin(); err != nil {
		return err
	}
	if !s.q.returnIDs {
		ids = nil
	}
	if text == "" && len(ids) == 0 {
		return nil
	}
	c := choice{TokenIDs: ids}
	if s.q.chat {
		c.Delta = &message{Content: &text}
	} else {
		c.Text = &text
	}
	return s.chunk(c)
}

func (s *events) end(f finish) error {
	if err := s.begin(); err != nil {
		return err
	}
	c := choice{Finish: &f.reason, Stop: f.stop}
	if s.q.chat {
		c.Delta = &message{}
	} else {
		c.Text = new(string)
	}
	if err := s.chunk(c); err != nil {
		return err
	}
	if s.q.includeUsage {
		r := newReply(s.q, s.created, true)
		r.Choices, r.Usage = []choice{}, f.usage.json()
		if err := s.event(encode(r)); err != nil {
			return err
		}
	}
	return s.event([]byte("[DONE]"))
}

// chunk sends one choice. The first one brings the prompt's ids if they were asked for.
func (s *events) chunk(c choice) error {
	r := newReply(s.q, s.created, true)
	if s.q.returnIDs && !s.told {
		s.told = true
		if s.q.chat {
			r.PromptIDs = s.q.prompt
		} else {
			c.PromptIDs = s.q.prompt
		}
	}
	if s.q.includeUsage {
		r.Usage = null
	}
	r.Choices = []choice{c}
	return s.event(encode(r))
}

func (s *events) event(data []byte) error {
	if err := s.deadline(); err != nil {
		return err
	}
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
