package router

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	workerv1 "github.com/berthd/berth/api/worker/v1"
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

// both asks for the same answer whole and streamed, and returns the whole one with the text, after comparing them.
func (h *house) both(path, fields string) (whole map[string]any, answer string) {
	t := h.t
	t.Helper()
	r := h.post(path, "{"+fields+"}")
	if r.status != 200 {
		t.Fatalf("%s: %d %s", fields, r.status, r.body)
	}
	whole = r.json(t)["choices"].([]any)[0].(map[string]any)
	key := "text"
	answer, _ = whole["text"].(string)
	if m, ok := whole["message"].(map[string]any); ok {
		key = "content"
		answer = m["content"].(string)
	}
	streamed := h.post(path, "{"+fields+`,"stream":true,"stream_options":{"include_usage":true}}`)
	events, done := streamed.sse(t)
	last := events[len(events)-1]
	ends := events[len(events)-2]["choices"].([]any)[0].(map[string]any)
	usage, _ := json.Marshal(last["usage"])
	want, _ := json.Marshal(r.json(t)["usage"])
	if !done || text(t, events[:len(events)-1], key) != answer || ends["finish_reason"] != whole["finish_reason"] ||
		ends["stop_reason"] != whole["stop_reason"] || string(usage) != string(want) || len(last["choices"].([]any)) != 0 {
		t.Errorf("R3: %s: whole %s, streamed %s", fields, r.body, streamed.body)
	}
	return whole, answer
}

func TestCompletion(t *testing.T) { // R3
	h := open(t, nil)
	w := h.hire("w1", nil)
	ids := testCard().tok.Encode(nil, "The quiet river, 🙂 naïve.", false)
	w.play = says(ids...)
	for path, prompt := range map[string]string{
		"/v1/completions": `"prompt":"Hello"`, "/v1/chat/completions": `"messages":[{"role":"user","content":"Hello"}]`,
	} {
		for _, c := range []struct{ fields, text, reason string }{
			{`"temperature":0`, "The quiet river, 🙂 naïve.", "stop"},
			{`"stop":"river"`, "The quiet ", "stop"},
			{`"stop":["naï","🙂 n"]`, "The quiet river, ", "stop"},
			{`"stop":"river","include_stop_str_in_output":true`, "The quiet river", "stop"},
			{`"stop":"The quiet","min_tokens":40`, "The quiet river, 🙂 naïve.", "stop"},
			{`"max_tokens":1`, testCard().tok.Decode(ids[:1], false), "length"},
		} {
			whole, text := h.both(path, `"model":"tiny",`+prompt+`,`+c.fields)
			if text != c.text || whole["finish_reason"] != c.reason {
				t.Errorf("%s %s: %q, %v; want %q, %s", path, c.fields, text, whole["finish_reason"], c.text, c.reason)
			}
		}
		for n := 1; n <= 12; n++ { // B31
			_, text := h.both(path, fmt.Sprintf(`"model":"tiny",%s,"max_tokens":%d`, prompt, n))
			if want := testCard().tok.Decode(ids[:min(n, len(ids))], false); text != want {
				t.Errorf("B31: %d tokens: %q, want %q", n, text, want)
			}
		}
	}
	h.await("the drain", h.drained)
}

// B32: the tokens counted are those up to the one that completed the stop string, and the worker is told to stop.
func TestStopIsCounted(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	ids := testCard().tok.Encode(nil, "one two three", false)
	cut := make(chan struct{})
	w.play = func(ctx context.Context, _ *ask, send sender) (ending, error) {
		if err := send(append(slices.Clone(ids), ids...)...); err != nil { // all in one message
			return 0, err
		}
		<-ctx.Done()
		close(cut)
		return 0, ctx.Err()
	}
	r := h.post("/v1/completions", `{"model":"tiny","prompt":[5,6,7],"stop":" three","return_token_ids":true}`)
	m := r.json(t)
	c := m["choices"].([]any)[0].(map[string]any)
	u := m["usage"].(map[string]any)
	if c["text"] != "one two" || c["stop_reason"] != " three" || u["completion_tokens"] != float64(len(ids)) ||
		u["prompt_tokens"] != 3.0 || len(c["token_ids"].([]any)) != len(ids) || len(c["prompt_token_ids"].([]any)) != 3 ||
		u["prompt_tokens_details"].(map[string]any)["cached_tokens"] != 3.0 {
		t.Errorf("%s", r.body)
	}
	<-cut
	h.await("the drain", h.drained)
}

func TestReturnTokenIDs(t *testing.T) {
	h := open(t, nil)
	ids := testCard().tok.Encode(nil, "🙂🙂", false)
	h.hire("w1", nil).play = says(ids...)
	for path, prompt := range map[string]string{
		"/v1/completions": `"prompt":[9,8,7]`, "/v1/chat/completions": `"messages":[{"role":"user","content":"Hello"}]`,
	} {
		r := h.post(path, `{"model":"tiny",`+prompt+`,"return_token_ids":true,"stream":true,"ignore_eos":true}`)
		events, _ := r.sse(t)
		var got []int32
		prompts := 0
		for _, e := range events {
			c := e["choices"].([]any)[0].(map[string]any)
			for _, id := range list(c["token_ids"]) {
				got = append(got, int32(id.(float64)))
			}
			prompts += len(list(c["prompt_token_ids"])) + len(list(e["prompt_token_ids"]))
		}
		if !slices.Equal(got, ids) || prompts == 0 {
			t.Errorf("%s: %v, want %v; %d of the prompt: %s", path, got, ids, prompts, r.body)
		}
	}
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// B44, B47: contents may be missing or lists of parts, and a chat begins once.
func TestChatPrompts(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", func(w *hand) { w.info.MaxModelLen = 1024 })
	tok := testCard().tok
	for _, c := range []struct{ messages, text, param string }{
		{`[{"role":"user","content":"hi","id":7,"opts":{"visible":false}}]`,
			"<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n", ""},
		{`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`,
			"<bos><start_of_turn>user\nab<end_of_turn>\n<start_of_turn>model\n", ""},
		{`[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[]},{"role":"user","content":"b"}]`,
			"<bos><start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\n<end_of_turn>\n" +
				"<start_of_turn>user\nb<end_of_turn>\n<start_of_turn>model\n", ""},
		{`[{"role":"user","content":"a"},{"role":"assistant"},{"role":"user","content":"b"}]`,
			"<bos><start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\n<end_of_turn>\n" +
				"<start_of_turn>user\nb<end_of_turn>\n<start_of_turn>model\n", ""},
		{`[]`, "", "messages"},
		{`[5]`, "", "messages[0]"},
		{`[{"content":"a"}]`, "", "messages[0].role"},
		{`[{"role":"user"}]`, "", "messages[0].content"},
		{`[{"role":"user","content":5}]`, "", "messages[0].content"},
		{`[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]`, "", "messages[0].content[0].type"},
		{`[{"role":"assistant","content":"a"}]`, "", "messages"},
	} {
		r := h.post("/v1/chat/completions", `{"model":"tiny","max_tokens":1,"messages":`+c.messages+`}`)
		if c.param != "" {
			if _, param := r.fault(t); r.status != 400 || param != c.param {
				t.Errorf("%s: %d %q, want %q: %s", c.messages, r.status, param, c.param, r.body)
			}
			continue
		}
		if r.status != 200 {
			t.Errorf("%s: %d %s", c.messages, r.status, r.body)
			continue
		}
		want := tok.Encode(nil, strings.ReplaceAll(c.text, "\\n", "\n"), true)
		if got := w.last(t).Prompt; !slices.Equal(got, want) || slices.Contains(got[1:], tok.Spec().BOS) {
			t.Errorf("%s: %q", c.messages, tok.Decode(got, true))
		}
	}
}

func TestNoTemplate(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", func(w *hand) {
		data, print := marshalCard(t, &workerv1.Card{Tokenizer: tinyCard().Tokenizer})
		w.card, w.info.Card = data, print[:]
	})
	r := h.post("/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"hi"}]}`)
	id, param := r.fault(t)
	if r.status != 400 || id != "REQ-001" || param != "messages" || !strings.Contains(r.body, "--chat-template") {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := h.post("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":1}`); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestTokenize(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	tok := testCard().tok
	for _, c := range []struct{ body, text string }{
		{`{"model":"tiny","prompt":"Hello, world!"}`, "<bos>Hello, world!"},
		{`{"prompt":"Hello, world!","add_special_tokens":false}`, "Hello, world!"},
		{`{"model":"tiny","prompt":"<bos>hi"}`, "<bos>hi"}, // B47
		{`{"model":"tiny","messages":[{"role":"user","content":"hi"}]}`,
			"<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n"},
		{`{"model":"tiny","messages":[{"role":"user","content":"hi"}],"add_generation_prompt":false}`,
			"<bos><start_of_turn>user\nhi<end_of_turn>\n"},
		{`{"model":"tiny","prompt":"","add_special_tokens":false}`, ""},
	} {
		m := h.post("/tokenize", c.body).json(t)
		back := h.post("/detokenize", string(encode(map[string]any{"model": "tiny", "tokens": m["tokens"]}))).json(t)
		want := tok.Encode(nil, c.text, true)
		if m["count"] != float64(len(want)) || len(list(m["tokens"])) != len(want) || m["max_model_len"] != 256.0 ||
			back["prompt"] != c.text {
			t.Errorf("%s: %v, back %v, want %q", c.body, m, back, c.text)
		}
	}
	for _, c := range []struct{ path, body, param string }{
		{"/tokenize", `{"model":"tiny"}`, "prompt"},
		{"/tokenize", `{"model":"tiny","prompt":5}`, "prompt"},
		{"/detokenize", `{"model":"tiny"}`, "tokens"},
		{"/detokenize", `{"model":"tiny","tokens":[99999]}`, "tokens"},
		{"/detokenize", `{"model":"tiny","tokens":"a"}`, "tokens"},
		{"/tokenize", `{"model":"nobody","prompt":"a"}`, "model"},
	} {
		if _, param := h.post(c.path, c.body).fault(t); param != c.param {
			t.Errorf("%s %s: %q, want %q", c.path, c.body, param, c.param)
		}
	}
}

func TestModels(t *testing.T) {
	h := open(t, nil)
	if r := h.do("GET", "/v1/models", ""); r.body != `{"data":[],"object":"list"}`+"\n" {
		t.Errorf("%s", r.body)
	}
	h.hire("w1", nil)
	h.hire("w2", func(w *hand) { w.info.Models, w.info.MaxModelLen = []string{"org/big", "tiny"}, 512 })
	names := map[string]float64{}
	for _, m := range list(h.do("GET", "/v1/models", "").json(t)["data"]) {
		m := m.(map[string]any)
		names[m["id"].(string)] = m["max_model_len"].(float64)
	}
	if len(names) != 3 || names["tiny"] != 512 || names["tiny-alias"] != 256 || names["org/big"] != 512 {
		t.Errorf("%v", names)
	}
	if m := h.do("GET", "/v1/models/org/big", "").json(t); m["id"] != "org/big" || m["object"] != "model" {
		t.Errorf("%v", m)
	}
}
