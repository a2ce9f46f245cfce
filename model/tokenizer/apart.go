package tokenizer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berthd/berth/model/tokenizer/jinja"
)

// maxMarked is how many different control tokens messages may name: each may cost a render.
const maxMarked = 32

// RenderApart is Render, and tells which stretches of the text come from the messages or extra and would be taken for
// control tokens though they are data: whoever wrote a message cannot end its turn.
//
// Such stretches are marked with characters that no text has, and rendered again. Where the marks change nothing else,
// they show in the text what was data. A template that looks for a control token itself, as for the end of a thought,
// renders otherwise with marks in it; that token is left to the template.
func (t *Template) RenderApart(tok *Tokenizer, messages []Message, answer bool, extra *jinja.Dict, now time.Time) (
	text string, plain []Span, err error) {
	if text, err = t.Render(messages, answer, extra, now); err != nil {
		return "", nil, err
	}
	m := &marker{tok: tok}
	m.look(messages, extra)
	if len(m.found) == 0 {
		return text, nil, nil
	}
	if err := m.choose(text); err != nil {
		return "", nil, err
	}
	render := func(only map[int32]bool) (marked string, same bool) {
		list, more := m.mark(messages, extra, only)
		marked, err := t.Render(list, answer, more, now)
		return marked, err == nil && m.strip(marked) == text
	}
	marked, same := render(m.found)
	if same {
		return text, m.spans(marked), nil
	}
	safe := map[int32]bool{}
	for _, id := range slices.Sorted(maps.Keys(m.found)) {
		if _, same := render(map[int32]bool{id: true}); same {
			safe[id] = true
		}
	}
	if marked, same = render(safe); !same {
		return "", nil, fmt.Errorf("%w: the messages have control tokens that cannot be told from the template's own",
			ErrTemplate)
	}
	return text, m.spans(marked), nil
}

// marker puts marks around control tokens in data.
type marker struct {
	tok         *Tokenizer
	finder      finder
	found       map[int32]bool
	open, close rune
	used        map[rune]bool // of the runes that marks are chosen from
}

// Marks are two of Unicode's noncharacters U+FDD0 to U+FDEF, which no text has to have.
const firstMark, lastMark = 0xFDD0, 0xFDEF

// look finds the control tokens in all strings.
func (m *marker) look(messages []Message, extra *jinja.Dict) {
	m.found, m.used = map[int32]bool{}, map[rune]bool{}
	see := func(s string) string {
		for _, c := range m.cuts(s) {
			m.found[c.id] = true
		}
		for _, r := range s {
			if r >= firstMark && r <= lastMark {
				m.used[r] = true
			}
		}
		return s
	}
	for _, one := range messages {
		mapped(one, see)
	}
	if extra != nil {
		mapped(extra, see)
	}
}

func (m *marker) cuts(s string) []cut {
	return m.finder.find(&m.tok.special, s, func(c cut) bool { return !m.tok.IsControl(c.id) })
}

// choose takes two marks that neither the data nor the text has.
func (m *marker) choose(text string) error {
	var free []rune
	for r := rune(firstMark); r <= lastMark && len(free) < 2; r++ {
		if !m.used[r] && !strings.ContainsRune(text, r) {
			free = append(free, r)
		}
	}
	if len(free) < 2 || len(m.found) > maxMarked {
		return fmt.Errorf("%w: the messages have more than %d different control tokens or noncharacters in them", ErrTemplate,
			maxMarked)
	}
	m.open, m.close = free[0], free[1]
	return nil
}

// mark copies data with marks around the given control tokens.
func (m *marker) mark(messages []Message, extra *jinja.Dict, only map[int32]bool) (list []Message, more *jinja.Dict) {
	around := func(s string) string {
		var b strings.Builder
		at := 0
		for _, c := range m.cuts(s) {
			if only[c.id] {
				b.WriteString(s[at:c.lo])
				b.WriteRune(m.open)
				b.WriteString(s[c.lo:c.hi])
				b.WriteRune(m.close)
				at = c.hi
			}
		}
		b.WriteString(s[at:])
		return b.String()
	}
	for _, one := range messages {
		list = append(list, mapped(one, around).(*jinja.Dict))
	}
	if extra != nil {
		more = mapped(extra, around).(*jinja.Dict)
	}
	return list, more
}

// mapped is v with every string in it changed, names apart.
func mapped(v jinja.Value, change func(string) string) jinja.Value {
	switch v := v.(type) {
	case string:
		return change(v)
	case *jinja.List:
		items := make([]jinja.Value, len(v.Items()))
		for i, one := range v.Items() {
			items[i] = mapped(one, change)
		}
		return jinja.NewList(items...)
	case *jinja.Dict:
		out := jinja.NewDict()
		for _, name := range v.Names() {
			one, _ := v.Get(name)
			out.Set(name, mapped(one, change))
		}
		return out
	}
	return v
}

func (m *marker) strip(marked string) string {
	return strings.Map(func(r rune) rune {
		if r == m.open || r == m.close {
			return -1
		}
		return r
	}, marked)
}

// spans are the marked stretches, in the text without marks.
func (m *marker) spans(marked string) (out []Span) {
	size, from := 0, -1
	for at, r := range marked {
		switch {
		case r == m.open:
			from = size
		case r != m.close:
			_, n := utf8.DecodeRuneInString(marked[at:])
			size += n
		case from >= 0:
			out, from = append(out, Span{from, size}), -1
		}
	}
	return out
}
