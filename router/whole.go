package router

import (
	"cmp"
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
	tokens []token
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
		g.tokens = append(g.tokens, p.tokens...)
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
	for _, q := range b.qs {
		for _, g := range b.best(q) {
			r.Choices = append(r.Choices, g.choice(q, len(r.Choices)))
		}
		if q.chat {
			r.PromptLogprobs = promptForm(q)
			if q.returnIDs {
				r.PromptIDs = q.prompt
			}
		}
	}
	r.Usage = u.json()
	return writeJSON(b.w, b.timeout, http.StatusOK, r)
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
	c := choice{Index: index, Finish: &g.end.reason, Stop: g.end.stop, TokenIDs: g.ids, Logprobs: logprobsOf(q, g.tokens)}
	if q.chat {
		c.Message = &message{Role: "assistant", Content: &text}
		return c
	}
	c.Text, c.PromptLogprobs = &text, promptForm(q)
	if q.returnIDs {
		c.PromptIDs = q.prompt
	}
	return c
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
