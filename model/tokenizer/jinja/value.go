package jinja

import "math/big"

// Value is what templates compute with: None, bool, int64, *big.Int (beyond int64 only), float64, string, Markup, *List,
// *Tuple, *Dict, and what rendering itself makes. Values are not changed once a template has seen them.
type Value any

// None is Python's None.
type None struct{}

// Markup is text that counts as escaped for HTML already.
type Markup string

// List is a Python list.
type List struct{ items []Value }

// NewList is a list of these values, which it keeps.
func NewList(items ...Value) *List { return &List{items} }

// Items are the list's values, not to be changed.
func (l *List) Items() []Value { return l.items }

// Tuple is a Python tuple; names, if any, are those of its fields.
type Tuple struct {
	items []Value
	names []string
}

// span is Python's range: n numbers from start, step apart.
type span struct{ start, stop, step, n int64 }

// view is a dictionary's keys, values or items.
type view struct {
	dict *Dict
	kind string
}

// namespace is the one thing a template can change.
type namespace struct{ attrs *Dict }

// function is a callable that is not written in the template.
type function struct {
	name string
	call func(r *run, a *args) (Value, error)
}

// undefined is a value that is not there, and why.
type undefined struct {
	hint   string
	name   Value
	of     Value // what lacks it; nil: it is a variable
	unsafe bool
}

func (u *undefined) fail() error {
	if u.unsafe {
		return &Error{Kind: Security, Message: u.hint}
	}
	return &Error{Kind: Undefined, Message: u.why()}
}

func (u *undefined) why() string {
	name, isName := u.name.(string)
	switch {
	case u.hint != "":
		return u.hint
	case u.of == nil:
		return quote(name) + " is undefined"
	case isName:
		return "'" + objectOf(u.of) + "' has no attribute " + quote(name)
	}
	return objectOf(u.of) + " has no element " + brief(u.name)
}

// objectOf names a value's type as messages about missing attributes do.
func objectOf(v Value) string {
	switch v.(type) {
	case None:
		return "None"
	case *undefined, *loop, *macro, *namespace:
		return "jinja2." + typeName(v) + " object"
	}
	return typeName(v) + " object"
}

// brief is a value for a message.
func brief(v Value) string {
	text, err := (&run{limits: Limits{Value: 200}.orDefaults(), fuel: 1000}).repr(v)
	if err != nil {
		return "…"
	}
	return text
}

func typeName(v Value) string {
	switch v := v.(type) {
	case None:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case Markup:
		return "Markup"
	case *List:
		return "list"
	case *Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *span:
		return "range"
	case *view:
		return "dict_" + v.kind
	case *namespace:
		return "Namespace"
	case *undefined:
		return "Undefined"
	case *loop:
		return "LoopContext"
	case *macro:
		return "Macro"
	case *generator:
		return v.name
	case *cycler:
		return "Cycler"
	case *joiner:
		return "Joiner"
	}
	return "builtin_function_or_method"
}

// truth is Python's bool().
func truth(v Value) bool {
	switch v := v.(type) {
	case None, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case Markup:
		return v != ""
	case *List:
		return len(v.items) > 0
	case *Tuple:
		return len(v.items) > 0
	case *Dict:
		return len(v.keys) > 0
	case *span:
		return v.n > 0
	case *view:
		return len(v.dict.keys) > 0
	}
	return true
}

// text is a string's text, escaped or not.
func text(v Value) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case Markup:
		return string(v), true
	}
	return "", false
}

// whole is a number that is not a fraction, a truth value counting as one.
func whole(v Value) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// index is a number for a place or a count, near the ends of what can be if it is beyond them.
func index(v Value) (int, error) {
	switch v := v.(type) {
	case *undefined:
		return 0, v.fail()
	case *big.Int:
		if v.Sign() < 0 {
			return -1 << 60, nil
		}
		return 1 << 60, nil
	}
	n, ok := whole(v)
	if !ok {
		return 0, typeError("'%s' object cannot be interpreted as an integer", typeName(v))
	}
	return int(min(max(n, -1<<60), 1<<60)), nil
}
