package jinja

import (
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// isSpace is Python's str.isspace of a character.
func isSpace(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// digits is the length of digits with single underscores between them, at the start of s.
func digits(s string, ok func(byte) bool) int {
	n := 0
	for n < len(s) && (ok(s[n]) || s[n] == '_' && n > 0 && s[n-1] != '_' && n+1 < len(s) && ok(s[n+1])) {
		n++
	}
	return n
}

// floatEnd is the length of a number with a fraction or an exponent at the start of s.
func floatEnd(s string) int {
	n := digits(s, isDigit)
	if n == 0 {
		return 0
	}
	found := false
	if n+1 < len(s) && s[n] == '.' {
		if f := digits(s[n+1:], isDigit); f > 0 {
			n, found = n+1+f, true
		}
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		e := n + 1
		if e < len(s) && (s[e] == '+' || s[e] == '-') {
			e++
		}
		if d := digits(s[e:], isDigit); d > 0 {
			return e + d
		}
	}
	if !found {
		return 0
	}
	return n
}

// intEnd is the length of a whole number at the start of s.
func intEnd(s string) int {
	if s[0] != '0' {
		return digits(s, isDigit)
	}
	if len(s) > 2 {
		from := 2
		if s[2] == '_' {
			from = 3
		}
		bases := map[byte]string{'x': "0123456789abcdefABCDEF", 'X': "0123456789abcdefABCDEF", 'o': "01234567", 'O': "01234567", 'b': "01", 'B': "01"}
		if set := bases[s[1]]; set != "" && from < len(s) {
			if n := digits(s[from:], func(c byte) bool { return strings.IndexByte(set, c) >= 0 }); n > 0 {
				return from + n
			}
		}
	}
	return digits(s, func(c byte) bool { return c == '0' })
}

func nameEnd(s string) int {
	for i, c := range s {
		if c != '_' && !unicode.IsLetter(c) && !unicode.IsNumber(c) && !(i > 0 && unicode.IsMark(c)) {
			return i
		}
	}
	return len(s)
}

func (l *lexer) number(kind tokenKind, n int) error {
	s := strings.ReplaceAll(l.rest()[:n], "_", "")
	t := token{kind: kind, line: l.line, text: s}
	if kind == floatToken {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil && f == 0 {
			return syntaxError(l.line, "invalid number %s", s)
		}
		t.num = f
	} else {
		if len(s) > maxDigits {
			return syntaxError(l.line, "a number has more than %d digits", maxDigits)
		}
		v, ok := new(big.Int).SetString(s, 0)
		if !ok {
			return syntaxError(l.line, "invalid number %s", s)
		}
		t.num = fromBig(v)
	}
	l.toks = append(l.toks, t)
	l.take(n)
	return nil
}

// unescape gives the text of a string's source.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			i++
			continue
		}
		n, err := escape(&b, s[i+1:])
		if err != nil {
			return "", err
		}
		i += 1 + n
	}
	return b.String(), nil
}

// escape writes what an escape stands for, and gives its length without the backslash.
func escape(b *strings.Builder, s string) (int, error) {
	const letters, values = "abfnrtv\\'\"", "\a\b\f\n\r\t\v\\'\""
	c := s[0]
	if i := strings.IndexByte(letters, c); i >= 0 {
		b.WriteByte(values[i])
		return 1, nil
	}
	switch n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]; {
	case c == '\n':
		return 1, nil
	case n > 0:
		if len(s) <= n {
			return 0, syntaxError(0, "truncated \\%c escape", c)
		}
		v, err := strconv.ParseUint(s[1:1+n], 16, 32)
		if err != nil || v > utf8.MaxRune {
			return 0, syntaxError(0, "truncated or illegal \\%c escape", c)
		}
		b.WriteRune(rune(v))
		return 1 + n, nil
	case c == 'N':
		return 0, syntaxError(0, "escapes by a character's name are not supported")
	case c >= '0' && c <= '7':
		n, v := 0, rune(0)
		for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
			v = v*8 + rune(s[n]-'0')
			n++
		}
		b.WriteRune(v)
		return n, nil
	}
	b.WriteByte('\\')
	return 0, nil
}
