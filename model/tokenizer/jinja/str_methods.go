package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// onText is a method of text that gives text, escaped if the text was.
func onText(params string, need int, do func(r *run, s string, a []Value) (string, error)) *method {
	return takes(params, need, func(r *run, self Value, a []Value) (Value, error) {
		s, _ := text(self)
		if err := r.step(len(s) >> 4); err != nil {
			return nil, err
		}
		out, err := do(r, s, a)
		return like(self, out), err
	})
}

// like is a text, escaped if another is.
func like(model Value, s string) Value {
	if _, ok := model.(Markup); ok {
		return Markup(s)
	}
	return s
}

// mapped is a method that gives a text about as long.
func mapped(change func(string) string) *method {
	return onText("", 0, func(r *run, s string, _ []Value) (string, error) {
		if err := r.mapped(s); err != nil {
			return "", err
		}
		return change(s), nil
	})
}

// mapped pays for a text whose characters are all mapped.
func (r *run) mapped(s string) error {
	cost := len(s) >> 4
	if !ascii(s) {
		cost = len(s)
	}
	if err := r.step(cost); err != nil {
		return err
	}
	return r.build(len(s))
}

// asked is a method that says something about a text.
func asked(holds func(string) bool) *method {
	return takes("", 0, func(r *run, self Value, _ []Value) (Value, error) {
		s, _ := text(self)
		if err := r.step(len(s) >> 2); err != nil {
			return nil, err
		}
		return holds(s), nil
	})
}

// every says that a text has characters and all are such.
func every(is func(rune) bool) *method {
	return asked(func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !is(c) }) < 0
	})
}

var strMethods = map[string]*method{
	"upper": mapped(upper), "lower": mapped(lower), "title": mapped(title), "capitalize": mapped(capitalize),
	"casefold": mapped(casefold), "swapcase": mapped(swapcase),
	"strip": onText("chars", 0, stripBoth), "lstrip": onText("chars", 0, stripLeft), "rstrip": onText("chars", 0, stripRight),
	"replace":      takes("old new count", 2, strReplace),
	"removeprefix": onText("prefix", 1, removePrefix), "removesuffix": onText("suffix", 1, removeSuffix),
	"center": onText("width fillchar", 1, center), "ljust": onText("width fillchar", 1, ljust),
	"rjust": onText("width fillchar", 1, rjust), "zfill": onText("width", 1, zfill),
	"expandtabs": onText("tabsize", 0, expandTabs),
	"split":      takes("sep maxsplit", 0, strSplit), "rsplit": takes("sep maxsplit", 0, strRsplit),
	"splitlines": takes("keepends", 0, strSplitLines),
	"partition":  takes("sep", 1, strPartition), "rpartition": takes("sep", 1, strRpartition),
	"join": takes("iterable", 1, strJoin),
	"find": takes("sub start end", 1, strFind), "rfind": takes("sub start end", 1, strRfind),
	"index": takes("sub start end", 1, strIndex), "rindex": takes("sub start end", 1, strRindex),
	"count":      takes("sub start end", 1, strCount),
	"startswith": takes("prefix start end", 1, strStartsWith), "endswith": takes("suffix start end", 1, strEndsWith),
	"isspace": every(isSpace), "isalpha": every(unicode.IsLetter), "isdecimal": every(isDecimal), "isdigit": every(isDigital),
	"isnumeric": every(unicode.IsNumber), "isalnum": every(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
	"isprintable":  asked(func(s string) bool { return strings.IndexFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) < 0 }),
	"isascii":      asked(ascii),
	"isidentifier": asked(isIdentifier), "istitle": asked(isTitle), "islower": asked(isLower), "isupper": asked(isUpper),
	"translate": takes("table", 1, strTranslate),
	"encode": takes("encoding errors", 0, func(*run, Value, []Value) (Value, error) {
		return nil, typeError("bytes are not supported")
	}),
	"format":     {raw: strFormat},
	"format_map": takes("mapping", 1, strFormatMap),
}

// wantText is an argument that must be text; nil is what it is if it was left out.
func wantText(v Value, missing string) (string, error) {
	if v == nil {
		return missing, nil
	}
	if s, ok := text(v); ok {
		return s, nil
	}
	if u, ok := v.(*undefined); ok {
		return "", u.fail()
	}
	return "", typeError("must be str, not %s", typeName(v))
}

// charSet are the characters that a strip method takes away.
func charSet(v Value) (func(rune) bool, error) {
	if v == nil || v == (None{}) {
		return isSpace, nil
	}
	set, err := wantText(v, "")
	return func(c rune) bool { return strings.ContainsRune(set, c) }, err
}

func stripBoth(r *run, s string, a []Value) (string, error) {
	s, err := stripLeft(r, s, a)
	if err != nil {
		return "", err
	}
	return stripRight(r, s, a)
}

func stripLeft(r *run, s string, a []Value) (string, error) {
	in, err := charSet(a[0])
	if err != nil {
		return "", err
	}
	out := strings.TrimLeftFunc(s, in)
	return out, r.searched(len(s)-len(out), a[0])
}

func stripRight(r *run, s string, a []Value) (string, error) {
	in, err := charSet(a[0])
	if err != nil {
		return "", err
	}
	out := strings.TrimRightFunc(s, in)
	return out, r.searched(len(s)-len(out), a[0])
}

// searched pays for looking n times through a set of characters.
func (r *run) searched(n int, set Value) error {
	s, _ := text(set)
	return r.step(times(n+1, len(s)+16) >> 6)
}

func removePrefix(_ *run, s string, a []Value) (string, error) {
	cut, err := wantText(a[0], "")
	return strings.TrimPrefix(s, cut), err
}

func removeSuffix(_ *run, s string, a []Value) (string, error) {
	cut, err := wantText(a[0], "")
	return strings.TrimSuffix(s, cut), err
}

func strReplace(r *run, self Value, a []Value) (Value, error) {
	s, _ := text(self)
	old, err := wantText(a[0], "")
	if err != nil {
		return nil, err
	}
	by, err := wantText(a[1], "")
	if err != nil {
		return nil, err
	}
	if _, ok := self.(Markup); ok {
		if by, err = r.escaped(a[1]); err != nil {
			return nil, err
		}
	}
	n := -1
	if a[2] != nil {
		if n, err = index(a[2]); err != nil {
			return nil, err
		}
	}
	out, err := r.replace(s, old, by, n)
	return like(self, out), err
}

// replace replaces up to n times, always if n is negative.
func (r *run) replace(s, old, by string, n int) (string, error) {
	found := strings.Count(s, old)
	if n >= 0 {
		found = min(found, n)
	}
	if err := r.build(len(s) + max(0, times(found, max(0, len(by)-len(old))))); err != nil {
		return "", err
	}
	if grown := times(found, len(by)); grown < 0 {
		return "", r.build(-1)
	}
	return strings.Replace(s, old, by, n), r.step(found)
}

// pad adds fill on both sides.
func (r *run) pad(s string, left, right int, fill Value) (string, error) {
	f, err := wantText(fill, " ")
	if err != nil {
		return "", err
	}
	if utf8.RuneCountInString(f) != 1 {
		return "", typeError("The fill character must be exactly one character long")
	}
	left, right = max(left, 0), max(right, 0)
	if err := r.build(len(s) + times(left+right, len(f))); err != nil || left+right > r.limits.Value {
		if err == nil {
			err = r.build(-1)
		}
		return "", err
	}
	return strings.Repeat(f, left) + s + strings.Repeat(f, right), nil
}

// missing is how many characters a text lacks to be so wide.
func missing(s string, width Value) (n, wide int, err error) {
	wide, err = index(width)
	return max(0, wide-utf8.RuneCountInString(s)), wide, err
}

func center(r *run, s string, a []Value) (string, error) {
	n, wide, err := missing(s, a[0])
	if err != nil {
		return "", err
	}
	left := n/2 + n&wide&1
	return r.pad(s, left, n-left, a[1])
}

func ljust(r *run, s string, a []Value) (string, error) {
	n, _, err := missing(s, a[0])
	if err != nil {
		return "", err
	}
	return r.pad(s, 0, n, a[1])
}

func rjust(r *run, s string, a []Value) (string, error) {
	n, _, err := missing(s, a[0])
	if err != nil {
		return "", err
	}
	return r.pad(s, n, 0, a[1])
}

func zfill(r *run, s string, a []Value) (string, error) {
	n, _, err := missing(s, a[0])
	if err != nil {
		return "", err
	}
	sign := ""
	if s != "" && (s[0] == '+' || s[0] == '-') {
		sign, s = s[:1], s[1:]
	}
	s, err = r.pad(s, n, 0, "0")
	return sign + s, err
}

func expandTabs(r *run, s string, a []Value) (string, error) {
	size := 8
	if a[0] != nil {
		var err error
		if size, err = index(a[0]); err != nil {
			return "", err
		}
	}
	p := &printer{r: r}
	column, from := 0, 0
	for i, c := range s {
		if p.err != nil {
			return "", p.err
		}
		switch c {
		case '\t':
			p.add(s[from:i])
			from = i + 1
			if size > 0 {
				n := size - column%size
				column += n
				blanks, err := r.repeatText(" ", n)
				if err != nil {
					return "", err
				}
				p.add(blanks)
			}
		case '\n', '\r':
			column = 0
		default:
			column++
		}
	}
	p.add(s[from:])
	return p.done()
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
