package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Decoder turns ids into text as they come. It holds back bytes that do not make a whole character yet.
type Decoder struct {
	t       *Tokenizer
	special bool
	held    []byte
	began   bool // the text's first space, which encoding adds in some vocabularies, has been passed
	runes   int  // characters given
	begins  int  // of these, before the one in which the last id begins
}

// NewDecoder returns a decoder of what follows a prompt, so that a space in front is text; control tokens give their text
// if special is set, else nothing.
func (t *Tokenizer) NewDecoder(special bool) *Decoder {
	return &Decoder{t: t, special: special, began: true}
}

// Begins is how many characters of the text are before the one in which the id that was added last begins. It may not
// have been given yet.
func (d *Decoder) Begins() int { return d.begins }

// Add returns the text that id completes; it may be empty.
func (d *Decoder) Add(id int32) string {
	if d.t.IsControl(id) {
		if d.begins = d.runes; len(d.held) > 0 {
			d.begins++ // what is held can only become one character
		}
		if !d.special {
			return ""
		}
		d.began = true
		return d.Flush() + d.given(d.t.pieces[id])
	}
	piece := d.t.pieces[id]
	if !d.began && d.t.spec.AddSpacePrefix {
		piece = strings.TrimPrefix(piece, " ")
	}
	d.began = true
	if len(d.held) == 0 && utf8.ValidString(piece) {
		d.begins = d.runes
		return d.given(piece)
	}
	from := len(d.held)
	d.held = append(d.held, piece...)
	return d.whole(from)
}

func (d *Decoder) given(text string) string {
	d.runes += utf8.RuneCountInString(text)
	return text
}

// whole takes the characters that are complete off what is held, of which the bytes after from are new. Bytes that no
// further ones can make valid become U+FFFD, one for each maximal part of a character (WHATWG Encoding, UTF-8 decoder).
func (d *Decoder) whole(from int) string {
	var out strings.Builder
	d.begins = -1
	for len(d.held) > 0 && utf8.FullRune(d.held) {
		r, n := utf8.DecodeRune(d.held)
		if r == utf8.RuneError && n == 1 {
			n = brokenLen(d.held)
		}
		if from < n && d.begins < 0 {
			d.begins = d.runes
		}
		from -= n
		out.WriteRune(r)
		d.runes++
		d.held = d.held[:copy(d.held, d.held[n:])]
	}
	if d.begins < 0 {
		d.begins = d.runes
	}
	return out.String()
}

// brokenLen is the length of the longest beginning of s, which begins with no character, that some character begins with;
// 1 if there is none.
func brokenLen(s []byte) int {
	lo, hi, need := byte(0x80), byte(0xBF), 0
	switch b := s[0]; {
	case b == 0xE0:
		lo, need = 0xA0, 2
	case b == 0xED:
		hi, need = 0x9F, 2
	case b >= 0xE1 && b <= 0xEF:
		need = 2
	case b == 0xF0:
		lo, need = 0x90, 3
	case b == 0xF4:
		hi, need = 0x8F, 3
	case b >= 0xF1 && b <= 0xF3:
		need = 3
	}
	n := 1
	for n < need && n < len(s) && s[n] >= lo && s[n] <= hi {
		lo, hi = 0x80, 0xBF
		n++
	}
	return n
}

// Flush returns what is held when no more ids come: an unfinished character becomes one U+FFFD.
func (d *Decoder) Flush() string {
	if len(d.held) == 0 {
		return ""
	}
	d.held = d.held[:0]
	return d.given(string(utf8.RuneError))
}

// Decode is the text of ids from its beginning, without the space that encoding put there.
func (t *Tokenizer) Decode(ids []int32, special bool) string {
	var out strings.Builder
	d := &Decoder{t: t, special: special}
	for _, id := range ids {
		out.WriteString(d.Add(id))
	}
	out.WriteString(d.Flush())
	return out.String()
}
