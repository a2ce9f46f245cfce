package jinja

import "strings"

// globals are the functions that every template has.
var globals = map[string]*function{
	"range":     {"range", newRange},
	"dict":      {"dict", newDict},
	"namespace": {"namespace", newNamespace},
	"cycler":    {"cycler", newCycler},
	"joiner":    {"joiner", newJoiner},
	"lipsum": {"lipsum", func(*run, *args) (Value, error) {
		return nil, failure("", "lipsum is not supported: it would need chance")
	}},
	"raise_exception": {"raise_exception", raise},
	"strftime_now":    {"strftime_now", strftimeNow},
}

var (
	oneMessage = signature{[]string{"message"}, 1}
	oneFormat  = signature{[]string{"format"}, 1}
	oneSep     = signature{[]string{"sep"}, 0}
)

func raise(r *run, a *args) (Value, error) {
	vals, err := oneMessage.bind("raise_exception", a)
	if err != nil {
		return nil, err
	}
	text, err := r.str(vals[0])
	if err != nil {
		return nil, err
	}
	return nil, &Error{Kind: Raised, Message: text}
}

func strftimeNow(r *run, a *args) (Value, error) {
	vals, err := oneFormat.bind("strftime_now", a)
	if err != nil {
		return nil, err
	}
	format, err := wantText(vals[0], "")
	if err != nil {
		return nil, err
	}
	text, err := r.strftime(format)
	return text, err
}

func newRange(r *run, a *args) (Value, error) {
	if len(a.pos) == 0 || len(a.pos) > 3 || len(a.names) > 0 {
		return nil, typeError("range expected 1 to 3 arguments, got %d", len(a.pos)+len(a.names))
	}
	var n [3]int64
	for i, v := range a.pos {
		at, err := index(v)
		if err != nil {
			return nil, err
		}
		n[i] = int64(at)
	}
	s := &span{n[0], n[1], n[2], 0}
	switch len(a.pos) {
	case 1:
		s.start, s.stop, s.step = 0, n[0], 1
	case 2:
		s.step = 1
	}
	switch {
	case s.step == 0:
		return nil, valueError("range() arg 3 must not be zero")
	case s.step > 0 && s.stop > s.start:
		s.n = (s.stop-s.start-1)/s.step + 1
	case s.step < 0 && s.stop < s.start:
		s.n = (s.start-s.stop-1)/-s.step + 1
	}
	if s.n > maxRange {
		return nil, failure("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	return s, nil
}

// newDict is dict(), of a mapping or of pairs, and of names.
func newDict(r *run, a *args) (Value, error) {
	if len(a.pos) > 1 {
		return nil, typeError("dict expected at most 1 argument, got %d", len(a.pos))
	}
	d := NewDict()
	if len(a.pos) == 1 {
		if from, ok := a.pos[0].(*Dict); ok {
			if err := r.build(64 * len(from.keys)); err != nil {
				return nil, err
			}
			d = from.copy()
		} else if err := r.pairs(d, a.pos[0]); err != nil {
			return nil, err
		}
	}
	if err := r.build(64 * len(a.names)); err != nil {
		return nil, err
	}
	for i, name := range a.names {
		d.Set(name, a.named[i])
	}
	return d, nil
}

func (r *run) pairs(d *Dict, v Value) error {
	it, err := r.iterate(v)
	if err != nil {
		return err
	}
	for {
		item, ok, err := it.next(r)
		if err != nil || !ok {
			return err
		}
		pair, err := r.list(item)
		if err != nil {
			return err
		}
		if len(pair) != 2 {
			return valueError("dictionary update sequence element has length %d; 2 is required", len(pair))
		}
		if err := r.build(64); err != nil {
			return err
		}
		if err := r.put(d, pair[0], pair[1]); err != nil {
			return err
		}
	}
}

func newNamespace(r *run, a *args) (Value, error) {
	d, err := newDict(r, a)
	if err != nil {
		return nil, err
	}
	return &namespace{attrs: d.(*Dict)}, nil
}

// cycler goes round its items.
type cycler struct {
	items []Value
	pos   int
}

func newCycler(_ *run, a *args) (Value, error) {
	if len(a.pos) == 0 || len(a.names) > 0 {
		return nil, failure("RuntimeError", "at least one item has to be provided")
	}
	return &cycler{items: a.pos}, nil
}

func (c *cycler) attribute(name string) Value {
	does := func(do func() Value) Value {
		return &function{name, func(*run, *args) (Value, error) { return do(), nil }}
	}
	switch name {
	case "current":
		return c.items[c.pos]
	case "pos":
		return int64(c.pos)
	case "items":
		return &Tuple{items: c.items}
	case "next":
		return does(func() Value {
			v := c.items[c.pos]
			c.pos = (c.pos + 1) % len(c.items)
			return v
		})
	case "reset":
		return does(func() Value { c.pos = 0; return None{} })
	}
	return nil
}

// joiner gives nothing when it is called first, and its separator after that.
type joiner struct {
	sep  Value
	used bool
}

func newJoiner(_ *run, a *args) (Value, error) {
	vals, err := oneSep.bind("joiner", a)
	if err != nil {
		return nil, err
	}
	if vals[0] == nil {
		return &joiner{sep: ", "}, nil
	}
	return &joiner{sep: vals[0]}, nil
}

func (j *joiner) next() Value {
	if !j.used {
		j.used = true
		return ""
	}
	return j.sep
}

var escaper = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// escaped is a value's text with HTML's signs replaced, unless it counts as escaped already.
func (r *run) escaped(v Value) (string, error) {
	if m, ok := v.(Markup); ok {
		return string(m), nil
	}
	s, err := r.str(v)
	if err != nil {
		return "", err
	}
	grown := strings.Count(s, "&") + strings.Count(s, "<") + strings.Count(s, ">") + strings.Count(s, "'") + strings.Count(s, `"`)
	if err := r.build(len(s) + 4*grown); err != nil {
		return "", err
	}
	return escaper.Replace(s), nil
}
