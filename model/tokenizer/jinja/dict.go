package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
)

// Dict is a Python dictionary: it keeps the order in which its keys came.
type Dict struct {
	keys, vals []Value
	index      map[key]int // nil while the dictionary is small
}

// key is what makes two keys of a dictionary the same: 1, 1.0 and true are.
type key struct {
	kind byte // 's' text, 'n' whole number, 'f' fraction, and others told by s
	n    int64
	s    string
}

// smallDict is up to where looking at each key is as fast as an index.
const smallDict = 8

// NewDict is an empty dictionary.
func NewDict() *Dict { return &Dict{} }

// Len is how many keys there are.
func (d *Dict) Len() int {
	if d == nil {
		return 0
	}
	return len(d.keys)
}

// Get is the value of a text key.
func (d *Dict) Get(name string) (Value, bool) {
	if d == nil {
		return nil, false
	}
	if i := d.find(key{kind: 's', s: name}); i >= 0 {
		return d.vals[i], true
	}
	return nil, false
}

// Set gives a text key a value; a key that is new comes last. For whoever builds the dictionary only.
func (d *Dict) Set(name string, v Value) { d.put(key{kind: 's', s: name}, name, v) }

// Names are the text keys in order.
func (d *Dict) Names() []string {
	if d == nil {
		return nil
	}
	names := make([]string, 0, len(d.keys))
	for _, k := range d.keys {
		if s, ok := k.(string); ok {
			names = append(names, s)
		}
	}
	return names
}

func (d *Dict) find(k key) int {
	if d.index != nil {
		if i, ok := d.index[k]; ok {
			return i
		}
		return -1
	}
	for i, v := range d.keys {
		if s, ok := v.(string); ok {
			if k.kind == 's' && s == k.s {
				return i
			}
		} else if k.kind != 's' && simpleKey(v) == k {
			return i
		}
	}
	return -1
}

func (d *Dict) put(k key, name, v Value) {
	if i := d.find(k); i >= 0 {
		d.vals[i] = v
		return
	}
	d.keys, d.vals = append(d.keys, name), append(d.vals, v)
	switch {
	case d.index != nil:
		d.index[k] = len(d.keys) - 1
	case len(d.keys) > smallDict || k.kind == 't':
		d.index = make(map[key]int, 2*len(d.keys))
		for i, v := range d.keys {
			d.index[simpleKey(v)] = i
		}
		d.index[k] = len(d.keys) - 1 // a tuple's
	}
}

func (d *Dict) copy() *Dict {
	c := &Dict{keys: append([]Value(nil), d.keys...), vals: append([]Value(nil), d.vals...)}
	if d.index != nil {
		c.index = make(map[key]int, len(d.index))
		for k, i := range d.index {
			c.index[k] = i
		}
	}
	return c
}

// simpleKey is the key of anything but a tuple.
func simpleKey(v Value) key {
	switch v := v.(type) {
	case string:
		return key{kind: 's', s: v}
	case Markup:
		return key{kind: 's', s: string(v)}
	case int64:
		return key{kind: 'n', n: v}
	case bool:
		n, _ := whole(v)
		return key{kind: 'n', n: n}
	case *big.Int:
		return key{kind: 'b', s: v.Text(62)}
	case float64:
		return floatKey(v)
	case None:
		return key{kind: '0'}
	case *undefined:
		return key{kind: 'u'}
	}
	if s, ok := v.(*span); ok {
		return key{kind: 'r', s: fmt.Sprint(s.n, s.at(0), s.at(1)), n: s.n}
	}
	return key{kind: 'p', s: fmt.Sprintf("%p", v)} // it is itself alone
}

func floatKey(f float64) key {
	switch {
	case f == math.Trunc(f) && math.Abs(f) < 1<<63:
		return key{kind: 'n', n: int64(f)}
	case f == math.Trunc(f) && !math.IsInf(f, 0):
		n, _ := big.NewFloat(f).Int(nil)
		return key{kind: 'b', s: n.Text(62)}
	}
	return key{kind: 'f', n: int64(math.Float64bits(f))}
}

// hash is a value's key; lists and dictionaries have none.
func (r *run) hash(v Value) (key, error) {
	switch v := v.(type) {
	case *List, *Dict:
		return key{}, typeError("unhashable type: '%s'", typeName(v))
	case *Tuple:
		return r.hashTuple(v)
	}
	return simpleKey(v), nil
}

// hashTuple writes the keys of a tuple's elements one after another, each with its length.
func (r *run) hashTuple(t *Tuple) (key, error) {
	if err := r.down(); err != nil {
		return key{}, err
	}
	defer r.up()
	var b []byte
	for _, v := range t.items {
		k, err := r.hash(v)
		if err != nil {
			return key{}, err
		}
		if err := r.build(len(k.s) + 24); err != nil {
			return key{}, err
		}
		b = append(b, k.kind)
		b = strconv.AppendInt(b, k.n, 36)
		b = strconv.AppendInt(append(b, ':'), int64(len(k.s)), 36)
		b = append(append(b, ':'), k.s...)
	}
	if len(b) > r.limits.Value {
		return key{}, &LimitError{Limit: "value", Max: int64(r.limits.Value)}
	}
	return key{kind: 't', s: string(b)}, nil
}
