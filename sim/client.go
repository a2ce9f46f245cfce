package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// errLeft says that the client has left, as it meant to.
var errLeft = errors.New("the client left")

// serverError is what the router said of a request, by its name in docs/errors.
type serverError struct{ id, message, worker string }

func (e *serverError) Error() string { return e.id + ": " + e.message }

// answer is what has come of a request.
type answer struct {
	texts   []string // by choice
	reasons []string
}

// reply is the part of a body, or of an event, that matters here.
type reply struct {
	Choices []struct {
		Index  int
		Text   string
		Finish string `json:"finish_reason"`
	}
	Error *struct {
		Message string
		Berth   struct{ ID, Worker string }
	}
}

// take adds a body or an event to the answer.
func (a *answer) take(data []byte) error {
	var r reply
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("decode %q: %w", data, err)
	}
	if r.Error != nil {
		return &serverError{r.Error.Berth.ID, r.Error.Message, r.Error.Berth.Worker}
	}
	for _, c := range r.Choices {
		if c.Index < 0 || c.Index >= len(a.texts) {
			return fmt.Errorf("choice %d of %d", c.Index, len(a.texts))
		}
		a.texts[c.Index] += c.Text
		a.reasons[c.Index] += c.Finish
	}
	return nil
}

// browser is what clients speak HTTP by: a connection a request.
func (c *cluster) browser() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.net.dial(ctx, "client", routerName+":http")
		},
	}}
}

// ask makes one try at a request. heard is told when the first byte of an answer has come.
func (c *cluster) ask(ctx context.Context, id string, q *Request, heard func()) (answer, error) {
	choices := len(q.Prompts) * q.N
	a := answer{texts: make([]string, choices), reasons: make([]string, choices)}
	members := map[string]any{
		"model": modelName, "prompt": q.Prompts, "max_tokens": q.Max, "n": q.N, "seed": int64(q.Seed), "stream": q.Stream,
	}
	if q.Greedy {
		members["temperature"] = 0
	}
	if q.Stop != "" {
		members["stop"] = q.Stop
	}
	body, err := json.Marshal(members)
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://r1/v1/completions", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("X-Request-Id", id)
	req.Header.Set("Content-Type", "application/json")
	if q.Group != "" {
		req.Header.Set("Authorization", "Bearer "+keyOf(q.Group))
	}
	res, err := c.browser().Do(req)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	heard()
	if !q.Stream || res.StatusCode != http.StatusOK {
		data, err := io.ReadAll(res.Body)
		if err != nil {
			return a, err
		}
		return a, a.take(data)
	}
	return a, a.stream(res.Body)
}

// stream takes events until the last one.
func (a *answer) stream(body io.Reader) error {
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case lines.Text() == "", strings.HasPrefix(lines.Text(), ":"): // a comment
		case !ok:
			return fmt.Errorf("%q is no event", lines.Text())
		case data == "[DONE]":
			return nil
		default:
			if err := a.take([]byte(data)); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// serve is the life of a client: it asks until it has its answer, leaves, or a rule is broken.
func (c *cluster) serve(i int) {
	q := &c.Requests[i]
	if !c.sleepUntil(q.At) {
		return
	}
	ctx, cancel := context.WithTimeout(c.life, c.patience())
	defer cancel()
	c.moved(c.now())
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	if q.Leaves > 0 {
		var leave context.CancelFunc
		ctx, leave = context.WithTimeoutCause(ctx, q.Leaves, errLeft)
		defer leave()
	}
	name := fmt.Sprintf("q%d", i)
	for try := 1; ; try++ {
		id, began := fmt.Sprintf("%s.%d", name, try), c.now()
		c.story.add(began, name, "asks")
		a, err := c.ask(ctx, id, q, func() { c.story.add(c.now(), name, "hears") })
		if ctx.Err() != nil && context.Cause(ctx) == errLeft {
			err = errLeft
		}
		if c.life.Err() != nil {
			return
		}
		again, broken := c.judge(q, &a, err, began)
		switch {
		case broken != nil:
			c.story.add(c.now(), name, "broken")
			c.fail(fmt.Errorf("%s: %w", id, broken))
			return
		case !again:
			c.story.add(c.now(), name, map[bool]string{true: "done", false: "left"}[err == nil])
			return
		}
		c.story.add(c.now(), name, "lost")
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}
