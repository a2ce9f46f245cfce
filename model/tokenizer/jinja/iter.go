package jinja

import "unicode/utf8"

// iterator gives values one after another.
type iterator interface {
	next(r *run) (v Value, ok bool, err error)
}

// generator is an iterator that a template holds as a value: what it gave once is gone.
type generator struct {
	name string
	pull func(r *run) (Value, bool, error)
	done bool
}

// next counts as nesting: generators may feed each other.
func (g *generator) next(r *run) (Value, bool, error) {
	if g.done {
		return nil, false, nil
	}
	if err := r.down(); err != nil {
		return nil, false, err
	}
	v, ok, err := g.pull(r)
	r.up()
	g.done = !ok || err != nil
	return v, ok, err
}

type sequence struct {
	items []Value
	at    int
}

func (s *sequence) next(r *run) (Value, bool, error) {
	if s.at == len(s.items) {
		return nil, false, nil
	}
	s.at++
	return s.items[s.at-1], true, r.step(1)
}

// runes gives the characters of a text.
type runes struct{ left string }

func (t *runes) next(r *run) (Value, bool, error) {
	if t.left == "" {
		return nil, false, nil
	}
	_, n := utf8.DecodeRuneInString(t.left)
	c := t.left[:n]
	t.left = t.left[n:]
	return c, true, r.step(1)
}

func (s *span) at(i int64) int64 { return s.start + i*s.step }

type counter struct {
	of *span
	i  int64
}

func (c *counter) next(r *run) (Value, bool, error) {
	if c.i >= c.of.n {
		return nil, false, nil
	}
	c.i++
	return c.of.at(c.i - 1), true, r.step(1)
}

type viewer struct {
	of *view
	i  int
}

func (v *viewer) next(r *run) (Value, bool, error) {
	if v.i >= len(v.of.dict.keys) {
		return nil, false, nil
	}
	v.i++
	return v.of.at(v.i - 1), true, r.step(1)
}

func (v *view) at(i int) Value {
	switch v.kind {
	case "keys":
		return v.dict.keys[i]
	case "values":
		return v.dict.vals[i]
	}
	return &Tuple{items: []Value{v.dict.keys[i], v.dict.vals[i]}}
}

// iterate is Python's iter().
func (r *run) iterate(v Value) (iterator, error) {
	switch v := v.(type) {
	case *List:
		return &sequence{items: v.items}, nil
	case *Tuple:
		return &sequence{items: v.items}, nil
	case string:
		return &runes{v}, nil
	case Markup:
		return &runes{string(v)}, nil
	case *Dict:
		return &sequence{items: v.keys}, nil
	case *view:
		return &viewer{of: v}, nil
	case *span:
		return &counter{of: v}, nil
	case *generator:
		return v, nil
	case *undefined:
		return &sequence{}, nil
	case *loop:
		return &rest{v}, nil
	}
	return nil, typeError("'%s' object is not iterable", typeName(v))
}

// rest takes the items of a loop from inside of it, each with the loop.
type rest struct{ of *loop }

func (t *rest) next(r *run) (Value, bool, error) {
	more, err := t.of.step(r)
	if err != nil || !more {
		return nil, false, err
	}
	return &Tuple{items: []Value{t.of.now, t.of}}, true, r.step(1)
}

// size is Python's len() of what has one without being asked for its items.
func size(v Value) (int, bool) {
	switch v := v.(type) {
	case *List:
		return len(v.items), true
	case *Tuple:
		return len(v.items), true
	case string:
		return utf8.RuneCountInString(v), true
	case Markup:
		return utf8.RuneCountInString(string(v)), true
	case *Dict:
		return len(v.keys), true
	case *view:
		return len(v.dict.keys), true
	case *span:
		return int(v.n), true
	case *undefined:
		return 0, true
	}
	return 0, false
}

// drain is what an iterator has left.
func (r *run) drain(it iterator) ([]Value, error) {
	var items []Value
	for {
		v, ok, err := it.next(r)
		if err != nil || !ok {
			return items, err
		}
		if len(items) == cap(items) {
			if err := r.elements(max(16, 2*len(items))); err != nil {
				return nil, err
			}
		}
		items = append(items, v)
	}
}

// list is a value's items, not to be changed.
func (r *run) list(v Value) ([]Value, error) {
	switch v := v.(type) {
	case *List:
		return v.items, r.step(1)
	case *Tuple:
		return v.items, r.step(1)
	case *Dict:
		return v.keys, r.step(1)
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	return r.drain(it)
}
