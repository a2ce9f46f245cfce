package jinja

import (
	"slices"
	"strings"
)

func (p *parser) printTag(at line) (list []stmt, err error) {
	p.pos++
	for p.now().kind != tagEnd {
		if len(list) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		list = append(list, &output{at, e})
	}
	return list, nil
}

func (p *parser) forTag(at line) (stmt, error) {
	s := &forLoop{line: at}
	var err error
	if s.target, err = p.target(tupleRules{stop: "in"}); err != nil {
		return nil, err
	}
	if err = p.wantWord("in"); err != nil {
		return nil, err
	}
	if s.iter, err = p.tuple(tupleRules{plain: true, stop: "recursive"}); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if s.test, err = p.expression(); err != nil {
			return nil, err
		}
	}
	s.recursive = p.skipName("recursive")
	p.loops++
	s.body, err = p.body("endfor", "else")
	p.loops--
	if err != nil {
		return nil, err
	}
	if p.next().text == "else" {
		s.orElse, err = p.through("endfor")
	}
	return s, err
}

func (p *parser) ifTag(at line) (stmt, error) {
	s := &branch{line: at}
	for {
		test, err := p.tuple(tupleRules{plain: true})
		if err != nil {
			return nil, err
		}
		body, err := p.body("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.tests, s.bodies = append(s.tests, test), append(s.bodies, body)
		switch p.next().text {
		case "else":
			body, err := p.through("endif")
			s.bodies = append(s.bodies, body)
			return s, err
		case "endif":
			return s, nil
		}
	}
}

func (p *parser) setTag(at line) (stmt, error) {
	target, err := p.target(tupleRules{parts: true})
	if err != nil {
		return nil, err
	}
	if p.skipOp("=") {
		value, err := p.tuple(tupleRules{})
		return &assign{line: at, target: target, value: value}, err
	}
	s := &capture{line: at, target: target}
	if s.filter, err = p.filters(nil, false); err != nil {
		return nil, err
	}
	s.body, err = p.through("endset")
	return s, err
}

// target reads what can be assigned to.
func (p *parser) target(rules tupleRules) (expr, error) {
	rules.simple = true
	e, err := p.tuple(rules)
	if err != nil {
		return nil, err
	}
	return e, p.assignable(e)
}

func (p *parser) assignable(e expr) error {
	switch e := e.(type) {
	case *variable, *part:
		return nil
	case *tupleOf:
		for _, item := range e.items {
			if err := p.assignable(item); err != nil {
				return err
			}
		}
		return nil
	case *constant:
		return p.fail("can't assign to 'const'")
	}
	return p.fail("can't assign to an expression")
}

func (p *parser) macroTag(at line) (stmt, error) {
	name, err := p.wantName()
	if err != nil {
		return nil, err
	}
	if slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, name) {
		return nil, p.fail("can't assign to 'name'")
	}
	code := &macroCode{name: name}
	if err := p.signature(code); err != nil {
		return nil, err
	}
	return &macroDef{line: at, name: name, code: code}, p.routine(code, "endmacro")
}

// routine reads the body of something that is called: no loop around it can be left from within.
func (p *parser) routine(code *macroCode, end string) (err error) {
	loops := p.loops
	p.loops = 0
	code.body, err = p.through(end)
	p.loops = loops
	return err
}

func (p *parser) signature(code *macroCode) error {
	if err := p.wantOp("("); err != nil {
		return err
	}
	for !p.isOp(")") {
		if len(code.params) > 0 {
			if err := p.wantOp(","); err != nil {
				return err
			}
		}
		name, err := p.wantName()
		if err != nil {
			return err
		}
		code.params = append(code.params, name)
		switch {
		case p.skipOp("="):
			e, err := p.expression()
			if err != nil {
				return err
			}
			code.defaults = append(code.defaults, e)
		case len(code.defaults) > 0:
			return p.fail("non-default argument follows default argument")
		}
	}
	return p.wantOp(")")
}

func (p *parser) callTag(at line) (stmt, error) {
	code := &macroCode{}
	if p.isOp("(") {
		if err := p.signature(code); err != nil {
			return nil, err
		}
	}
	e, err := p.expression()
	if err != nil {
		return nil, err
	}
	call, ok := e.(*invoke)
	if !ok {
		return nil, p.fail("expected call")
	}
	return &callBlock{line: at, call: call, code: code}, p.routine(code, "endcall")
}

// generationTag reads what marks an answer for training: it changes nothing in the text.
func (p *parser) generationTag(at line) (stmt, error) {
	code := &macroCode{}
	return &callBlock{line: at, code: code}, p.routine(code, "endgeneration")
}

func (p *parser) filterTag(at line) (stmt, error) {
	f, err := p.filters(nil, true)
	if err != nil {
		return nil, err
	}
	body, err := p.through("endfilter")
	return &filterBlock{line: at, filter: f, body: body}, err
}

func (p *parser) withTag(at line) (stmt, error) {
	s := &with{line: at}
	for p.now().kind != tagEnd && !p.isOp(":") {
		if len(s.targets) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
		}
		target, err := p.target(tupleRules{})
		if err != nil {
			return nil, err
		}
		if err := p.wantOp("="); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.targets, s.values = append(s.targets, target), append(s.values, value)
	}
	var err error
	s.body, err = p.through("endwith")
	return s, err
}

func (p *parser) autoescapeTag(at line) (stmt, error) {
	e, err := p.expression()
	if err != nil {
		return nil, err
	}
	if c, ok := e.(*constant); !ok || truth(c.value) {
		return nil, p.fail("'autoescape' is not supported: chats are no HTML")
	}
	body, err := p.through("endautoescape")
	return &scoped{line: at, body: body}, err
}

func (p *parser) blockTag(at line) (stmt, error) {
	name, err := p.wantName()
	if err != nil {
		return nil, err
	}
	s := &block{line: at, name: name, shared: p.skipName("scoped"), code: &macroCode{name: name}}
	required := p.skipName("required")
	if err := p.routine(s.code, "endblock"); err != nil {
		return nil, err
	}
	s.body = s.code.body
	for _, b := range s.body {
		if l, ok := b.(*literal); required && (!ok || strings.TrimFunc(l.text, isSpace) != "") {
			return nil, p.fail("Required blocks can only contain comments or whitespace")
		}
	}
	p.skipName(name)
	return s, nil
}

func (p *parser) leaveTag(at line) (stmt, error) {
	how := broken
	word := p.toks[p.pos-1].text
	if word == "continue" {
		how = continued
	}
	if p.loops == 0 {
		return nil, p.fail("'%s' outside loop", word)
	}
	return &leave{at, how}, nil
}
