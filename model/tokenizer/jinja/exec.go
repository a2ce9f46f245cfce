package jinja

// body runs statements until one leaves a loop.
func (r *run) body(list []stmt) (flow, error) {
	for _, s := range list {
		if r.fuel--; r.fuel < 0 {
			return onward, at(r.step(0), s.where())
		}
		how, err := s.exec(r)
		if err != nil {
			return onward, at(err, s.where())
		}
		if how != onward {
			return how, nil
		}
	}
	return onward, nil
}

// nested runs the body of a statement, one level deeper.
func (r *run) nested(list []stmt) (flow, error) {
	if err := r.down(); err != nil {
		return onward, err
	}
	how, err := r.body(list)
	r.up()
	return how, err
}

func (s *literal) exec(r *run) (flow, error) { return onward, r.write(s.text) }

func (s *output) exec(r *run) (flow, error) {
	v, err := r.eval(s.of)
	if err != nil {
		return onward, err
	}
	if text, ok := v.(string); ok {
		return onward, r.write(text)
	}
	text, err := r.str(v)
	if err != nil {
		return onward, err
	}
	return onward, r.write(text)
}

func (s *branch) exec(r *run) (flow, error) {
	for i, test := range s.tests {
		v, err := r.eval(test)
		if err != nil {
			return onward, err
		}
		if truth(v) {
			return r.nested(s.bodies[i])
		}
	}
	if len(s.bodies) > len(s.tests) {
		return r.nested(s.bodies[len(s.tests)])
	}
	return onward, nil
}

func (s *assign) exec(r *run) (flow, error) {
	if err := r.spaces(s.target); err != nil {
		return onward, err
	}
	v, err := r.eval(s.value)
	if err != nil {
		return onward, err
	}
	return onward, r.set(s.target, v, s.export)
}

// spaces makes sure that the parts of a target are those of namespaces.
func (r *run) spaces(target expr) error {
	switch t := target.(type) {
	case *tupleOf:
		for _, item := range t.items {
			if err := r.spaces(item); err != nil {
				return err
			}
		}
	case *part:
		if _, ok := r.place(t.space.at).slots[t.space.at.index].(*namespace); !ok {
			return failure("", "cannot assign attribute on non-namespace object")
		}
	}
	return nil
}

// set gives a target a value.
func (r *run) set(target expr, v Value, export bool) error {
	switch t := target.(type) {
	case *variable:
		r.place(t.at).slots[t.at.index] = v
		if export {
			if r.exports == nil {
				r.exports = map[string]Value{}
			}
			r.exports[t.name] = v
		}
	case *tupleOf:
		return r.unpack(t, v, export)
	case *part:
		ns, ok := r.place(t.space.at).slots[t.space.at.index].(*namespace)
		if !ok {
			return failure("", "cannot assign attribute on non-namespace object")
		}
		if ns.attrs.find(key{kind: 's', s: t.name}) < 0 {
			if err := r.build(64); err != nil {
				return err
			}
		}
		ns.attrs.Set(t.name, v)
	}
	return nil
}

func (r *run) unpack(t *tupleOf, v Value, export bool) error {
	it, err := r.iterate(v)
	if err != nil {
		if u, ok := v.(*undefined); ok {
			return u.fail()
		}
		return typeError("cannot unpack non-iterable %s object", typeName(v))
	}
	for i, target := range t.items {
		item, ok, err := it.next(r)
		if err != nil {
			return err
		}
		if !ok {
			return valueError("not enough values to unpack (expected %d, got %d)", len(t.items), i)
		}
		if err := r.set(target, item, export); err != nil {
			return err
		}
	}
	if _, more, err := it.next(r); err != nil {
		return err
	} else if more {
		return valueError("too many values to unpack (expected %d)", len(t.items))
	}
	return nil
}

func (s *capture) exec(r *run) (how flow, err error) {
	r.enter(&s.inner)
	defer r.exit(&s.inner)
	text, err := r.captured(func() (err error) {
		how, err = r.nested(s.body)
		return err
	})
	if err != nil || how != onward {
		return how, err
	}
	var v Value = text
	if s.filter != nil {
		if v, err = r.apply(s.filter, v); err != nil {
			return onward, err
		}
	}
	return onward, r.set(s.target, v, s.export)
}

// apply runs a chain of filters over the text of a block.
func (r *run) apply(e expr, v Value) (Value, error) {
	f := e.(*filtered)
	if f.of != nil {
		var err error
		if v, err = r.apply(f.of, v); err != nil {
			return nil, err
		}
	}
	return f.over(r, v)
}

func (s *filterBlock) exec(r *run) (how flow, err error) {
	r.enter(&s.inner)
	defer r.exit(&s.inner)
	text, err := r.captured(func() (err error) {
		how, err = r.nested(s.body)
		return err
	})
	if err != nil || how != onward {
		return how, err
	}
	v, err := r.apply(s.filter, text)
	if err != nil {
		return onward, err
	}
	out, ok := v.(string)
	if m, is := v.(Markup); is {
		out, ok = string(m), true
	}
	if !ok {
		return onward, typeError("the filters of a block gave %s instead of str", typeName(v))
	}
	return onward, r.write(out)
}

func (s *with) exec(r *run) (flow, error) {
	vals := make([]Value, len(s.values))
	for i, e := range s.values {
		v, err := r.eval(e)
		if err != nil {
			return onward, err
		}
		vals[i] = v
	}
	r.enter(&s.inner)
	defer r.exit(&s.inner)
	for i, t := range s.targets {
		if err := r.set(t, vals[i], false); err != nil {
			return onward, err
		}
	}
	return r.nested(s.body)
}

func (s *scoped) exec(r *run) (flow, error) {
	r.enter(&s.inner)
	defer r.exit(&s.inner)
	return r.nested(s.body)
}

func (s *leave) exec(*run) (flow, error) { return s.how, nil }

func (s *block) exec(r *run) (flow, error) {
	return onward, s.code.run(r, &places{make([]Value, s.code.fn.size), r.env}, nil)
}
