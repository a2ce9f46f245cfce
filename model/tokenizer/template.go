package tokenizer

import (
	"embed"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ardanlabs/jinja"
)

//go:embed templates/*.jinja
var builtin embed.FS

// ErrTemplate says that a chat template cannot be read, or refused the messages; the text says why.
var ErrTemplate = errors.New("chat template")

// Template renders chats. Its source comes from the operator: from the model file, a file of theirs, or the built-in
// ones; never from a request, since the engine cannot be stopped once it renders.
type Template struct {
	compiled *jinja.Template
	bos, eos string
}

// Message is one message of a chat: its JSON fields, "role" and "content" among them.
type Message map[string]any

// Builtin is the source of a built-in template.
func Builtin(name string) (string, error) {
	source, err := builtin.ReadFile("templates/" + name + ".jinja")
	if err != nil {
		return "", fmt.Errorf("%w: there is no built-in %q; there are %s", ErrTemplate, name, strings.Join(BuiltinNames(), ", "))
	}
	return string(source), nil
}

// BuiltinNames are the names that Builtin knows, ascending.
func BuiltinNames() []string {
	entries, _ := builtin.ReadDir("templates")
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(path.Base(e.Name()), ".jinja")
	}
	slices.Sort(names)
	return names
}

// NewTemplate compiles a Jinja source; bos and eos are the texts of the vocabulary's beginning and end tokens.
func NewTemplate(source, bos, eos string) (*Template, error) {
	t, err := jinja.Compile(source)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	return &Template{t, bos, eos}, nil
}

// Render gives the text of a chat, with the beginning of the answer's turn if asked for. Extra goes to the template
// under its own names.
func (t *Template) Render(messages []Message, answer bool, extra map[string]any) (text string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrTemplate, r)
		}
	}()
	list := make([]any, len(messages))
	for i, m := range messages {
		list[i] = map[string]any(m)
	}
	data := map[string]any{
		"tools": nil, "documents": nil, "messages": list, "add_generation_prompt": answer,
		"bos_token": t.bos, "eos_token": t.eos,
	}
	for k, v := range extra {
		data[k] = v
	}
	text, err = t.compiled.Render(data)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	return text, nil
}
