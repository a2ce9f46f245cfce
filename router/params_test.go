package router

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

type refusal struct{ body, id, param string }

// refusedFields are members beside a good prompt.
var refusedFields = []refusal{
	{`"temperature":NaN`, "REQ-001", "temperature"},
	{`"temperature":Infinity`, "REQ-001", "temperature"},
	{`"temperature":1e999`, "REQ-001", "temperature"},
	{`"temperature":"nan"`, "REQ-001", "temperature"},
	{`"temperature":-0.1`, "REQ-001", "temperature"},
	{`"temperature":2.01`, "REQ-001", "temperature"},
	{`"temperature":[1]`, "REQ-001", "temperature"},
	{`"top_p":0`, "REQ-001", "top_p"},
	{`"top_p":1.0001`, "REQ-001", "top_p"},
	{`"top_k":-2`, "REQ-001", "top_k"},
	{`"top_k":1.5`, "REQ-001", "top_k"},
	{`"min_p":1.1`, "REQ-001", "min_p"},
	{`"presence_penalty":3`, "REQ-001", "presence_penalty"},
	{`"frequency_penalty":-3`, "REQ-001", "frequency_penalty"},
	{`"repetition_penalty":0`, "REQ-001", "repetition_penalty"},
	{`"repetition_penalty":1e300`, "REQ-001", "repetition_penalty"},
	{`"seed":"x"`, "REQ-001", "seed"},
	{`"seed":1e30`, "REQ-001", "seed"},
	{`"max_tokens":0`, "REQ-001", "max_tokens"},
	{`"max_tokens":-1`, "REQ-001", "max_tokens"},
	{`"max_tokens":2147483648`, "REQ-001", "max_tokens"},
	{`"max_tokens":"8"`, "REQ-001", "max_tokens"},
	{`"max_tokens":1000000000`, "CTX-001", "max_tokens"},
	{`"max_completion_tokens":0`, "REQ-001", "max_completion_tokens"},
	{`"min_tokens":9,"max_tokens":8`, "REQ-001", "min_tokens"},
	{`"logit_bias":{"99999999":-100}`, "REQ-001", "logit_bias"},
	{`"logit_bias":{"-1":1}`, "REQ-001", "logit_bias"},
	{`"logit_bias":{"01":1}`, "REQ-001", "logit_bias"},
	{`"logit_bias":{"5":101}`, "REQ-001", "logit_bias"},
	{`"logit_bias":{"5":1e999}`, "REQ-001", "logit_bias"},
	{`"logit_bias":[1]`, "REQ-001", "logit_bias"},
	{`"stop_token_ids":[999999]`, "REQ-001", "stop_token_ids"},
	{`"stop_token_ids":[-1]`, "REQ-001", "stop_token_ids"},
	{`"stop_token_ids":"5"`, "REQ-001", "stop_token_ids"},
	{`"stop":[""]`, "REQ-001", "stop"},
	{`"stop":[5]`, "REQ-001", "stop"},
	{`"stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]`, "REQ-001", "stop"},
	{`"stream":"yes"`, "REQ-001", "stream"},
	{`"stream_options":{"include_usage":true}`, "REQ-001", "stream_options"},
	{`"stream":true,"stream_options":{"include_usage":1}`, "REQ-001", "stream_options.include_usage"},
	{`"cache_salt":5`, "REQ-001", "cache_salt"},
	{`"user":"a","user":"b"`, "REQ-001", "user"},
	{`"user":"\ud800"`, "REQ-001", "user"},
	{`"user":"\udc00\ud800"`, "REQ-001", "user"},
	{"\"user\":\"\xff\xfe\"", "REQ-001", ""},
	{"\"user\":\"\xc4\xe3\xba\xc3\"", "REQ-001", ""}, // GBK
	{`"user":`, "REQ-001", "user"},
	{`"n":0`, "REQ-001", "n"},
	{`"n":129`, "REQ-001", "n"},
	{`"n":1.5`, "REQ-001", "n"},
	{`"logprobs":"yes"`, "REQ-001", "logprobs"},
	{`"prompt_logprobs":21`, "REQ-001", "prompt_logprobs"},
	{`"prompt_logprobs":-1`, "REQ-001", "prompt_logprobs"},
	{`"prompt_logprobs":1,"stream":true`, "REQ-001", "prompt_logprobs"},
	{`"tools":[{"type":"function"}]`, "REQ-002", "tools"},
	{`"tool_choice":"required"`, "REQ-002", "tool_choice"},
	{`"functions":[{}]`, "REQ-002", "functions"},
	{`"response_format":{"type":"json_object"}`, "REQ-002", "response_format"},
	{`"berth":{"guaranteed":true}`, "REQ-002", "berth.guaranteed"},
	{`"berth":{"nosuch":1}`, "REQ-002", "berth.nosuch"},
	{`"berth":[]`, "REQ-001", "berth"},
	{`"audio":{"voice":"x"}`, "REQ-002", "audio"},
	{`"modalities":["text","audio"]`, "REQ-002", "modalities"},
}

// refusedBodies are whole bodies of completions.
var refusedBodies = []refusal{
	{`{"model":"tiny"}`, "REQ-001", "prompt"},
	{`{"model":"tiny","prompt":null}`, "REQ-001", "prompt"},
	{`{"model":"tiny","prompt":""}`, "REQ-001", "prompt"},
	{`{"model":"tiny","prompt":[]}`, "REQ-001", "prompt"},
	{`{"model":"tiny","prompt":[[]]}`, "REQ-001", "prompt"},
	{`{"model":"tiny","prompt":[""]}`, "REQ-001", "prompt"},
	{`{"model":"tiny","prompt":["",""]}`, "REQ-001", "prompt"},
	{`{"model":"tiny","prompt":["a",""]}`, "REQ-001", "prompt"},
	{`{"model":"tiny","prompt":["a",5]}`, "REQ-001", "prompt"},
	{`{"model":"tiny","prompt":[[1],[99999]]}`, "REQ-001", "prompt"},
	{`{"model":"tiny","n":128,"prompt":[[1]` + strings.Repeat(",[1]", 16) + `]}`, "REQ-001", "prompt"},
	{`{"model":"tiny","prompt":"hi","n":3,"best_of":2}`, "REQ-001", "best_of"},
	{`{"model":"tiny","prompt":"hi","n":1,"best_of":2,"stream":true}`, "REQ-001", "best_of"},
	{`{"model":"tiny","prompt":"hi","best_of":129}`, "REQ-001", "best_of"},
	{`{"model":"tiny","prompt":"hi","logprobs":21}`, "REQ-001", "logprobs"},
	{`{"model":"tiny","prompt":"hi","logprobs":true}`, "REQ-001", "logprobs"},
	{`{"model":"tiny","prompt":"hi","top_logprobs":2}`, "REQ-002", "top_logprobs"},
	{`{"model":"tiny","prompt":"hi","echo":1}`, "REQ-001", "echo"},
	{`{"model":"tiny","prompt":"hi","echo":true,"max_tokens":-1}`, "REQ-001", "max_tokens"},
	{`{"model":"tiny","prompt":[-1]}`, "REQ-001", "prompt"},
	{`{"model":"tiny","prompt":[2147483648]}`, "REQ-001", "prompt"},
	{`{"model":"tiny","prompt":[4096]}`, "REQ-001", "prompt"},
	{`{"model":"tiny","prompt":[1,"a"]}`, "REQ-001", "prompt"},
	{`{"model":"tiny","prompt":{"a":1}}`, "REQ-001", "prompt"},
	{`{"model":"tiny","prompt":"hi","suffix":"x"}`, "REQ-002", "suffix"},
	{`{"model":"tiny","prompt":[` + strings.Repeat("1,", 300) + `1]}`, "CTX-001", "max_tokens"},
	{`{"prompt":"hi"}`, "REQ-001", "model"},
	{`{"model":5,"prompt":"hi"}`, "REQ-001", "model"},
	{`[]`, "REQ-001", ""},
	{`null`, "REQ-001", ""},
	{``, "REQ-001", ""},
	{`{"model":"tiny","prompt":"hi"} {}`, "REQ-001", "prompt"},
}

// refusedChats are whole bodies of chats.
var refusedChats = []refusal{
	{`{"model":"tiny","messages":[{"role":"robot","content":"hi"}]}`, "REQ-001", "messages[0].role"},
	{`{"model":"tiny","messages":[{"role":"user","content":"hi"}],"logprobs":3}`, "REQ-001", "logprobs"},
	{`{"model":"tiny","messages":[{"role":"user","content":"hi"}],"top_logprobs":3}`, "REQ-001", "top_logprobs"},
	{`{"model":"tiny","messages":[{"role":"user","content":"hi"}],"logprobs":true,"top_logprobs":21}`, "REQ-001", "top_logprobs"},
	{`{"model":"tiny","messages":[{"role":"user","content":"hi"}],"best_of":2}`, "REQ-002", "best_of"},
	{`{"model":"tiny","messages":[{"role":"user","content":"hi"}],"echo":true}`, "REQ-002", "echo"},
	{`{"model":"tiny","messages":[{"role":"user","content":"hi"}],"prompt_logprobs":1,"max_tokens":0}`, "REQ-001", "max_tokens"},
}

// B30, B35, B38, B39: what is wrong is 400 and names its field; nothing of it reaches a worker.
func TestRefusedRequests(t *testing.T) { // R7
	h := open(t, nil)
	w := h.hire("w1", nil)
	for _, c := range refusedFields {
		for path, prompt := range map[string]string{
			"/v1/completions": `"prompt":"hi"`, "/v1/chat/completions": `"messages":[{"role":"user","content":"hi"}]`,
		} {
			r := h.post(path, fmt.Sprintf(`{"model":"tiny",%s,%s}`, prompt, c.body))
			if id, param := r.fault(t); r.status != 400 || id != c.id || param != c.param {
				t.Errorf("%s %s: %d %s %q, want %s %q", path, c.body, r.status, id, param, c.id, c.param)
			}
		}
	}
	for _, c := range refusedBodies {
		r := h.post("/v1/completions", c.body)
		if id, param := r.fault(t); r.status != 400 || id != c.id || param != c.param {
			t.Errorf("%.60s: %d %s %q, want %s %q", c.body, r.status, id, param, c.id, c.param)
		}
	}
	for _, c := range refusedChats {
		r := h.post("/v1/chat/completions", c.body)
		if id, param := r.fault(t); r.status != 400 || id != c.id || param != c.param {
			t.Errorf("%s: %d %s %q, want %s %q", c.body, r.status, id, param, c.id, c.param)
		}
	}
	if len(w.asked) != 0 {
		t.Errorf("%d of them reached the worker", len(w.asked))
	}
	if n := h.router.trace.refusalCounts()["unsupported"]; n == 0 {
		t.Error("refusals are not counted")
	}
}

// B35, B43: what is unusual but means something is carried out.
func TestAcceptedRequests(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	for _, c := range []string{
		`"temperature":-0.0`, `"temperature":1e-9`, `"temperature":1e-60`, `"top_k":1000000000`, `"top_k":-1`, `"min_p":1`,
		`"top_p":1e-60`, `"max_tokens":null`, `"stop":null`, `"n":1`, `"n":1.0`, `"logprobs":null`, `"tools":[]`, `"seed":-7`,
		`"response_format":{ "type" : "text" }`, `"berth":{"guaranteed":false}`, `"logit_bias":{}`, `"priority":0`,
		`"user":"x","store":false,"metadata":{},"parallel_tool_calls":true,"service_tier":"auto","max_completion_tokens":8`,
		`"nobody_knows":{"this":1}`, `"user":"\ud83d\ude42"`,
	} {
		r := h.post("/v1/completions", fmt.Sprintf(`{"model":"tiny-alias","prompt":"hi",%s}`, c))
		if r.status != 200 {
			t.Errorf("%s: %d %s", c, r.status, r.body)
		}
	}
	h.post("/v1/completions", `{"model":"tiny","prompt":"hi","temperature":0.5,"top_k":7,"top_p":1e-60,"min_p":0.25,
		"seed":-7,"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.5,"logit_bias":{"5":-100},
		"max_tokens":9,"min_tokens":3,
		"stop_token_ids":[7],"ignore_eos":true,"cache_salt":"s"}`)
	g := w.last(t)
	s := g.Sampling
	if s.Temperature != 0.5 || s.TopK != 7 || s.TopP <= 0 || s.MinP != 0.25 || s.Seed != 1<<64-7 ||
		s.PresencePenalty != 1 ||
		s.FrequencyPenalty != -1 || s.RepetitionPenalty != 1.5 || s.LogitBias[5] != -100 {
		t.Errorf("%v", s)
	}
	if g.MaxTokens != 9 || g.MinTokens != 3 || len(g.StopIds) != 1 || g.StopIds[0] != 7 ||
		g.CacheSalt != "s" || g.ShareGroup != "default" {
		t.Errorf("%v", g)
	}
	h.post("/v1/completions", `{"model":"tiny","prompt":"hi"}`)
	g = w.last(t)
	if int(g.MaxTokens) != 256-len(g.Prompt) || g.Sampling.Temperature != 1 || len(g.StopIds) != 1 {
		t.Errorf("omitted: %v", g)
	}
}

func TestStrictJSON(t *testing.T) {
	for body, param := range map[string]string{
		`{"a":{"b":1,"b":2},"c":[{"a":1},"a"]}`:     "ok",
		`{"a":1,"\u0061":2}`:                        "a",
		`{"a":"\\ud800"}`:                           "ok",
		`{"a":"\\\ud800"}`:                          "a",
		`{"m":[{"t":"x\ud83d"}]}`:                   "m",
		`{"m":[{"t":"\uD83D\uDE42\uDE42"}]}`:        "m",
		`{"a":[1,2,{"x":","}],"b":"}","a":"again"}`: "a",
	} {
		_, err := parseObject([]byte(body))
		var e *Error
		if got := "ok"; errors.As(err, &e) && e.Param != param || err == nil && got != param {
			t.Errorf("%s: %v, want %s", body, err, param)
		}
	}
}

// FuzzParseObject: nothing but a refusal comes of any bytes, and what is taken is what encoding/json reads.
func FuzzParseObject(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":"\ud83d\ude42"}`, `{"a":[{"b":"\\"}],"c":1e9}`, `{"a":NaN}`, "{\"\xff\":1}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fields, err := parseObject(data)
		if err != nil {
			return
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(data, &want) != nil || len(want) != len(fields) {
			t.Errorf("%q: %d members, want %d", data, len(fields), len(want))
		}
	})
}
