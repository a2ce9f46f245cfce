package model

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// stage is a part of tokenizer.json's way from text to tokens, or a sequence of them; the fields are those of every
// kind.
type stage struct {
	Kind          string  `json:"type"`
	Normalizers   []stage `json:"normalizers"`
	PreTokenizers []stage `json:"pretokenizers"`
	Processors    []stage `json:"processors"`

	Pattern struct {
		Regex  string `json:"Regex"`
		String string `json:"String"`
	} `json:"pattern"`
	Behavior    string            `json:"behavior"`
	Invert      bool              `json:"invert"`
	Content     string            `json:"content"`
	Prepend     string            `json:"prepend"`
	Replacement string            `json:"replacement"`
	Scheme      string            `json:"prepend_scheme"`
	Split       *bool             `json:"split"`
	PrefixSpace bool              `json:"add_prefix_space"`
	UseRegex    *bool             `json:"use_regex"`
	Single      []json.RawMessage `json:"single"`
	Decoders    []stage           `json:"decoders"`
	Start       int               `json:"start"`
	Stop        int               `json:"stop"`
}

// flat is the stages of a sequence, or the one there is.
func (s *stage) flat() []stage {
	if s == nil {
		return nil
	}
	if s.Kind == "Sequence" {
		return slices.Concat(s.Normalizers, s.PreTokenizers, s.Processors, s.Decoders)
	}
	return []stage{*s}
}

// template tells whether the post-processor puts the beginning token before a text; says is false if it has no template.
// What it puts elsewhere, or in its place, is refused.
func (v *vocabulary) template() (begins, says bool) {
	for _, p := range v.json.PostProcessor.flat() {
		switch {
		case p.Kind == "ByteLevel": // it moves offsets alone
			continue
		case p.Kind != "TemplateProcessing" || says:
			v.fail("post_processor %.32q is not supported, only one TemplateProcessing is", p.Kind)
			continue
		}
		says = true
		after := false
		for _, raw := range p.Single {
			var piece struct {
				Special *struct {
					ID string `json:"id"`
				} `json:"SpecialToken"`
			}
			switch {
			case json.Unmarshal(raw, &piece) != nil || piece.Special == nil:
				after = true
			case after:
				v.fail("post_processor: %.64q after a text is not supported", piece.Special.ID)
			case begins:
				v.fail("post_processor: more than one token before a text is not supported")
			case piece.Special.ID != string(v.config.BOS):
				v.fail("post_processor: %.64q before a text is not supported, only the bos_token %.64q is", piece.Special.ID,
					string(v.config.BOS))
			default:
				begins = true
			}
		}
	}
	return begins, says
}

// decodes refuses a decoder that gives other text than the tokens' own: spaces for marks, bytes for byte tokens and, if
// encoding puts a space in front, without it.
func (v *vocabulary) decodes(prefix bool) {
	list := v.json.Decoder.flat()
	if v.json.Decoder == nil || len(list) == 0 {
		return // transformers' own classes then do the same
	}
	stripped := false
	var kinds []string
	for _, d := range list {
		kinds = append(kinds, d.Kind)
		switch {
		case d.Kind == "Strip":
			stripped = d.Content == " " && d.Start == 1 && d.Stop == 0
		case d.Kind == "Replace" && (d.Pattern.String != "\u2581" || d.Content != " "):
			kinds = append(kinds, "of other texts")
		}
	}
	plain := slices.Equal(kinds, []string{"Replace", "ByteFallback", "Fuse"}) && !prefix
	strips := slices.Equal(kinds, []string{"Replace", "ByteFallback", "Fuse", "Strip"}) && prefix && stripped
	if !plain && !strips {
		v.fail("decoder %.200q is not supported where encoding puts a space in front: %v", strings.Join(kinds, ", "), prefix)
	}
}

// A byte-level vocabulary is known by how it cuts words: endings are those that English contracts.
const (
	endings      = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	spacesAndAll = `|\s*[\r\n]+|\s+(?!\S)|\s+`
	gpt2Cut      = ""
	llamaCut     = endings + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spacesAndAll
	qwenCut      = endings + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spacesAndAll
	qwen35Cut    = endings + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` + spacesAndAll
	o200kCut     = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` + endings + `?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` + endings + `?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + spacesAndAll
	tekkenCut = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|` +
		`\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + spacesAndAll
)

// cuts are the byte-level vocabularies that GGUF has names for and that package tokenizer knows.
var cuts = []struct {
	pattern    string // of the Split before ByteLevel; empty: ByteLevel's own
	nfc, whole bool   // NFC as normalizer, ignore_merges
	pre        string // tokenizer.ggml.pre
}{
	{gpt2Cut, false, false, "gpt-2"},
	{llamaCut, false, true, "llama-bpe"},
	{qwenCut, true, false, "qwen2"},
	{qwenCut, false, false, "deepseek-r1-qwen"},
	{qwen35Cut, true, false, "qwen35"},
	{o200kCut, false, false, "gpt-4o"},
	{o200kCut, false, true, "llama4"},
	{tekkenCut, false, true, "tekken"},
}

// style tells byte-level vocabularies from SentencePiece-style ones, by what is done before BPE.
func (v *vocabulary) style() {
	before := v.json.PreTokenizer.flat()
	if n := len(before); n > 0 && before[n-1].Kind == "ByteLevel" {
		v.byteLevel(before)
		return
	}
	v.sentencePiece()
}

func (v *vocabulary) byteLevel(before []stage) {
	last, pattern := before[len(before)-1], gpt2Cut
	own := last.UseRegex == nil || *last.UseRegex
	switch {
	case len(before) == 1 && own:
	case len(before) == 2 && !own && before[0].Kind == "Split" && before[0].Behavior == "Isolated" && !before[0].Invert:
		pattern = before[0].Pattern.Regex
	default:
		v.fail("pre_tokenizer: %d stages before ByteLevel are not supported", len(before)-1)
		return
	}
	normal, nfc := v.json.Normalizer.flat(), false
	for _, n := range normal {
		if nfc = n.Kind == "NFC"; !nfc {
			v.fail("normalizer %.32q is not supported with ByteLevel", n.Kind)
			return
		}
	}
	if last.PrefixSpace {
		v.fail("pre_tokenizer: ByteLevel with add_prefix_space is not supported")
	}
	for _, c := range cuts {
		if c.pattern == pattern && c.nfc == nfc && c.whole == v.json.Model.IgnoreMerges {
			v.set("ggml.model", stringValue("tokenizer.json: pre_tokenizer", "gpt2"))
			v.set("ggml.pre", stringValue("tokenizer.json: pre_tokenizer", c.pre))
			v.set("ggml.merges", stringsValue("tokenizer.json: merges", v.json.Model.merges()))
			return
		}
	}
	v.fail("pre_tokenizer: words cut by %.200q (NFC %v, ignore_merges %v) are not supported", pattern, nfc,
		v.json.Model.IgnoreMerges)
}

// merges writes the merges as GGUF does.
func (m *bpeModel) merges() []string {
	list := make([]string, len(m.Merges))
	for i, p := range m.Merges {
		list[i] = p[0] + " " + p[1]
	}
	return list
}

// sentencePiece sets scores in place of merges: a token's is the rank of the first merge that makes it, so that merging
// by score goes in the order of the merges. Tokens that no merge makes come last.
func (v *vocabulary) sentencePiece() {
	m, prefix, marked := &v.json.Model, false, false
	for _, n := range v.json.Normalizer.flat() {
		switch {
		case n.Kind == "Replace" && n.Pattern.String == " " && n.Content == "\u2581":
			marked = true
		case n.Kind == "Prepend" && n.Prepend == "\u2581":
			prefix = true
		default:
			v.fail("normalizer %.32q is not supported", n.Kind)
		}
	}
	for _, p := range v.json.PreTokenizer.flat() {
		switch {
		case p.Kind == "Split" && p.Pattern.String == " ": // after the replacement there is no space to split at
		case p.Kind == "Metaspace" && p.Scheme == "never" && p.Replacement == "\u2581" && p.Split != nil && !*p.Split:
			marked = true // "always" puts no space before one, unlike SentencePiece
		default:
			v.fail("pre_tokenizer %.32q is not supported", p.Kind)
		}
	}
	if !marked || !m.ByteFallback {
		v.fail("a vocabulary that is neither ByteLevel nor SentencePiece-style with byte_fallback is not supported")
	}
	v.decodes(prefix)
	scores := make([]float32, len(v.tokens))
	for i := range scores {
		scores[i] = -float32(len(m.Merges) + 1)
	}
	for rank := len(m.Merges) - 1; rank >= 0; rank-- {
		p := m.Merges[rank]
		id, ok := v.ids[p[0]+p[1]]
		if !ok {
			v.fail("merge %d: %.64q is no token", rank, p[0]+p[1])
			return
		}
		scores[id] = -float32(rank)
	}
	v.set("ggml.model", stringValue("tokenizer.json: normalizer", "llama"))
	v.set("ggml.scores", floatsValue("tokenizer.json: merges", scores))
	v.set("ggml.add_space_prefix", boolValue("tokenizer.json: normalizer", prefix))
}

// chat sets the chat template: a file of its own, else tokenizer_config.json's, which may be several by name.
func (v *vocabulary) chat() error {
	if v.err != nil {
		return nil
	}
	raw, err := ReadTemplate(filepath.Join(v.dir, "chat_template.jinja"))
	if err == nil {
		v.set("chat_template", stringValue("chat_template.jinja", string(raw)))
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var source string
	var several []struct {
		Name   string `json:"name"`
		Source string `json:"template"`
	}
	if json.Unmarshal(v.config.Chat, &source) != nil && json.Unmarshal(v.config.Chat, &several) == nil {
		for _, t := range several {
			if t.Name == "default" {
				source = t.Source
			}
		}
	}
	if source != "" {
		v.set("chat_template", stringValue("tokenizer_config.json: chat_template", source))
	}
	return nil
}
