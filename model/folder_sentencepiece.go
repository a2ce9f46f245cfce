package model

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// modelFile is a vocabulary as SentencePiece writes it, for folders without tokenizer.json: a protobuf message ModelProto.
// Source: sentencepiece_model.proto of google/sentencepiece.
const modelFile = "tokenizer.model"

// modelProto is what of it decides about tokens. The zero value of a flag is not always the format's default: see
// newModelProto.
type modelProto struct {
	pieces     []modelPiece
	kind       uint64 // 2: BPE
	fallback   bool   // unknown characters become bytes
	suffix     bool   // spaces end a word
	charsMap   bool   // text is normalised by a table
	prefix     bool   // a space is put before a text
	squeeze    bool   // runs of spaces become one
	escape     bool   // spaces become U+2581
	fault      string
	faultPlace int
}

// modelPiece is a token; its kinds are GGUF's.
type modelPiece struct {
	text  string
	score float32
	kind  uint64
}

// field is one of a protobuf message: a number, or bytes that start at a place of the file.
type field struct {
	number protowire.Number
	value  uint64
	bytes  []byte
	at     int
}

// fields walks a message whose bytes start at a place of the file. The first fault sticks and ends every walk.
func (m *modelProto) fields(b []byte, at int, each func(field)) {
	for len(b) > 0 && m.fault == "" {
		number, kind, n := protowire.ConsumeTag(b)
		f := field{number: number, at: at}
		size := n
		if n > 0 {
			switch kind {
			case protowire.VarintType:
				f.value, size = protowire.ConsumeVarint(b[n:])
			case protowire.Fixed32Type:
				var v uint32
				v, size = protowire.ConsumeFixed32(b[n:])
				f.value = uint64(v)
			case protowire.BytesType:
				f.bytes, size = protowire.ConsumeBytes(b[n:])
			default:
				size = protowire.ConsumeFieldValue(number, kind, b[n:])
			}
		}
		if size < 0 {
			m.fault, m.faultPlace = protowire.ParseError(size).Error(), at
			return
		}
		at += n + size
		if f.bytes != nil {
			f.at = at - len(f.bytes)
		}
		b = b[n+size:]
		each(f)
	}
}

// newModelProto reads a file for a vocabulary of so many tokens.
func newModelProto(raw []byte, tokens int) *modelProto {
	m := &modelProto{kind: 1, prefix: true, squeeze: true, escape: true}
	m.fields(raw, 0, func(f field) {
		switch f.number {
		case 1:
			if len(m.pieces) == tokens {
				m.fault, m.faultPlace = fmt.Sprintf("piece %d, the embedding has %d rows", tokens, tokens), f.at
				return
			}
			p := modelPiece{kind: tokenNormal}
			m.fields(f.bytes, f.at, p.read)
			m.pieces = append(m.pieces, p)
		case 2:
			m.fields(f.bytes, f.at, m.trainer)
		case 3:
			m.fields(f.bytes, f.at, m.normaliser)
		}
	})
	return m
}

func (p *modelPiece) read(f field) {
	switch f.number {
	case 1:
		p.text = string(f.bytes)
	case 2:
		p.score = math.Float32frombits(uint32(f.value))
	case 3:
		p.kind = f.value
	}
}

func (m *modelProto) trainer(f field) {
	switch f.number {
	case 3:
		m.kind = f.value
	case 24:
		m.suffix = f.value != 0
	case 35:
		m.fallback = f.value != 0
	}
}

func (m *modelProto) normaliser(f field) {
	switch f.number {
	case 2:
		m.charsMap = len(f.bytes) > 0
	case 3:
		m.prefix = f.value != 0
	case 4:
		m.squeeze = f.value != 0
	case 5:
		m.escape = f.value != 0
	}
}

// unsupported says what of it Berth would not do.
func (m *modelProto) unsupported() string {
	switch {
	case m.fault != "":
		return m.fault
	case len(m.pieces) == 0:
		return "no pieces"
	case m.kind != 2:
		return "model type " + strconv.FormatUint(m.kind, 10) + " is not supported, only BPE (2) is"
	case !m.fallback:
		return "a model without byte_fallback is not supported"
	case m.suffix, m.charsMap, m.squeeze, !m.escape:
		return "a model that normalises text (precompiled_charsmap, remove_extra_whitespaces, treat_whitespace_as_suffix, or not " +
			"escape_whitespaces) is not supported"
	}
	return ""
}

// sentencePieceModel reads tokenizer.model, and the tokens that tokenizer_config.json or added_tokens.json put after it.
func (v *vocabulary) sentencePieceModel() error {
	raw, err := readRegular(filepath.Join(v.dir, modelFile), maxText)
	if err != nil || !v.room() {
		return err
	}
	m := newModelProto(raw, len(v.tokens))
	if what := m.unsupported(); what != "" {
		at := int64(-1)
		if m.fault != "" {
			at = int64(m.faultPlace)
		}
		v.err = &WeightsError{File: filepath.Join(v.dir, modelFile), Offset: at, What: what}
		return nil
	}
	scores := make([]float32, len(v.tokens))
	for id, p := range m.pieces {
		if p.kind < tokenNormal || p.kind > tokenByte || p.score != p.score {
			v.folder.fail(modelFile, "piece %d has type %d and score %g", id, p.kind, p.score)
			return nil
		}
		v.put(p.text, int64(id), int32(p.kind))
		if v.folder.err != nil {
			return nil
		}
		scores[id] = p.score
		if p.kind == tokenUnknown && v.json.Model.Unknown == nil {
			v.json.Model.Unknown = &p.text
		}
	}
	if err := v.addedBeside(); err != nil || v.err != nil {
		return err
	}
	v.finish()
	v.set("ggml.model", stringValue(modelFile, "llama"))
	v.set("ggml.scores", floatsValue(modelFile, scores))
	v.set("ggml.add_space_prefix", boolValue(modelFile, m.prefix))
	return nil
}

// addedBeside takes the tokens that stand in other files than the vocabulary.
func (v *vocabulary) addedBeside() error {
	var plain map[string]int64
	if err := v.optional("added_tokens.json", &plain); err != nil {
		return err
	}
	for _, number := range slices.Sorted(maps.Keys(v.config.Added)) {
		t := v.config.Added[number]
		id, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			v.folder.fail("tokenizer_config.json", "added_tokens_decoder: %.32q is no id", number)
			return nil
		}
		t.ID = id
		v.json.Added = append(v.json.Added, t)
		delete(plain, t.Text)
	}
	for _, text := range slices.Sorted(maps.Keys(plain)) {
		v.json.Added = append(v.json.Added, addedToken{ID: plain[text], Text: text, Special: true})
	}
	v.add()
	return nil
}
