package jinja

import (
	"math/big"
	"strings"
)

// access says what a name is as an attribute of a type: a method, something the sandbox hides, or nothing.
type access struct {
	method *method
	hidden bool
}

// method is one of a type's, with the value as self.
type method struct {
	signature
	run func(r *run, self Value, a []Value) (Value, error)
	raw func(r *run, self Value, a *args) (Value, error) // instead of run, for those that take any arguments
}

func (m *method) call(r *run, name string, self Value, a *args) (Value, error) {
	if m.raw != nil {
		return m.raw(r, self, a)
	}
	vals, err := m.bind(name, a)
	if err != nil {
		return nil, err
	}
	return m.run(r, self, vals)
}

// bound is a method as a value.
func (m *method) bound(name string, self Value) *function {
	return &function{name, func(r *run, a *args) (Value, error) { return m.call(r, name, self, a) }}
}

// changing are the methods that would change what the template was given; internal are what Python objects all have.
var (
	changing = map[string]string{
		"dict": " clear pop popitem setdefault update ",
		"list": " append clear pop reverse insert sort extend remove ",
	}
	internal = " __class__ __doc__ __init__ __new__ __dict__ __len__ __iter__ __getitem__ __contains__ __eq__ __ne__" +
		" __hash__ __str__ __repr__ __getattribute__ __setattr__ __delattr__ __reduce__ __reduce_ex__ __sizeof__ __dir__" +
		" __format__ __init_subclass__ __subclasshook__ __add__ __mul__ __call__ __globals__ __self__ __module__ "
)

func hides(kind, name string) bool {
	return strings.Contains(changing[kind], " "+name+" ") || strings.HasPrefix(name, "__") && strings.Contains(internal, " "+name+" ")
}

func newAttribute(of expr, name string) *attribute {
	return &attribute{
		of: of, name: name,
		onDict: access{dictMethods[name], hides("dict", name)},
		onStr:  access{strMethods[name], hides("str", name)},
	}
}

func (e *attribute) eval(r *run) (Value, error) {
	of, err := r.eval(e.of)
	if err != nil {
		return nil, err
	}
	return e.get(r, of)
}

// get is of.name: an attribute if the value has it, else an element.
func (e *attribute) get(r *run, of Value) (Value, error) {
	d, ok := of.(*Dict)
	if !ok {
		return r.attribute(of, e.name)
	}
	switch {
	case e.onDict.method != nil:
		return e.onDict.method.bound(e.name, d), nil
	case e.onDict.hidden:
		return hidden(d, e.name), nil
	}
	if v, ok := d.Get(e.name); ok {
		return v, r.step(1)
	}
	return &undefined{of: d, name: e.name}, nil
}

func hidden(v Value, name string) *undefined {
	return &undefined{
		hint: "access to attribute " + quote(name) + " of '" + typeName(v) + "' object is unsafe.", name: name, of: v, unsafe: true,
	}
}

// attribute is v.name.
func (r *run) attribute(v Value, name string) (Value, error) {
	got, err := r.python(v, name)
	if got != nil || err != nil {
		return got, err
	}
	if d, ok := v.(*Dict); ok {
		if item, ok := d.Get(name); ok {
			return item, nil
		}
	}
	return &undefined{of: v, name: name}, nil
}

// python is what Python's getattr gives, through the sandbox; nil if there is no such attribute.
func (r *run) python(v Value, name string) (Value, error) {
	if hides(typeName(v), name) {
		return hidden(v, name), nil
	}
	switch v := v.(type) {
	case *undefined:
		return nil, v.fail()
	case string, Markup:
		return boundIn(strMethods, v, name), nil
	case *Dict:
		return boundIn(dictMethods, v, name), nil
	case *List:
		return boundIn(listMethods, v, name), nil
	case *Tuple:
		for i, field := range v.names {
			if field == name {
				return v.items[i], nil
			}
		}
		return boundIn(tupleMethods, v, name), nil
	case *span:
		return v.attribute(name), nil
	case bool, int64, *big.Int, float64:
		return numberAttribute(v, name), nil
	case *namespace:
		if item, ok := v.attrs.Get(name); !ok {
			return nil, nil
		} else if strings.HasPrefix(name, "_") {
			return hidden(v, name), nil
		} else {
			return item, nil
		}
	case *loop:
		return v.attribute(r, name)
	case *cycler:
		return v.attribute(name), nil
	case *joiner:
		if name == "sep" {
			return v.sep, nil
		}
	case *macro:
		return v.attribute(name), nil
	}
	return nil, nil
}

func boundIn(table map[string]*method, v Value, name string) Value {
	if m := table[name]; m != nil {
		return m.bound(name, v)
	}
	return nil
}

func (s *span) attribute(name string) Value {
	switch name {
	case "start":
		return s.start
	case "stop":
		return s.stop
	case "step":
		return s.step
	}
	return nil
}

func (m *macro) attribute(name string) Value {
	switch name {
	case "name":
		if m.code.name == "" {
			return None{}
		}
		return m.code.name
	case "arguments":
		t := &Tuple{}
		for _, p := range m.code.params {
			t.items = append(t.items, p)
		}
		return t
	case "catch_kwargs":
		return m.code.kwargs != nil && m.code.kwargs.used
	case "catch_varargs":
		return m.code.varargs != nil && m.code.varargs.used
	case "caller":
		return m.code.caller != nil && m.code.caller.used
	}
	return nil
}

func (l *loop) attribute(r *run, name string) (Value, error) {
	switch name {
	case "index":
		return int64(l.index0 + 1), nil
	case "index0":
		return int64(l.index0), nil
	case "first":
		return l.index0 == 0, nil
	case "last":
		more, err := l.peek(r)
		return !more, err
	case "depth":
		return int64(l.depth0 + 1), nil
	case "depth0":
		return int64(l.depth0), nil
	case "length", "revindex", "revindex0":
		n, err := l.size(r)
		switch name {
		case "revindex":
			n -= l.index0
		case "revindex0":
			n -= l.index0 + 1
		}
		return int64(n), err
	case "previtem":
		if l.index0 == 0 {
			return &undefined{hint: "there is no previous item"}, nil
		}
		return l.was, nil
	case "nextitem":
		if more, err := l.peek(r); err != nil {
			return nil, err
		} else if !more {
			return &undefined{hint: "there is no next item"}, nil
		}
		return l.ahead, nil
	case "cycle":
		return &function{name, l.cycle}, nil
	case "changed":
		return &function{name, l.change}, nil
	}
	return nil, nil
}

func (l *loop) cycle(_ *run, a *args) (Value, error) {
	if len(a.pos) == 0 || len(a.names) > 0 {
		return nil, typeError("no items for cycling given")
	}
	return a.pos[l.index0%len(a.pos)], nil
}

// change says whether its arguments are others than those of the pass before.
func (l *loop) change(r *run, a *args) (Value, error) {
	v := &Tuple{items: a.pos}
	if l.changed != nil {
		if same, err := r.equal(l.changed, v); same || err != nil {
			return false, err
		}
	}
	l.changed = v
	return true, nil
}

func (e *subscript) eval(r *run) (Value, error) {
	of, err := r.eval(e.of)
	if err != nil {
		return nil, err
	}
	arg, err := r.eval(e.arg)
	if err != nil {
		return nil, err
	}
	return r.item(of, arg)
}

// item is v[arg]: an element if there is one, else an attribute.
func (r *run) item(v, arg Value) (Value, error) {
	got, err := r.element(v, arg)
	if got != nil || err != nil {
		return got, err
	}
	if name, ok := text(arg); ok {
		if got, err := r.python(v, name); got != nil || err != nil {
			return got, err
		}
	}
	return &undefined{of: v, name: arg}, nil
}

// element is what Python's v[arg] gives, nil if that fails.
func (r *run) element(v, arg Value) (Value, error) {
	switch v := v.(type) {
	case *undefined:
		return nil, v.fail()
	case *Dict:
		if name, ok := arg.(string); ok {
			item, _ := v.Get(name)
			return item, r.step(1)
		}
		if h, err := r.hash(arg); err == nil {
			if i := v.find(h); i >= 0 {
				return v.vals[i], nil
			}
		}
		return nil, nil
	case *List:
		return pick(v.items, arg), nil
	case *Tuple:
		return pick(v.items, arg), nil
	case string, Markup:
		s, _ := text(v)
		if _, ok := integer(arg); !ok {
			return nil, nil
		}
		i, err := index(arg)
		if err != nil {
			return nil, err
		}
		c, ok, err := r.char(s, i)
		if !ok || err != nil {
			return nil, err
		}
		return c, nil
	case *span:
		if _, ok := integer(arg); ok {
			i, err := index(arg)
			if err != nil {
				return nil, err
			}
			if i < 0 {
				i += int(v.n)
			}
			if i >= 0 && int64(i) < v.n {
				return v.at(int64(i)), nil
			}
		}
	}
	return nil, nil
}

func pick(items []Value, arg Value) Value {
	n, ok := whole(arg)
	if !ok {
		return nil
	}
	if n < 0 {
		n += int64(len(items))
	}
	if n < 0 || n >= int64(len(items)) {
		return nil
	}
	return items[n]
}

// numberAttribute are the attributes that numbers have.
func numberAttribute(v Value, name string) Value {
	_, isFloat := v.(float64)
	if n, ok := whole(v); ok {
		v = n
	}
	switch {
	case name == "real":
		return v
	case name == "imag" && isFloat:
		return 0.0
	case name == "imag":
		return int64(0)
	case isFloat:
		return boundIn(floatMethods, v, name)
	case name == "numerator":
		return v
	case name == "denominator":
		return int64(1)
	}
	return boundIn(intMethods, v, name)
}
