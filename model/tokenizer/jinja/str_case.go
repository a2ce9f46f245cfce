package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Case is mapped as Unicode's full tables say, so that one letter may become several, as in Python.

func upper(s string) string {
	if ascii(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if ascii(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

func casefold(s string) string {
	if ascii(s) {
		return strings.ToLower(s)
	}
	return cases.Fold().String(s)
}

// titled is a character as the first of a word.
func titled(c rune) string {
	if c < 0x80 {
		return string(unicode.ToUpper(c))
	}
	return cases.Title(language.Und, cases.NoLower).String(string(c))
}

func capitalize(s string) string {
	c, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return ""
	}
	return titled(c) + strings.TrimPrefix(lower(s), lower(s[:n]))
}

func cased(c rune) bool {
	return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) ||
		unicode.Is(unicode.Other_Lowercase, c) || unicode.Is(unicode.Other_Uppercase, c)
}

// title is Python's str.title: a word begins after any character that has no case.
func title(s string) string {
	var b strings.Builder
	for s != "" {
		n := strings.IndexFunc(s, cased)
		if n < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:n])
		s = s[n:]
		n = strings.IndexFunc(s, func(c rune) bool { return !cased(c) })
		if n < 0 {
			n = len(s)
		}
		b.WriteString(capitalize(s[:n]))
		s = s[n:]
	}
	return b.String()
}

// words is the title filter: a word begins after white space and opening brackets, and at the text's beginning.
func words(s string) string {
	begins := func(c rune) bool { return isSpace(c) || strings.ContainsRune("-({[<", c) }
	var b strings.Builder
	for s != "" {
		n := strings.IndexFunc(s, func(c rune) bool { return !begins(c) })
		if n < 0 {
			n = len(s)
		}
		b.WriteString(s[:n])
		s = s[n:]
		if n = strings.IndexFunc(s, begins); n < 0 {
			n = len(s)
		}
		_, w := utf8.DecodeRuneInString(s[:n])
		b.WriteString(upper(s[:w]))
		b.WriteString(lower(s[w:n]))
		s = s[n:]
	}
	return b.String()
}

func swapcase(s string) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case isUpperRune(c):
			b.WriteString(lower(string(c)))
		case isLowerRune(c):
			b.WriteString(upper(string(c)))
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// isCase says that a text has letters with case, and none of the other.
func isCase(s string, mine, other func(rune) bool) bool {
	found := false
	for _, c := range s {
		if other(c) || unicode.IsTitle(c) {
			return false
		}
		found = found || mine(c)
	}
	return found
}

func isLowerRune(c rune) bool { return unicode.IsLower(c) || unicode.Is(unicode.Other_Lowercase, c) }

func isUpperRune(c rune) bool { return unicode.IsUpper(c) || unicode.Is(unicode.Other_Uppercase, c) }

func isLower(s string) bool { return isCase(s, isLowerRune, isUpperRune) }

func isUpper(s string) bool { return isCase(s, isUpperRune, isLowerRune) }

func isTitle(s string) bool {
	found, inside := false, false
	for _, c := range s {
		switch {
		case isUpperRune(c) || unicode.IsTitle(c):
			if inside {
				return false
			}
			found, inside = true, true
		case isLowerRune(c):
			if !inside {
				return false
			}
		default:
			inside = false
		}
	}
	return found
}

func isDecimal(c rune) bool { return unicode.Is(unicode.Nd, c) }

// isDigital holds for digits and for those set high, low or in circles.
func isDigital(c rune) bool {
	return isDecimal(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 || c >= 0x2074 && c <= 0x2079 ||
		c >= 0x2080 && c <= 0x2089 || c >= 0x2460 && c <= 0x2468 || c >= 0x2474 && c <= 0x247c || c >= 0x2488 && c <= 0x2490
}

func isIdentifier(s string) bool {
	if s == "" {
		return false
	}
	for i, c := range s {
		if c != '_' && !unicode.IsLetter(c) && !unicode.Is(unicode.Nl, c) && (i == 0 || !unicode.IsDigit(c) && !unicode.IsMark(c)) {
			return false
		}
	}
	return true
}
