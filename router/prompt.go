package router

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/berthd/berth/model/tokenizer"
	"github.com/berthd/berth/model/tokenizer/jinja"
)

// prompt is one of a request's: its ids, and its text if it came as one.
type prompt struct {
	ids  []int32
	text string
}

// bounds are how long a prompt may be, in tokens, and what the request wants beside it.
type bounds struct{ limit, maxTokens int }

// readPrompts are a completion's prompts, at most most: a text or a list of ids, or a list of either. Longer lists than the
// limit are counted but not decoded, and longer texts are not encoded to their end: both are CTX-001.
func readPrompts(ctx context.Context, f *fields, k *card, most int, b bounds) (out []prompt, err error) {
	raw, ok := f.get("prompt")
	if !ok {
		return nil, invalid("prompt", "prompt is missing: give a string, a list of token ids, or a list of either")
	}
	o, several := tokenizer.Options{Control: true, Begin: f.boolean("add_special_tokens", true)}, false
	eachElement(raw, func(element []byte) bool {
		if !several && element[0] != '"' && element[0] != '[' {
			return false // a list of ids
		}
		several = true
		var one prompt
		if one, err = onePrompt(ctx, element, k, o, b); err != nil {
			return false
		}
		out = append(out, one)
		if len(out) > most {
			err = invalid("prompt", "prompt has too many prompts: at most %d choices are made of all of them", maxChoices)
		}
		return err == nil
	})
	if !several && err == nil {
		out = make([]prompt, 1)
		out[0], err = onePrompt(ctx, raw, k, o, b)
	}
	return out, err
}

func onePrompt(ctx context.Context, raw json.RawMessage, k *card, o tokenizer.Options, b bounds) (p prompt, err error) {
	if raw[0] == '"' {
		if err := k.fits(leastText(raw), b); err != nil {
			return p, err
		}
		if err := json.Unmarshal(raw, &p.text); err != nil || p.text == "" {
			return p, invalid("prompt", "prompt is empty")
		}
		p.ids, err = k.encode(ctx, p.text, o, b)
	} else {
		var isList bool
		var many int
		p.ids, isList, many, err = ids(raw, "prompt", k.tok.Len(), b.limit)
		switch {
		case err == nil && !isList:
			err = invalid("prompt", "prompt must be a string, a list of token ids, or a list of either")
		case many > 0:
			err = contextExceeded(many, max(1, b.maxTokens), b.limit, false)
		}
	}
	if err == nil && len(p.ids) == 0 {
		err = invalid("prompt", "prompt is empty")
	}
	return p, err
}

// leastText is a number of bytes that the text of a JSON string is not below.
func leastText(literal []byte) int {
	text := len(literal) - 2
	for rest := literal; ; {
		at := bytes.IndexByte(rest, '\\')
		if at < 0 {
			return text
		}
		text--
		if rest[at+1] == 'u' {
			text -= 4 // one byte at least stays
		}
		rest = rest[at+2:]
	}
}

// fits refuses a text of so many bytes that has more tokens than the limit, however it is cut into them.
func (k *card) fits(bytes int, b bounds) error {
	if least := k.tok.LeastTokens(bytes); least > b.limit {
		return contextExceeded(least, max(1, b.maxTokens), b.limit, true)
	}
	return nil
}

// encode turns text into ids, of which there may be limit. Of a text that is somewhat longer it says how many there are.
func (k *card) encode(ctx context.Context, text string, o tokenizer.Options, b bounds) ([]int32, error) {
	if err := k.fits(len(text), b); err != nil {
		return nil, err
	}
	o.Limit = 2 * b.limit
	ids, err := k.tok.EncodeContext(ctx, nil, text, o)
	switch {
	case errors.Is(err, tokenizer.ErrTooLong):
		return nil, contextExceeded(len(ids), max(1, b.maxTokens), b.limit, true)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	return ids, nil
}

// readChat is the ids of a chat: its messages in the model's own form, and the beginning of the answer's turn. Now is what
// a template says the date is.
func readChat(ctx context.Context, f *fields, k *card, now time.Time, b bounds) ([]int32, error) {
	text, plain, err := renderChat(f, k, now, b)
	if err != nil {
		return nil, err
	}
	o := tokenizer.Options{Control: true, Begin: f.boolean("add_special_tokens", true), Plain: plain}
	prompt, err := k.encode(ctx, text, o, b)
	if err == nil && len(prompt) == 0 {
		err = invalid("messages", "messages make an empty prompt")
	}
	return prompt, err
}

// dropped is how many times more text messages may have than the limit, since a template may leave some of it out.
const dropped = 4

// renderChat is the text of a chat, and which stretches of it are data that no control token is found in.
func renderChat(f *fields, k *card, now time.Time, b bounds) (text string, plain []tokenizer.Span, err error) {
	if raw, ok := f.get("messages"); ok {
		if err := k.fits(longText(raw)/dropped, b); err != nil {
			return "", nil, err
		}
	}
	messages, err := readMessages(f, k.partsAsIs)
	if err != nil {
		return "", nil, err
	}
	if k.template == nil {
		return "", nil, invalid("messages", "%s", k.templateFault)
	}
	extra, err := readTemplateArgs(f)
	if err != nil {
		return "", nil, err
	}
	goesOn := f.boolean("continue_final_message", false)
	answer := f.boolean("add_generation_prompt", !goesOn)
	if goesOn && answer {
		return "", nil, invalid("continue_final_message", "continue_final_message and add_generation_prompt exclude each other")
	}
	if readOwn(f).controlTokens {
		text, err = k.template.Render(messages, answer, extra, now)
	} else {
		text, plain, err = k.template.RenderApart(k.tok, messages, answer, extra, now)
	}
	if err != nil {
		return "", nil, invalid("messages", "the model's chat template refuses the messages: %s",
			strings.TrimPrefix(err.Error(), tokenizer.ErrTemplate.Error()+": "))
	}
	if goesOn {
		return openEnded(messages, text, plain)
	}
	return text, plain, nil
}

// openEnded cuts a rendered chat off where the text of its last message ends, as transformers does.
func openEnded(messages []tokenizer.Message, text string, plain []tokenizer.Span) (string, []tokenizer.Span, error) {
	last := field(messages[len(messages)-1], "content")
	at := strings.LastIndex(text, strings.TrimSpace(last))
	if at < 0 || strings.TrimSpace(last) == "" {
		return "", nil, invalid("continue_final_message", "the model's chat template does not give the last message as it is")
	}
	end := at + len(strings.TrimSpace(last))
	if whole := strings.TrimLeftFunc(last, unicode.IsSpace); strings.HasPrefix(text[at:], whole) {
		end = at + len(whole)
	}
	plain = slices.DeleteFunc(plain, func(s tokenizer.Span) bool { return s.Lo >= end })
	return text[:end], plain, nil
}

// longText is the bytes of text in the long strings of a JSON value, at least.
func longText(raw []byte) (bytes int) {
	eachString(raw, func(literal []byte) {
		if len(literal) > 256 { // names, roles and the like are none
			bytes += leastText(literal)
		}
	})
	return bytes
}

// What a chat may be made of, in JSON values: each takes a hundred bytes or more once it is read.
const (
	maxMessageValues = 1 << 17
	maxTemplateArgs  = 1 << 12
)

// templateData are the names that a template gets from the router alone.
var templateData = map[string]bool{
	"tools": true, "documents": true, "messages": true, "add_generation_prompt": true,
	"bos_token": true, "eos_token": true,
}

func readTemplateArgs(f *fields) (*jinja.Dict, error) {
	raw, ok := f.get("chat_template_kwargs")
	if !ok {
		return nil, nil
	}
	if crowded(raw, maxTemplateArgs) {
		return nil, invalid("chat_template_kwargs", "chat_template_kwargs has more than %d values", maxTemplateArgs)
	}
	extra := jinja.NewDict()
	if extra.UnmarshalJSON(raw) != nil {
		return nil, invalid("chat_template_kwargs", "chat_template_kwargs must be an object")
	}
	for _, name := range extra.Names() {
		if templateData[name] {
			return nil, invalid("chat_template_kwargs", "chat_template_kwargs must not set %s", name)
		}
	}
	return extra, nil
}

// roles are those that OpenAI's reference has.
var roles = []string{"system", "developer", "user", "assistant", "tool", "function"}

func readMessages(f *fields, partsAsIs bool) ([]tokenizer.Message, error) {
	raw, ok := f.get("messages")
	if !ok {
		return nil, invalid("messages", "messages is missing: give a list of messages")
	}
	if crowded(raw, maxMessageValues) {
		return nil, invalid("messages", "messages are made of more than %d JSON values", maxMessageValues)
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return nil, invalid("messages", "messages must be a list of one message or more")
	}
	out := make([]tokenizer.Message, len(list))
	for i, one := range list {
		if err := json.Unmarshal(one, &out[i]); err != nil || out[i] == nil {
			return nil, invalid(fmt.Sprintf("messages[%d]", i), "messages[%d] must be an object", i)
		}
		if !slices.Contains(roles, field(out[i], "role")) {
			return nil, invalid(fmt.Sprintf("messages[%d].role", i), "messages[%d].role must be one of %s", i,
				strings.Join(roles, ", "))
		}
		content, err := readContent(out[i], partsAsIs)
		if err != nil {
			var e *Error
			if errors.As(err, &e) {
				e.Param = fmt.Sprintf("messages[%d].content%s", i, e.Param)
				e.Message = fmt.Sprintf("messages[%d].content: %s", i, e.Message)
			}
			return nil, err
		}
		out[i].Set("content", content)
	}
	return out, nil
}

// field is an object's text of a name, empty if it has none.
func field(o *jinja.Dict, name string) string {
	v, _ := o.Get(name)
	s, _ := v.(string)
	return s
}

// readContent is a message's content as its template reads it: a string, or a list of text parts.
func readContent(m tokenizer.Message, partsAsIs bool) (jinja.Value, error) {
	content, _ := m.Get("content")
	switch content := content.(type) {
	case string:
		return content, nil
	case nil, jinja.None:
		if slices.Contains([]string{"user", "system", "developer"}, field(m, "role")) {
			return nil, invalid("", "only an assistant's or a tool's message may have none")
		}
		return "", nil
	case *jinja.List:
		texts := make([]string, len(content.Items()))
		parts := make([]jinja.Value, len(texts))
		for i, p := range content.Items() {
			text, err := readPart(p, i)
			if err != nil {
				return nil, err
			}
			part := jinja.NewDict()
			part.Set("type", "text")
			part.Set("text", text)
			texts[i], parts[i] = text, part
		}
		if partsAsIs {
			return jinja.NewList(parts...), nil
		}
		return strings.Join(texts, "\n"), nil
	}
	return nil, invalid("", "want a string or a list of text parts")
}

func readPart(p jinja.Value, i int) (string, error) {
	if text, ok := p.(string); ok {
		return text, nil
	}
	part, _ := p.(*jinja.Dict)
	kind, name := field(part, "type"), "text"
	switch kind {
	case "text", "input_text", "output_text", "refusal":
		if kind == "refusal" {
			name = kind
		}
		if v, ok := part.Get(name); ok {
			if text, ok := v.(string); ok {
				return text, nil
			}
		}
	case "":
	default:
		e := unsupported(fmt.Sprintf("[%d].type", i))
		e.Message = fmt.Sprintf("part %d: parts of type %q are not supported, only text is", i, kind)
		return "", e
	}
	return "", invalid(fmt.Sprintf("[%d]", i), "part %d: want {\"type\": \"text\", \"text\": …}", i)
}
