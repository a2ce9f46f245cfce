package router

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// body collects an answer and writes it as one JSON body.
type body struct {
	w       http.ResponseWriter
	timeout time.Duration
	qs      []*request
	created int64

	mu      sync.Mutex // prompts are answered at the same time
	strands []gathered // by number
}

// gathered is a choice so far.
type gathered struct {
	text   strings.Builder
	ids    []int32
	tokens [][]token // as they came: those of an echoed prompt are its choices' together
	end    finish
}

func newBody(w http.ResponseWriter, timeout time.Duration, qs []*request, created int64) *body {
	return &body{w: w, timeout: timeout, qs: qs, created: created, strands: make([]gathered, len(qs)*qs[0].bestOf)}
}

func (b *body) begin(*request) error { return nil }

func (b *body) delta(q *request, branch int, p piece) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := &b.strands[q.first+branch]
	g.text.WriteString(p.text)
	if q.returnIDs {
		g.ids = append(g.ids, p.ids...)
	}
	if q.logprobs {
		g.tokens = append(g.tokens, p.tokens)
	}
	return nil
}

func (b *body) end(q *request, branch int, f finish) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.strands[q.first+branch].end = f
	return nil
}

func (b *body) done(u usage) error {
	r := newReply(b.qs[0], b.created, false)
	r.Choices, r.Usage = []choice{}, u.json()
	if q := b.qs[0]; q.chat {
		r.PromptLogprobs = promptForm(q)
		if q.returnIDs {
			r.PromptIDs = q.prompt
		}
	}
	before, after, _ := bytes.Cut(encode(r), []byte(noChoices))
	write := jsonWriter(b.w, b.timeout, http.StatusOK)
	if err := write(append(before, noChoices[:len(noChoices)-1]...)); err != nil {
		return err
	}
	if err := b.writeChoices(write); err != nil {
		return err
	}
	return write(append(append([]byte{']'}, after...), '\n'))
}

// noChoices is what a reply without choices has in their place. No string in JSON has it: its quotes would be escaped.
const noChoices = `"choices":[]`

// writeChoices encodes one choice at a time: with log-probabilities they are many times what they are made of.
func (b *body) writeChoices(write func([]byte) error) error {
	index := 0
	for _, q := range b.qs {
		var scores json.RawMessage
		if !q.chat {
			scores = promptForm(q)
		}
		for _, g := range b.best(q) {
			c := g.choice(q, index)
			c.PromptLogprobs = scores
			data := encode(c)
			if index > 0 {
				data = append([]byte{','}, data...)
			}
			if err := write(data); err != nil {
				return err
			}
			index++
		}
	}
	return nil
}

// best are the choices of a prompt that are given: of more than were asked for those whose tokens were likeliest on
// average, in this order; earlier ones first where they are equal.
func (b *body) best(q *request) []*gathered {
	all := make([]*gathered, q.bestOf)
	for i := range all {
		all[i] = &b.strands[q.first+i]
	}
	if q.bestOf > q.n {
		slices.SortStableFunc(all, func(x, y *gathered) int { return cmp.Compare(y.end.mean, x.end.mean) })
	}
	return all[:q.n]
}

func (g *gathered) choice(q *request, index int) choice {
	text := g.text.String()
	c := choice{
		Index: index, Finish: &g.end.reason, Stop: g.end.stop, TokenIDs: g.ids, Logprobs: logprobsOf(q, slices.Concat(g.tokens...)),
	}
	if q.chat {
		c.Message = &message{Role: "assistant", Content: &text}
		return c
	}
	c.Text = &text
	if q.returnIDs {
		c.PromptIDs = q.prompt
	}
	return c
}

// writeJSON answers with a JSON body.
func writeJSON(w http.ResponseWriter, timeout time.Duration, status int, v any) error {
	return jsonWriter(w, timeout, status)(append(encode(v), '\n'))
}

// jsonWriter answers with a JSON body in parts; the client has the time to take each.
func jsonWriter(w http.ResponseWriter, timeout time.Duration, status int) (write func([]byte) error) {
	control := http.NewResponseController(w)
	start := sync.OnceFunc(func() {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
	})
	return func(part []byte) error {
		if err := extend(control, timeout); err != nil {
			return err
		}
		start()
		_, err := w.Write(part)
		return err
	}
}
