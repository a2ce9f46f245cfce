package jinja

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonWriter writes values as Python's json.dumps does.
type jsonWriter struct {
	printer
	indent      string
	pretty      bool
	items, pair string // separators
	ascii, sort bool
}

// toJSON is the tojson filter of chat templates: nothing is escaped for HTML.
func toJSON(r *run, v Value, a []Value) (Value, error) {
	w := &jsonWriter{printer: printer{r: r}, items: ", ", pair: ": "}
	w.ascii = a[0] != nil && truth(a[0])
	w.sort = a[3] != nil && truth(a[3])
	if a[1] != nil && a[1] != (None{}) {
		w.pretty, w.items = true, ","
		if s, ok := text(a[1]); ok {
			w.indent = s
		} else if n, err := index(a[1]); err != nil {
			return nil, err
		} else if w.indent, err = r.repeatText(" ", max(n, 0)); err != nil {
			return nil, err
		}
	}
	if a[2] != nil && a[2] != (None{}) {
		both, err := r.list(a[2])
		if err != nil {
			return nil, err
		}
		if len(both) != 2 {
			return nil, valueError("separators must be two texts")
		}
		var okItems, okPair bool
		w.items, okItems = text(both[0])
		if w.pair, okPair = text(both[1]); !okItems || !okPair {
			return nil, typeError("separators must be two texts")
		}
	}
	w.value(v, 0)
	out, err := w.done()
	return out, err
}

func (w *jsonWriter) value(v Value, depth int) {
	if w.err != nil {
		return
	}
	switch v := v.(type) {
	case None:
		w.add("null")
	case bool:
		w.add(strings.ToLower(boolText(v)))
	case int64:
		w.add(strconv.FormatInt(v, 10))
	case *big.Int:
		text, err := bigText(v)
		if w.err = err; err == nil {
			w.add(text)
		}
	case float64:
		w.add(jsonFloat(v))
	case string:
		w.text(v)
	case Markup:
		w.text(string(v))
	case *List:
		w.list(v.items, depth)
	case *Tuple:
		w.list(v.items, depth)
	case *Dict:
		w.dict(v, depth)
	default:
		w.err = typeError("Object of type %s is not JSON serializable", typeName(v))
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatText(f)
}

// line begins a new one in a text that is laid out.
func (w *jsonWriter) line(depth int) {
	if !w.pretty {
		return
	}
	w.add("\n")
	for range depth {
		w.add(w.indent)
	}
}

func (w *jsonWriter) list(items []Value, depth int) {
	if len(items) == 0 {
		w.add("[]")
		return
	}
	if w.err = w.r.down(); w.err != nil {
		return
	}
	defer w.r.up()
	w.add("[")
	for i, v := range items {
		if i > 0 {
			w.add(w.items)
		}
		w.line(depth + 1)
		if w.value(v, depth+1); w.err != nil {
			return
		}
	}
	w.line(depth)
	w.add("]")
}

func (w *jsonWriter) dict(d *Dict, depth int) {
	if len(d.keys) == 0 {
		w.add("{}")
		return
	}
	if w.err = w.r.down(); w.err != nil {
		return
	}
	defer w.r.up()
	order := w.order(d)
	if w.err != nil {
		return
	}
	w.add("{")
	for i, at := range order {
		if i > 0 {
			w.add(w.items)
		}
		w.line(depth + 1)
		w.key(d.keys[at])
		w.add(w.pair)
		if w.value(d.vals[at], depth+1); w.err != nil {
			return
		}
	}
	w.line(depth)
	w.add("}")
}

// order is that in which a dictionary's entries are written.
func (w *jsonWriter) order(d *Dict) []int {
	if w.err = w.r.elements(len(d.keys)); w.err != nil {
		return nil
	}
	order := make([]int, len(d.keys))
	for i := range order {
		order[i] = i
	}
	if w.sort {
		slices.SortStableFunc(order, func(i, j int) int {
			if w.err != nil {
				return 0
			}
			var c int
			c, w.err = w.r.order("<", d.keys[i], d.keys[j])
			if w.err == nil {
				w.err = w.r.step(1)
			}
			return c
		})
	}
	return order
}

func (w *jsonWriter) key(k Value) {
	switch k := k.(type) {
	case string:
		w.text(k)
	case Markup:
		w.text(string(k))
	case None, bool, int64, *big.Int, float64:
		w.add(`"`)
		w.value(k, 0)
		w.add(`"`)
	default:
		w.err = typeError("keys must be str, int, float, bool or None, not %s", typeName(k))
	}
}

// text writes a string, in runs of what needs no escape.
func (w *jsonWriter) text(s string) {
	w.add(`"`)
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && (c < utf8.RuneSelf || !w.ascii) {
			i++
			continue
		}
		w.add(s[from:i])
		n := 1
		if c < utf8.RuneSelf {
			w.add(jsonEscape(c))
		} else {
			var rune rune
			rune, n = utf8.DecodeRuneInString(s[i:])
			w.add(jsonRune(rune))
		}
		if w.err != nil {
			return
		}
		i += n
		from = i
	}
	w.add(s[from:])
	w.add(`"`)
}

func jsonEscape(c byte) string {
	switch c {
	case '"':
		return `\"`
	case '\\':
		return `\\`
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	case '\f':
		return `\f`
	case '\b':
		return `\b`
	}
	return jsonRune(rune(c))
}

func jsonRune(c rune) string {
	unit := func(u rune) string {
		const hex = "0123456789abcdef"
		return `\u` + string([]byte{hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15]})
	}
	if c < 0x10000 {
		return unit(c)
	}
	c -= 0x10000
	return unit(0xd800+c>>10) + unit(0xdc00+c&0x3ff)
}
