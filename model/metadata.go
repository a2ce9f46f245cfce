package model

import (
	"encoding/binary"
	"math"
)

// kind is GGUF's number of a metadata value's type.
type kind uint32

const (
	kindU8 kind = iota
	kindI8
	kindU16
	kindI16
	kindU32
	kindI32
	kindF32
	kindBool
	kindString
	kindArray
	kindU64
	kindI64
	kindF64
)

// minKey is the smallest entry: name length, type, one byte of value.
const minKey = 8 + 4 + 1

// kindSize is the bytes of a scalar; a string has at least its length; 0 for an unknown kind and for arrays.
func kindSize(k kind) int {
	switch k {
	case kindU8, kindI8, kindBool:
		return 1
	case kindU16, kindI16:
		return 2
	case kindU32, kindI32, kindF32:
		return 4
	case kindU64, kindI64, kindF64, kindString:
		return 8
	}
	return 0
}

// value is one metadata value, undecoded: n items of a kind at raw. A scalar has array = false and n = 1.
type value struct {
	kind  kind
	array bool
	n     int
	at    int // offset in the file, for faults
	raw   []byte
	from  string // file and key of a folder that it stands for
}

// metadata walks n keys. Values are checked for size and left where they are, so a huge vocabulary costs nothing here.
func (c *cursor) metadata(n int) map[string]value {
	keys := make(map[string]value)
	for i := 0; i < n && c.err == nil; i++ {
		at := c.at
		name := c.str("key name")
		v := value{kind: kind(c.u32("value type")), n: 1}
		if v.kind == kindArray {
			v.array, v.kind = true, kind(c.u32("array type"))
			v.n = c.arrayCount(v.kind)
		}
		v.at = c.at
		c.skip(&v)
		if _, twice := keys[name]; twice {
			c.fail(at, "key %.64q stands twice", name)
		}
		keys[name] = v
	}
	return keys
}

func (c *cursor) arrayCount(k kind) int {
	size := kindSize(k)
	if c.err == nil && size == 0 {
		c.fail(c.at, "arrays of type %d (nested or unknown) are not read", k)
	}
	return c.count(max(size, 1), "array length")
}

// skip moves over v's items and keeps a copy of the view; strings are walked one by one.
func (c *cursor) skip(v *value) {
	size := kindSize(v.kind)
	switch {
	case c.err != nil:
	case size == 0:
		c.fail(c.at, "unknown value type %d", v.kind)
	case v.kind != kindString:
		c.take(v.n*size, "value")
	default:
		for i := 0; i < v.n && c.err == nil; i++ {
			c.take(c.count(1, "string length"), "string")
		}
	}
	v.raw = c.b[v.at:c.at:c.at]
}

// alignment is general.alignment: a power of two, 32 when absent.
func (c *cursor) alignment(keys map[string]value) int {
	v, ok := keys["general.alignment"]
	if !ok {
		return defaultAlignment
	}
	n, ok := v.uint()
	if !ok || n == 0 || n&(n-1) != 0 || n > 1<<20 {
		c.fail(v.at, "general.alignment is no power of two up to 1 MiB")
		return defaultAlignment
	}
	return int(n)
}

// uint reads any integer scalar that is not negative.
func (v value) uint() (uint64, bool) {
	if v.array {
		return 0, false
	}
	n, ok := v.int(0)
	if !ok || (n < 0 && v.kind != kindU64) {
		return 0, false
	}
	return uint64(n), true
}

// int is item i of an integer value, of any width; a uint64 above 2^63 comes back negative.
func (v value) int(i int) (int64, bool) {
	b := v.raw
	switch v.kind {
	case kindU8:
		return int64(b[i]), true
	case kindI8:
		return int64(int8(b[i])), true
	case kindU16:
		return int64(binary.LittleEndian.Uint16(b[2*i:])), true
	case kindI16:
		return int64(int16(binary.LittleEndian.Uint16(b[2*i:]))), true
	case kindU32:
		return int64(binary.LittleEndian.Uint32(b[4*i:])), true
	case kindI32:
		return int64(int32(binary.LittleEndian.Uint32(b[4*i:]))), true
	case kindU64, kindI64:
		return int64(binary.LittleEndian.Uint64(b[8*i:])), true
	}
	return 0, false
}

// float is item i of a floating-point value.
func (v value) float(i int) (float64, bool) {
	switch v.kind {
	case kindF32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(v.raw[4*i:]))), true
	case kindF64:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.raw[8*i:])), true
	}
	return 0, false
}
