package jinja

import (
	"slices"
	"strings"
)

// tupleRules say what a list of expressions, which a tuple may be without brackets, looks like here.
type tupleRules struct {
	simple bool   // targets only
	plain  bool   // no conditional expressions
	inside bool   // brackets around it: it may be empty
	parts  bool   // attributes of namespaces are targets too
	stop   string // a word that ends it
}

func (p *parser) tuple(rules tupleRules) (expr, error) {
	var items []expr
	comma := false
	for {
		if len(items) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
		}
		t := p.now()
		if t.kind == printEnd || t.kind == tagEnd || p.isOp(")") || rules.stop != "" && p.isName(rules.stop) {
			break
		}
		e, err := p.element(rules)
		if err != nil {
			return nil, err
		}
		items = append(items, e)
		if !p.isOp(",") {
			break
		}
		comma = true
	}
	switch {
	case !comma && len(items) == 1:
		return items[0], nil
	case len(items) == 0 && !rules.inside:
		return nil, p.fail("Expected an expression, got '%s'", describe(p.now()))
	}
	return &tupleOf{items}, nil
}

func (p *parser) element(rules tupleRules) (expr, error) {
	switch {
	case rules.simple:
		return p.primary(rules.parts)
	case rules.plain:
		return p.or()
	}
	return p.expression()
}

// expression reads one, conditional ones among them: a if b else c.
func (p *parser) expression() (expr, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	at := p.now().line
	e, err := p.or()
	for links := 0; err == nil && p.skipName("if"); links++ {
		c := &choice{yes: e, line: at}
		if c.test, err = p.or(); err == nil && p.skipName("else") {
			c.no, err = p.expression()
		}
		if err == nil {
			err = p.chained(links)
		}
		e, at = c, p.now().line
	}
	return e, err
}

// chained bounds the links of a chain of operators, whose tree is as deep as it is long.
func (p *parser) chained(links int) error {
	if links >= maxNesting {
		return &LimitError{Limit: "nesting", Max: maxNesting, Line: p.now().line}
	}
	return nil
}

// chain reads operands with operators of one rank between them, grouped from the left.
func (p *parser) chain(operand func() (expr, error), match func() string, join func(op string, l, r expr) expr) (expr, error) {
	e, err := operand()
	for links := 0; err == nil; links++ {
		op := match()
		if op == "" {
			return e, nil
		}
		if err = p.chained(links); err != nil {
			break
		}
		var right expr
		if right, err = operand(); err == nil {
			e = join(op, e, right)
		}
	}
	return nil, err
}

// word takes a name that is an operator.
func (p *parser) word(name string) func() string {
	return func() string {
		if p.skipName(name) {
			return name
		}
		return ""
	}
}

// sign takes one of these operators.
func (p *parser) sign(ops ...string) func() string {
	return func() string {
		if t := p.now(); t.kind == operator && slices.Contains(ops, t.text) {
			p.pos++
			return t.text
		}
		return ""
	}
}

func logical(op string, l, r expr) expr { return &logic{op == "or", l, r} }

func arithmetic(op string, l, r expr) expr { return &binary{op, l, r} }

func (p *parser) or() (expr, error) { return p.chain(p.and, p.word("or"), logical) }

func (p *parser) and() (expr, error) { return p.chain(p.not, p.word("and"), logical) }

func (p *parser) not() (expr, error) {
	if !p.skipName("not") {
		return p.compare()
	}
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	e, err := p.not()
	return &not{e}, err
}

func (p *parser) compare() (expr, error) {
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	c := &compared{first: first}
	for {
		op := p.sign("==", "!=", "<", "<=", ">", ">=")()
		switch {
		case op != "":
		case p.skipName("in"):
			op = "in"
		case p.isName("not") && p.then().kind == nameToken && p.then().text == "in":
			p.pos += 2
			op = "not in"
		case len(c.ops) == 0:
			return first, nil
		default:
			return c, nil
		}
		right, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.ops, c.rest = append(c.ops, op), append(c.rest, right)
	}
}

func (p *parser) sum() (expr, error) { return p.chain(p.concat, p.sign("+", "-"), arithmetic) }

func (p *parser) concat() (expr, error) {
	first, err := p.product()
	if err != nil || !p.isOp("~") {
		return first, err
	}
	j := &joined{parts: []expr{first}}
	for p.skipOp("~") {
		e, err := p.product()
		if err != nil {
			return nil, err
		}
		j.parts = append(j.parts, e)
	}
	return j, nil
}

func (p *parser) product() (expr, error) {
	return p.chain(p.power, p.sign("*", "/", "//", "%"), arithmetic)
}

func (p *parser) power() (expr, error) {
	return p.chain(func() (expr, error) { return p.unary(true) }, p.sign("**"), arithmetic)
}

func (p *parser) unary(withFilters bool) (e expr, err error) {
	if op := p.sign("-", "+")(); op != "" {
		if err := p.deeper(); err != nil {
			return nil, err
		}
		e, err = p.unary(false)
		p.depth--
		e = &unary{op[0], e}
	} else {
		e, err = p.primary(false)
	}
	if err == nil {
		e, err = p.postfix(e)
	}
	if err == nil && withFilters {
		e, err = p.suffixes(e)
	}
	return e, err
}

func (p *parser) primary(parts bool) (expr, error) {
	t := p.now()
	switch t.kind {
	case nameToken:
		p.pos++
		return p.named(t, parts)
	case stringToken:
		var parts []string
		for p.now().kind == stringToken {
			parts = append(parts, p.next().text)
		}
		return &constant{strings.Join(parts, "")}, nil
	case intToken, floatToken:
		p.pos++
		return &constant{t.num}, nil
	case operator:
		switch t.text {
		case "(":
			return p.bracketed()
		case "[":
			p.pos++
			items, err := p.items("]")
			return &listOf{items}, err
		case "{":
			p.pos++
			return p.dict()
		}
	}
	return nil, p.fail("unexpected '%s'", describe(t))
}

func (p *parser) bracketed() (expr, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	p.pos++
	e, err := p.tuple(tupleRules{inside: true})
	if err == nil {
		err = p.wantOp(")")
	}
	return e, err
}

func (p *parser) named(t token, parts bool) (expr, error) {
	switch t.text {
	case "true", "True":
		return &constant{true}, nil
	case "false", "False":
		return &constant{false}, nil
	case "none", "None":
		return &constant{None{}}, nil
	}
	v := &variable{name: t.text, line: t.line}
	if parts && p.skipOp(".") {
		name, err := p.wantName()
		return &part{v, name}, err
	}
	return v, nil
}

// items reads expressions up to a closing bracket.
func (p *parser) items(end string) (items []expr, err error) {
	for !p.isOp(end) {
		if len(items) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
			if p.isOp(end) {
				break
			}
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		items = append(items, e)
	}
	return items, p.wantOp(end)
}

func (p *parser) dict() (expr, error) {
	d := &dictOf{}
	for !p.isOp("}") {
		if len(d.keys) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
			if p.isOp("}") {
				break
			}
		}
		k, err := p.expression()
		if err == nil {
			err = p.wantOp(":")
		}
		if err != nil {
			return nil, err
		}
		v, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.vals = append(d.keys, k), append(d.vals, v)
	}
	return d, p.wantOp("}")
}
