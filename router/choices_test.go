package router

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// byBranch plays another text on each branch.
func byBranch(texts ...string) play {
	return func(ctx context.Context, r *ask, send sender) (ending, error) {
		return says(testCard().tok.Encode(nil, texts[int(branchOf(ctx))%len(texts)], false)...)(ctx, r, send)
	}
}

// choicesOf are the texts and ends of a body's choices, by index.
func choicesOf(t *testing.T, r response) (texts, ends []string) {
	t.Helper()
	if r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	for i, c := range list(r.json(t)["choices"]) {
		c := c.(map[string]any)
		if c["index"] != float64(i) {
			t.Errorf("choice %d has index %v", i, c["index"])
		}
		text, _ := c["text"].(string)
		if m, ok := c["message"].(map[string]any); ok {
			text = m["content"].(string)
		}
		texts, ends = append(texts, text), append(ends, c["finish_reason"].(string))
	}
	return texts, ends
}

// streamedChoices puts the chunks of a stream together, by index.
func streamedChoices(t *testing.T, r response, n int) (texts, ends []string) {
	t.Helper()
	events, done := r.sse(t)
	texts, ends = make([]string, n), make([]string, n)
	for _, e := range events {
		for _, c := range list(e["choices"]) {
			c := c.(map[string]any)
			i := int(c["index"].(float64))
			text, _ := c["text"].(string)
			if d, ok := c["delta"].(map[string]any); ok {
				text, _ = d["content"].(string)
			}
			if texts[i] += text; ends[i] != "" {
				t.Errorf("choice %d goes on after its end", i)
			}
			ends[i], _ = c["finish_reason"].(string)
		}
	}
	if !done {
		t.Error("the stream does not end")
	}
	return texts, ends
}

// TestChoices: n choices are branches of one reservation, whole and streamed, and usage sums over them.
func TestChoices(t *testing.T) { // R3
	h := open(t, nil)
	w := h.hire("w1", nil)
	w.play = byBranch("one two", "a stop here", "three")
	for path, prompt := range map[string]string{
		"/v1/completions": `"prompt":[5,6,7]`, "/v1/chat/completions": `"messages":[{"role":"user","content":"Hello"}]`,
	} {
		body := `"model":"tiny",` + prompt + `,"n":3,"stop":" stop"`
		r := h.post(path, "{"+body+"}")
		texts, ends := choicesOf(t, r)
		if want := []string{"one two", "a", "three"}; !reflect.DeepEqual(texts, want) || ends[1] != "stop" {
			t.Errorf("%s: %q %q", path, texts, ends)
		}
		g := w.last(t)
		if g.Branches != 3 || g.Slots != 3 || g.Scoring != nil || g.PromptScoring != nil {
			t.Errorf("asked %v", g)
		}
		tok := testCard().tok
		used := len(tok.Encode(nil, "one two", false)) + 1 + len(tok.Encode(nil, "a stop", false)) + len(tok.Encode(nil, "three", false)) + 1
		if u := r.json(t)["usage"].(map[string]any); u["completion_tokens"] != float64(used) || u["prompt_tokens"] != float64(len(g.Prompt)) {
			t.Errorf("%s: %v, want %d tokens", path, u, used)
		}
		s := h.post(path, "{"+body+`,"stream":true}`)
		if again, finished := streamedChoices(t, s, 3); !reflect.DeepEqual(again, texts) || !reflect.DeepEqual(finished, ends) {
			t.Errorf("R3: %s: streamed %q %q, whole %q %q", path, again, finished, texts, ends)
		}
	}
	w.mu.Lock()
	if n := len(w.stops); n != 4 || w.stops[0].Branch != 1 || w.stops[0].Incarnation != w.session {
		t.Errorf("%d branches stopped: %v", n, w.stops)
	}
	w.mu.Unlock()
	h.await("the drain", h.drained)
}

// TestMoreChoicesThanSlots: a request takes no more slots than a worker has.
func TestMoreChoicesThanSlots(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	r := h.post("/v1/completions", `{"model":"tiny","prompt":"hi","n":20,"max_tokens":2}`)
	if texts, _ := choicesOf(t, r); len(texts) != 20 || w.last(t).Slots != 8 || w.last(t).Branches != 20 {
		t.Errorf("%d choices, asked %v", len(texts), w.last(t))
	}
	h.await("the drain", h.drained)
}

// TestSeveralPrompts: each prompt has its own reservation and its own choices, in order of the prompts.
func TestSeveralPrompts(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	w.play = func(ctx context.Context, r *ask, send sender) (ending, error) {
		return endLength, send([]int32{r.Prompt[len(r.Prompt)-1], 700 + int32(branchOf(ctx))}[:r.MaxTokens]...)
	}
	text := func(ids ...int32) string { return testCard().tok.Decode(ids, false) }
	want := []string{text(400, 700), text(400, 701), text(500, 700), text(500, 701), text(600, 700), text(600, 701)}
	body := `"model":"tiny","n":2,"max_tokens":2,"ignore_eos":true,"return_token_ids":true,"prompt":[[5,400],[500],[7,8,600]]`
	r := h.post("/v1/completions", "{"+body+"}")
	texts, _ := choicesOf(t, r)
	if u := r.json(t)["usage"].(map[string]any); !reflect.DeepEqual(texts, want) || u["prompt_tokens"] != 6.0 || u["completion_tokens"] != 12.0 {
		t.Errorf("%q %v", texts, u)
	}
	s := h.post("/v1/completions", "{"+body+`,"stream":true}`)
	if again, _ := streamedChoices(t, s, 6); !reflect.DeepEqual(again, want) || strings.Count(s.body, "prompt_token_ids") != 6 {
		t.Errorf("%s", s.body)
	}
	r = h.post("/v1/completions", `{"model":"tiny","prompt":["Hello","world"],"max_tokens":1}`)
	if texts, _ = choicesOf(t, r); len(texts) != 2 {
		t.Errorf("%s", r.body)
	}
	h.await("the drain", h.drained)
}

// TestPromptsAreAdmittedTogether: while one of a request's prompts runs, the others wait beyond the queue's time; if one
// is refused by the queue, none runs.
func TestPromptsAreAdmittedTogether(t *testing.T) { // P1
	h := open(t, func(c *Config) { c.QueueTimeout, c.QueueRequests = 50e6, 4 })
	release := make(chan struct{})
	w := h.hire("w1", func(w *hand) { w.info.Slots = 1 })
	w.play = held(release)
	many := h.post("/v1/completions", `{"model":"tiny","prompt":[[1],[2],[3],[4],[5],[6]],"max_tokens":1}`)
	if id, _ := many.fault(t); id != "QUE-001" || len(w.asked) != 0 {
		t.Errorf("%s, %d dispatched", many.body, len(w.asked))
	}
	answer := h.background("/v1/completions", `{"model":"tiny","prompt":[[5,6],[7,8],[9,10]],"max_tokens":1}`)
	h.await("the first prompt to run", func() bool { n, _ := h.router.flights.running(); return n == 1 })
	late := h.post("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":1}`) // behind them, and refused in its time
	if id, _ := late.fault(t); id != "KV-002" {
		t.Errorf("another request: %s", late.body)
	}
	close(release)
	if r := <-answer; r.status != 200 || len(list(r.json(t)["choices"])) != 3 {
		t.Errorf("%d %s", r.status, r.body)
	}
	h.await("the drain", h.drained)
}

// TestOneOfSeveralPromptsFails: the others are ended too.
func TestOneOfSeveralPromptsFails(t *testing.T) { // R1
	h := open(t, nil)
	w := h.hire("w1", nil)
	w.play = func(ctx context.Context, r *ask, send sender) (ending, error) {
		if r.Prompt[0] == 9 {
			return endLength, send(700, 700, 700) // more than it was asked for
		}
		<-ctx.Done()
		return 0, ctx.Err()
	}
	r := h.post("/v1/completions", `{"model":"tiny","prompt":[[5],[9],[7]],"max_tokens":2}`)
	if id, _ := r.fault(t); r.status != 502 || id != "WRK-002" {
		t.Errorf("%d %s", r.status, r.body)
	}
	h.await("the drain", h.drained)
}

// TestBestOf gives the choices whose tokens are likeliest on average; all of them are counted.
func TestBestOf(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	w.play = func(ctx context.Context, _ *ask, send sender) (ending, error) { // a hand's lower ids are likelier
		return endLength, send([][]int32{{710, 710}, {400, 600}, {710, 300}, {450, 450}}[branchOf(ctx)]...)
	}
	r := h.post("/v1/completions", `{"model":"tiny","prompt":"hi","n":2,"best_of":4,"max_tokens":2,"return_token_ids":true}`)
	var got [][]any
	for _, c := range list(r.json(t)["choices"]) {
		if c := c.(map[string]any); c["logprobs"] != nil {
			t.Errorf("logprobs that nobody asked for: %v", c)
		} else {
			got = append(got, list(c["token_ids"]))
		}
	}
	if fmt.Sprint(got) != "[[450 450] [400 600]]" || r.json(t)["usage"].(map[string]any)["completion_tokens"] != 8.0 {
		t.Errorf("%v: %s", got, r.body)
	}
}

// byteOf is the id whose piece is one byte.
func byteOf(b byte) int32 {
	tok := testCard().tok
	for id := range int32(tok.Len()) {
		if tok.Spec().Tokens[id] == fmt.Sprintf("<0x%02X>", b) {
			return id
		}
	}
	panic("no byte tokens")
}

// TestNoTokensHaveNoLogprobs: an answer that ends at once has empty lists, where they were asked for.
func TestNoTokensHaveNoLogprobs(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil).play = says()
	for path, c := range map[string][2]string{
		"/v1/completions":      {`"prompt":"hi","logprobs":1`, `"logprobs":{"tokens":[],"token_logprobs":[],"top_logprobs":[],"text_offset":[]}`},
		"/v1/chat/completions": {`"messages":[{"role":"user","content":"hi"}],"logprobs":true`, `"logprobs":{"content":[],"refusal":null}`},
	} {
		if r := h.post(path, `{"model":"tiny",`+c[0]+`}`); !strings.Contains(r.body, c[1]) {
			t.Errorf("%s: %s", path, r.body)
		}
	}
}

// wide is the id of a piece with more bytes than characters.
func wide() int32 {
	tok := testCard().tok
	for id := range int32(tok.Len()) {
		if p := tok.Piece(id); utf8.ValidString(p) && utf8.RuneCountInString(p) < len(p) && !tok.IsControl(id) {
			return id
		}
	}
	panic("all of the vocabulary is ASCII")
}

// TestChatLogprobs has OpenAI's shape, whole and streamed, with the bytes of pieces that are no whole characters.
func TestChatLogprobs(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	smile := []byte("🙂")
	ids := []int32{wide(), byteOf(smile[0]), byteOf(smile[1]), byteOf(smile[2]), byteOf(smile[3])}
	w.play = says(ids...)
	body := `"model":"tiny","messages":[{"role":"user","content":"Hello"}],"logprobs":true,"top_logprobs":2`
	r := h.post("/v1/chat/completions", "{"+body+"}")
	type likely struct {
		Token   string
		Logprob float32
		Bytes   []int
	}
	type content struct {
		likely
		Top []likely `json:"top_logprobs"`
	}
	var whole struct {
		Choices []struct {
			Logprobs struct{ Content []content }
			Message  struct{ Content string }
		}
	}
	if err := json.Unmarshal([]byte(r.body), &whole); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	c := whole.Choices[0]
	if len(c.Logprobs.Content) != len(ids) { // the stop id is not part of the answer
		t.Fatalf("%s", r.body)
	}
	var all []byte
	for i, got := range c.Logprobs.Content {
		if got.Logprob != -float32(ids[i])/1000 || len(got.Top) != 2 || got.Top[1].Logprob != -0.1 {
			t.Errorf("token %d: %+v", i, got)
		}
		for _, b := range got.Bytes {
			all = append(all, byte(b))
		}
	}
	if string(all) != c.Message.Content || c.Logprobs.Content[1].Token != `\xf0` || c.Logprobs.Content[0].Token != testCard().tok.Piece(ids[0]) {
		t.Errorf("%q, %+v", all, c)
	}
	events, _ := h.post("/v1/chat/completions", "{"+body+`,"stream":true}`).sse(t)
	var streamed []any
	for _, e := range events {
		if l, ok := list(e["choices"])[0].(map[string]any)["logprobs"].(map[string]any); ok {
			streamed = append(streamed, list(l["content"])...)
		}
	}
	want := list(r.json(t)["choices"])[0].(map[string]any)["logprobs"].(map[string]any)["content"]
	if !reflect.DeepEqual(streamed, want) {
		t.Errorf("streamed %v, whole %v", streamed, want)
	}
}

// TestTextLogprobs has the shape of completions: offsets in characters of the text, and nothing of what a stop string cut.
func TestTextLogprobs(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	tok := testCard().tok
	answer := "naïve 🙂 river end"
	ids := tok.Encode(nil, answer, false)
	w.play = says(ids...)
	for _, c := range []struct {
		fields, text string
		echo         bool
	}{
		{`"prompt":"Hé!"`, answer, false},
		{`"prompt":"Hé!","stop":" river"`, "naïve 🙂", false},
		{`"prompt":"Hé!","stop":"ïve"`, "na", false},
		{`"prompt":"Hé!","stop":" river","include_stop_str_in_output":true`, "naïve 🙂 river", false},
		{`"prompt":"Hé!","echo":true`, "Hé!" + answer, true},
		{`"prompt":"<bos>Hé!","echo":true`, "<bos>Hé!" + answer, true},
		{`"prompt":"Hé!","echo":true,"max_tokens":0`, "Hé!", true},
	} {
		whole := h.post("/v1/completions", `{"model":"tiny","logprobs":1,`+c.fields+`}`)
		if whole.status != 200 {
			t.Errorf("%s: %s", c.fields, whole.body)
			continue
		}
		got := list(whole.json(t)["choices"])[0].(map[string]any)
		l := got["logprobs"].(map[string]any)
		if got["text"] != c.text {
			t.Errorf("%s: %q, want %q", c.fields, got["text"], c.text)
		}
		checkTextLogprobs(t, c.fields, c.text, l, c.echo)
		events, _ := h.post("/v1/completions", `{"model":"tiny","stream":true,"logprobs":1,`+c.fields+`}`).sse(t)
		streamed := map[string]any{"tokens": []any{}, "token_logprobs": []any{}, "top_logprobs": []any{}, "text_offset": []any{}}
		for _, e := range events {
			part, _ := list(e["choices"])[0].(map[string]any)["logprobs"].(map[string]any)
			for k, v := range part {
				streamed[k] = append(streamed[k].([]any), list(v)...)
			}
		}
		if !reflect.DeepEqual(streamed, l) {
			t.Errorf("%s: streamed %v, whole %v", c.fields, streamed, l)
		}
	}
	h.await("the drain", h.drained)
}

// checkTextLogprobs: what a token's text is stands at its offset.
func checkTextLogprobs(t *testing.T, what, text string, l map[string]any, echo bool) {
	t.Helper()
	tokens, offsets, logprobs, tops := list(l["tokens"]), list(l["text_offset"]), list(l["token_logprobs"]), list(l["top_logprobs"])
	if len(tokens) == 0 || len(offsets) != len(tokens) || len(logprobs) != len(tokens) || len(tops) != len(tokens) {
		t.Fatalf("%s: %v", what, l)
	}
	chars := []rune(text)
	for i := range tokens {
		token, at := tokens[i].(string), int(offsets[i].(float64))
		if first := echo && i == 0; (logprobs[i] == nil) != first || (tops[i] == nil) != first {
			t.Errorf("%s: token %d: %v %v", what, i, logprobs[i], tops[i])
		}
		if top, ok := tops[i].(map[string]any); ok && (top[token] != logprobs[i] || len(top) > 2) {
			t.Errorf("%s: token %d: %v is not among %v", what, i, logprobs[i], top)
		}
		if strings.HasPrefix(token, "bytes:") || token == "<bos>" && !strings.HasPrefix(text, "<bos>") {
			continue
		}
		if rest := string(chars[min(at, len(chars)):]); !strings.HasPrefix(rest, token) && !strings.HasPrefix(token, rest) {
			t.Errorf("%s: token %d is %q, and at its offset %d is %q", what, i, token, at, rest)
		}
	}
}

// TestPromptLogprobs has vLLM's shape: null, then by id the token and the likeliest.
func TestPromptLogprobs(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	r := h.post("/v1/completions", `{"model":"tiny","prompt":[5,600,301],"max_tokens":0,"prompt_logprobs":2}`)
	c := list(r.json(t)["choices"])[0].(map[string]any)
	got := list(c["prompt_logprobs"])
	if len(got) != 3 || got[0] != nil || c["text"] != "" || w.last(t).MaxTokens != 0 || r.json(t)["usage"].(map[string]any)["completion_tokens"] != 0.0 {
		t.Fatalf("%s", r.body)
	}
	second, third := got[1].(map[string]any), got[2].(map[string]any)
	one := second["600"].(map[string]any)
	if len(second) != 3 || one["logprob"] != -0.6 || one["rank"] != 600.0 || one["decoded_token"] != testCard().tok.Piece(600) ||
		second["300"].(map[string]any)["rank"] != 1.0 || len(third) != 2 || third["301"].(map[string]any)["rank"] != 301.0 {
		t.Errorf("%s", r.body)
	}
	chat := h.post("/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"a"}],"max_tokens":1,"prompt_logprobs":0}`)
	if all := list(chat.json(t)["prompt_logprobs"]); len(all) != len(w.last(t).Prompt) || all[0] != nil || len(all[1].(map[string]any)) != 1 {
		t.Errorf("%s", chat.body)
	}
}

// TestFaultyScoresAreNotBelieved: scores that are missing, or too many, end the request.
func TestFaultyScoresAreNotBelieved(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	w.play = func(_ context.Context, r *ask, send sender) (ending, error) {
		r.Scoring = nil // what is sent from here on has none
		return endLength, send(700)
	}
	if id, _ := h.post("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":1,"logprobs":1}`).fault(t); id != "WRK-002" {
		t.Errorf("%s", id)
	}
	h.await("the drain", h.drained)
}

// TestFaultyScoresOfPrompts: likely tokens that are outside the vocabulary, or without log-probability, end a request, and
// those of its other prompts.
func TestFaultyScoresOfPrompts(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	for _, faulty := range []*workerv1.Score{
		{TopIds: []int32{-1}, TopLogprobs: []float32{0}}, {TopIds: []int32{1 << 30}, TopLogprobs: []float32{0}},
		{TopIds: []int32{5, 6}, TopLogprobs: []float32{0}}, {TopLogprobs: []float32{0}},
	} {
		w.score = func(int32, *workerv1.Scoring) *workerv1.Score { return faulty }
		for _, fields := range []string{`"logprobs":2`, `"prompt_logprobs":2`, `"echo":true,"logprobs":2`} {
			r := h.post("/v1/completions", `{"model":"tiny","prompt":[[5,6],[7,8]],"max_tokens":1,`+fields+`}`)
			if id, _ := r.fault(t); id != "WRK-002" {
				t.Errorf("%v of %s: %s", faulty, fields, r.body)
			}
		}
		h.await("the drain", h.drained) // the hand plays no more
	}
}

// broken is an output that panics.
type broken struct{ output }

func (broken) begin(*request) error { panic("broken") }

// TestPanicOfOnePrompt: a panic beside the handler's goroutine ends the request, as one in it does, and not the router.
func TestPanicOfOnePrompt(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	r := h.router
	f := &fields{raw: map[string]json.RawMessage{
		"model": json.RawMessage(`"tiny"`), "prompt": json.RawMessage(`[[5],[6]]`), "max_tokens": json.RawMessage(`1`),
	}}
	ctx := context.WithValue(t.Context(), guestKey{}, &guest{id: openTenant, group: openGroup})
	qs, err := r.prepare(ctx, f, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.generateAll(t.Context(), qs, broken{}); err == nil || asError(err).kind != kindInternal {
		t.Errorf("%v", err)
	}
	h.await("the drain", h.drained)
}

// parts is a client that notes the largest part of an answer.
type parts struct {
	*httptest.ResponseRecorder
	largest int
}

func (p *parts) Write(b []byte) (int, error) {
	p.largest = max(p.largest, len(b))
	return p.ResponseRecorder.Write(b)
}

// TestChoicesAreWrittenOneByOne: what an answer takes at a time is a choice, however many there are, and what they have in
// common is there once.
func TestChoicesAreWrittenOneByOne(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	prompt := strings.Repeat("5,", 199) + "5"
	for _, fields := range []string{`"prompt_logprobs":20`, `"echo":true,"logprobs":20`} {
		w := &parts{ResponseRecorder: httptest.NewRecorder()}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/completions", strings.NewReader(
			`{"model":"tiny","prompt":[[`+prompt+`],[`+prompt+`]],"n":16,"max_tokens":1,`+fields+`}`))
		req.Header.Set("Content-Type", "application/json")
		h.router.Handler().ServeHTTP(w, req)
		size := w.Body.Len()
		if texts, _ := choicesOf(t, response{status: w.Code, body: w.Body.String()}); len(texts) != 32 || w.largest > size/16 {
			t.Errorf("%s: %d choices, %d of %d bytes at once", fields, len(texts), w.largest, size)
		}
	}
	h.await("the drain", h.drained)
}

// TestChoicesTakeWhatFitsNow: a request of many choices does not wait at the queue's head for the room of all of them, with
// others behind it. It begins with the slots that are free.
func TestChoicesTakeWhatFitsNow(t *testing.T) { // R4
	h := open(t, nil)
	release := make(chan struct{})
	w := h.hire("w1", nil) // of 8 slots
	w.play = held(release)
	streams := h.background("/v1/completions", `{"model":"tiny","prompt":"hi","n":5,"max_tokens":3}`)
	h.await("five to run", func() bool { return h.router.cfg.Ledger.View().Worker("w1").SlotsUsed == 5 })
	many := h.background("/v1/completions", `{"model":"tiny","prompt":"hi","n":6,"max_tokens":3}`)
	h.await("three of six to run beside them", func() bool { return h.router.cfg.Ledger.View().Worker("w1").SlotsUsed == 8 })
	h.await("the worker to get them", func() bool { return w.last(t).Branches == 6 })
	if r := w.last(t); r.Slots != 3 {
		t.Errorf("asked %v", r)
	}
	close(release)
	for _, c := range []<-chan response{streams, many} {
		if r := <-c; r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	h.await("the drain", h.drained)
}
