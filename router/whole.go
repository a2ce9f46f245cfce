package router

import (
	"net/http"
	"strings"
	"time"
)

// body collects an answer and writes it as one JSON body.
type body struct {
	w       http.ResponseWriter
	timeout time.Duration
	q       *request
	created int64
	text    strings.Builder
	ids     []int32
}

func (b *body) begin() error { return nil }

func (b *body) delta(text string, ids []int32) error {
	b.text.WriteString(text)
	if b.q.returnIDs {
		b.ids = append(b.ids, ids...)
	}
	return nil
}

func (b *body) end(f finish) error {
	text := b.text.String()
	c := choice{Finish: &f.reason, Stop: f.stop, TokenIDs: b.ids}
	r := newReply(b.q, b.created, false)
	if b.q.chat {
		c.Message = &message{Role: "assistant", Content: &text}
	} else {
		c.Text = &text
	}
	if b.q.returnIDs {
		if b.q.chat {
			r.PromptIDs = b.q.prompt
		} else {
			c.PromptIDs = b.q.prompt
		}
	}
	r.Choices, r.Usage = []choice{c}, f.usage.json()
	return writeJSON(b.w, b.timeout, http.StatusOK, r)
}

// writeJSON answers with a JSON body.
func writeJSON(w http.ResponseWriter, timeout time.Duration, status int, v any) error {
	if err := extend(http.NewResponseController(w), timeout); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err := w.Write(append(encode(v), '\n'))
	return err
}
