package jinja

import "time"

// Template is a compiled template. It is read only, so any number of goroutines may render it at once.
type Template struct{ code *macroCode }

// Compile reads a template. The error is an *Error of kind Syntax or a *LimitError, with the line.
func Compile(source string) (*Template, error) {
	if len(source) > maxSource {
		return nil, &LimitError{Limit: "source", Max: maxSource}
	}
	toks, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{toks: toks}
	body, err := p.statements(nil)
	if err != nil {
		return nil, err
	}
	code, err := bindTemplate(body)
	if err != nil {
		return nil, err
	}
	return &Template{code}, nil
}

// run is one render.
type run struct {
	limits  Limits
	fuel    int64
	built   int64
	depth   int
	vars    *Dict
	exports map[string]Value // what the template set, for its blocks
	now     time.Time
	out     *sink
	env     *places

	// What the tables of built-in things need of each other.
	filters map[string]*method
	tests   map[string]*method
	of      func(r *run, v Value, name string) (Value, error)
}

// places are those of one run of a routine; up are those of the routine around it.
type places struct {
	slots []Value
	up    *places
}

// Render gives the text that the template makes of these variables, which it does not change. Now is the time that
// strftime_now tells. The error is an *Error or a *LimitError.
func (t *Template) Render(vars *Dict, now time.Time, limits Limits) (string, error) {
	limits = limits.orDefaults()
	if vars == nil {
		vars = NewDict()
	}
	out := &sink{most: limits.Output, limit: "output"}
	r := &run{limits: limits, fuel: limits.Fuel, vars: vars, now: now, out: out}
	r.filters, r.tests, r.of = filters, tests, (*run).attribute
	r.env = &places{slots: make([]Value, t.code.fn.size)}
	r.enter(&t.code.inner)
	if _, err := r.body(t.code.body); err != nil {
		return "", err
	}
	return string(out.b), nil
}

// sink is where text goes: the render's output, or the text of a macro or block.
type sink struct {
	b     []byte
	most  int
	limit string
}

func (r *run) write(s string) error {
	if len(r.out.b)+len(s) > r.out.most {
		return &LimitError{Limit: r.out.limit, Max: int64(r.out.most)}
	}
	if err := r.build(len(s)); err != nil {
		return err
	}
	r.out.b = append(r.out.b, s...)
	return nil
}

// captured runs something and gives the text that it wrote.
func (r *run) captured(do func() error) (string, error) {
	outer := r.out
	r.out = &sink{most: r.limits.Value, limit: "value"}
	err := do()
	text := string(r.out.b)
	r.out = outer
	return text, err
}

// enter fills the places of a scope.
func (r *run) enter(e *scopeEntry) {
	for i := range e.loads {
		l := &e.loads[i]
		switch {
		case l.from != nil:
			r.env.slots[l.index] = r.place(*l.from).slots[l.from.index]
		case l.name != "":
			r.env.slots[l.index] = r.lookup(l.name)
		default:
			r.env.slots[l.index] = nil
		}
	}
}

// exit empties them.
func (r *run) exit(e *scopeEntry) {
	for _, i := range e.all {
		r.env.slots[i] = nil
	}
}

func (r *run) place(at ref) *places {
	env := r.env
	for range at.hops {
		env = env.up
	}
	return env
}

// lookup is a variable of the render or a global function, nil if there is none.
func (r *run) lookup(name string) Value {
	if v, ok := r.exports[name]; ok {
		return v
	}
	if v, ok := r.vars.Get(name); ok {
		return v
	}
	if f := globals[name]; f != nil {
		return f
	}
	return nil
}
