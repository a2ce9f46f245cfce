package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind int

const (
	endToken tokenKind = iota
	dataToken
	printBegin
	printEnd
	tagBegin
	tagEnd
	nameToken
	stringToken
	intToken
	floatToken
	operator
)

// token is a piece of the source: text is its text, or what a string says, or the operator's sign.
type token struct {
	kind tokenKind
	line int
	text string
	num  Value
}

// lexer cuts a source into tokens. White space is cut as trim_blocks and lstrip_blocks say: the newline after a tag or
// comment goes, and so do blanks before one that begins its line.
type lexer struct {
	src      string
	pos      int
	line     int
	fresh    bool // a line begins at pos
	brackets []byte
	toks     []token
}

func lex(source string) ([]token, error) {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{src: strings.TrimSuffix(source, "\n"), line: 1, fresh: true}
	for l.pos < len(l.src) {
		if err := l.root(); err != nil {
			return nil, err
		}
	}
	l.add(endToken, "")
	return l.toks, nil
}

func (l *lexer) add(kind tokenKind, text string) {
	l.toks = append(l.toks, token{kind: kind, line: l.line, text: text})
}

// take moves over n bytes.
func (l *lexer) take(n int) string {
	s := l.src[l.pos : l.pos+n]
	if n > 0 {
		l.line += strings.Count(s, "\n")
		l.fresh = s[n-1] == '\n'
		l.pos += n
	}
	return s
}

// rest is what is left of the source.
func (l *lexer) rest() string { return l.src[l.pos:] }

// opening finds the next {{, {% or {#; −1 if there is none.
func opening(s string) int {
	for at := 0; ; at++ {
		i := strings.IndexByte(s[at:], '{')
		if i < 0 || at+i+1 >= len(s) {
			return -1
		}
		at += i
		if c := s[at+1]; c == '{' || c == '%' || c == '#' {
			return at
		}
	}
}

// sign is the - or + after an opening or before a closing, 0 if there is none.
func sign(s string) byte {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return s[0]
	}
	return 0
}

// root reads text up to an opening, and what it opens.
func (l *lexer) root() error {
	at := opening(l.rest())
	if at < 0 {
		l.add(dataToken, l.take(len(l.rest())))
		return nil
	}
	kind := l.rest()[at+1]
	mark := sign(l.rest()[at+2:])
	l.data(at, mark, kind != '{')
	if kind == '%' {
		if n := rawBegin(l.rest()); n > 0 {
			l.take(n)
			return l.raw()
		}
	}
	line := l.line
	l.take(2)
	if mark != 0 {
		l.take(1)
	}
	switch kind {
	case '#':
		return l.comment(line)
	case '%':
		l.add(tagBegin, "{%")
		return l.tag("%}", tagEnd)
	}
	l.add(printBegin, "{{")
	return l.tag("}}", printEnd)
}

// data adds the n bytes of text before a mark; blanks says that a tag's own line may lose its indentation.
func (l *lexer) data(n int, mark byte, blanks bool) {
	begins, line := l.fresh, l.line
	s := l.take(n)
	switch {
	case mark == '-':
		s = strings.TrimRightFunc(s, isSpace)
	case mark != '+' && blanks:
		from := strings.LastIndexByte(s, '\n') + 1
		if (from > 0 || begins) && strings.TrimLeftFunc(s[from:], isSpace) == "" {
			s = s[:from]
		}
	}
	if s != "" {
		l.toks = append(l.toks, token{kind: dataToken, line: line, text: s})
	}
}

// closing is the length of an end of a tag or comment at the start of s, with the white space that goes with it.
func closing(s, end string, trim bool) int {
	switch {
	case strings.HasPrefix(s, end):
		if trim && strings.HasPrefix(s[len(end):], "\n") {
			return len(end) + 1
		}
		return len(end)
	case strings.HasPrefix(s, "-"+end):
		return 1 + len(end) + spaces(s[1+len(end):])
	case trim && strings.HasPrefix(s, "+"+end):
		return 1 + len(end)
	}
	return 0
}

// spaces is the length of the white space that s begins with.
func spaces(s string) int { return len(s) - len(strings.TrimLeftFunc(s, isSpace)) }

func (l *lexer) comment(line int) error {
	s := l.rest()
	end := strings.Index(s, "#}")
	if end < 0 {
		return syntaxError(line, "Missing end of comment tag")
	}
	if end > 0 && sign(s[end-1:]) != 0 {
		end--
	}
	l.take(end + closing(s[end:], "#}", true))
	return nil
}

// rawBegin is the length of {% raw %} at the start of s, 0 if it is not there.
func rawBegin(s string) int {
	n := 2
	if sign(s[n:]) != 0 {
		n++
	}
	n += spaces(s[n:])
	if !strings.HasPrefix(s[n:], "raw") {
		return 0
	}
	n += 3
	n += spaces(s[n:])
	if end := closing(s[n:], "%}", false); end > 0 {
		return n + end
	}
	return 0
}

// raw reads text as it stands up to {% endraw %}.
func (l *lexer) raw() error {
	s := l.rest()
	for at := 0; ; at += 2 {
		i := strings.Index(s[at:], "{%")
		if i < 0 {
			return syntaxError(l.line, "Missing end of raw directive")
		}
		at += i
		mark, n := sign(s[at+2:]), at+2
		if mark != 0 {
			n++
		}
		n += spaces(s[n:])
		if !strings.HasPrefix(s[n:], "endraw") {
			continue
		}
		n += len("endraw")
		n += spaces(s[n:])
		if end := closing(s[n:], "%}", true); end > 0 {
			l.data(at, mark, true)
			l.take(n + end - at)
			return nil
		}
	}
}

// tag reads tokens up to the end of a tag.
func (l *lexer) tag(end string, kind tokenKind) error {
	l.brackets = l.brackets[:0]
	for l.pos < len(l.src) {
		if len(l.brackets) == 0 {
			if n := closing(l.rest(), end, kind == tagEnd); n > 0 {
				l.add(kind, end)
				l.take(n)
				return nil
			}
		}
		if err := l.inside(); err != nil {
			return err
		}
	}
	return nil
}

// inside reads one token of a tag, or white space.
func (l *lexer) inside() error {
	s := l.rest()
	if n := spaces(s); n > 0 {
		l.take(n)
		return nil
	}
	if n := floatEnd(s); n > 0 && !strings.HasSuffix(l.src[:l.pos], ".") {
		return l.number(floatToken, n)
	}
	if n := intEnd(s); n > 0 {
		return l.number(intToken, n)
	}
	if n := nameEnd(s); n > 0 {
		if first, _ := utf8.DecodeRuneInString(s); first != '_' && !unicode.IsLetter(first) && !unicode.Is(unicode.Nl, first) {
			return syntaxError(l.line, "Invalid character in identifier")
		}
		l.add(nameToken, s[:n])
		l.take(n)
		return nil
	}
	if s[0] == '\'' || s[0] == '"' {
		return l.quoted()
	}
	return l.operator()
}

// quoted reads a string; one without an end is no string.
func (l *lexer) quoted() error {
	s := l.rest()
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			text, err := unescape(s[1:i])
			if err != nil {
				return at(err, l.line)
			}
			l.add(stringToken, text)
			l.take(i + 1)
			return nil
		}
	}
	return syntaxError(l.line, "unexpected char %q: a string has no end", s[0])
}

func (l *lexer) operator() error {
	s := l.rest()
	n := 1
	if len(s) > 1 {
		switch s[:2] {
		case "//", "**", "==", "!=", ">=", "<=":
			n = 2
		}
	}
	op := s[:n]
	if !strings.Contains("+-/*%~[](){}><=.:|,;", op) && n == 1 {
		c, _ := utf8.DecodeRuneInString(s)
		return syntaxError(l.line, "unexpected char %q", c)
	}
	switch op {
	case "(", "[", "{":
		if len(l.brackets) >= maxNesting {
			return &LimitError{Limit: "nesting", Max: maxNesting, Line: l.line}
		}
		l.brackets = append(l.brackets, map[string]byte{"(": ')', "[": ']', "{": '}'}[op])
	case ")", "]", "}":
		last := len(l.brackets) - 1
		if last < 0 {
			return syntaxError(l.line, "unexpected '%s'", op)
		}
		if want := l.brackets[last]; want != op[0] {
			return syntaxError(l.line, "unexpected '%s', expected '%c'", op, want)
		}
		l.brackets = l.brackets[:last]
	}
	l.add(operator, op)
	l.take(n)
	return nil
}
