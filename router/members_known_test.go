package router

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Each member that peers' schemas have is built, refused by name, or on the list of those that change nothing (R7): none
// is ignored because nobody thought of it.
func TestEveryMemberOfPeersIsDecidedOn(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	raw, err := os.ReadFile("testdata/members.txt")
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		of, rest, ok := strings.Cut(strings.TrimSpace(line), " ")
		name, peer, _ := strings.Cut(rest, " ")
		if !ok || of == "#" || strings.HasPrefix(line, "#") {
			continue
		}
		tried[name] = true
		for _, c := range []struct{ of, path, rest string }{
			{"t", "/v1/completions", `"prompt":"hi"`}, {"c", "/v1/chat/completions", `"messages":[{"role":"user","content":"hi"}]`},
		} {
			if of != "b" && of != c.of {
				continue
			}
			harmless := slices.Contains(harmlessMembers, name)
			value := `{"no such":{"value":[1]}}` // which no member takes that takes no object
			if name == "stream_options" || name == "chat_template_kwargs" {
				value = `"no object"`
			}
			body := `{"model":"tiny","max_tokens":1,"stream":true,` + c.rest + `,"` + name + `":` + value + `}`
			if strings.Contains(c.rest, `"`+name+`"`) || name == "model" || name == "max_tokens" || name == "stream" {
				continue // every test of the API has these
			}
			r := h.post(c.path, body)
			if harmless {
				if r.status != 200 {
					t.Errorf("%s (%s) of %s: %d %s, and it is listed as harmless", name, peer, c.path, r.status, r.body)
				}
				continue
			}
			if r.status != 400 {
				t.Errorf("%s (%s) of %s is ignored: %d %.200s", name, peer, c.path, r.status, r.body)
				continue
			}
			if _, param := r.fault(t); param != name && !strings.HasPrefix(param, name+".") {
				t.Errorf("%s (%s) of %s: the error names %q: %s", name, peer, c.path, param, r.body)
			}
		}
	}
	for _, u := range unbuiltMembers {
		if !tried[u.name] {
			t.Errorf("%s is refused, and testdata/members.txt does not say whose it is", u.name)
		}
	}
}

func TestTruncatedPrompts(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	for _, c := range []struct{ fields, want string }{
		{`"prompt":[5,6,7,8,9],"truncate_prompt_tokens":2`, "[8,9]"},
		{`"prompt":[5,6,7,8,9],"truncate_prompt_tokens":2,"truncation_side":"right"`, "[5,6]"},
		{`"prompt":[5,6,7,8,9],"truncate_prompt_tokens":9`, "[5,6,7,8,9]"},
		{`"prompt":[5,6,7,8,9],"truncate_prompt_tokens":null`, "[5,6,7,8,9]"},
	} {
		r := h.post("/v1/completions", `{"model":"tiny","max_tokens":1,"return_token_ids":true,`+c.fields+`}`)
		if r.status != 200 || !strings.Contains(r.body, `"prompt_token_ids":`+c.want) {
			t.Errorf("%s: %d %s, want %s", c.fields, r.status, r.body, c.want)
		}
	}
	long := ones(maxTokenized)
	r := h.post("/v1/completions", `{"model":"tiny","max_tokens":3,"truncate_prompt_tokens":-1,"prompt":`+long+`}`)
	if r.status != 200 || r.json(t)["usage"].(map[string]any)["prompt_tokens"].(float64) < 10 {
		t.Errorf("as many as fit: %d %.300s", r.status, r.body)
	}
}

// A last message that is to go on ends the prompt with its own text.
func TestContinuedMessages(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	talk := `{"model":"tiny","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"Well, "}],`
	r := h.post("/tokenize", talk+`"continue_final_message":true}`)
	if r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	var ids []int32
	for _, v := range r.json(t)["tokens"].([]any) {
		ids = append(ids, int32(v.(float64)))
	}
	if text := testCard().tok.Decode(ids, true); !strings.HasSuffix(text, "<start_of_turn>model\nWell,") && !strings.HasSuffix(text, "<start_of_turn>model\nWell, ") {
		t.Errorf("%q", text)
	}
	r = h.post("/v1/chat/completions", talk+`"continue_final_message":true,"add_generation_prompt":true,"max_tokens":1}`)
	if _, param := r.fault(t); r.status != 400 || param != "continue_final_message" {
		t.Errorf("both: %d %s", r.status, r.body)
	}
}

// Values that are in range for a reader, and that arithmetic or the whole vocabulary makes nothing of, are no failures of
// the server.
func TestParametersAtTheEdge(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	r := h.post("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":1,"repetition_penalty":1e-38}`)
	if r.status != 200 {
		t.Errorf("a small penalty: %d %s", r.status, r.body)
	}
	raw, err := parseObject([]byte(`{"repetition_penalty":1e-38}`))
	if err != nil {
		t.Fatal(err)
	}
	if s := readSampling(&fields{raw: raw}, 10); s.RepetitionPenalty < leastPenalty {
		t.Errorf("repetition_penalty %g", s.RepetitionPenalty)
	}
	all := make([]int32, testCard().tok.Len())
	for i := range all {
		all[i] = int32(i)
	}
	q := &request{card: testCard(), params: params{minTokens: 1, stopIDs: all}}
	if err := q.mustEnd(); err == nil {
		t.Error("a request that no token can begin is taken")
	}
	if q.stopIDs = all[:len(all)/2]; q.mustEnd() != nil {
		t.Error("half of the vocabulary is left")
	}
}

func TestNamesAsIDsAndUsageSoFar(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	r := h.post("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":2,"logprobs":1,"return_tokens_as_token_ids":true}`)
	if r.status != 200 || !strings.Contains(r.body, `"tokens":["token_id:`) {
		t.Errorf("%d %s", r.status, r.body)
	}
	r = h.post("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":2,"stream":true,`+
		`"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`)
	if r.status != 200 || strings.Contains(r.body, `"usage":null`) || !strings.Contains(r.body, `"completion_tokens":1,`) {
		t.Errorf("%d %s", r.status, r.body)
	}
}
