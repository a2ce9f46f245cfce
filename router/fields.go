package router

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// fields are a request's members. The first fault is kept, with the name of its member.
type fields struct {
	raw   map[string]json.RawMessage
	fault error
	// done gives the room of the body back; nothing may be read after it.
	done func()
}

// get is a member's JSON; absent and null are the same.
func (f *fields) get(name string) (json.RawMessage, bool) {
	v, ok := f.raw[name]
	if !ok || bytes.Equal(v, []byte("null")) {
		return nil, false
	}
	return v, true
}

func (f *fields) fail(err error) {
	if f.fault == nil {
		f.fault = err
	}
}

func (f *fields) boolean(name string, absent bool) bool {
	raw, ok := f.get(name)
	if !ok {
		return absent
	}
	var v bool
	if json.Unmarshal(raw, &v) != nil {
		f.fail(invalid(name, "%s must be true or false", name))
	}
	return v
}

func (f *fields) text(name string) (string, bool) {
	raw, ok := f.get(name)
	if !ok {
		return "", false
	}
	var v string
	if json.Unmarshal(raw, &v) != nil {
		f.fail(invalid(name, "%s must be a string", name))
	}
	return v, true
}

// integer is a whole number in [lo, hi].
func (f *fields) integer(name string, absent, lo, hi int64) int64 {
	raw, ok := f.get(name)
	if !ok {
		return absent
	}
	v, ok := whole(raw)
	if !ok || v < lo || v > hi {
		f.fail(invalid(name, "%s must be a whole number from %d to %d", name, lo, hi))
		return absent
	}
	return v
}

// number is in [lo, hi], and above lo if open is set. It never becomes infinite, nor 0 if it was not, as a float32.
func (f *fields) number(name string, absent, lo, hi float64, open bool) float32 {
	raw, ok := f.get(name)
	if !ok {
		return float32(absent)
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || !(v >= lo && v <= hi) || open && v == lo {
		least := "from"
		if open {
			least = "above"
		}
		f.fail(invalid(name, "%s must be a number %s %g and at most %g", name, least, lo, hi))
		return float32(absent)
	}
	if v != 0 && float32(v) == 0 {
		return float32(math.Copysign(math.SmallestNonzeroFloat32, v))
	}
	return float32(v)
}

// maxDigits is more than any number needs that a request may have.
const maxDigits = 400

// whole reads a JSON number that is a whole one, however it is written.
func whole(raw json.RawMessage) (int64, bool) {
	if len(raw) > maxDigits {
		return 0, false
	}
	s := string(raw)
	if v, err := strconv.ParseInt(s, 10, 64); err == nil {
		return v, true
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || v != math.Trunc(v) || math.Abs(v) > 1<<53 {
		return 0, false
	}
	return int64(v), true
}
