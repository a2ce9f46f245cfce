package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// fields is a text with {fields} that is being filled.
type fields struct {
	r     *run
	a     *args
	named *Dict // instead of the arguments' names
	auto  int   // the number that {} has next, −1: fields are numbered
	safe  bool
}

func strFormat(r *run, self Value, a *args) (Value, error) {
	return (&fields{r: r, a: a}).fill(self)
}

func strFormatMap(r *run, self Value, a []Value) (Value, error) {
	d, ok := a[0].(*Dict)
	if !ok {
		return nil, typeError("format_map() wants a mapping, not %s", typeName(a[0]))
	}
	return (&fields{r: r, a: &args{}, named: d}).fill(self)
}

func (f *fields) fill(self Value) (Value, error) {
	s, _ := text(self)
	_, f.safe = self.(Markup)
	out, err := f.text(s, 2)
	return like(self, out), err
}

// text fills one; depth is how many levels of fields inside of fields it may have.
func (f *fields) text(s string, depth int) (string, error) {
	if depth == 0 {
		return "", valueError("Max string recursion exceeded")
	}
	p := &printer{r: f.r}
	for s != "" && p.err == nil {
		at := strings.IndexAny(s, "{}")
		if at < 0 {
			p.add(s)
			break
		}
		p.add(s[:at])
		c := s[at]
		s = s[at+1:]
		if s != "" && s[0] == c {
			p.add(s[:1])
			s = s[1:]
			continue
		}
		if c == '}' {
			return "", valueError("Single '}' encountered in format string")
		}
		end := fieldEnd(s)
		if end < 0 {
			return "", valueError("expected '}' before end of string")
		}
		text, err := f.field(s[:end], depth)
		if err != nil {
			return "", err
		}
		p.add(text)
		s = s[end+1:]
	}
	return p.done()
}

// fieldEnd is the place of the bracket that closes a field.
func fieldEnd(s string) int {
	open := 1
	for i := range len(s) {
		switch s[i] {
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return i
			}
		}
	}
	return -1
}

// field writes one: name!conversion:format.
func (f *fields) field(s string, depth int) (string, error) {
	if err := f.r.step(1); err != nil {
		return "", err
	}
	name, format, conversion := s, "", byte(0)
	if i := strings.IndexAny(s, ":!"); i >= 0 {
		name = s[:i]
		rest := s[i:]
		if rest[0] == '!' {
			if len(rest) < 2 || len(rest) > 2 && rest[2] != ':' {
				return "", valueError("expected ':' after conversion specifier")
			}
			conversion = rest[1]
			rest = rest[2:]
		}
		if rest != "" {
			format = rest[1:]
		}
	}
	v, err := f.value(name)
	if err != nil {
		return "", err
	}
	switch conversion {
	case 0:
	case 's':
		v, err = f.r.str(v)
	case 'r', 'a':
		var text string
		text, err = f.r.repr(v)
		if conversion == 'a' {
			text = onlyASCII(text)
		}
		v = text
	default:
		err = valueError("Unknown conversion specifier %s", quote(string(conversion)))
	}
	if err == nil && strings.ContainsAny(format, "{}") {
		format, err = f.text(format, depth-1)
	}
	if err != nil {
		return "", err
	}
	text, err := f.r.format(v, format)
	if err != nil || !f.safe {
		return text, err
	}
	return f.r.escaped(like(v, text))
}

// value is that of a field's name, with its attributes and elements.
func (f *fields) value(name string) (Value, error) {
	at := strings.IndexAny(name, ".[")
	if at < 0 {
		at = len(name)
	}
	v, err := f.first(name[:at])
	for rest := name[at:]; err == nil && rest != ""; {
		if rest[0] == '.' {
			n := strings.IndexAny(rest[1:], ".[")
			if n < 0 {
				n = len(rest) - 1
			}
			if n == 0 {
				return nil, valueError("Empty attribute in format string")
			}
			v, err = f.r.of(f.r, v, rest[1:1+n])
			rest = rest[1+n:]
			continue
		}
		n := strings.IndexByte(rest, ']')
		if rest[0] != '[' || n < 2 {
			return nil, valueError("Only '.' or '[' may follow ']' in format field specifier")
		}
		var key Value = rest[1:n]
		if i, err := strconv.Atoi(rest[1:n]); err == nil && isDigit(rest[1]) {
			key = int64(i)
		}
		if v, err = f.r.element(v, key); err == nil && v == nil {
			v = &undefined{name: key}
		}
		rest = rest[n+1:]
	}
	return v, err
}

func (f *fields) first(name string) (Value, error) {
	n, err := strconv.Atoi(name)
	switch {
	case name == "":
		if f.auto < 0 {
			return nil, valueError("cannot switch from manual field specification to automatic field numbering")
		}
		n = f.auto
		f.auto++
	case err == nil && isDigit(name[0]):
		if f.auto > 0 {
			return nil, valueError("cannot switch from automatic field numbering to manual field specification")
		}
		f.auto = -1
	case f.named != nil:
		if v, ok := f.named.Get(name); ok {
			return v, nil
		}
		return nil, failure("KeyError", "%s", quote(name))
	default:
		for i, k := range f.a.names {
			if k == name {
				return f.a.named[i], nil
			}
		}
		return nil, failure("KeyError", "%s", quote(name))
	}
	if n >= len(f.a.pos) {
		return nil, failure("IndexError", "Replacement index %d out of range for positional args tuple", n)
	}
	return f.a.pos[n], nil
}

// readSpec reads a format: [[fill]align][sign][#][0][width][grouping][.precision][kind].
func readSpec(s string) (f spec, err error) {
	f = spec{fill: " ", prec: -1}
	_, n := utf8.DecodeRuneInString(s)
	filled := len(s) > n && strings.IndexByte("<>=^", s[n]) >= 0
	switch {
	case filled:
		f.fill, f.align, s = s[:n], s[n], s[n+1:]
	case s != "" && strings.IndexByte("<>=^", s[0]) >= 0:
		f.align, s = s[0], s[1:]
	}
	next := func(set string) (c byte) {
		if s != "" && strings.IndexByte(set, s[0]) >= 0 {
			c, s = s[0], s[1:]
		}
		return c
	}
	number := func() (n int, found bool) {
		for s != "" && isDigit(s[0]) {
			if n = n*10 + int(s[0]-'0'); n > math.MaxInt32 {
				err = valueError("Too many decimal digits in format string")
				n = 0
			}
			s, found = s[1:], true
		}
		return n, found
	}
	f.sign = next("+- ")
	next("z")
	f.alt = next("#") != 0
	if next("0") != 0 {
		if !filled {
			f.fill = "0"
		}
		if f.align == 0 {
			f.align = '0'
		}
	}
	f.width, _ = number()
	f.group = next(",_")
	if next(".") != 0 {
		found := false
		if f.prec, found = number(); !found {
			return f, valueError("Format specifier missing precision")
		}
	}
	if len(s) > 1 {
		return f, valueError("Invalid format specifier")
	}
	f.kind = next(s)
	if f.kind != 0 && (f.group == ',' && strings.IndexByte("deEfFgG%", f.kind) < 0 || f.group == '_' && strings.IndexByte("deEfFgG%boxX", f.kind) < 0) {
		return f, valueError("Cannot specify '%c' with '%c'.", f.group, f.kind)
	}
	return f, err
}

// format is Python's format().
func (r *run) format(v Value, s string) (string, error) {
	if s == "" {
		return r.str(v)
	}
	t, isText := text(v)
	if !isText && !isNumber(v) {
		return "", typeError("unsupported format string passed to %s.__format__", typeName(v))
	}
	f, err := readSpec(s)
	if err != nil {
		return "", err
	}
	if isText {
		if f.kind != 0 && f.kind != 's' || f.align == '=' || f.sign != 0 || f.group != 0 || f.alt {
			return "", valueError("Invalid format specifier %s for object of type 'str'", quote(s))
		}
		if f.align == '0' {
			f.align = '<'
		}
		return r.padded("", cut(t, f.prec), f)
	}
	switch f.align {
	case 0:
		f.align = '>'
	case '0':
		f.align = '='
	}
	if n, ok := integer(v); ok {
		return r.formatInt(n, f)
	}
	x := v.(float64)
	switch {
	case f.kind == 'n':
		f.kind = 'g'
	case f.kind != 0 && strings.IndexByte("eEfFgG%", f.kind) < 0:
		return "", valueError("Unknown format code '%c' for object of type 'float'", f.kind)
	}
	return r.float(x, f)
}

func (r *run) formatInt(n *big.Int, f spec) (string, error) {
	switch f.kind {
	case 0, 'd', 'n', 'x', 'X', 'o', 'b':
		if f.prec >= 0 {
			return "", valueError("Precision not allowed in integer format specifier")
		}
		return r.whole(n, f)
	case 'e', 'E', 'f', 'F', 'g', 'G', '%':
		x, _, huge := toFloat(fromBig(n))
		if huge {
			return "", failure("OverflowError", "int too large to convert to float")
		}
		return r.float(x, f)
	case 'c':
		if f.prec >= 0 || f.sign != 0 || f.alt {
			return "", valueError("Sign, precision or # not allowed with integer format specifier 'c'")
		}
		if !n.IsInt64() || n.Int64() < 0 || n.Int64() > utf8.MaxRune {
			return "", failure("OverflowError", "%%c arg not in range(0x110000)")
		}
		return r.padded("", string(rune(n.Int64())), f)
	}
	return "", valueError("Unknown format code '%c' for object of type 'int'", f.kind)
}
