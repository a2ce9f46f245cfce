package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// class is what a pre-tokeniser asks of a character, a bit each.
type class uint8

const (
	letter  class = 1 << iota // \p{L}
	number                    // \p{N}
	space                     // \s, Unicode's White_Space
	newline                   // \r or \n; these are spaces too
	mark                      // \p{M}
	heads                     // \p{Lu} \p{Lt} \p{Lm} \p{Lo} \p{M}: what may stand before small letters in a word
	tails                     // \p{Ll} \p{Lm} \p{Lo} \p{M}
)

// classes knows the class of each character, those below tabled by look-up.
type classes struct {
	low [tabled]class
}

const tabled = 0x20000 // the planes with living scripts

// byTable are the Unicode categories that give a class.
var byTable = []struct {
	table *unicode.RangeTable
	class class
}{
	{unicode.L, letter}, {unicode.N, number}, {unicode.White_Space, space}, {unicode.M, mark | heads | tails},
	{unicode.Lu, heads}, {unicode.Lt, heads}, {unicode.Lm, heads | tails}, {unicode.Lo, heads | tails}, {unicode.Ll, tails},
}

func newClasses() *classes {
	c := &classes{}
	for _, t := range byTable {
		for _, r := range t.table.R16 {
			for x := int(r.Lo); x <= int(r.Hi); x += int(r.Stride) {
				c.low[x] |= t.class
			}
		}
		for _, r := range t.table.R32 {
			for x := int(r.Lo); x <= int(r.Hi) && x < tabled; x += int(r.Stride) {
				c.low[x] |= t.class
			}
		}
	}
	c.low['\r'] |= newline
	c.low['\n'] |= newline
	return c
}

// at is the class and length of the character at s[i:], 0 and 0 at the end. A byte that is no UTF-8 is a character of
// no class.
func (c *classes) at(s string, i int) (class, int) {
	if i >= len(s) {
		return 0, 0
	}
	if b := s[i]; b < utf8.RuneSelf {
		return c.low[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	if r < tabled {
		return c.low[r], n
	}
	found := class(0)
	for _, t := range byTable {
		if unicode.Is(t.table, r) {
			found |= t.class
		}
	}
	return found, n
}

// run is the end of the characters from s[i:] on that have a class of in and none of out.
func (c *classes) run(s string, i int, in, out class) int {
	for {
		k, n := c.at(s, i)
		if n == 0 || k&out != 0 || in != 0 && k&in == 0 {
			return i
		}
		i += n
	}
}
