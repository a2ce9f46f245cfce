package router

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/model/tokenizer"
	"github.com/berthd/berth/model/tokenizer/jinja"
)

// prompt is one of a request's: its ids, and its text if it came as one.
type prompt struct {
	ids  []int32
	text string
}

// readPrompts are a completion's prompts, at most most: a text or a list of ids, or a list of either. Of a list of more
// than limit ids it is only known how many there are: that is CTX-001, with maxTokens.
func readPrompts(f *fields, k *card, most, limit, maxTokens int) (out []prompt, err error) {
	raw, ok := f.get("prompt")
	if !ok {
		return nil, invalid("prompt", "prompt is missing: give a string, a list of token ids, or a list of either")
	}
	beginning, several := f.boolean("add_special_tokens", true), false
	eachElement(raw, func(element []byte) bool {
		if !several && element[0] != '"' && element[0] != '[' {
			return false // a list of ids
		}
		several = true
		var one prompt
		if one, err = onePrompt(element, k, beginning, limit, maxTokens); err != nil {
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
		out[0], err = onePrompt(raw, k, beginning, limit, maxTokens)
	}
	return out, err
}

func onePrompt(raw json.RawMessage, k *card, beginning bool, limit, maxTokens int) (p prompt, err error) {
	if raw[0] == '"' {
		if err := json.Unmarshal(raw, &p.text); err != nil || p.text == "" {
			return p, invalid("prompt", "prompt is empty")
		}
		p.ids = k.encode(p.text, beginning)
	} else {
		var isList bool
		var many int
		p.ids, isList, many, err = ids(raw, "prompt", k.tok.Len(), limit)
		switch {
		case err == nil && !isList:
			err = invalid("prompt", "prompt must be a string, a list of token ids, or a list of either")
		case many > 0:
			err = contextExceeded(many, max(1, maxTokens), limit)
		}
	}
	if err == nil && len(p.ids) == 0 {
		err = invalid("prompt", "prompt is empty")
	}
	return p, err
}

// encode turns text into ids, after one beginning token if the vocabulary wants it and the text does not have it.
func (k *card) encode(text string, beginning bool) []int32 {
	if beginning {
		return k.tok.EncodePrompt(text)
	}
	return k.tok.Encode(nil, text, true)
}

// readChat is the ids of a chat: its messages in the model's own form, and the beginning of the answer's turn. Now is what
// a template says the date is.
func readChat(f *fields, k *card, now time.Time) ([]int32, error) {
	text, err := renderChat(f, k, now)
	if err != nil {
		return nil, err
	}
	prompt := k.encode(text, true)
	if len(prompt) == 0 {
		return nil, invalid("messages", "messages make an empty prompt")
	}
	return prompt, nil
}

func renderChat(f *fields, k *card, now time.Time) (string, error) {
	messages, err := readMessages(f, k.partsAsIs)
	if err != nil {
		return "", err
	}
	if k.template == nil {
		return "", invalid("messages", "%s", k.templateFault)
	}
	extra, err := readTemplateArgs(f)
	if err != nil {
		return "", err
	}
	text, err := k.template.Render(messages, f.boolean("add_generation_prompt", true), extra, now)
	if err != nil {
		return "", invalid("messages", "the model's chat template refuses the messages: %s",
			strings.TrimPrefix(err.Error(), tokenizer.ErrTemplate.Error()+": "))
	}
	return text, nil
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
