package router

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/berthd/berth/model/tokenizer"
)

// readPrompt is the ids of a completion's prompt: one text, or one list of ids, each maybe as the only one of a
// list. Of a list of more than limit ids it is only known how many there are: that is CTX-001, with maxTokens.
func readPrompt(f *fields, k *card, limit, maxTokens int) ([]int32, error) {
	raw, ok := f.get("prompt")
	if !ok {
		return nil, invalid("prompt", "prompt is missing: give a string or a list of token ids")
	}
	n := 0
	eachElement(raw, func(element []byte) bool {
		if n == 0 {
			if element[0] != '"' && element[0] != '[' {
				return false
			}
			raw = element
		}
		n++
		return n < 2
	})
	if n > 1 {
		return nil, unsupported("prompt")
	}
	prompt, err := onePrompt(raw, k, f.boolean("add_special_tokens", true), limit, maxTokens)
	if err != nil {
		return nil, err
	}
	if len(prompt) == 0 {
		return nil, invalid("prompt", "prompt is empty")
	}
	return prompt, nil
}

func onePrompt(raw json.RawMessage, k *card, beginning bool, limit, maxTokens int) ([]int32, error) {
	if raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil || text == "" {
			return nil, invalid("prompt", "prompt is empty")
		}
		return k.encode(text, beginning), nil
	}
	prompt, isList, many, err := ids(raw, "prompt", k.tok.Len(), limit)
	switch {
	case err == nil && !isList:
		err = invalid("prompt", "prompt must be a string or a list of token ids")
	case many > 0:
		err = contextExceeded(many, max(1, maxTokens), limit)
	}
	return prompt, err
}

// encode turns text into ids, after one beginning token if the vocabulary wants it and the text does not have it.
func (k *card) encode(text string, beginning bool) []int32 {
	if beginning {
		return k.tok.EncodePrompt(text)
	}
	return k.tok.Encode(nil, text, true)
}

// readChat is the ids of a chat: its messages in the model's own form, and the beginning of the answer's turn.
func readChat(f *fields, k *card) ([]int32, error) {
	text, err := renderChat(f, k)
	if err != nil {
		return nil, err
	}
	prompt := k.encode(text, true)
	if len(prompt) == 0 {
		return nil, invalid("messages", "messages make an empty prompt")
	}
	return prompt, nil
}

func renderChat(f *fields, k *card) (string, error) {
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
	text, err := k.template.Render(messages, f.boolean("add_generation_prompt", true), extra)
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

func readTemplateArgs(f *fields) (map[string]any, error) {
	raw, ok := f.get("chat_template_kwargs")
	if !ok {
		return nil, nil
	}
	var extra map[string]any
	if crowded(raw, maxTemplateArgs) {
		return nil, invalid("chat_template_kwargs", "chat_template_kwargs has more than %d values", maxTemplateArgs)
	}
	if json.Unmarshal(raw, &extra) != nil {
		return nil, invalid("chat_template_kwargs", "chat_template_kwargs must be an object")
	}
	for name := range extra {
		if templateData[name] {
			return nil, invalid("chat_template_kwargs", "chat_template_kwargs must not set %s", name)
		}
	}
	return extra, nil
}

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
		if role, ok := out[i]["role"].(string); !ok || role == "" {
			return nil, invalid(fmt.Sprintf("messages[%d].role", i), "messages[%d] has no role", i)
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
		out[i]["content"] = content
	}
	return out, nil
}

// readContent is a message's content as its template reads it: a string, or a list of text parts.
func readContent(m tokenizer.Message, partsAsIs bool) (any, error) {
	switch content := m["content"].(type) {
	case string:
		return content, nil
	case nil:
		if m["role"] == "user" || m["role"] == "system" || m["role"] == "developer" {
			return nil, invalid("", "only an assistant's or a tool's message may have none")
		}
		return "", nil
	case []any:
		texts := make([]string, len(content))
		parts := make([]any, len(content))
		for i, p := range content {
			text, err := readPart(p, i)
			if err != nil {
				return nil, err
			}
			texts[i], parts[i] = text, map[string]any{"type": "text", "text": text}
		}
		if partsAsIs {
			return parts, nil
		}
		return strings.Join(texts, "\n"), nil
	}
	return nil, invalid("", "want a string or a list of text parts")
}

func readPart(p any, i int) (string, error) {
	if text, ok := p.(string); ok {
		return text, nil
	}
	part, _ := p.(map[string]any)
	kind, _ := part["type"].(string)
	switch kind {
	case "text", "input_text", "output_text":
		if text, ok := part["text"].(string); ok {
			return text, nil
		}
	case "refusal":
		if text, ok := part["refusal"].(string); ok {
			return text, nil
		}
	case "":
	default:
		e := unsupported(fmt.Sprintf("[%d].type", i))
		e.Message = fmt.Sprintf("part %d: parts of type %q are not supported, only text is", i, kind)
		return "", e
	}
	return "", invalid(fmt.Sprintf("[%d]", i), "part %d: want {\"type\": \"text\", \"text\": …}", i)
}
