package jinja

import "fmt"

// eval evaluates an expression, one level deeper.
func (r *run) eval(e expr) (Value, error) {
	switch e := e.(type) {
	case *constant:
		return e.value, nil
	case *variable:
		return e.eval(r)
	}
	if r.fuel--; r.fuel < 0 || r.depth >= r.limits.Depth {
		if r.fuel < 0 {
			return nil, r.step(0)
		}
		return nil, r.down()
	}
	r.depth++
	v, err := e.eval(r)
	r.depth--
	return v, err
}

func (e *constant) eval(*run) (Value, error) { return e.value, nil }

func (e *variable) eval(r *run) (Value, error) {
	env := r.env
	for range e.at.hops {
		env = env.up
	}
	if v := env.slots[e.at.index]; v != nil {
		return v, r.step(1)
	}
	return &undefined{name: e.name}, r.step(1)
}

func (e *part) eval(r *run) (Value, error) { return e.space.eval(r) }

// all evaluates several expressions.
func (r *run) all(list []expr) ([]Value, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if err := r.elements(len(list)); err != nil {
		return nil, err
	}
	vals := make([]Value, len(list))
	for i, e := range list {
		v, err := r.eval(e)
		if err != nil {
			return nil, err
		}
		vals[i] = v
	}
	return vals, nil
}

func (e *listOf) eval(r *run) (Value, error) {
	items, err := r.all(e.items)
	return &List{items}, err
}

func (e *tupleOf) eval(r *run) (Value, error) {
	items, err := r.all(e.items)
	return &Tuple{items: items}, err
}

func (e *dictOf) eval(r *run) (Value, error) {
	if err := r.build(64 * len(e.keys)); err != nil {
		return nil, err
	}
	d := NewDict()
	for i := range e.keys {
		k, err := r.eval(e.keys[i])
		if err != nil {
			return nil, err
		}
		v, err := r.eval(e.vals[i])
		if err != nil {
			return nil, err
		}
		if err := r.put(d, k, v); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// put sets a key of a dictionary that is being built.
func (r *run) put(d *Dict, k, v Value) error {
	h, err := r.hash(k)
	if err != nil {
		return err
	}
	d.put(h, k, v)
	return r.step(1)
}

func (e *not) eval(r *run) (Value, error) {
	v, err := r.eval(e.of)
	if err != nil {
		return nil, err
	}
	return !truth(v), nil
}

func (e *logic) eval(r *run) (Value, error) {
	v, err := r.eval(e.left)
	if err != nil || truth(v) == e.or {
		return v, err
	}
	return r.eval(e.right)
}

func (e *choice) eval(r *run) (Value, error) {
	v, err := r.eval(e.test)
	switch {
	case err != nil:
		return nil, err
	case truth(v):
		return r.eval(e.yes)
	case e.no != nil:
		return r.eval(e.no)
	}
	return &undefined{hint: fmt.Sprintf("the inline if-expression on line %d evaluated to false and no else section was defined.", e.line)}, nil
}

func (e *joined) eval(r *run) (Value, error) {
	p := &printer{r: r}
	for _, part := range e.parts {
		v, err := r.eval(part)
		if err != nil {
			return nil, err
		}
		text, err := r.str(v)
		if err != nil {
			return nil, err
		}
		p.add(text)
	}
	return p.done()
}

func (e *unary) eval(r *run) (Value, error) {
	v, err := r.eval(e.of)
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if !isNumber(v) {
		return nil, typeError("bad operand type for unary %c: '%s'", e.op, typeName(v))
	}
	if f, ok := v.(float64); ok && e.op == '-' {
		return -f, nil
	}
	if e.op == '-' {
		return r.numberOp("-", int64(0), v)
	}
	return r.numberOp("+", int64(0), v)
}

func (e *compared) eval(r *run) (Value, error) {
	left, err := r.eval(e.first)
	if err != nil {
		return nil, err
	}
	for i, op := range e.ops {
		right, err := r.eval(e.rest[i])
		if err != nil {
			return nil, err
		}
		ok, err := r.compare(op, left, right)
		if err != nil || !ok {
			return ok, err
		}
		left = right
	}
	return true, nil
}

func (e *binary) eval(r *run) (Value, error) {
	a, err := r.eval(e.left)
	if err != nil {
		return nil, err
	}
	b, err := r.eval(e.right)
	if err != nil {
		return nil, err
	}
	return r.arithmetic(e.op, a, b)
}

func (e *slicing) eval(r *run) (Value, error) {
	of, err := r.eval(e.of)
	if err != nil {
		return nil, err
	}
	var bounds [3]Value
	for i, b := range []expr{e.start, e.stop, e.step} {
		if b == nil {
			continue
		}
		if bounds[i], err = r.eval(b); err != nil {
			return nil, err
		}
	}
	return r.slice(of, bounds)
}

func (e *filtered) eval(r *run) (Value, error) {
	v, err := r.eval(e.of)
	if err != nil {
		return nil, err
	}
	return e.over(r, v)
}

// over gives what the filter makes of a value.
func (e *filtered) over(r *run, v Value) (Value, error) {
	if e.with == nil {
		return nil, at(failure("", "No filter named '%s' found.", e.name), e.line)
	}
	a, err := r.arguments(&e.args)
	if err != nil {
		return nil, err
	}
	return e.with.call(r, e.name, v, a)
}

func (e *tested) eval(r *run) (Value, error) {
	v, err := r.eval(e.of)
	if err != nil {
		return nil, err
	}
	if e.with == nil {
		return nil, at(failure("", "No test named '%s' found.", e.name), e.line)
	}
	a, err := r.arguments(&e.args)
	if err != nil {
		return nil, err
	}
	return e.with.call(r, e.name, v, a)
}
