package tokenizer

import (
	"strings"
	"unicode"
	"unsafe"

	"golang.org/x/text/unicode/norm"
)

// Encode appends the ids of text to ids. Control tokens that stand in the text are recognised if special is set; a
// beginning token is not added.
func (t *Tokenizer) Encode(ids []int32, text string, special bool) []int32 {
	m := &t.own
	if special {
		m = &t.special
	}
	e, _ := t.scratch.Get().(*encoder)
	if e == nil {
		e = &encoder{t: t}
	}
	defer t.scratch.Put(e)
	at := 0
	for _, c := range e.finder.find(m, text) {
		if c.lo < at { // a token that begins with white space, and that the one before it took
			continue
		}
		ids = e.fragment(ids, text[at:c.lo])
		ids = append(ids, c.id)
		at = c.hi
		if t.typeOf(c.id) == ControlStrip {
			at = len(text) - len(strings.TrimLeftFunc(text[at:], unicode.IsSpace))
		}
	}
	return e.fragment(ids, text[at:])
}

// EncodePrompt is Encode with control tokens recognised, after the beginning token if the vocabulary wants one and the
// text does not begin with it.
func (t *Tokenizer) EncodePrompt(text string) []int32 {
	var ids []int32
	if bos := t.spec.BOS; t.spec.AddBOS && bos >= 0 && !strings.HasPrefix(text, t.pieces[bos]) {
		ids = append(ids, bos)
	}
	return t.Encode(ids, text, true)
}

// encoder is the scratch memory of one call.
type encoder struct {
	t       *Tokenizer
	finder  finder
	escaped []byte
	merge   merger
}

// fragment encodes text between special tokens: spaces become marks, and runs that no token spans are merged apart.
func (e *encoder) fragment(ids []int32, text string) []int32 {
	if text == "" {
		return ids
	}
	if e.t.classes != nil {
		return e.words(ids, text)
	}
	s := e.escaped[:0]
	if e.t.spec.AddSpacePrefix { // after every special token too, as llama.cpp and transformers do
		s = append(s, spaceMark...)
	}
	for {
		i := strings.IndexByte(text, ' ')
		if i < 0 {
			break
		}
		s = append(append(s, text[:i]...), spaceMark...)
		text = text[i+1:]
	}
	s = append(s, text...)
	e.escaped = s
	lo := 0
	prev, n := symbol(s)
	for at := n; at < len(s); at += n {
		var next uint32
		next, n = symbol(s[at:])
		if !e.t.joins.has(prev, next) {
			ids = e.run(ids, s[lo:at])
			lo = at
		}
		prev = next
	}
	return e.run(ids, s[lo:])
}

// words encodes a fragment of a byte-level vocabulary, word by word.
func (e *encoder) words(ids []int32, text string) []int32 {
	if e.t.family.nfc && !norm.NFC.IsNormalString(text) {
		text = norm.NFC.String(text)
	}
	for text != "" {
		n := e.t.family.word(e.t.classes, text)
		ids = e.run(ids, unsafe.Slice(unsafe.StringData(text), n))
		text = text[n:]
	}
	return ids
}

// run encodes bytes that merge among themselves, from the cache if they are short and were seen before.
func (e *encoder) run(ids []int32, s []byte) []int32 {
	if len(s) > maxCached {
		return e.merged(ids, s)
	}
	entry, at := e.t.cache.get(s)
	if entry == nil {
		from := len(ids)
		ids = e.merged(ids, s)
		e.t.cache.put(at, s, ids[from:])
		return ids
	}
	return append(ids, entry.ids...)
}

// merged encodes a run by the vocabulary's merges.
func (e *encoder) merged(ids []int32, s []byte) []int32 {
	if e.t.classes == nil {
		return e.merge.run(ids, e.t, s)
	}
	if e.t.family.whole {
		e.merge.sums = prefixSums(e.merge.sums[:0], s)
		if id, ok := e.t.table.find(s, e.merge.sums, 0, len(s)); ok {
			return append(ids, id)
		}
	}
	return e.merge.word(ids, e.t, s)
}

// view is s as a string that must not outlive it.
func view(s []byte) string { return unsafe.String(unsafe.SliceData(s), len(s)) }
