package tokenizer

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"unicode"
	"unsafe"

	"golang.org/x/text/unicode/norm"
)

// Options say how a text is encoded.
type Options struct {
	Control bool   // control tokens that stand in the text are recognised
	Begin   bool   // one beginning token first, if the vocabulary wants it and the text does not begin with it
	Plain   []Span // stretches, ascending, that no recognised control token may touch
	Limit   int    // encoding ends, with ErrTooLong, soon after more ids than this; 0: no limit
}

// Span is the bytes [Lo, Hi) of a text.
type Span struct{ Lo, Hi int }

// ErrTooLong says that a text has more ids than the limit; those returned are its first ones.
var ErrTooLong = errors.New("the text has more tokens than the limit")

// Encode appends the ids of text to ids. Control tokens that stand in the text are recognised if special is set; a
// beginning token is not added.
func (t *Tokenizer) Encode(ids []int32, text string, special bool) []int32 {
	ids, _ = t.EncodeContext(context.Background(), ids, text, Options{Control: special}) // which cannot fail without a limit
	return ids
}

// EncodePrompt is Encode with control tokens recognised, after the beginning token if the vocabulary wants one and the
// text does not begin with it.
func (t *Tokenizer) EncodePrompt(text string) []int32 {
	ids, _ := t.EncodeContext(context.Background(), nil, text, Options{Control: true, Begin: true})
	return ids
}

// EncodeContext is Encode with options. It ends early, with the context's error or ErrTooLong, and takes memory of a few
// bytes for each byte of text.
func (t *Tokenizer) EncodeContext(ctx context.Context, ids []int32, text string, o Options) ([]int32, error) {
	if o.Begin && !t.begins(text, o.Plain) {
		ids = append(ids, t.spec.BOS)
	}
	m := &t.own
	if o.Control {
		m = &t.special
	}
	e, _ := t.scratch.Get().(*encoder)
	if e == nil {
		e = &encoder{t: t}
	}
	defer e.release()
	e.ctx, e.most, e.ended, e.look = ctx, math.MaxInt, nil, 0
	if o.Limit > 0 {
		e.most = len(ids) + o.Limit
	}
	at := 0
	for _, c := range e.finder.find(m, text, func(c cut) bool { return t.IsControl(c.id) && touches(o.Plain, c) }) {
		if c.lo < at { // a token that begins with white space, and that the one before it took
			continue
		}
		ids = append(e.fragment(ids, text[at:c.lo]), c.id)
		if e.over(ids) {
			return ids, e.ended
		}
		at = c.hi
		if t.typeOf(c.id) == ControlStrip {
			at = len(text) - len(strings.TrimLeftFunc(text[at:], unicode.IsSpace))
		}
	}
	ids = e.fragment(ids, text[at:])
	e.over(ids)
	return ids, e.ended
}

// begins says that a text needs no beginning token: the vocabulary wants none, or the text has one.
func (t *Tokenizer) begins(text string, plain []Span) bool {
	bos := t.spec.BOS
	if !t.spec.AddBOS || bos < 0 {
		return true
	}
	n := len(t.pieces[bos])
	return strings.HasPrefix(text, t.pieces[bos]) && !touches(plain, cut{0, n, bos})
}

// touches says that one of the spans shares a byte with the cut.
func touches(spans []Span, c cut) bool {
	i, _ := slices.BinarySearchFunc(spans, c.lo, func(s Span, lo int) int { return cmp.Compare(s.Hi, lo+1) })
	return i < len(spans) && spans[i].Lo < c.hi
}

// LeastTokens is a number of ids that no encoding of a text of so many bytes is below: each id stands for at most as many
// bytes as the longest token.
func (t *Tokenizer) LeastTokens(bytes int) int { return bytes / t.widest }

// encoder is the scratch memory of one call.
type encoder struct {
	t       *Tokenizer
	finder  finder
	escaped []byte
	merge   merger

	ctx   context.Context // of the call
	most  int             // ids
	ended error           // why it ends early
	look  int             // ids at which the context is looked at again
}

// maxScratch is the bytes of a text whose scratch memory is kept for the next one.
const maxScratch = 1 << 20

// release gives the scratch memory back for other calls, unless a large text made it large.
func (e *encoder) release() {
	e.ctx = nil
	if cap(e.escaped) <= maxScratch && cap(e.finder.taken) <= maxScratch {
		e.t.scratch.Put(e)
	}
}

// idsPerLook is how many ids are made between two looks at the context: less than a millisecond.
const idsPerLook = 1 << 12

// over says that no more is to be encoded.
func (e *encoder) over(ids []int32) bool {
	if e.ended != nil {
		return true
	}
	if len(ids) > e.most {
		e.ended = ErrTooLong
		return true
	}
	if len(ids) >= e.look {
		e.look = len(ids) + idsPerLook
		e.ended = e.ctx.Err()
	}
	return e.ended != nil
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
			if ids = e.run(ids, s[lo:at]); e.over(ids) {
				return ids
			}
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
		if ids = e.run(ids, unsafe.Slice(unsafe.StringData(text), n)); e.over(ids) {
			return ids
		}
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
		return e.merge.run(ids, e.t, s, window, e.over)
	}
	if e.t.family.whole && len(s) <= e.t.widest {
		e.merge.sums = prefixSums(e.merge.sums[:0], s)
		if id, ok := e.t.table.find(s, e.merge.sums, 0, len(s)); ok {
			return append(ids, id)
		}
	}
	if len(s) <= shortWord {
		return e.merge.word(ids, e.t, s)
	}
	return e.merge.run(ids, e.t, s, window, e.over)
}

// view is s as a string that must not outlive it.
func view(s []byte) string { return unsafe.String(unsafe.SliceData(s), len(s)) }
