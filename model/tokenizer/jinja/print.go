package jinja

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printer builds a text; its first error stays and stops it.
type printer struct {
	r   *run
	b   []byte
	err error

	open   []Value // what is being printed
	spaces int     // namespaces among that, through which alone a value can come to hold itself
}

func (p *printer) add(s string) {
	if p.err != nil {
		return
	}
	if len(p.b)+len(s) > p.r.limits.Value {
		p.err = &LimitError{Limit: "value", Max: int64(p.r.limits.Value)}
		return
	}
	if p.err = p.r.build(len(s)); p.err == nil {
		p.b = append(p.b, s...)
	}
}

func (p *printer) done() (string, error) {
	if p.err != nil {
		return "", p.err
	}
	return string(p.b), nil
}

// str is Python's str().
func (r *run) str(v Value) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case Markup:
		return string(v), nil
	case *undefined:
		return "", nil
	}
	return r.repr(v)
}

// repr is Python's repr().
func (r *run) repr(v Value) (string, error) {
	p := &printer{r: r}
	p.repr(v)
	return p.done()
}

func (p *printer) repr(v Value) {
	if p.err != nil {
		return
	}
	switch v := v.(type) {
	case None:
		p.add("None")
	case bool:
		p.add(boolText(v))
	case int64:
		p.add(strconv.FormatInt(v, 10))
	case *big.Int:
		text, err := bigText(v)
		if p.err = err; err == nil {
			p.add(text)
		}
	case float64:
		p.add(floatText(v))
	case string:
		p.quote(v)
	case Markup:
		p.add("Markup(")
		p.quote(string(v))
		p.add(")")
	case *undefined:
		p.add("Undefined")
	default:
		p.container(v)
	}
}

func boolText(v bool) string {
	if v {
		return "True"
	}
	return "False"
}

// container prints what may hold other values.
func (p *printer) container(v Value) {
	if p.err = p.r.down(); p.err != nil {
		return
	}
	defer p.r.up()
	if p.spaces > 0 && slices.Contains(p.open, v) {
		p.again(v)
		return
	}
	p.open = append(p.open, v)
	defer func() { p.open = p.open[:len(p.open)-1] }()
	switch v := v.(type) {
	case *List:
		p.sequence("[", v.items, "]")
	case *Tuple:
		if len(v.items) == 1 {
			p.sequence("(", v.items, ",)")
			return
		}
		p.sequence("(", v.items, ")")
	case *Dict:
		p.dict(v)
	case *view:
		items := make([]Value, 0, len(v.dict.keys))
		if p.err = p.r.elements(len(v.dict.keys)); p.err != nil {
			return
		}
		for i := range v.dict.keys {
			items = append(items, v.at(i))
		}
		p.sequence("dict_"+v.kind+"([", items, "])")
	case *span:
		text := fmt.Sprintf("range(%d, %d", v.start, v.stop)
		if v.step != 1 {
			text += fmt.Sprintf(", %d", v.step)
		}
		p.add(text + ")")
	case *namespace:
		p.namespace(v)
	case *loop:
		n, err := v.size(p.r)
		if p.err = err; err == nil {
			p.add(fmt.Sprintf("<LoopContext %d/%d>", v.index0+1, n))
		}
	case *macro:
		name := "anonymous"
		if v.code.name != "" {
			name = quote(v.code.name)
		}
		p.add("<Macro " + name + ">")
	case *function:
		p.add("<function " + v.name + ">")
	default:
		p.add("<" + typeName(v) + " object>")
	}
}

func (p *printer) sequence(open string, items []Value, end string) {
	p.add(open)
	for i, v := range items {
		if i > 0 {
			p.add(", ")
		}
		if p.repr(v); p.err != nil {
			return
		}
	}
	p.add(end)
}

func (p *printer) dict(d *Dict) {
	p.add("{")
	for i, k := range d.keys {
		if i > 0 {
			p.add(", ")
		}
		p.repr(k)
		p.add(": ")
		if p.repr(d.vals[i]); p.err != nil {
			return
		}
	}
	p.add("}")
}

func (p *printer) namespace(n *namespace) {
	p.spaces++
	p.add("<Namespace ")
	p.dict(n.attrs)
	p.add(">")
	p.spaces--
}

// again stands for a value inside of itself.
func (p *printer) again(v Value) {
	if p.err = p.r.step(len(p.open) >> 3); p.err != nil {
		return
	}
	switch v.(type) {
	case *List:
		p.add("[...]")
	case *Tuple:
		p.add("(...)")
	case *namespace:
		p.add("<Namespace {...}>")
	default:
		p.add("{...}")
	}
}

func (p *printer) quote(s string) {
	if p.err == nil && plain(s) {
		p.add("'")
		p.add(s)
		p.add("'")
		return
	}
	if p.err != nil {
		return
	}
	if p.err = p.r.step(len(s) >> 3); p.err != nil {
		return
	}
	mark := quoteMark(s)
	p.add(mark)
	for s != "" && p.err == nil { // in pieces, since a text grows by what it is written in
		n := min(len(s), 4096)
		for n < len(s) && !utf8.RuneStart(s[n]) {
			n++
		}
		p.add(quoted(s[:n], rune(mark[0])))
		s = s[n:]
	}
	p.add(mark)
}

// plain says that a text is printable ASCII without quotes and backslashes.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '\'' || c == '\\' {
			return false
		}
	}
	return true
}

// quoteMark is what a text stands in: single quotes unless it has some and no double ones.
func quoteMark(s string) string {
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		return `"`
	}
	return "'"
}

// quote writes a text as Python does.
func quote(s string) string {
	mark := quoteMark(s)
	return mark + quoted(s, rune(mark[0])) + mark
}

// quoted is what stands between the quotes.
func quoted(s string, mark rune) string {
	b := make([]byte, 0, len(s)+len(s)/4)
	for _, c := range s {
		switch {
		case c == mark || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case unicode.IsPrint(c):
			b = utf8.AppendRune(b, c)
		default:
			b = hexEscape(b, c)
		}
	}
	return string(b)
}

// hexEscape writes a character by its number.
func hexEscape(b []byte, c rune) []byte {
	const digits = "0123456789abcdef"
	letter, n := byte('x'), 2
	switch {
	case c >= 0x10000:
		letter, n = 'U', 8
	case c >= 0x100:
		letter, n = 'u', 4
	}
	b = append(b, '\\', letter)
	for n--; n >= 0; n-- {
		b = append(b, digits[c>>(4*n)&15])
	}
	return b
}

// floatText is the shortest text that reads as the same number, with an exponent from 1e16 and below 1e-4.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

func bigText(v *big.Int) (string, error) {
	text := v.Text(10)
	if len(strings.TrimPrefix(text, "-")) > maxDigits {
		return "", valueError("Exceeds the limit (%d digits) for integer string conversion", maxDigits)
	}
	return text, nil
}
