package jinja

// step gives the next value of a generator.
type step func(r *run) (Value, bool, error)

// lazily is a generator that does nothing, not even look at what it is over, before its first value is wanted.
func lazily(begin func(r *run) (step, error)) *generator {
	var pull step
	return &generator{name: "generator", pull: func(r *run) (Value, bool, error) {
		if pull == nil {
			var err error
			if pull, err = begin(r); err != nil {
				return nil, false, err
			}
		}
		return pull(r)
	}}
}

func nothing(*run) (Value, bool, error) { return nil, false, nil }

// filterMap gives an attribute of each item, or what a filter makes of it.
func filterMap(_ *run, v Value, a *args) (Value, error) {
	return lazily(func(r *run) (step, error) {
		if !truth(v) {
			return nothing, nil
		}
		change, err := r.mapping(a)
		if err != nil {
			return nil, err
		}
		it, err := r.iterate(v)
		return func(r *run) (Value, bool, error) {
			item, ok, err := it.next(r)
			if err != nil || !ok {
				return nil, false, err
			}
			out, err := change(item)
			return out, err == nil, err
		}, err
	}), nil
}

func (r *run) mapping(a *args) (func(Value) (Value, error), error) {
	if len(a.pos) == 0 {
		var attribute, missing Value
		for i, name := range a.names {
			switch name {
			case "attribute":
				attribute = a.named[i]
			case "default":
				missing = a.named[i]
			default:
				return nil, failure("FilterArgumentError", "Unexpected keyword argument %s", quote(name))
			}
		}
		if attribute == nil {
			return nil, failure("FilterArgumentError", "map requires a filter argument")
		}
		return r.getter(attribute, false, missing)
	}
	name, f, err := named(r.filters, a.pos[0], "filter")
	if err != nil {
		return nil, err
	}
	rest := &args{a.pos[1:], a.names, a.named}
	return func(v Value) (Value, error) { return f.call(r, name, v, rest) }, nil
}

// named is a filter or test by a name that is a value.
func named(table map[string]*method, v Value, what string) (string, *method, error) {
	name, err := wantText(v, "")
	if err != nil {
		return "", nil, err
	}
	if m := table[name]; m != nil {
		return name, m, nil
	}
	return "", nil, failure("", "No %s named %s.", what, quote(name))
}

// picking is a filter that gives the items for which a test holds, or does not; byAttr says that the test is of an
// attribute, which comes first.
func picking(want, byAttr bool) func(r *run, v Value, a *args) (Value, error) {
	return func(_ *run, v Value, a *args) (Value, error) {
		return lazily(func(r *run) (step, error) {
			if !truth(v) {
				return nothing, nil
			}
			holds, err := r.condition(a, byAttr)
			if err != nil {
				return nil, err
			}
			it, err := r.iterate(v)
			return func(r *run) (Value, bool, error) { return pickNext(r, it, holds, want) }, err
		}), nil
	}
}

func pickNext(r *run, it iterator, holds func(Value) (bool, error), want bool) (Value, bool, error) {
	for {
		item, ok, err := it.next(r)
		if err != nil || !ok {
			return nil, false, err
		}
		held, err := holds(item)
		if err != nil {
			return nil, false, err
		}
		if held == want {
			return item, true, nil
		}
	}
}

func (r *run) condition(a *args, byAttr bool) (func(Value) (bool, error), error) {
	pos := a.pos
	get := func(v Value) (Value, error) { return v, nil }
	if byAttr {
		if len(pos) == 0 {
			return nil, failure("FilterArgumentError", "Missing parameter for attribute name")
		}
		var err error
		if get, err = r.getter(pos[0], false, nil); err != nil {
			return nil, err
		}
		pos = pos[1:]
	}
	if len(pos) == 0 {
		return func(v Value) (bool, error) {
			v, err := get(v)
			return err == nil && truth(v), err
		}, nil
	}
	name, t, err := named(r.tests, pos[0], "test")
	if err != nil {
		return nil, err
	}
	rest := &args{pos[1:], a.names, a.named}
	return func(v Value) (bool, error) {
		v, err := get(v)
		if err != nil {
			return false, err
		}
		held, err := t.call(r, name, v, rest)
		return err == nil && truth(held), err
	}, nil
}
