package jinja

import "strings"

// arithmetic is an operator between two values.
func (r *run) arithmetic(op string, a, b Value) (Value, error) {
	if isNumber(a) && isNumber(b) {
		return r.numberOp(op, a, b)
	}
	s, isText := text(a)
	if op == "%" && isText {
		return r.formatted(a, s, b)
	}
	for _, v := range []Value{a, b} {
		if u, ok := v.(*undefined); ok {
			return nil, u.fail()
		}
	}
	switch op {
	case "+":
		return r.add(a, b)
	case "*":
		if n, ok := count(b); ok {
			return r.repeat(a, n, b)
		}
		if n, ok := count(a); ok {
			return r.repeat(b, n, a)
		}
		if isSequence(a) || isSequence(b) {
			return nil, typeError("can't multiply sequence by non-int of type '%s'", typeName(b))
		}
	}
	return nil, unfit(op, a, b)
}

func unfit(op string, a, b Value) error {
	if op == "**" {
		op = "** or pow()"
	}
	return typeError("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
}

func isSequence(v Value) bool {
	switch v.(type) {
	case string, Markup, *List, *Tuple:
		return true
	}
	return false
}

// count is how often a sequence is to be repeated.
func count(v Value) (int, bool) {
	if _, ok := integer(v); !ok {
		return 0, false
	}
	n, err := index(v)
	return max(n, 0), err == nil
}

// add joins two values of one kind.
func (r *run) add(a, b Value) (Value, error) {
	switch x := a.(type) {
	case string, Markup:
		s, _ := text(a)
		t, ok := text(b)
		if !ok {
			return nil, typeError("can only concatenate str (not %q) to str", typeName(b))
		}
		return r.addText(a, b, s, t)
	case *List:
		if y, ok := b.(*List); ok {
			items, err := r.appended(x.items, y.items)
			return &List{items}, err
		}
		return nil, typeError("can only concatenate list (not %q) to list", typeName(b))
	case *Tuple:
		if y, ok := b.(*Tuple); ok {
			items, err := r.appended(x.items, y.items)
			return &Tuple{items: items}, err
		}
		return nil, typeError("can only concatenate tuple (not %q) to tuple", typeName(b))
	}
	return nil, unfit("+", a, b)
}

// addText joins texts; what is added to an escaped one is escaped.
func (r *run) addText(a, b Value, s, t string) (Value, error) {
	_, safeA := a.(Markup)
	_, safeB := b.(Markup)
	if !safeA && !safeB {
		if err := r.build(len(s) + len(t)); err != nil {
			return nil, err
		}
		return s + t, nil
	}
	p := &printer{r: r}
	for _, v := range []Value{a, b} {
		text, err := r.escaped(v)
		if err != nil {
			return nil, err
		}
		p.add(text)
	}
	text, err := p.done()
	return Markup(text), err
}

func (r *run) appended(a, b []Value) ([]Value, error) {
	if err := r.elements(len(a) + len(b)); err != nil {
		return nil, err
	}
	items := make([]Value, 0, len(a)+len(b))
	return append(append(items, a...), b...), nil
}

func (r *run) repeat(v Value, n int, by Value) (Value, error) {
	switch v := v.(type) {
	case string:
		text, err := r.repeatText(v, n)
		return text, err
	case Markup:
		text, err := r.repeatText(string(v), n)
		return Markup(text), err
	case *List:
		items, err := r.repeatItems(v.items, n)
		return &List{items}, err
	case *Tuple:
		items, err := r.repeatItems(v.items, n)
		return &Tuple{items: items}, err
	}
	return nil, unfit("*", v, by)
}

func (r *run) repeatText(s string, n int) (string, error) {
	if s == "" {
		return "", nil
	}
	if err := r.build(times(len(s), n)); err != nil {
		return "", err
	}
	return strings.Repeat(s, n), nil
}

func (r *run) repeatItems(items []Value, n int) ([]Value, error) {
	if len(items) == 0 {
		return nil, nil
	}
	if err := r.elements(times(len(items), n)); err != nil {
		return nil, err
	}
	out := make([]Value, 0, len(items)*n)
	for range n {
		out = append(out, items...)
	}
	return out, nil
}
