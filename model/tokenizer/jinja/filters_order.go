package jinja

import "slices"

// keyed is an item and what it is ordered by.
type keyed struct{ key, item Value }

// sorted orders items by a key, those of one rank as they stood.
func (r *run) sorted(items []Value, get func(Value) (Value, error), reverse bool) ([]keyed, error) {
	return r.sortedBy(items, get, reverse, func(a, b Value) (int, error) { return r.order("<", a, b) })
}

func (r *run) sortedBy(items []Value, get func(Value) (Value, error), reverse bool, order func(a, b Value) (int, error)) ([]keyed, error) {
	if err := r.elements(3 * len(items)); err != nil {
		return nil, err
	}
	pairs := make([]keyed, len(items))
	for i, v := range items {
		k, err := get(v)
		if err != nil {
			return nil, err
		}
		pairs[i] = keyed{k, v}
	}
	var failed error
	slices.SortStableFunc(pairs, func(a, b keyed) int {
		if failed == nil {
			failed = r.step(1)
		}
		if failed != nil {
			return 0
		}
		if reverse {
			a, b = b, a
		}
		var c int
		if c, failed = order(a.key, b.key); c == 2 {
			return 0
		}
		return c
	})
	return pairs, failed
}

func values(pairs []keyed) *List {
	items := make([]Value, len(pairs))
	for i, p := range pairs {
		items[i] = p.item
	}
	return &List{items}
}

func flag(v Value) bool { return v != nil && truth(v) }

func filterSort(r *run, v Value, a []Value) (Value, error) {
	get, err := r.multiGetter(a[2], !flag(a[1]))
	if err != nil {
		return nil, err
	}
	items, err := r.list(v)
	if err != nil {
		return nil, err
	}
	pairs, err := r.sortedBy(items, get, flag(a[0]), func(a, b Value) (int, error) {
		if same, err := r.equal(a, b); same || err != nil { // so that what has no order may stand beside its like
			return 0, err
		}
		return r.order("<", a, b)
	})
	return values(pairs), err
}

// multiGetter reads several attributes, with commas between their names.
func (r *run) multiGetter(attribute Value, fold bool) (func(Value) (Value, error), error) {
	s, ok := text(attribute)
	if !ok {
		return r.getter(attribute, fold, nil)
	}
	if err := r.elements(4 * len(s)); err != nil {
		return nil, err
	}
	var gets []func(Value) (Value, error)
	for _, name := range splitComma(s) {
		get, err := r.getter(name, fold, nil)
		if err != nil {
			return nil, err
		}
		gets = append(gets, get)
	}
	if len(gets) == 1 {
		return gets[0], nil
	}
	return func(v Value) (Value, error) {
		if err := r.elements(len(gets)); err != nil {
			return nil, err
		}
		keys := make([]Value, len(gets))
		for i, get := range gets {
			k, err := get(v)
			if err != nil {
				return nil, err
			}
			keys[i] = k
		}
		return &List{keys}, nil
	}, nil
}

func splitComma(s string) (parts []string) {
	from := 0
	for i := range len(s) {
		if s[i] == ',' {
			parts = append(parts, s[from:i])
			from = i + 1
		}
	}
	return append(parts, s[from:])
}

func filterDictSort(r *run, v Value, a []Value) (Value, error) {
	by, err := wantText(a[1], "key")
	if err != nil {
		return nil, err
	}
	at := 0
	switch by {
	case "key":
	case "value":
		at = 1
	default:
		return nil, failure("FilterArgumentError", "You can only sort by either \"key\" or \"value\"")
	}
	d, ok := v.(*Dict)
	if u, is := v.(*undefined); is {
		return nil, u.fail()
	}
	if !ok {
		return nil, typeError("'%s' object has no attribute 'items'", typeName(v))
	}
	items, err := r.list(&view{d, "items"})
	if err != nil {
		return nil, err
	}
	pairs, err := r.sorted(items, func(v Value) (Value, error) {
		return r.folded(v.(*Tuple).items[at], !flag(a[0]))
	}, flag(a[2]))
	return values(pairs), err
}

func filterMin(r *run, v Value, a []Value) (Value, error) { return r.extreme(v, a, -1) }

func filterMax(r *run, v Value, a []Value) (Value, error) { return r.extreme(v, a, 1) }

// extreme is the first item that no other goes beyond.
func (r *run) extreme(v Value, a []Value, way int) (Value, error) {
	get, err := r.getter(a[1], !flag(a[0]), nil)
	if err != nil {
		return nil, err
	}
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	var best, bestKey Value
	op := "<"
	if way > 0 {
		op = ">"
	}
	for {
		item, ok, err := it.next(r)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		k, err := get(item)
		if err != nil {
			return nil, err
		}
		if best == nil {
			best, bestKey = item, k
			continue
		}
		c, err := r.order(op, k, bestKey)
		if err != nil {
			return nil, err
		}
		if c == way {
			best, bestKey = item, k
		}
	}
	if best == nil {
		return &undefined{hint: "No aggregated item, sequence was empty."}, nil
	}
	return best, nil
}

func filterUnique(_ *run, v Value, a []Value) (Value, error) {
	return lazily(func(r *run) (step, error) {
		get, err := r.getter(a[1], !flag(a[0]), nil)
		if err != nil {
			return nil, err
		}
		it, err := r.iterate(v)
		seen := map[key]bool{}
		return func(r *run) (Value, bool, error) { return nextNew(r, it, get, seen) }, err
	}), nil
}

// nextNew takes the next item whose key was not seen yet.
func nextNew(r *run, it iterator, get func(Value) (Value, error), seen map[key]bool) (Value, bool, error) {
	for {
		item, ok, err := it.next(r)
		if err != nil || !ok {
			return nil, false, err
		}
		k, err := get(item)
		if err != nil {
			return nil, false, err
		}
		h, err := r.hash(k)
		if err != nil {
			return nil, false, err
		}
		if !seen[h] {
			seen[h] = true
			return item, true, r.build(64)
		}
	}
}

// filterGroupBy gives lists of the items with one value of an attribute, in the order of that.
func filterGroupBy(r *run, v Value, a []Value) (Value, error) {
	fold := !flag(a[2])
	get, err := r.getter(a[0], fold, a[1])
	if err != nil {
		return nil, err
	}
	plain, err := r.getter(a[0], false, a[1])
	if err != nil {
		return nil, err
	}
	items, err := r.list(v)
	if err != nil {
		return nil, err
	}
	pairs, err := r.sorted(items, get, false)
	if err != nil {
		return nil, err
	}
	groups := &List{}
	for lo := 0; lo < len(pairs); {
		hi := lo + 1
		for hi < len(pairs) {
			same, err := r.equal(pairs[lo].key, pairs[hi].key)
			if err != nil {
				return nil, err
			}
			if !same {
				break
			}
			hi++
		}
		name := pairs[lo].key
		if fold {
			if name, err = plain(pairs[lo].item); err != nil {
				return nil, err
			}
		}
		group := &Tuple{items: []Value{name, values(pairs[lo:hi])}, names: []string{"grouper", "list"}}
		groups.items = append(groups.items, group)
		if err := r.elements(8); err != nil {
			return nil, err
		}
		lo = hi
	}
	return groups, nil
}
