package jinja

import "slices"

// args are the arguments of one call.
type args struct {
	pos   []Value
	names []string
	named []Value
}

// arguments evaluates those of a call.
func (r *run) arguments(e *arguments) (*args, error) {
	pos, err := r.all(e.pos)
	if err != nil {
		return nil, err
	}
	named, err := r.all(e.named)
	if err != nil {
		return nil, err
	}
	a := &args{pos, e.names, named}
	if e.star != nil {
		if err := r.spread(a, e.star); err != nil {
			return nil, err
		}
	}
	if e.pair != nil {
		return a, r.spreadPairs(a, e.pair)
	}
	return a, nil
}

func (r *run) spread(a *args, e expr) error {
	v, err := r.eval(e)
	if err != nil {
		return err
	}
	more, err := r.list(v)
	if err != nil {
		return err
	}
	a.pos, err = r.appended(a.pos, more)
	return err
}

func (r *run) spreadPairs(a *args, e expr) error {
	v, err := r.eval(e)
	if err != nil {
		return err
	}
	d, ok := v.(*Dict)
	if !ok {
		return typeError("argument after ** must be a mapping, not %s", typeName(v))
	}
	if err := r.elements(2 * len(d.keys)); err != nil {
		return err
	}
	a.names = slices.Clone(a.names)
	for i, k := range d.keys {
		name, ok := text(k)
		if !ok {
			return typeError("keywords must be strings")
		}
		if slices.Contains(a.names, name) {
			return typeError("got multiple values for keyword argument %s", quote(name))
		}
		if err := r.step(len(a.names)); err != nil {
			return err
		}
		a.names, a.named = append(a.names, name), append(a.named, d.vals[i])
	}
	return nil
}

// signature are the parameters of something built in.
type signature struct {
	params []string
	need   int // the first of them, which must be given
}

// bind gives each parameter its argument, nil if it has none.
func (s *signature) bind(name string, a *args) ([]Value, error) {
	if len(a.names) == 0 && len(a.pos) == len(s.params) {
		return a.pos, nil
	}
	if len(a.pos) > len(s.params) {
		return nil, typeError("%s() takes at most %d arguments (%d given)", name, len(s.params), len(a.pos))
	}
	vals := make([]Value, len(s.params))
	copy(vals, a.pos)
	for i, n := range a.names {
		at := slices.Index(s.params, n)
		switch {
		case at < 0:
			return nil, typeError("%s() got an unexpected keyword argument %s", name, quote(n))
		case vals[at] != nil:
			return nil, typeError("%s() got multiple values for argument %s", name, quote(n))
		}
		vals[at] = a.named[i]
	}
	for i := range s.need {
		if vals[i] == nil {
			return nil, typeError("%s() missing required argument %s", name, quote(s.params[i]))
		}
	}
	return vals, nil
}

func (e *invoke) eval(r *run) (Value, error) { return e.with(r, nil) }

// with makes the call; caller is the body that a call block passes, nil if there is none.
func (e *invoke) with(r *run, caller *macro) (Value, error) {
	if at, ok := e.fn.(*attribute); ok && caller == nil {
		return e.method(r, at)
	}
	fn, err := r.eval(e.fn)
	if err != nil {
		return nil, err
	}
	a, err := r.arguments(&e.args)
	if err != nil {
		return nil, err
	}
	if caller != nil {
		if slices.Contains(a.names, "caller") {
			return nil, typeError("got multiple values for keyword argument 'caller'")
		}
		a.names, a.named = append(slices.Clone(a.names), "caller"), append(slices.Clone(a.named), caller)
	}
	return r.call(fn, a)
}

// method calls a method of a value, without making a value of it first where that can be spared.
func (e *invoke) method(r *run, at *attribute) (Value, error) {
	of, err := r.eval(at.of)
	if err != nil {
		return nil, err
	}
	var m *method
	switch of.(type) {
	case string:
		m = at.onStr.method
	case *Dict:
		m = at.onDict.method
	}
	if m == nil {
		fn, err := at.get(r, of)
		if err != nil {
			return nil, err
		}
		a, err := r.arguments(&e.args)
		if err != nil {
			return nil, err
		}
		return r.call(fn, a)
	}
	a, err := r.arguments(&e.args)
	if err != nil {
		return nil, err
	}
	return m.call(r, at.name, of, a)
}

// call calls a value.
func (r *run) call(fn Value, a *args) (Value, error) {
	if err := r.step(1); err != nil {
		return nil, err
	}
	switch fn := fn.(type) {
	case *function:
		return fn.call(r, a)
	case *macro:
		return fn.call(r, a)
	case *undefined:
		return nil, fn.fail()
	case *joiner:
		return fn.next(), nil
	case *loop:
		return fn.recurse(r, a)
	}
	return nil, typeError("'%s' object is not callable", typeName(fn))
}

func (l *loop) recurse(r *run, a *args) (Value, error) {
	if l.again == nil {
		return nil, typeError("The loop must have the 'recursive' marker to be called recursively.")
	}
	vals, err := loopCall.bind("loop", a)
	if err != nil {
		return nil, err
	}
	text, err := l.again(r, vals[0], l.depth0+1)
	return text, err
}

var loopCall = signature{[]string{"iterable"}, 1}
