package jinja

import (
	"unicode/utf8"
)

// slice is v[start:stop:step].
func (r *run) slice(v Value, bounds [3]Value) (Value, error) {
	switch v := v.(type) {
	case *undefined:
		return nil, v.fail()
	case string:
		text, err := r.sliceText(v, bounds)
		return text, err
	case Markup:
		text, err := r.sliceText(string(v), bounds)
		return Markup(text), err
	case *List:
		items, err := r.sliceItems(v.items, bounds)
		return &List{items}, err
	case *Tuple:
		items, err := r.sliceItems(v.items, bounds)
		return &Tuple{items: items}, err
	case *span:
		lo, n, step, err := places3(bounds, int(v.n))
		if err != nil {
			return nil, err
		}
		start := v.start + int64(lo)*v.step
		by := int64(step) * v.step
		return &span{start, start + int64(n)*by, by, int64(n)}, nil
	case *Dict:
		return nil, typeError("unhashable type: 'slice'")
	}
	return nil, typeError("'%s' object is not subscriptable", typeName(v))
}

// places3 gives the first place, how many there are, and the step, in a sequence of n.
func places3(bounds [3]Value, n int) (lo, many, step int, err error) {
	get := func(v Value, missing int) int {
		if v == nil || v == (None{}) || err != nil {
			return missing
		}
		var i int
		if i, err = index(v); err != nil {
			if _, is := v.(*undefined); !is {
				err = typeError("slice indices must be integers or None or have an __index__ method")
			}
		}
		return i
	}
	if step = get(bounds[2], 1); err == nil && step == 0 {
		err = valueError("slice step cannot be zero")
	}
	step = min(max(step, -1<<40), 1<<40)
	first, last, low, high := 0, n, 0, n
	if step < 0 {
		first, last, low, high = n-1, -1, -1, n-1
	}
	clamp := func(v Value, missing int) int {
		if v == nil || v == (None{}) {
			return missing
		}
		i := get(v, missing)
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	lo = clamp(bounds[0], first)
	hi := clamp(bounds[1], last)
	switch {
	case err != nil:
	case step > 0 && hi > lo:
		many = (hi - lo + step - 1) / step
	case step < 0 && hi < lo:
		many = (lo - hi - step - 1) / -step
	}
	return lo, many, step, err
}

func (r *run) sliceItems(items []Value, bounds [3]Value) ([]Value, error) {
	lo, n, step, err := places3(bounds, len(items))
	if err != nil {
		return nil, err
	}
	if step == 1 { // values are not changed, so they can be shared
		return items[lo : lo+n : lo+n], r.step(1)
	}
	if err := r.elements(n); err != nil {
		return nil, err
	}
	out := make([]Value, n)
	for i := range out {
		out[i] = items[lo+i*step]
	}
	return out, nil
}

func (r *run) sliceText(s string, bounds [3]Value) (string, error) {
	chars := utf8.RuneCountInString(s)
	if err := r.step(len(s) >> 4); err != nil {
		return "", err
	}
	lo, n, step, err := places3(bounds, chars)
	if err != nil || n == 0 {
		return "", err
	}
	if step == 1 {
		from := offset(s, chars, lo)
		return s[from : from+offset(s[from:], chars-lo, n)], nil
	}
	if err := r.build(len(s)); err != nil {
		return "", err
	}
	if chars == len(s) {
		out := make([]byte, n)
		for i := range out {
			out[i] = s[lo+i*step]
		}
		return string(out), nil
	}
	if err := r.build(4 * chars); err != nil {
		return "", err
	}
	all := []rune(s)
	out := make([]rune, n)
	for i := range out {
		out[i] = all[lo+i*step]
	}
	return string(out), nil
}

// offset is the place of a character in a text of so many.
func offset(s string, chars, n int) int {
	if chars == len(s) || n == 0 {
		return n
	}
	if n == chars {
		return len(s)
	}
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// char is the character at a place, counted from the end if it is negative.
func (r *run) char(s string, i int) (string, bool, error) {
	chars := utf8.RuneCountInString(s)
	if err := r.step(len(s) >> 4); err != nil {
		return "", false, err
	}
	if i < 0 {
		i += chars
	}
	if i < 0 || i >= chars {
		return "", false, nil
	}
	from := offset(s, chars, i)
	_, n := utf8.DecodeRuneInString(s[from:])
	return s[from : from+n], true, nil
}
