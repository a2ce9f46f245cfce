package jinja

import (
	"math"
	"math/big"
	"strings"
	"unicode/utf8"
)

// percent is a text with % marks that is being filled.
type percent struct {
	r    *run
	out  printer
	left string
	vals []Value
	next int
	dict *Dict
	safe bool
}

// formatted is s % v; what goes into an escaped text is escaped.
func (r *run) formatted(model Value, s string, v Value) (Value, error) {
	p := &percent{r: r, out: printer{r: r}, left: s, vals: []Value{v}}
	_, p.safe = model.(Markup)
	loose := false // values may be left over
	switch v := v.(type) {
	case *Tuple:
		p.vals = v.items
	case *Dict:
		p.dict, loose = v, true
	case *List, *undefined:
		loose = true
	}
	for p.left != "" && p.out.err == nil {
		at := strings.IndexByte(p.left, '%')
		if at < 0 {
			at = len(p.left)
		}
		p.out.add(p.left[:at])
		if p.left = p.left[at:]; p.left != "" {
			if err := p.mark(); err != nil {
				return nil, err
			}
		}
	}
	if p.next < len(p.vals) && !loose {
		return nil, typeError("not all arguments converted during string formatting")
	}
	out, err := p.out.done()
	return like(model, out), err
}

func (p *percent) take() (Value, error) {
	if p.next >= len(p.vals) {
		return nil, typeError("not enough arguments for format string")
	}
	p.next++
	return p.vals[p.next-1], nil
}

// peek is the next byte, 0 at the end.
func (p *percent) peek() byte {
	if p.left == "" {
		return 0
	}
	return p.left[0]
}

// mark reads one mark and writes what it stands for.
func (p *percent) mark() error {
	if err := p.r.step(1); err != nil {
		return err
	}
	p.left = p.left[1:]
	var v Value
	if p.peek() == '(' {
		var err error
		if v, err = p.named(); err != nil {
			return err
		}
	}
	f := spec{fill: " ", align: '>', prec: -1}
	zero := false
	for strings.IndexByte("-+ #0", p.peek()) >= 0 && p.left != "" {
		switch c := p.left[0]; c {
		case '-':
			f.align = '<'
		case '+':
			f.sign = '+'
		case ' ':
			if f.sign == 0 {
				f.sign = ' '
			}
		case '#':
			f.alt = true
		case '0':
			zero = true
		}
		p.left = p.left[1:]
	}
	if err := p.size(&f); err != nil {
		return err
	}
	bare := f == (spec{fill: " ", align: '>', prec: -1}) && !zero
	for c := p.peek(); c == 'h' || c == 'l' || c == 'L'; c = p.peek() {
		p.left = p.left[1:]
	}
	if p.left == "" {
		return valueError("incomplete format")
	}
	c, n := utf8.DecodeRuneInString(p.left)
	p.left = p.left[n:]
	if c == '%' && bare {
		p.out.add("%")
		return nil
	}
	if v == nil {
		var err error
		if v, err = p.take(); err != nil {
			return err
		}
	}
	if zero && f.align == '>' && strings.ContainsRune("diuoxXeEfFgG", c) {
		f.fill, f.align = "0", '='
	}
	text, err := p.value(v, c, f)
	p.out.add(text)
	return err
}

// named is the value of a mark's key.
func (p *percent) named() (Value, error) {
	end, open := -1, 0
	for i := range len(p.left) {
		if p.left[i] == '(' {
			open++
		} else if p.left[i] == ')' {
			if open--; open == 0 {
				end = i
				break
			}
		}
	}
	switch {
	case end < 0:
		return nil, valueError("incomplete format key")
	case p.dict == nil:
		return nil, typeError("format requires a mapping")
	}
	name := p.left[1:end]
	p.left = p.left[end+1:]
	v, ok := p.dict.Get(name)
	if !ok {
		return nil, failure("KeyError", "%s", quote(name))
	}
	return v, nil
}

// size reads a width and a precision.
func (p *percent) size(f *spec) error {
	n, found, err := p.count()
	if err != nil {
		return err
	}
	if found && n < 0 {
		f.align, n = '<', -n
	}
	f.width = n
	if p.peek() == '.' {
		p.left = p.left[1:]
		if n, _, err = p.count(); err != nil {
			return err
		}
		f.prec = max(n, 0)
	}
	return nil
}

// count reads a number, or takes it from the values for a star.
func (p *percent) count() (n int, found bool, err error) {
	if p.peek() == '*' {
		p.left = p.left[1:]
		v, err := p.take()
		if err != nil {
			return 0, false, err
		}
		if _, ok := whole(v); !ok {
			return 0, false, typeError("* wants int")
		}
		n, err = index(v)
		if n > math.MaxInt32 || n < -math.MaxInt32 {
			err = valueError("width too big")
		}
		return n, true, err
	}
	for ; isDigit(p.peek()); p.left = p.left[1:] {
		if n = n*10 + int(p.left[0]-'0'); n > math.MaxInt32 {
			return 0, false, valueError("width too big")
		}
		found = true
	}
	return n, found, nil
}

// value writes a value as a mark of kind c.
func (p *percent) value(v Value, c rune, f spec) (string, error) {
	switch c {
	case 's', 'r', 'a':
		return p.text(v, c, f)
	case 'c':
		return p.char(v, f)
	case 'd', 'i', 'u', 'x', 'X', 'o':
		n, err := p.whole(v, c)
		if err != nil {
			return "", err
		}
		f.kind = byte(c)
		return p.r.whole(n, f)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		x, ok, huge := toFloat(v)
		if u, is := v.(*undefined); is {
			return "", u.fail()
		}
		if !ok || huge {
			return "", typeError("must be real number, not %s", typeName(v))
		}
		f.kind = byte(c)
		return p.r.float(x, f)
	}
	return "", valueError("unsupported format character '%c' (0x%x)", c, c)
}

func (p *percent) text(v Value, c rune, f spec) (text string, err error) {
	switch {
	case c != 's':
		text, err = p.r.repr(v)
		if c == 'a' {
			text = onlyASCII(text)
		}
	case p.safe:
		text, err = p.r.escaped(v)
	default:
		text, err = p.r.str(v)
	}
	if err != nil {
		return "", err
	}
	return p.r.padded("", cut(text, f.prec), f)
}

func onlyASCII(s string) string {
	var b []byte
	for _, c := range s {
		if c < utf8.RuneSelf {
			b = append(b, byte(c))
		} else {
			b = hexEscape(b, c)
		}
	}
	return string(b)
}

func (p *percent) char(v Value, f spec) (string, error) {
	if s, ok := text(v); ok && utf8.RuneCountInString(s) == 1 {
		return p.r.padded("", s, f)
	}
	n, ok := whole(v)
	if !ok {
		return "", typeError("%%c requires int or char")
	}
	if n < 0 || n > utf8.MaxRune {
		return "", failure("OverflowError", "%%c arg not in range(0x110000)")
	}
	return p.r.padded("", string(rune(n)), f)
}

func (p *percent) whole(v Value, c rune) (*big.Int, error) {
	if n, ok := integer(v); ok {
		return n, nil
	}
	if u, ok := v.(*undefined); ok && !strings.ContainsRune("xXo", c) {
		return nil, u.fail()
	}
	x, ok := v.(float64)
	switch {
	case !ok:
		return nil, typeError("%%%c format: a real number is required, not %s", c, typeName(v))
	case strings.ContainsRune("xXo", c):
		return nil, typeError("%%%c format: an integer is required, not float", c)
	}
	return truncated(x)
}

// truncated is a fraction's whole part.
func truncated(x float64) (*big.Int, error) {
	switch {
	case math.IsNaN(x):
		return nil, valueError("cannot convert float NaN to integer")
	case math.IsInf(x, 0):
		return nil, failure("OverflowError", "cannot convert float infinity to integer")
	}
	n, _ := big.NewFloat(x).Int(nil)
	return n, nil
}
