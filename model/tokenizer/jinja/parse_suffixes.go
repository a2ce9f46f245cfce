package jinja

import "slices"

// postfix reads attributes, subscripts and calls after an expression.
func (p *parser) postfix(e expr) (expr, error) {
	var err error
	for links := 0; err == nil; links++ {
		if err = p.chained(links); err != nil {
			break
		}
		switch {
		case p.skipOp("."):
			e, err = p.attribute(e)
		case p.skipOp("["):
			e, err = p.subscript(e)
		case p.isOp("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
	}
	return nil, err
}

// suffixes reads filters, tests and calls after an expression.
func (p *parser) suffixes(e expr) (expr, error) {
	var err error
	for links := 0; err == nil; links++ {
		if err = p.chained(links); err != nil {
			break
		}
		switch {
		case p.isOp("|"):
			e, err = p.filters(e, false)
		case p.isName("is"):
			e, err = p.test(e)
		case p.isOp("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
	}
	return nil, err
}

func (p *parser) attribute(of expr) (expr, error) {
	switch t := p.next(); t.kind {
	case nameToken:
		return newAttribute(of, t.text), nil
	case intToken:
		return &subscript{of, &constant{t.num}}, nil
	}
	return nil, p.fail("expected name or number")
}

func (p *parser) subscript(of expr) (expr, error) {
	var items []expr
	for !p.isOp("]") {
		if len(items) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
		}
		e, err := p.subscribed()
		if err != nil {
			return nil, err
		}
		items = append(items, e)
	}
	if len(items) != 1 {
		if slices.ContainsFunc(items, func(e expr) bool { _, is := e.(*slicing); return is }) {
			return nil, p.fail("a slice cannot stand among several subscripts")
		}
		return &subscript{of, &tupleOf{items}}, p.wantOp("]")
	}
	if s, ok := items[0].(*slicing); ok {
		s.of = of
		return s, p.wantOp("]")
	}
	return &subscript{of, items[0]}, p.wantOp("]")
}

func (p *parser) subscribed() (expr, error) {
	s := &slicing{}
	var err error
	if !p.isOp(":") {
		e, err := p.expression()
		if err != nil || !p.isOp(":") {
			return e, err
		}
		s.start = e
	}
	p.pos++
	if !p.isOp(":") && !p.isOp("]") && !p.isOp(",") {
		if s.stop, err = p.expression(); err != nil {
			return nil, err
		}
	}
	if p.skipOp(":") && !p.isOp("]") && !p.isOp(",") {
		s.step, err = p.expression()
	}
	return s, err
}

func (p *parser) call(fn expr) (expr, error) {
	c := &invoke{fn: fn}
	return c, p.arguments(&c.args)
}

func (p *parser) arguments(a *arguments) error {
	if err := p.wantOp("("); err != nil {
		return err
	}
	for first := true; !p.isOp(")"); first = false {
		if !first {
			if err := p.wantOp(","); err != nil {
				return err
			}
			if p.isOp(")") {
				break
			}
		}
		if err := p.argument(a); err != nil {
			return err
		}
	}
	return p.wantOp(")")
}

func (p *parser) argument(a *arguments) (err error) {
	ok := true
	switch {
	case p.skipOp("*"):
		ok = a.star == nil && a.pair == nil
		a.star, err = p.expression()
	case p.skipOp("**"):
		ok = a.pair == nil
		a.pair, err = p.expression()
	case p.now().kind == nameToken && p.then().kind == operator && p.then().text == "=":
		ok = a.pair == nil
		name := p.next().text
		p.pos++
		if slices.Contains(a.names, name) {
			return p.fail("keyword argument repeated: %s", name)
		}
		var e expr
		e, err = p.expression()
		a.names, a.named = append(a.names, name), append(a.named, e)
	default:
		ok = a.star == nil && a.pair == nil && len(a.names) == 0
		var e expr
		e, err = p.expression()
		a.pos = append(a.pos, e)
	}
	if err == nil && !ok {
		err = p.fail("invalid syntax for function call expression")
	}
	return err
}

// dotted reads the name of a filter or test.
func (p *parser) dotted() (string, error) {
	name, err := p.wantName()
	for err == nil && p.skipOp(".") {
		var more string
		more, err = p.wantName()
		name += "." + more
	}
	return name, err
}

// filters reads a chain of filters; inline says that the first comes without its sign.
func (p *parser) filters(of expr, inline bool) (expr, error) {
	e := of
	for links := 0; inline || p.skipOp("|"); links++ {
		if err := p.chained(links); err != nil {
			return nil, err
		}
		inline = false
		f := &filtered{of: e, line: p.now().line}
		var err error
		if f.name, err = p.dotted(); err != nil {
			return nil, err
		}
		if p.isOp("(") {
			if err := p.arguments(&f.args); err != nil {
				return nil, err
			}
		}
		e = f
	}
	return e, nil
}

func (p *parser) test(of expr) (expr, error) {
	p.pos++ // is
	negated := p.skipName("not")
	t := &tested{of: of, line: p.now().line}
	var err error
	if t.name, err = p.dotted(); err != nil {
		return nil, err
	}
	switch {
	case p.isOp("("):
		err = p.arguments(&t.args)
	case p.takesOperand():
		if p.isName("is") {
			return nil, p.fail("You cannot chain multiple tests with is")
		}
		var e expr
		if e, err = p.primary(false); err == nil {
			e, err = p.postfix(e)
		}
		t.args.pos = []expr{e}
	}
	if negated {
		return &not{t}, err
	}
	return t, err
}

// takesOperand says whether what follows a test's name is its argument.
func (p *parser) takesOperand() bool {
	switch t := p.now(); t.kind {
	case nameToken:
		return t.text != "else" && t.text != "or" && t.text != "and"
	case stringToken, intToken, floatToken:
		return true
	case operator:
		return t.text == "[" || t.text == "{"
	}
	return false
}
