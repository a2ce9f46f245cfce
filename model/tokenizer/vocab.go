package tokenizer

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
)

// Type is what a token stands for, as GGUF's tokenizer.ggml.token_type has it.
type Type uint8

// The types of tokens.
const (
	Normal      Type = 1
	Unknown     Type = 2
	Control     Type = 3
	UserDefined Type = 4
	Unused      Type = 5
	Byte        Type = 6
	// ControlStrip is a Control token that takes the white space after it. GGUF has no type for it.
	ControlStrip Type = 7
)

// Spec is a vocabulary and its rules, as GGUF's tokenizer.ggml.* keys have them.
type Spec struct {
	Kind           string    // tokenizer.ggml.model
	Pre            string    // tokenizer.ggml.pre: how a byte-level vocabulary cuts words
	Tokens         []string  // by id
	Scores         []float32 // by id; the highest merges first ("llama")
	Merges         []string  // two tokens with a space between; earlier ones merge first ("gpt2")
	Types          []Type    // by id; empty makes all Normal
	BOS, EOS       int32     // −1 if there is none
	Unknown        int32
	AddBOS, AddEOS bool
	AddSpacePrefix bool
	End            []int32 // ids that end a generation
}

// ErrVocabulary says that a vocabulary cannot be used.
var ErrVocabulary = errors.New("bad vocabulary")

const spaceMark = "\u2581" // stands for a space inside tokens

// Tokenizer encodes and decodes by one vocabulary. It is safe for concurrent use.
type Tokenizer struct {
	spec    Spec
	table   table
	pieces  []string // by id, what decoding gives
	bytes   [256]int32
	special matcher // control and user-defined tokens
	own     matcher // user-defined tokens
	joins   joins
	ranks   ranks
	family  family
	classes *classes // nil for SentencePiece-style vocabularies
	widest  int      // bytes of text that one id may stand for
	cache   cache
	scratch sync.Pool // of *encoder
}

// New builds a tokenizer. The kinds known are "llama" (SentencePiece-style merges by score) and "gpt2" (byte-level
// merges by rank); the latter cuts words as Pre says.
func New(s Spec) (*Tokenizer, error) {
	n := len(s.Tokens)
	family, known := families[s.Pre]
	switch {
	case s.Kind != "llama" && s.Kind != "gpt2":
		return nil, fmt.Errorf("%w: tokenizer.ggml.model %.40q is not supported, only \"llama\" and \"gpt2\" are",
			ErrVocabulary, s.Kind)
	case s.Kind == "gpt2" && !known:
		return nil, fmt.Errorf("%w: tokenizer.ggml.pre %.40q is not supported, only %s are", ErrVocabulary, s.Pre,
			strings.Join(slices.Sorted(maps.Keys(families)), ", "))
	case n == 0:
		return nil, fmt.Errorf("%w: no tokens", ErrVocabulary)
	case s.Kind == "llama" && len(s.Scores) != n || len(s.Types) != n && len(s.Types) != 0:
		return nil, fmt.Errorf("%w: %d tokens, %d scores, %d types", ErrVocabulary, n, len(s.Scores), len(s.Types))
	}
	for _, id := range append([]int32{s.BOS, s.EOS, s.Unknown}, s.End...) {
		if id < -1 || int(id) >= n {
			return nil, fmt.Errorf("%w: special id %d of %d tokens", ErrVocabulary, id, n)
		}
	}
	t := &Tokenizer{spec: s, pieces: make([]string, n)}
	if s.Kind == "gpt2" {
		t.spec.AddSpacePrefix = false
		t.family, t.classes = family, newClasses()
		if err := t.indexByteLevel(); err != nil {
			return nil, err
		}
	} else {
		t.index()
	}
	t.widest = t.measure()
	return t, nil
}

// nfcShrinks is how many times longer than its normal form C a text may be: Hangul in jamo is.
const nfcShrinks = 3

// measure is the bytes of text that one id may stand for.
func (t *Tokenizer) measure() int {
	if slices.Contains(t.spec.Types, ControlStrip) {
		return math.MaxInt // any amount of white space
	}
	widest := 1
	for _, piece := range t.pieces {
		widest = max(widest, len(piece))
	}
	if t.family.nfc {
		widest *= nfcShrinks
	}
	return widest
}

// index builds the look-up tables from the vocabulary.
func (t *Tokenizer) index() {
	for b := range t.bytes {
		t.bytes[b] = t.spec.Unknown
	}
	for i, text := range t.spec.Tokens {
		id := int32(i)
		t.pieces[i] = strings.ReplaceAll(text, spaceMark, " ")
		switch t.typeOf(id) {
		case Byte:
			if b, ok := parseByte(text); ok {
				t.bytes[b], t.pieces[i] = id, string([]byte{b})
			}
		case Control, ControlStrip, Unknown:
			t.pieces[i] = text
		}
		t.joins.learn(text)
	}
	t.table = newTable(t.spec.Tokens)
	t.indexSpecial()
}

// indexSpecial builds the matchers of tokens that are cut out of a text.
func (t *Tokenizer) indexSpecial() {
	var special, own []int32
	for id := range int32(t.Len()) {
		switch t.typeOf(id) {
		case Control, ControlStrip, Unknown:
			special = append(special, id)
		case UserDefined:
			own = append(own, id)
		}
	}
	text := func(id int32) string { return t.pieces[id] }
	t.own = newMatcher(own, text)
	t.special = newMatcher(append(special, own...), text)
}

func (t *Tokenizer) typeOf(id int32) Type {
	if len(t.spec.Types) == 0 {
		return Normal
	}
	return t.spec.Types[id]
}

// parseByte reads a token of the form <0x41>.
func parseByte(s string) (byte, bool) {
	if len(s) != 6 || s[:3] != "<0x" || s[5] != '>' {
		return 0, false
	}
	hi, lo := strings.IndexByte("0123456789ABCDEF", s[3]), strings.IndexByte("0123456789ABCDEF", s[4])
	return byte(hi<<4 | lo), hi >= 0 && lo >= 0
}

// Len is the number of tokens.
func (t *Tokenizer) Len() int { return len(t.spec.Tokens) }

// Spec is what the tokenizer was built from.
func (t *Tokenizer) Spec() Spec { return t.spec }

// Piece is the text of one token, as bytes that need not be whole characters.
func (t *Tokenizer) Piece(id int32) string { return t.pieces[id] }

// IsControl says that a token has no text of its own for a reader: it marks turns, beginnings and ends.
func (t *Tokenizer) IsControl(id int32) bool {
	typ := t.typeOf(id)
	return typ == Control || typ == ControlStrip || typ == Unknown
}
