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
}

// NewDecoder returns a decoder of what follows a prompt, so that a space in front is text; control tokens give their text
// if special is set, else nothing.
func (t *Tokenizer) NewDecoder(special bool) *Decoder {
	return &Decoder{t: t, special: special, began: true}
}

// Add returns the text that id completes; it may be empty.
func (d *Decoder) Add(id int32) string {
	if d.t.IsControl(id) {
		if !d.special {
			return ""
		}
		d.began = true
		return d.Flush() + d.t.pieces[id]
	}
	piece := d.t.pieces[id]
	if !d.began && d.t.spec.AddSpacePrefix {
		piece = strings.TrimPrefix(piece, " ")
	}
	d.began = true
	if len(d.held) == 0 && utf8.ValidString(piece) {
		return piece
	}
	d.held = append(d.held, piece...)
	return d.whole()
}

// whole takes the characters that are complete off what is held. Bytes that no further ones can make valid become
// U+FFFD, one each.
func (d *Decoder) whole() string {
	var out strings.Builder
	for len(d.held) > 0 && utf8.FullRune(d.held) {
		r, n := utf8.DecodeRune(d.held)
		out.WriteRune(r)
		d.held = d.held[:copy(d.held, d.held[n:])]
	}
	return out.String()
}

// Flush returns what is held when no more ids come: an unfinished character becomes one U+FFFD.
func (d *Decoder) Flush() string {
	if len(d.held) == 0 {
		return ""
	}
	d.held = d.held[:0]
	return string(utf8.RuneError)
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
