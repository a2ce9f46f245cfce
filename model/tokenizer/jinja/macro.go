package jinja

import "slices"

// macroCode is a macro, the body of a call, a block or the template itself, compiled.
type macroCode struct {
	name                    string
	params                  []string
	defaults                []expr // of the last params
	body                    []stmt
	fn                      *routine
	slots                   []int
	caller, kwargs, varargs *local // nil if a parameter has that name
	inner                   scopeEntry
}

// macro is a macro and the places around its definition.
type macro struct {
	code *macroCode
	env  *places
}

func (s *macroDef) exec(r *run) (flow, error) {
	m := &macro{s.code, r.env}
	return onward, r.set(&variable{name: s.name, at: s.slot}, m, s.export)
}

func (s *callBlock) exec(r *run) (flow, error) {
	body := &macro{s.code, r.env}
	if s.call == nil {
		return onward, s.code.run(r, &places{make([]Value, s.code.fn.size), r.env}, nil)
	}
	v, err := s.call.with(r, body)
	if err != nil {
		return onward, err
	}
	text, err := r.str(v)
	if err != nil {
		return onward, err
	}
	return onward, r.write(text)
}

// run runs a routine's body in its places, after fill gave its parameters theirs.
func (c *macroCode) run(r *run, env *places, fill func() error) error {
	if err := r.down(); err != nil {
		return err
	}
	defer r.up()
	if err := r.build(16 * len(env.slots)); err != nil {
		return err
	}
	caller := r.env
	r.env = env
	defer func() { r.env = caller }()
	r.enter(&c.inner)
	if fill != nil {
		if err := fill(); err != nil {
			return err
		}
	}
	_, err := r.body(c.body)
	return err
}

// call runs a macro and gives its text.
func (m *macro) call(r *run, a *args) (Value, error) {
	c := m.code
	env := &places{make([]Value, c.fn.size), m.env}
	if err := m.bind(r, a, env); err != nil {
		return nil, err
	}
	text, err := r.captured(func() error {
		return c.run(r, env, func() error { return m.fill(r, env) })
	})
	return text, err
}

// bind puts arguments where they belong.
func (m *macro) bind(r *run, a *args, env *places) error {
	c := m.code
	if err := r.step(len(a.pos) + times(len(a.names), len(c.params)+1)); err != nil {
		return err
	}
	n := min(len(a.pos), len(c.params))
	for i, v := range a.pos[:n] {
		env.slots[c.slots[i]] = v
	}
	taken := make([]bool, len(a.names))
	for i, name := range a.names {
		if at := slices.Index(c.params, name); at >= n {
			env.slots[c.slots[at]] = a.named[i]
			taken[i] = true
		}
	}
	if c.caller != nil && c.caller.used {
		env.slots[c.caller.index] = &undefined{hint: "No caller defined", name: "caller"}
		if i := slices.Index(a.names, "caller"); i >= 0 && !taken[i] {
			env.slots[c.caller.index], taken[i] = a.named[i], true
		}
	}
	if c.kwargs != nil && c.kwargs.used {
		rest := NewDict()
		for i, name := range a.names {
			if !taken[i] {
				rest.Set(name, a.named[i])
			}
		}
		env.slots[c.kwargs.index] = rest
	} else if i := slices.Index(taken, false); i >= 0 {
		if a.names[i] == "caller" {
			return typeError("macro %s was invoked with two values for the special caller argument", c.title())
		}
		return typeError("macro %s takes no keyword argument %s", c.title(), quote(a.names[i]))
	}
	if c.varargs != nil && c.varargs.used {
		env.slots[c.varargs.index] = &Tuple{items: slices.Clone(a.pos[n:])}
	} else if len(a.pos) > n {
		return typeError("macro %s takes not more than %d argument(s)", c.title(), len(c.params))
	}
	return nil
}

// fill gives the parameters that got no argument their defaults.
func (m *macro) fill(r *run, env *places) error {
	c := m.code
	first := len(c.params) - len(c.defaults)
	for i, name := range c.params {
		at := c.slots[i]
		switch {
		case env.slots[at] != nil:
		case i < first:
			if err := r.build(256); err != nil {
				return err
			}
			env.slots[at] = &undefined{hint: "parameter " + quote(name) + " was not provided", name: name}
		default:
			v, err := r.eval(c.defaults[i-first])
			if err != nil {
				return err
			}
			env.slots[at] = v
		}
	}
	return nil
}

func (c *macroCode) title() string {
	if c.name == "" {
		return "None"
	}
	return quote(c.name)
}
