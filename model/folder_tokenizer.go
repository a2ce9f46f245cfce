package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// GGUF's types of tokens.
const (
	tokenNormal  = 1
	tokenUnknown = 2
	tokenControl = 3
	tokenUser    = 4
	tokenUnused  = 5
	tokenByte    = 6
	// tokenStrip is tokenizer.ControlStrip: Berth's own.
	tokenStrip = 7
)

// EndTokens is the key of all ids that end a generation, where a folder's generation_config.json lists them; GGUF has
// no key for more than one.
const EndTokens = "berth.end_token_ids"

// tokenizerJSON is what tokenizer.json says of a BPE vocabulary. Source: the serialisation of huggingface/tokenizers.
type tokenizerJSON struct {
	Added         []addedToken `json:"added_tokens"`
	Normalizer    *stage       `json:"normalizer"`
	PreTokenizer  *stage       `json:"pre_tokenizer"`
	PostProcessor *stage       `json:"post_processor"`
	Decoder       *stage       `json:"decoder"`
	Model         bpeModel     `json:"model"`
}

// addedToken is a token that is cut out of a text before all others are looked for.
type addedToken struct {
	ID         int64  `json:"id"`
	Text       string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Special    bool   `json:"special"`
}

// bpeModel is its vocabulary and merges.
type bpeModel struct {
	Kind         string           `json:"type"`
	Vocab        map[string]int64 `json:"vocab"`
	Merges       []merge          `json:"merges"`
	IgnoreMerges bool             `json:"ignore_merges"`
	ByteFallback bool             `json:"byte_fallback"`
	Unknown      *string          `json:"unk_token"`
	Prefix       string           `json:"continuing_subword_prefix"`
	Suffix       string           `json:"end_of_word_suffix"`
}

// merge is two tokens, written as a list or with a space between.
type merge [2]string

func (m *merge) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return json.Unmarshal(raw, (*[2]string)(m))
	}
	m[0], m[1], _ = strings.Cut(text, " ")
	return nil
}

// tokenizerConfig is what tokenizer_config.json says beside it.
type tokenizerConfig struct {
	AddBOS  *bool           `json:"add_bos_token"`
	AddEOS  bool            `json:"add_eos_token"`
	BOS     tokenText       `json:"bos_token"`
	EOS     tokenText       `json:"eos_token"`
	Unknown tokenText       `json:"unk_token"`
	Padding tokenText       `json:"pad_token"`
	Chat    json.RawMessage `json:"chat_template"`

	Added map[string]addedToken `json:"added_tokens_decoder"` // by id
}

// tokenText is a token, written as its text or as an object with its content.
type tokenText string

func (t *tokenText) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, (*string)(t)) == nil {
		return nil
	}
	var object struct {
		Text string `json:"content"`
	}
	err := json.Unmarshal(raw, &object)
	*t = tokenText(object.Text)
	return err
}

// vocabulary turns the tokenizer's files into tokenizer.ggml keys.
type vocabulary struct {
	*folder
	json   tokenizerJSON
	config tokenizerConfig
	tokens []string
	types  []int32
	ids    map[string]int32
}

// tokenizer reads tokenizer.json, else tokenizer.model, and what stands beside it.
func (f *folder) tokenizer(config map[string]json.RawMessage) error {
	v := &vocabulary{folder: f}
	absent := f.json("tokenizer.json", &v.json)
	if absent != nil && !errors.Is(absent, fs.ErrNotExist) {
		return absent
	}
	if err := f.optional("tokenizer_config.json", &v.config); err != nil {
		return err
	}
	switch {
	case f.err != nil:
	case absent == nil:
		v.collect()
		if f.err == nil {
			v.style()
		}
	default:
		if err := v.sentencePieceModel(); errors.Is(err, fs.ErrNotExist) {
			return absent
		} else if err != nil {
			return err
		}
		if v.config.AddBOS == nil { // as the classes that read this file have it
			v.config.AddBOS = new(bool)
			*v.config.AddBOS = true
		}
	}
	if f.err == nil {
		v.specials(config)
	}
	if err := v.ends(); err != nil {
		return err
	}
	return v.chat()
}

func (v *vocabulary) fail(format string, args ...any) {
	v.folder.fail("tokenizer.json", format, args...)
}

func (v *vocabulary) set(key string, x value) { v.file.keys["tokenizer."+key] = x }

// collect lays the tokens out by id, one for each row of the embedding; ids that no token has are filled as llama.cpp's
// converter does.
func (v *vocabulary) collect() {
	m := &v.json.Model
	if m.Kind != "BPE" && m.Kind != "" || m.Prefix != "" || m.Suffix != "" {
		v.fail("model %.32q with prefix %.32q and suffix %.32q is not supported, only plain BPE is", m.Kind, m.Prefix,
			m.Suffix)
		return
	}
	if !v.room() {
		return
	}
	// Gemma's text models come with the tokenizer of those that see: its tokens beyond the embedding stand for nothing
	// here, and their texts are plain text.
	beyond := map[string]bool{}
	for _, t := range v.json.Added {
		beyond[t.Text] = t.ID >= int64(len(v.tokens))
	}
	for text, id := range m.Vocab {
		if beyond[text] {
			continue
		}
		typ := int32(tokenNormal)
		if m.ByteFallback && len(text) == 6 && strings.HasPrefix(text, "<0x") && text[5] == '>' {
			typ = tokenByte
		}
		v.put(text, id, typ)
	}
	v.add()
	v.finish()
}

// room makes a place for each row of the embedding; false if there is none.
func (v *vocabulary) room() bool {
	embedding, ok := v.file.Tensor("token_embd.weight")
	if !ok {
		return false // Load says so
	}
	n := embedding.Rows()
	v.tokens, v.types, v.ids = make([]string, n), slices.Repeat([]int32{tokenUnused}, n), make(map[string]int32, n)
	return true
}

// add puts the added tokens that the embedding has a row for.
func (v *vocabulary) add() {
	for _, t := range v.json.Added {
		if t.ID >= int64(len(v.tokens)) {
			continue
		}
		if t.SingleWord || t.LStrip || t.RStrip && !t.Special {
			v.fail("added token %.64q takes the text around it: single_word and lstrip are not supported, rstrip only in "+
				"special tokens", t.Text)
		}
		typ := int32(tokenUser)
		switch {
		case t.RStrip:
			typ = tokenStrip
		case t.Special:
			typ = tokenControl
		}
		v.put(t.Text, t.ID, typ)
	}
}

// finish names what no token has, and sets the keys of texts and types.
func (v *vocabulary) finish() {
	if m := &v.json.Model; m.Unknown != nil {
		if id, ok := v.ids[*m.Unknown]; ok {
			v.types[id] = tokenUnknown
		}
	}
	for i, typ := range v.types {
		if typ == tokenUnused {
			v.tokens[i] = fmt.Sprintf("[PAD%d]", i)
		}
	}
	v.set("ggml.tokens", stringsValue("tokenizer.json: vocab", v.tokens))
	v.set("ggml.token_type", integersValue("tokenizer.json: added_tokens", v.types))
}

func (v *vocabulary) put(text string, id int64, typ int32) {
	if id < 0 || id >= int64(len(v.tokens)) {
		v.fail("token %.64q has id %d, the embedding has %d rows", text, id, len(v.tokens))
		return
	}
	if v.types[id] != tokenUnused && v.tokens[id] != text {
		v.fail("tokens %.64q and %.64q have id %d", v.tokens[id], text, id)
	}
	v.tokens[id], v.types[id], v.ids[text] = text, typ, int32(id)
}

// specials sets the ids of tokens with a role, by their texts in tokenizer_config.json, else by config.json's numbers.
func (v *vocabulary) specials(config map[string]json.RawMessage) {
	c := &v.config
	if c.Unknown == "" && v.json.Model.Unknown != nil {
		c.Unknown = tokenText(*v.json.Model.Unknown)
	}
	for _, s := range []struct {
		key, field string
		text       tokenText
	}{
		{"bos", "bos_token_id", c.BOS}, {"eos", "eos_token_id", c.EOS}, {"unknown", "unk_token_id", c.Unknown},
		{"padding", "pad_token_id", c.Padding},
	} {
		id, ok := v.ids[string(s.text)]
		if s.text != "" && !ok {
			v.folder.fail("tokenizer_config.json", "%s token %.64q is not in the vocabulary", s.key, string(s.text))
		}
		if s.text == "" {
			list, _ := integers(config[s.field])
			if ok = len(list) > 0; ok {
				id = list[0]
			}
		}
		if ok && id >= 0 && int(id) < len(v.tokens) {
			v.set("ggml."+s.key+"_token_id", integerValue("config.json: "+s.field, int64(id)))
		}
	}
	begins, says := v.template()
	ends := false
	if !says {
		begins, ends = c.AddBOS != nil && *c.AddBOS, c.AddEOS
	}
	v.set("ggml.add_bos_token", boolValue("tokenizer.json: post_processor", begins))
	v.set("ggml.add_eos_token", boolValue("tokenizer.json: post_processor", ends))
}

// integers reads a number or a list of them.
func integers(raw json.RawMessage) ([]int32, error) {
	if raw == nil || string(raw) == "null" {
		return nil, nil
	}
	var list []int32
	var one int32
	if json.Unmarshal(raw, &one) == nil {
		return []int32{one}, nil
	}
	err := json.Unmarshal(raw, &list)
	return list, err
}

// ends sets the ids that end a generation.
func (v *vocabulary) ends() error {
	var c struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if err := v.optional("generation_config.json", &c); err != nil || v.err != nil {
		return err
	}
	list, err := integers(c.EOS)
	if err != nil {
		v.folder.fail("generation_config.json", "eos_token_id: %v", err)
	}
	for _, id := range list {
		if id < 0 || int(id) >= len(v.tokens) {
			v.folder.fail("generation_config.json", "eos_token_id: %d of %d tokens", id, len(v.tokens))
		}
	}
	if len(list) > 0 {
		v.file.keys[EndTokens] = integersValue("generation_config.json: eos_token_id", list)
	}
	return nil
}
