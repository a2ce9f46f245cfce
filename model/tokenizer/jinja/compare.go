package jinja

import "strings"

// compare is one comparison of a chain.
func (r *run) compare(op string, a, b Value) (bool, error) {
	switch op {
	case "==":
		return r.equal(a, b)
	case "!=":
		same, err := r.equal(a, b)
		return !same, err
	case "in":
		return r.contains(b, a)
	case "not in":
		in, err := r.contains(b, a)
		return !in, err
	}
	c, err := r.order(op, a, b)
	if err != nil || c == 2 {
		return false, err
	}
	switch op {
	case "<":
		return c < 0, nil
	case "<=":
		return c <= 0, nil
	case ">":
		return c > 0, nil
	}
	return c >= 0, nil
}

// equal is Python's ==.
func (r *run) equal(a, b Value) (bool, error) {
	if s, ok := text(a); ok {
		t, ok := text(b)
		return ok && s == t, r.step(min(len(s), len(t)) >> 6)
	}
	if isNumber(a) {
		return isNumber(b) && ordered(a, b) == 0, nil
	}
	switch x := a.(type) {
	case *undefined:
		_, ok := b.(*undefined)
		return ok, nil
	case *List:
		if y, ok := b.(*List); ok {
			return r.equalItems(x.items, y.items)
		}
		return false, nil
	case *Tuple:
		if y, ok := b.(*Tuple); ok {
			return r.equalItems(x.items, y.items)
		}
		return false, nil
	case *Dict:
		if y, ok := b.(*Dict); ok {
			return r.equalDicts(x, y)
		}
		return false, nil
	case *span:
		y, ok := b.(*span)
		return ok && x.n == y.n && (x.n == 0 || x.start == y.start && (x.n == 1 || x.step == y.step)), nil
	}
	return a == b, nil
}

func (r *run) equalItems(a, b []Value) (bool, error) {
	if len(a) != len(b) || len(a) == 0 || &a[0] == &b[0] {
		return len(a) == len(b), nil
	}
	if err := r.down(); err != nil {
		return false, err
	}
	defer r.up()
	for i := range a {
		if same, err := r.equal(a[i], b[i]); !same || err != nil {
			return false, err
		}
		if err := r.step(1); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (r *run) equalDicts(a, b *Dict) (bool, error) {
	if len(a.keys) != len(b.keys) || a == b {
		return a == b, nil
	}
	if err := r.down(); err != nil {
		return false, err
	}
	defer r.up()
	for i, k := range a.keys {
		h, err := r.hash(k)
		if err != nil {
			return false, err
		}
		at := b.find(h)
		if at < 0 {
			return false, r.step(1)
		}
		if same, err := r.equal(a.vals[i], b.vals[at]); !same || err != nil {
			return false, err
		}
		if err := r.step(1); err != nil {
			return false, err
		}
	}
	return true, nil
}

// order compares two values that have an order: −1, 0, 1, and 2 if neither is before the other nor the same.
func (r *run) order(op string, a, b Value) (int, error) {
	for _, v := range []Value{a, b} {
		if u, ok := v.(*undefined); ok {
			return 0, u.fail()
		}
	}
	if isNumber(a) && isNumber(b) {
		return ordered(a, b), nil
	}
	s, okS := text(a)
	t, okT := text(b)
	if okS && okT {
		return strings.Compare(s, t), r.step(min(len(s), len(t)) >> 6)
	}
	switch x := a.(type) {
	case *List:
		if y, ok := b.(*List); ok {
			return r.orderItems(op, x.items, y.items)
		}
	case *Tuple:
		if y, ok := b.(*Tuple); ok {
			return r.orderItems(op, x.items, y.items)
		}
	}
	return 0, typeError("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
}

func (r *run) orderItems(op string, a, b []Value) (int, error) {
	if err := r.down(); err != nil {
		return 0, err
	}
	defer r.up()
	for i := range min(len(a), len(b)) {
		same, err := r.equal(a[i], b[i])
		if err == nil {
			err = r.step(1)
		}
		if err != nil {
			return 0, err
		}
		if !same {
			return r.order(op, a[i], b[i])
		}
	}
	return compareInts(int64(len(a)), int64(len(b))), nil
}

// contains is Python's in.
func (r *run) contains(in, v Value) (bool, error) {
	if s, ok := text(in); ok {
		t, ok := text(v)
		if u, is := v.(*undefined); is {
			return false, u.notText()
		}
		if !ok {
			return false, typeError("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		return strings.Contains(s, t), r.step(len(s) >> 6)
	}
	switch in := in.(type) {
	case *Dict:
		return r.hasKey(in, v)
	case *view:
		if in.kind == "keys" {
			return r.hasKey(in.dict, v)
		}
	case *List:
		return r.among(&sequence{items: in.items}, v)
	case *namespace, None, bool, int64, float64:
		return false, typeError("argument of type '%s' is not iterable", typeName(in))
	}
	it, err := r.iterate(in)
	if err != nil {
		return false, typeError("argument of type '%s' is not iterable", typeName(in))
	}
	return r.among(it, v)
}

func (u *undefined) notText() error {
	return typeError("'in <string>' requires string as left operand, not Undefined")
}

func (r *run) hasKey(d *Dict, v Value) (bool, error) {
	h, err := r.hash(v)
	return err == nil && d.find(h) >= 0, err
}

func (r *run) among(it iterator, v Value) (bool, error) {
	for {
		item, ok, err := it.next(r)
		if err != nil || !ok {
			return false, err
		}
		if same, err := r.equal(item, v); same || err != nil {
			return same, err
		}
	}
}
