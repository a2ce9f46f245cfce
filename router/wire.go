package router

import (
	"bytes"
	"encoding/json"
)

// reply is a completion or a chat completion, whole or a chunk of one.
type reply struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Created int64           `json:"created"`
	Model   string          `json:"model"`
	System  string          `json:"system_fingerprint"` // of the tokenizer, template and model that answered
	Choices []choice        `json:"choices"`
	Usage   json.RawMessage `json:"usage,omitempty"`
	// PromptIDs are a chat's, if asked for; a completion has them in its choice.
	PromptIDs []int32 `json:"prompt_token_ids,omitempty"`
	// PromptLogprobs are a chat's, if asked for; a completion has them in each choice.
	PromptLogprobs json.RawMessage `json:"prompt_logprobs,omitempty"`
}

type choice struct {
	Index     int      `json:"index"`
	Text      *string  `json:"text,omitempty"`    // completions
	Message   *message `json:"message,omitempty"` // whole chats
	Delta     *message `json:"delta,omitempty"`   // chunks of chats
	Logprobs  any      `json:"logprobs"`
	Finish    *string  `json:"finish_reason"`
	Stop      any      `json:"stop_reason,omitempty"`
	PromptIDs []int32  `json:"prompt_token_ids,omitempty"`
	TokenIDs  []int32  `json:"token_ids,omitempty"`

	PromptLogprobs json.RawMessage `json:"prompt_logprobs,omitempty"`
}

type message struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type usageBody struct {
	Prompt     int         `json:"prompt_tokens"`
	Completion int         `json:"completion_tokens"`
	Total      int         `json:"total_tokens"`
	Details    *cachedBody `json:"prompt_tokens_details,omitempty"`
}

type cachedBody struct {
	Cached int `json:"cached_tokens"`
}

func (u usage) json() json.RawMessage {
	return encode(usageBody{u.prompt, u.completion, u.prompt + u.completion, &cachedBody{u.cached}})
}

// soFar is the usage of a choice that goes on: what was cached is said at the end.
func (u usage) soFar() json.RawMessage {
	return encode(usageBody{u.prompt, u.completion, u.prompt + u.completion, nil})
}

// encode is JSON without the escapes that only HTML needs. What the package encodes always can be.
func encode(v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("router: encode: " + err.Error())
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// answerID is the id of the answer.
func (q *request) answerID() string {
	if q.chat {
		return "chatcmpl-" + q.id
	}
	return "cmpl-" + q.id
}

// newReply is a reply with what all of a request's replies share.
func newReply(q *request, created int64, chunk bool) reply {
	r := reply{ID: q.answerID(), Object: "text_completion", Created: created, Model: q.model, System: q.card.fingerprint()}
	if q.chat {
		r.Object = "chat.completion"
		if chunk {
			r.Object = "chat.completion.chunk"
		}
	}
	return r
}
