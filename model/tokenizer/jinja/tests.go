package jinja

import "math/big"

// says is a test without arguments.
func says(holds func(v Value) bool) *method {
	return takes("", 0, func(_ *run, v Value, _ []Value) (Value, error) { return holds(v), nil })
}

// against is a test that compares with its argument.
func against(op string) *method {
	return takes("other", 1, func(r *run, v Value, a []Value) (Value, error) {
		held, err := r.compare(op, v, a[0])
		return held, err
	})
}

// tests are those of jinja2.
var tests = map[string]*method{
	"odd":         takes("", 0, func(r *run, v Value, _ []Value) (Value, error) { return r.rest(v, int64(2), int64(1)) }),
	"even":        takes("", 0, func(r *run, v Value, _ []Value) (Value, error) { return r.rest(v, int64(2), int64(0)) }),
	"divisibleby": takes("num", 1, func(r *run, v Value, a []Value) (Value, error) { return r.rest(v, a[0], int64(0)) }),
	"defined":     says(func(v Value) bool { return !isUndefined(v) }),
	"undefined":   says(isUndefined),
	"filter":      takes("", 0, func(r *run, v Value, _ []Value) (Value, error) { return r.has(r.filters, v) }),
	"test":        takes("", 0, func(r *run, v Value, _ []Value) (Value, error) { return r.has(r.tests, v) }),
	"none":        says(func(v Value) bool { return v == Value(None{}) }),
	"boolean":     says(func(v Value) bool { _, ok := v.(bool); return ok }),
	"true":        says(func(v Value) bool { return v == Value(true) }),
	"false":       says(func(v Value) bool { return v == Value(false) }),
	"integer":     says(isInteger),
	"float":       says(func(v Value) bool { _, ok := v.(float64); return ok }),
	"number":      says(isNumber),
	"lower":       takes("", 0, func(r *run, v Value, _ []Value) (Value, error) { return r.inCase(v, isLower) }),
	"upper":       takes("", 0, func(r *run, v Value, _ []Value) (Value, error) { return r.inCase(v, isUpper) }),
	"string":      says(func(v Value) bool { _, ok := text(v); return ok }),
	"mapping":     says(func(v Value) bool { _, ok := v.(*Dict); return ok }),
	"sequence":    says(isSubscriptable),
	"iterable":    takes("", 0, func(r *run, v Value, _ []Value) (Value, error) { _, err := r.iterate(v); return err == nil, nil }),
	"callable":    says(isCallable),
	"sameas":      takes("other", 1, func(_ *run, v Value, a []Value) (Value, error) { return same(v, a[0]), nil }),
	"escaped":     says(func(v Value) bool { _, ok := v.(Markup); return ok }),
	"in": takes("seq", 1, func(r *run, v Value, a []Value) (Value, error) {
		held, err := r.contains(a[0], v)
		return held, err
	}),
	"==": against("=="), "eq": against("=="), "equalto": against("=="),
	"!=": against("!="), "ne": against("!="),
	">": against(">"), "gt": against(">"), "greaterthan": against(">"), ">=": against(">="), "ge": against(">="),
	"<": against("<"), "lt": against("<"), "lessthan": against("<"), "<=": against("<="), "le": against("<="),
}

func isUndefined(v Value) bool { _, ok := v.(*undefined); return ok }

// rest says whether v % by is such.
func (r *run) rest(v, by, want Value) (Value, error) {
	m, err := r.arithmetic("%", v, by)
	if err != nil {
		return nil, err
	}
	held, err := r.equal(m, want)
	return held, err
}

func (r *run) has(table map[string]*method, v Value) (Value, error) {
	k, err := r.hash(v)
	return k.kind == 's' && table[k.s] != nil, err
}

func isInteger(v Value) bool {
	switch v.(type) {
	case int64, *big.Int:
		return true
	}
	return false
}

func (r *run) inCase(v Value, holds func(string) bool) (Value, error) {
	s, err := r.str(v)
	if err == nil {
		err = r.step(len(s) >> 3)
	}
	return err == nil && holds(s), err
}

func isSubscriptable(v Value) bool {
	switch v.(type) {
	case string, Markup, *List, *Tuple, *Dict, *span, *undefined:
		return true
	}
	return false
}

func isCallable(v Value) bool {
	switch v.(type) {
	case *function, *macro, *joiner, *loop, *undefined:
		return true
	}
	return false
}

// same says that two values are one: for numbers and texts, that nothing tells them apart.
func same(a, b Value) bool {
	switch x := a.(type) {
	case *big.Int:
		y, ok := b.(*big.Int)
		return ok && x.Cmp(y) == 0
	case *undefined:
		return false
	}
	return a == b
}
