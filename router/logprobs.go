package router

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// token is a token of an answer, with what the worker says of it.
type token struct {
	id     int32
	from   int             // bytes of the answer's text before it
	offset int             // characters of the choice's text before it
	score  *workerv1.Score // nil for the first of a prompt: nothing is before it
}

// leastLogprob stands for what JSON has no number for.
const leastLogprob = -9999

func finite(v float32) float32 {
	if !(v >= leastLogprob) {
		return leastLogprob
	}
	return v
}

// chatLogprobs is a chat's form of its tokens' log-probabilities.
type chatLogprobs struct {
	Content []chatToken `json:"content"`
	Refusal any         `json:"refusal"`
}

type chatToken struct {
	likelyToken
	Top []likelyToken `json:"top_logprobs"`
}

type likelyToken struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// textLogprobs is a completion's form of the same.
type textLogprobs struct {
	Tokens   []string             `json:"tokens"`
	Logprobs []*float32           `json:"token_logprobs"`
	Top      []map[string]float32 `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"`
}

// logprobsOf is what a choice says of its tokens, nil if nothing was asked.
func logprobsOf(q *request, tokens []token) any {
	switch {
	case !q.logprobs:
		return nil
	case q.chat:
		return chatForm(q, tokens)
	}
	return textForm(q, tokens)
}

// tokenName is what a token is called if its client wants ids for names.
func tokenName(id int32) string { return "token_id:" + strconv.Itoa(int(id)) }

func chatForm(q *request, tokens []token) *chatLogprobs {
	out := &chatLogprobs{Content: make([]chatToken, len(tokens))}
	for i, t := range tokens {
		c := &out.Content[i]
		c.likelyToken = likely(q, t.id, t.score.GetLogprob())
		c.Top = []likelyToken{}
		for k, id := range t.score.GetTopIds()[:min(q.top, len(t.score.GetTopIds()))] {
			c.Top = append(c.Top, likely(q, id, t.score.TopLogprobs[k]))
		}
	}
	return out
}

func likely(q *request, id int32, logprob float32) likelyToken {
	piece := q.card.tok.Piece(id)
	out := likelyToken{Token: piece, Logprob: finite(logprob), Bytes: make([]int, len(piece))}
	for i := range len(piece) {
		out.Bytes[i] = int(piece[i])
	}
	switch {
	case q.namesAsIDs:
		out.Token = tokenName(id)
	case !utf8.ValidString(piece):
		out.Token = escaped(piece)
	}
	return out
}

// escaped is how OpenAI writes bytes that are no whole characters.
func escaped(piece string) string {
	var out strings.Builder
	for i := range len(piece) {
		fmt.Fprintf(&out, `\x%02x`, piece[i])
	}
	return out.String()
}

func textForm(q *request, tokens []token) *textLogprobs {
	out := &textLogprobs{[]string{}, []*float32{}, []map[string]float32{}, []int{}}
	name := func(id int32) string {
		piece := q.card.tok.Piece(id)
		switch {
		case q.namesAsIDs:
			return tokenName(id)
		case utf8.ValidString(piece):
			return piece
		}
		return "bytes:" + escaped(piece)
	}
	for _, t := range tokens {
		out.Tokens, out.Offsets = append(out.Tokens, name(t.id)), append(out.Offsets, t.offset)
		if t.score == nil {
			out.Logprobs, out.Top = append(out.Logprobs, nil), append(out.Top, nil)
			continue
		}
		logprob := finite(t.score.Logprob)
		likeliest := map[string]float32{}
		for k := min(q.top, len(t.score.TopIds)) - 1; k >= 0; k-- { // of two with one text the likelier stays
			likeliest[name(t.score.TopIds[k])] = finite(t.score.TopLogprobs[k])
		}
		likeliest[name(t.id)] = logprob
		out.Logprobs, out.Top = append(out.Logprobs, &logprob), append(out.Top, likeliest)
	}
	return out
}

// promptToken is vLLM's form of a prompt token's log-probability, by id.
type promptToken struct {
	Logprob float32 `json:"logprob"`
	Rank    int     `json:"rank"`
	Decoded string  `json:"decoded_token"`
}

// promptForm is vLLM's prompt_logprobs: null for the first token, then for each the token and the likeliest, by id. It is
// made once for all choices of the prompt.
func promptForm(q *request) json.RawMessage {
	if q.promptTop < 0 {
		return nil
	}
	out := append(json.RawMessage{'['}, null...)
	name := func(id int32) string { return strings.ToValidUTF8(q.card.tok.Piece(id), "\uFFFD") }
	at := map[string]promptToken{}
	for i, s := range q.scores {
		clear(at)
		for k := range min(q.promptTop, len(s.TopIds)) {
			id := s.TopIds[k]
			at[strconv.Itoa(int(id))] = promptToken{finite(s.TopLogprobs[k]), k + 1, name(id)}
		}
		id := q.prompt[i+1]
		at[strconv.Itoa(int(id))] = promptToken{finite(s.Logprob), int(s.Rank), name(id)}
		out = append(append(out, ','), encode(at)...)
	}
	return append(out, ']')
}

// promptTokens are the prompt's tokens at their places in the text that echo gives.
func promptTokens(q *request) []token {
	out := make([]token, len(q.prompt))
	special := q.keepSpecial
	if all := q.card.tok.Decode(q.prompt, special); !strings.HasSuffix(all, q.echoed) {
		special = true // the text names control tokens
	}
	d, at := q.card.tok.NewDecoder(special), 0
	for i, id := range q.prompt {
		at += utf8.RuneCountInString(d.Add(id))
		out[i] = token{id: id, offset: d.Begins()}
		if i > 0 {
			out[i].score = q.scores[i-1]
		}
	}
	at += utf8.RuneCountInString(d.Flush())
	before := at - utf8.RuneCountInString(q.echoed) // what decoding puts in front: a beginning token, a space
	for i := range out {
		out[i].offset = max(0, out[i].offset-before)
	}
	return out
}
