package jinja

import (
	"slices"
	"strings"
)

// parser makes a tree of tokens.
type parser struct {
	toks  []token
	pos   int
	depth int
	loops int      // around here, in this function
	open  []string // tags around here
	ends  [][]string
}

func (p *parser) now() token { return p.toks[p.pos] }

func (p *parser) next() token {
	t := p.toks[p.pos]
	if t.kind != endToken {
		p.pos++
	}
	return t
}

func (p *parser) isOp(op string) bool { return p.now().kind == operator && p.now().text == op }

func (p *parser) isName(name string) bool { return p.now().kind == nameToken && p.now().text == name }

func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.pos++
		return true
	}
	return false
}

// then is the token after this one.
func (p *parser) then() token { return p.toks[min(p.pos+1, len(p.toks)-1)] }

// describe names a token in messages.
func describe(t token) string {
	switch t.kind {
	case endToken:
		return "end of template"
	case dataToken:
		return "template data / text"
	case printBegin:
		return "begin of print statement"
	case printEnd:
		return "end of print statement"
	case tagBegin:
		return "begin of statement block"
	case tagEnd:
		return "end of statement block"
	case stringToken:
		return "string"
	case intToken:
		return "integer"
	case floatToken:
		return "float"
	}
	return t.text
}

func (p *parser) fail(format string, a ...any) error { return syntaxError(p.now().line, format, a...) }

func (p *parser) expected(what string) error {
	if p.now().kind == endToken {
		return p.fail("unexpected end of template, expected '%s'.", what)
	}
	return p.fail("expected token '%s', got '%s'", what, describe(p.now()))
}

func (p *parser) wantOp(op string) error {
	if !p.skipOp(op) {
		return p.expected(op)
	}
	return nil
}

func (p *parser) wantWord(word string) error {
	if !p.skipName(word) {
		return p.expected(word)
	}
	return nil
}

func (p *parser) wantName() (string, error) {
	if p.now().kind != nameToken {
		return "", p.expected("name")
	}
	return p.next().text, nil
}

func (p *parser) want(kind tokenKind) error {
	if p.now().kind != kind {
		return p.expected(describe(token{kind: kind}))
	}
	p.pos++
	return nil
}

// deeper goes into something nested; its end is p.depth--.
func (p *parser) deeper() error {
	if p.depth++; p.depth > maxNesting {
		return &LimitError{Limit: "nesting", Max: maxNesting, Line: p.now().line}
	}
	return nil
}

// body reads statements up to a tag with one of these names, which it leaves to be read.
func (p *parser) body(ends ...string) ([]stmt, error) {
	p.skipOp(":")
	if err := p.want(tagEnd); err != nil {
		return nil, err
	}
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	p.ends = append(p.ends, ends)
	list, err := p.statements(ends)
	p.ends = p.ends[:len(p.ends)-1]
	if err == nil && p.now().kind == endToken {
		err = p.unknown("", ends)
	}
	return list, err
}

// through reads statements up to a tag of this name, and the name.
func (p *parser) through(end string) ([]stmt, error) {
	list, err := p.body(end)
	if err == nil {
		p.pos++
	}
	return list, err
}

func (p *parser) statements(ends []string) ([]stmt, error) {
	var list []stmt
	for {
		t := p.now()
		switch t.kind {
		case endToken:
			return list, nil
		case dataToken:
			p.pos++
			list = append(list, &literal{line(t.line), t.text})
			continue
		case printBegin:
			p.pos++
			e, err := p.tuple(tupleRules{})
			if err == nil {
				err = p.want(printEnd)
			}
			if err != nil {
				return nil, err
			}
			list = append(list, &output{line(t.line), e})
			continue
		}
		p.pos++ // the beginning of a tag
		if p.now().kind == nameToken && slices.Contains(ends, p.now().text) {
			return list, nil
		}
		more, err := p.statement()
		if err == nil {
			err = p.want(tagEnd)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
}

// unknown is the error of a tag that cannot stand here, or, without a name, of a source that ends too early.
func (p *parser) unknown(name string, ends []string) error {
	text := "Unexpected end of template."
	if name != "" {
		text = "Encountered unknown tag '" + name + "'."
		if len(p.ends) > 0 {
			ends = p.ends[len(p.ends)-1]
		}
	}
	if len(ends) > 0 {
		nested := slices.ContainsFunc(p.ends, func(e []string) bool { return slices.Contains(e, name) })
		looking := "'" + strings.Join(ends, "' or '") + "'"
		if name != "" && nested {
			text += " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for " + looking + "."
		} else {
			text += " Jinja was looking for the following tags: " + looking + "."
		}
	}
	if len(p.open) > 0 {
		text += " The innermost block that needs to be closed is '" + p.open[len(p.open)-1] + "'."
	}
	return p.fail("%s", text)
}

// statement reads a tag and what belongs to it, up to the end of its last tag.
func (p *parser) statement() ([]stmt, error) {
	t := p.now()
	if t.kind != nameToken {
		return nil, p.fail("tag name expected")
	}
	read := p.tagOf(t.text)
	switch {
	case t.text == "print":
		return p.printTag(line(t.line))
	case slices.Contains([]string{"extends", "include", "import", "from"}, t.text):
		return nil, p.fail("'%s' is not supported: a chat template stands alone", t.text)
	case read == nil:
		return nil, p.unknown(t.text, nil)
	}
	p.pos++
	p.open = append(p.open, t.text)
	s, err := read(line(t.line))
	p.open = p.open[:len(p.open)-1]
	if err != nil {
		return nil, err
	}
	return []stmt{s}, nil
}

// tagOf reads a tag of this name; nil if there is none.
func (p *parser) tagOf(name string) func(line) (stmt, error) {
	switch name {
	case "for":
		return p.forTag
	case "if":
		return p.ifTag
	case "set":
		return p.setTag
	case "macro":
		return p.macroTag
	case "call":
		return p.callTag
	case "filter":
		return p.filterTag
	case "with":
		return p.withTag
	case "block":
		return p.blockTag
	case "break", "continue":
		return p.leaveTag
	case "autoescape":
		return p.autoescapeTag
	case "generation":
		return p.generationTag
	}
	return nil
}
