package jinja

import (
	"slices"
	"strconv"
	"strings"
)

func filterLength(r *run, v Value, _ []Value) (Value, error) {
	if l, ok := v.(*loop); ok {
		n, err := l.size(r)
		return int64(n), err
	}
	n, ok := size(v)
	if !ok {
		return nil, typeError("object of type '%s' has no len()", typeName(v))
	}
	if s, ok := text(v); ok {
		return int64(n), r.step(len(s) >> 4)
	}
	return int64(n), nil
}

func filterDefault(_ *run, v Value, a []Value) (Value, error) {
	_, missing := v.(*undefined)
	if missing || a[1] != nil && truth(a[1]) && !truth(v) {
		if a[0] == nil {
			return "", nil
		}
		return a[0], nil
	}
	return v, nil
}

func filterAttr(r *run, v Value, a []Value) (Value, error) {
	name, err := wantText(a[0], "")
	if err != nil {
		return nil, err
	}
	got, err := r.python(v, name)
	if got == nil && err == nil {
		got = &undefined{of: v, name: name}
	}
	return got, err
}

func filterList(r *run, v Value, _ []Value) (Value, error) {
	items, err := r.list(v)
	return &List{items}, err
}

func filterFirst(r *run, v Value, _ []Value) (Value, error) {
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	item, ok, err := it.next(r)
	if err == nil && !ok {
		item = &undefined{hint: "No first item, sequence was empty."}
	}
	return item, err
}

func filterLast(r *run, v Value, _ []Value) (Value, error) {
	it, err := r.backwards(v)
	if err != nil {
		return nil, err
	}
	item, ok, err := it.next(r)
	if err == nil && !ok {
		item = &undefined{hint: "No last item, sequence was empty."}
	}
	return item, err
}

// backwards is Python's reversed().
func (r *run) backwards(v Value) (iterator, error) {
	switch v := v.(type) {
	case *generator, *loop:
		return nil, typeError("'%s' object is not reversible", typeName(v))
	case string, Markup:
		s, _ := text(v)
		chars, err := r.sliceText(s, [3]Value{nil, nil, int64(-1)})
		return &runes{chars}, err
	case *span:
		return &counter{of: &span{v.at(v.n - 1), 0, -v.step, v.n}}, nil
	}
	items, err := r.list(v)
	if err != nil {
		return nil, typeError("'%s' object is not reversible", typeName(v))
	}
	at := len(items)
	return &generator{name: "reversed", pull: func(r *run) (Value, bool, error) {
		if at == 0 {
			return nil, false, nil
		}
		at--
		return items[at], true, r.step(1)
	}}, nil
}

func filterReverse(r *run, v Value, _ []Value) (Value, error) {
	if s, ok := text(v); ok {
		out, err := r.sliceText(s, [3]Value{nil, nil, int64(-1)})
		return like(v, out), err
	}
	it, err := r.backwards(v)
	if err == nil {
		if g, ok := it.(*generator); ok {
			return g, nil
		}
		return &generator{name: "reversed", pull: it.next}, nil
	}
	items, err := r.list(v)
	if err != nil {
		return nil, err
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	return &List{items}, r.elements(len(items))
}

func filterItems(_ *run, v Value, _ []Value) (Value, error) {
	return lazily(func(*run) (step, error) {
		switch v := v.(type) {
		case *undefined:
			return nothing, nil
		case *Dict:
			return (&viewer{of: &view{v, "items"}}).next, nil
		}
		return nil, typeError("Can only get item pairs from a mapping.")
	}), nil
}

func filterJoin(r *run, v Value, a []Value) (Value, error) {
	sep := ""
	if a[0] != nil {
		var err error
		if sep, err = r.str(a[0]); err != nil {
			return nil, err
		}
	}
	get, err := r.getter(a[1], false, nil)
	if err != nil {
		return nil, err
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	p := &printer{r: r}
	for first := true; p.err == nil; first = false {
		item, ok, err := it.next(r)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if item, err = get(item); err != nil {
			return nil, err
		}
		text, err := r.str(item)
		if err != nil {
			return nil, err
		}
		if !first {
			p.add(sep)
		}
		p.add(text)
	}
	out, err := p.done()
	return out, err
}

func filterSum(r *run, v Value, a []Value) (Value, error) {
	get, err := r.getter(a[0], false, nil)
	if err != nil {
		return nil, err
	}
	var total Value = int64(0)
	if a[1] != nil {
		total = a[1]
	}
	if _, ok := text(total); ok {
		return nil, typeError("sum() can't sum strings [use ''.join(seq) instead]")
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	for {
		item, ok, err := it.next(r)
		if err != nil || !ok {
			return total, err
		}
		if item, err = get(item); err != nil {
			return nil, err
		}
		if total, err = r.arithmetic("+", total, item); err != nil {
			return nil, err
		}
	}
}

// filterBatch cuts a list into lists of so many.
func filterBatch(_ *run, v Value, a []Value) (Value, error) {
	return lazily(func(r *run) (step, error) {
		it, err := r.iterate(v)
		var held []Value
		return func(r *run) (Value, bool, error) { return nextBatch(r, it, &held, a) }, err
	}), nil
}

// nextBatch takes a batch; held is the item that was one too many for the last.
func nextBatch(r *run, it iterator, held *[]Value, a []Value) (Value, bool, error) {
	items := *held
	*held = nil
	for {
		item, ok, err := it.next(r)
		if err != nil {
			return nil, false, err
		}
		if !ok {
			break
		}
		full, err := r.equal(int64(len(items)), a[0])
		if err != nil {
			return nil, false, err
		}
		if full {
			*held = []Value{item}
			return &List{items}, true, nil
		}
		if err := r.elements(2); err != nil {
			return nil, false, err
		}
		items = append(items, item)
	}
	if len(items) == 0 {
		return nil, false, nil
	}
	if a[1] != nil && a[1] != (None{}) {
		n, err := index(a[0])
		if err != nil {
			return nil, false, err
		}
		more, err := r.repeatItems([]Value{a[1]}, max(0, n-len(items)))
		if err != nil {
			return nil, false, err
		}
		items = append(items, more...)
	}
	return &List{items}, true, nil
}

// filterSlice cuts a list into so many lists of about one length.
func filterSlice(_ *run, v Value, a []Value) (Value, error) {
	return lazily(func(r *run) (step, error) {
		items, err := r.list(v)
		if err != nil {
			return nil, err
		}
		n, err := index(a[0])
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, failure("ZeroDivisionError", "integer division or modulo by zero")
		}
		at, from := 0, 0
		return func(r *run) (Value, bool, error) {
			if at >= n {
				return nil, false, nil
			}
			to := from + len(items)/n
			if at < len(items)%n {
				to++
			}
			part := items[from:to:to]
			if at >= len(items)%n && a[1] != nil && a[1] != (None{}) {
				part = append(part, a[1])
			}
			at, from = at+1, to
			return &List{part}, true, r.elements(len(part) + 1)
		}, nil
	}), nil
}

// getter reads an attribute of values, by a path with dots or by a number; nil is the value itself. Text is made small
// if fold says so; missing stands in for what is not there.
func (r *run) getter(attribute Value, fold bool, missing Value) (func(Value) (Value, error), error) {
	path, err := r.attributePath(attribute)
	if err != nil {
		return nil, err
	}
	return func(v Value) (Value, error) {
		for _, part := range path {
			var err error
			if v, err = r.item(v, part); err != nil {
				return nil, err
			}
			if err := r.step(1); err != nil {
				return nil, err
			}
			if _, ok := v.(*undefined); ok && missing != nil && missing != (None{}) {
				v = missing
			}
		}
		return r.folded(v, fold)
	}, nil
}

func (r *run) folded(v Value, fold bool) (Value, error) {
	if s, ok := text(v); ok && fold {
		if err := r.mapped(s); err != nil {
			return nil, err
		}
		return lower(s), nil
	}
	return v, nil
}

func (r *run) attributePath(attribute Value) ([]Value, error) {
	switch a := attribute.(type) {
	case nil, None:
		return nil, nil
	case string:
		if err := r.elements(3 * (strings.Count(a, ".") + 1)); err != nil {
			return nil, err
		}
		parts := strings.Split(a, ".")
		path := make([]Value, len(parts))
		for i, p := range parts {
			path[i] = p
			if n, err := strconv.ParseInt(p, 10, 64); err == nil && isDigit(p[0]) {
				path[i] = n
			}
		}
		return path, nil
	}
	return []Value{attribute}, nil
}
