package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec says how a value is written: by % or by str.format.
type spec struct {
	fill  string
	align byte // '<', '>', '^', '=' (between sign and digits), '0' (as '=', but for text '<'), 0: as the value wants
	sign  byte // '-', '+' or ' '
	alt   bool // 0x and the like; zeros of fractions stay
	width int
	group byte // ',' or '_' between thousands
	prec  int  // −1: none
	kind  byte // 0: none
}

// padded pays for a text and fills it up to its width; prefix is what stays left of zeros.
func (r *run) padded(prefix, s string, f spec) (string, error) {
	n := max(0, f.width-utf8.RuneCountInString(prefix)-utf8.RuneCountInString(s))
	if n > r.limits.Value {
		return "", r.build(-1)
	}
	if err := r.build(len(prefix) + len(s) + times(n, len(f.fill))); err != nil {
		return "", err
	}
	switch f.align {
	case '>':
		return strings.Repeat(f.fill, n) + prefix + s, nil
	case '=':
		return prefix + strings.Repeat(f.fill, n) + s, nil
	case '^':
		return strings.Repeat(f.fill, n/2) + prefix + s + strings.Repeat(f.fill, n-n/2), nil
	}
	return prefix + s + strings.Repeat(f.fill, n), nil
}

// whole writes a whole number.
func (r *run) whole(v *big.Int, f spec) (string, error) {
	digits, prefix := "", ""
	abs := new(big.Int).Abs(v)
	switch f.kind {
	case 'x', 'X':
		digits, prefix = abs.Text(16), "0x"
	case 'o':
		digits, prefix = abs.Text(8), "0o"
	case 'b':
		digits, prefix = abs.Text(2), "0b"
	default:
		var err error
		if digits, err = bigText(abs); err != nil {
			return "", err
		}
	}
	if !f.alt {
		prefix = ""
	}
	if f.kind == 'X' {
		digits, prefix = strings.ToUpper(digits), strings.ToUpper(prefix)
	}
	if f.prec > len(digits) {
		zeros, err := r.repeatText("0", f.prec-len(digits))
		if err != nil {
			return "", err
		}
		digits = zeros + digits
	}
	size := 3
	if f.kind == 'x' || f.kind == 'X' || f.kind == 'o' || f.kind == 'b' {
		size = 4
	}
	sign := signOf(v.Sign() < 0, f)
	return r.padded(sign+prefix, grouped(digits, f, size, len(sign)+len(prefix)), f)
}

func signOf(negative bool, f spec) string {
	switch {
	case negative:
		return "-"
	case f.sign == '+' || f.sign == ' ':
		return string(f.sign)
	}
	return ""
}

// grouped puts marks between groups of digits; zeros that fill the width are grouped too.
func grouped(digits string, f spec, size, taken int) string {
	if f.group == 0 {
		return digits
	}
	whole, rest := digits, ""
	if i := strings.IndexAny(digits, ".eE%"); i >= 0 && size == 3 { // no sixteens have a fraction
		whole, rest = digits[:i], digits[i:]
	}
	if f.align == '=' && f.fill == "0" && f.width < 1<<10 {
		for len(whole)+(len(whole)-1)/size+len(rest)+taken < f.width {
			whole = "0" + whole
		}
	}
	var b strings.Builder
	for i := range len(whole) {
		if i > 0 && (len(whole)-i)%size == 0 {
			b.WriteByte(f.group)
		}
		b.WriteByte(whole[i])
	}
	return b.String() + rest
}

// float writes a fraction.
func (r *run) float(v float64, f spec) (string, error) {
	prec := f.prec
	if prec < 0 {
		prec = 6
	}
	if err := r.build(prec + 400); err != nil {
		return "", err
	}
	sign := signOf(math.Signbit(v) && !math.IsNaN(v), f)
	text := fraction(math.Abs(v), f, prec)
	if f.kind >= 'A' && f.kind <= 'Z' {
		text = strings.ToUpper(text)
	}
	return r.padded(sign, grouped(text, f, 3, len(sign)), f)
}

// fraction writes a positive number.
func fraction(v float64, f spec, prec int) string {
	end := ""
	if f.kind == '%' {
		v, end = v*100, "%"
	}
	switch {
	case math.IsInf(v, 0):
		return "inf" + end
	case math.IsNaN(v):
		return "nan" + end
	}
	switch f.kind {
	case 'e', 'E':
		text := strconv.FormatFloat(v, 'e', prec, 64)
		if f.alt && prec == 0 {
			text = strings.Replace(text, "e", ".e", 1)
		}
		return text
	case 'f', 'F', '%':
		text := strconv.FormatFloat(v, 'f', prec, 64)
		if f.alt && prec == 0 {
			text += "."
		}
		return text + end
	case 0:
		if text := floatText(v); f.prec < 0 && (!f.alt || strings.Contains(text, ".")) {
			return text
		} else if f.prec < 0 {
			return strings.Replace(text, "e", ".e", 1)
		}
	}
	return general(v, f, max(prec, 1))
}

// general writes a number with so many digits, with an exponent if it is large or small for them.
func general(v float64, f spec, prec int) string {
	text := strconv.FormatFloat(v, 'e', min(prec-1, 1100), 64)
	at := strings.IndexByte(text, 'e')
	exp, _ := strconv.Atoi(text[at+1:])
	most := prec
	if f.kind == 0 {
		most = prec - 1 // what has no kind shows one digit after the point
	}
	if exp < -4 || exp >= most {
		return pointed(text[:at], f) + text[at:]
	}
	text = pointed(strconv.FormatFloat(v, 'f', min(max(prec-1-exp, 0), 1100), 64), f)
	if f.kind == 0 && !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// pointed takes zeros after the point away, and the point if nothing is left there, unless they are to stay.
func pointed(digits string, f spec) string {
	switch has := strings.Contains(digits, "."); {
	case f.alt && !has:
		return digits + "."
	case !f.alt && has:
		return strings.TrimRight(strings.TrimRight(digits, "0"), ".")
	}
	return digits
}

// cut is the first n characters of a text, all of them if n is negative.
func cut(s string, n int) string {
	if n < 0 {
		return s
	}
	return s[:offset(s, utf8.RuneCountInString(s), min(n, utf8.RuneCountInString(s)))]
}
