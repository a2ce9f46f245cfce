package router

import (
	"strings"
	"testing"
)

func text(t *testing.T, events []map[string]any, key string) string {
	t.Helper()
	var out strings.Builder
	for _, e := range events {
		for _, c := range e["choices"].([]any) {
			c := c.(map[string]any)
			if d, ok := c["delta"].(map[string]any); ok {
				c = d
			}
			if s, ok := c[key].(string); ok {
				out.WriteString(s)
			}
		}
	}
	return out.String()
}

func TestCompletion(t *testing.T) { // R3
	h := open(t, nil)
	w := h.hire("w1", nil)
	ids := testCard().tok.Encode(nil, "The quiet river, 🙂 naïve.", false)
	w.play = says(ids...)
	whole := h.post("/v1/completions", `{"model":"tiny","prompt":"Hello","temperature":0}`)
	if whole.status != 200 {
		t.Fatalf("%d %s", whole.status, whole.body)
	}
	c := whole.json(t)["choices"].([]any)[0].(map[string]any)
	if c["text"] != "The quiet river, 🙂 naïve." || c["finish_reason"] != "stop" {
		t.Errorf("%v", c)
	}
	streamed := h.post("/v1/completions", `{"model":"tiny","prompt":"Hello","temperature":0,"stream":true,"stream_options":{"include_usage":true}}`)
	events, done := streamed.sse(t)
	if !done || text(t, events, "text") != c["text"] {
		t.Errorf("R3: streamed %q, done %v", streamed.body, done)
	}
	h.await("the drain", h.drained)
}
