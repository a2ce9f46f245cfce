package jinja

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth is the nesting that Decode reads, near what Python's reader stands.
const maxJSONDepth = 1000

// decoder reads JSON.
type decoder struct {
	s     string
	pos   int
	depth int
}

// Decode gives the value of a JSON text: objects keep the order of their keys, whole numbers are whole of any size up to
// 4300 digits, others are fractions, as in Python. Of a key that comes twice the last value counts. Bytes that are no
// UTF-8, and halves of surrogate pairs, become U+FFFD.
func Decode(raw []byte) (Value, error) {
	d := &decoder{s: string(raw)}
	if !utf8.ValidString(d.s) {
		d.s = valid(d.s)
	}
	v, err := d.value()
	if err != nil {
		return nil, err
	}
	if d.space(); d.pos < len(d.s) {
		return nil, d.fail("text after the value")
	}
	return v, nil
}

// UnmarshalJSON reads an object.
func (d *Dict) UnmarshalJSON(raw []byte) error {
	v, err := Decode(raw)
	if err != nil {
		return err
	}
	read, ok := v.(*Dict)
	if !ok {
		return fmt.Errorf("JSON: want an object, not %s", typeName(v))
	}
	*d = *read
	return nil
}

// valid is a text whose bad bytes are each replaced by U+FFFD.
func valid(s string) string { return string([]rune(s)) }

func (d *decoder) fail(what string) error { return fmt.Errorf("JSON: %s at byte %d", what, d.pos) }

func (d *decoder) space() {
	for d.pos < len(d.s) && strings.IndexByte(" \t\r\n", d.s[d.pos]) >= 0 {
		d.pos++
	}
}

// next is the next byte after white space, 0 at the end.
func (d *decoder) next() byte {
	if d.space(); d.pos == len(d.s) {
		return 0
	}
	return d.s[d.pos]
}

func (d *decoder) value() (Value, error) {
	switch c := d.next(); {
	case c == '"':
		s, err := d.text()
		return s, err
	case c == '{' || c == '[':
		if d.depth++; d.depth > maxJSONDepth {
			return nil, d.fail("too much nesting")
		}
		defer func() { d.depth-- }()
		d.pos++
		if c == '[' {
			return d.list()
		}
		return d.object()
	case c == '-' || isDigit(c):
		return d.number()
	}
	for word, v := range map[string]Value{"null": None{}, "true": true, "false": false} {
		if strings.HasPrefix(d.s[d.pos:], word) {
			d.pos += len(word)
			return v, nil
		}
	}
	return nil, d.fail("no value")
}

func (d *decoder) list() (Value, error) {
	l := &List{}
	if d.next() == ']' {
		d.pos++
		return l, nil
	}
	for {
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		l.items = append(l.items, v)
		switch d.next() {
		case ',':
			d.pos++
		case ']':
			d.pos++
			return l, nil
		default:
			return nil, d.fail("no comma in a list")
		}
	}
}

func (d *decoder) object() (Value, error) {
	o := NewDict()
	if d.next() == '}' {
		d.pos++
		return o, nil
	}
	for {
		if d.next() != '"' {
			return nil, d.fail("no key")
		}
		name, err := d.text()
		if err != nil {
			return nil, err
		}
		if d.next() != ':' {
			return nil, d.fail("no colon")
		}
		d.pos++
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		o.Set(name, v)
		switch d.next() {
		case ',':
			d.pos++
		case '}':
			d.pos++
			return o, nil
		default:
			return nil, d.fail("no comma in an object")
		}
	}
}

// number reads one; what has a point or an exponent is a fraction.
func (d *decoder) number() (Value, error) {
	from := d.pos
	digits := func() int {
		at := d.pos
		for d.pos < len(d.s) && isDigit(d.s[d.pos]) {
			d.pos++
		}
		return d.pos - at
	}
	skip := func(set string) bool {
		if d.pos < len(d.s) && strings.IndexByte(set, d.s[d.pos]) >= 0 {
			d.pos++
			return true
		}
		return false
	}
	skip("-")
	ok := skip("0") || digits() > 0
	fraction := false
	if skip(".") {
		fraction, ok = true, ok && digits() > 0
	}
	if skip("eE") {
		skip("+-")
		fraction, ok = true, ok && digits() > 0
	}
	s := d.s[from:d.pos]
	switch {
	case !ok:
		return nil, d.fail("a broken number")
	case fraction:
		f, _ := strconv.ParseFloat(s, 64) // what is too large is infinite
		return f, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, nil
	}
	if len(s) > maxDigits {
		return nil, d.fail("a number of too many digits")
	}
	n, _ := new(big.Int).SetString(s, 10)
	return n, nil
}

// text reads a string.
func (d *decoder) text() (string, error) {
	d.pos++
	from := d.pos
	for ; d.pos < len(d.s); d.pos++ {
		switch c := d.s[d.pos]; {
		case c == '"':
			d.pos++
			return d.s[from : d.pos-1], nil
		case c == '\\':
			return d.escaped(from)
		case c < ' ':
			return "", d.fail("a control character in a string")
		}
	}
	return "", d.fail("a string without end")
}

// escaped reads a string with escapes, which began at from.
func (d *decoder) escaped(from int) (string, error) {
	b := []byte(d.s[from:d.pos])
	for d.pos < len(d.s) {
		c := d.s[d.pos]
		d.pos++
		switch {
		case c == '"':
			return string(b), nil
		case c < ' ':
			return "", d.fail("a control character in a string")
		case c != '\\':
			b = append(b, c)
			continue
		case d.pos == len(d.s):
			return "", d.fail("a string without end")
		}
		c = d.s[d.pos]
		d.pos++
		if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
			b = append(b, "\"\\/\b\f\n\r\t"[i])
			continue
		}
		u, ok := d.unit()
		if c != 'u' || !ok {
			return "", d.fail("a broken escape")
		}
		if utf16.IsSurrogate(u) {
			u = d.pair(u)
		}
		b = utf8.AppendRune(b, u)
	}
	return "", d.fail("a string without end")
}

// unit reads the four digits of an escape.
func (d *decoder) unit() (rune, bool) {
	if d.pos+4 > len(d.s) {
		return 0, false
	}
	v, err := strconv.ParseUint(d.s[d.pos:d.pos+4], 16, 32)
	d.pos += 4
	return rune(v), err == nil
}

// pair is the character of a surrogate and the one that must follow it.
func (d *decoder) pair(high rune) rune {
	at := d.pos
	if strings.HasPrefix(d.s[d.pos:], `\u`) {
		d.pos += 2
		if low, ok := d.unit(); ok {
			if c := utf16.DecodeRune(high, low); c != utf8.RuneError {
				return c
			}
		}
	}
	d.pos = at
	return utf8.RuneError
}
