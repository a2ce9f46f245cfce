package jinja

import (
	"math"
	"strings"
)

// takes is a method with these parameters, of which the first need must be given.
func takes(params string, need int, run func(r *run, self Value, a []Value) (Value, error)) *method {
	return &method{signature: signature{strings.Fields(params), need}, run: run}
}

var dictMethods = map[string]*method{
	"get":    takes("key default", 1, dictGet),
	"items":  takes("", 0, func(_ *run, v Value, _ []Value) (Value, error) { return &view{v.(*Dict), "items"}, nil }),
	"keys":   takes("", 0, func(_ *run, v Value, _ []Value) (Value, error) { return &view{v.(*Dict), "keys"}, nil }),
	"values": takes("", 0, func(_ *run, v Value, _ []Value) (Value, error) { return &view{v.(*Dict), "values"}, nil }),
	"copy": takes("", 0, func(r *run, v Value, _ []Value) (Value, error) {
		d := v.(*Dict)
		return d.copy(), r.build(64 * len(d.keys))
	}),
	"fromkeys": takes("iterable value", 1, dictFromKeys),
}

func dictGet(r *run, self Value, a []Value) (Value, error) {
	d := self.(*Dict)
	h, err := r.hash(a[0])
	if err != nil {
		return nil, err
	}
	if i := d.find(h); i >= 0 {
		return d.vals[i], r.step(1)
	}
	if a[1] != nil {
		return a[1], nil
	}
	return None{}, nil
}

func dictFromKeys(r *run, _ Value, a []Value) (Value, error) {
	keys, err := r.list(a[0])
	if err != nil {
		return nil, err
	}
	v := a[1]
	if v == nil {
		v = None{}
	}
	if err := r.build(times(64, len(keys))); err != nil {
		return nil, err
	}
	d := NewDict()
	for _, k := range keys {
		if err := r.put(d, k, v); err != nil {
			return nil, err
		}
	}
	return d, nil
}

var listMethods = map[string]*method{
	"count": takes("value", 1, seqCount),
	"index": takes("value start stop", 1, seqIndex),
	"copy":  takes("", 0, func(_ *run, v Value, _ []Value) (Value, error) { return &List{v.(*List).items}, nil }),
}

var tupleMethods = map[string]*method{
	"count": takes("value", 1, seqCount),
	"index": takes("value start stop", 1, seqIndex),
}

func itemsOf(v Value) []Value {
	switch v := v.(type) {
	case *List:
		return v.items
	case *Tuple:
		return v.items
	}
	return nil
}

func seqCount(r *run, self Value, a []Value) (Value, error) {
	n := int64(0)
	for _, item := range itemsOf(self) {
		same, err := r.equal(item, a[0])
		if err == nil {
			err = r.step(1)
		}
		if err != nil {
			return nil, err
		}
		if same {
			n++
		}
	}
	return n, nil
}

func seqIndex(r *run, self Value, a []Value) (Value, error) {
	items := itemsOf(self)
	lo, n, _, err := places3([3]Value{a[1], a[2], nil}, len(items))
	if err != nil {
		return nil, err
	}
	for i := lo; i < lo+n; i++ {
		same, err := r.equal(items[i], a[0])
		if err == nil {
			err = r.step(1)
		}
		if err != nil {
			return nil, err
		}
		if same {
			return int64(i), nil
		}
	}
	return nil, valueError("value is not in %s", typeName(self))
}

var intMethods = map[string]*method{
	"bit_length": takes("", 0, func(_ *run, v Value, _ []Value) (Value, error) {
		n, _ := integer(v)
		return int64(n.BitLen()), nil
	}),
	"conjugate": takes("", 0, func(_ *run, v Value, _ []Value) (Value, error) { return v, nil }),
}

var floatMethods = map[string]*method{
	"is_integer": takes("", 0, func(_ *run, v Value, _ []Value) (Value, error) {
		f := v.(float64)
		return f == math.Trunc(f) && !math.IsInf(f, 0), nil
	}),
	"conjugate": takes("", 0, func(_ *run, v Value, _ []Value) (Value, error) { return v, nil }),
}
