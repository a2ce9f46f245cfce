package tokenizer

import (
	"embed"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/model/tokenizer/jinja"
)

//go:embed templates/*.jinja
var builtin embed.FS

// ErrTemplate says that a chat template cannot be read, or refused the messages; the text says why. It wraps a
// *jinja.Error or a *jinja.LimitError.
var ErrTemplate = errors.New("chat template")

// Template renders chats. Its source comes from the operator: from the model file, a file of theirs, or the built-in
// ones. Whatever it says, a render ends and its memory is bounded (jinja.Limits).
type Template struct {
	compiled *jinja.Template
	bos, eos string
}

// Message is one message of a chat: its JSON fields, "role" and "content" among them, in the order in which they came.
type Message = *jinja.Dict

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
// under its own names; nil is none. Now is the time that the template is told if it asks. Nothing given is changed, and
// any number of goroutines may render at once.
func (t *Template) Render(messages []Message, answer bool, extra *jinja.Dict, now time.Time) (text string, err error) {
	defer func() { // a fault of the interpreter costs one chat, not the process
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrTemplate, r)
		}
	}()
	list := make([]jinja.Value, len(messages))
	for i, m := range messages {
		list[i] = m
	}
	vars := jinja.NewDict()
	vars.Set("messages", jinja.NewList(list...))
	vars.Set("tools", jinja.None{})
	vars.Set("documents", jinja.None{})
	vars.Set("add_generation_prompt", answer)
	vars.Set("bos_token", t.bos)
	vars.Set("eos_token", t.eos)
	for _, name := range extra.Names() {
		v, _ := extra.Get(name)
		vars.Set(name, v)
	}
	text, err = t.compiled.Render(vars, now, jinja.Limits{})
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	return text, nil
}
