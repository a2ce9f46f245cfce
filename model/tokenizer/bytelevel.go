package tokenizer

import "fmt"

// Byte-level vocabularies write every byte as one printable character, as GPT-2 did: bytes that print stand for
// themselves, the others for U+0100 and up, in order. Source: bytes_to_unicode of openai/gpt-2's encoder.py.

// printable says that a byte stands for itself in a byte-level vocabulary.
func printable(b int) bool {
	return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae && b <= 0xff
}

// alphabet maps the characters of byte-level vocabularies to bytes.
func alphabet() map[rune]byte {
	bytes, next := make(map[rune]byte, 256), rune(0x100)
	for b := range 256 {
		if printable(b) {
			bytes[rune(b)] = byte(b)
			continue
		}
		bytes[next] = byte(b)
		next++
	}
	return bytes
}

// indexByteLevel builds the look-up tables of a byte-level vocabulary.
func (t *Tokenizer) indexByteLevel() error {
	for b := range t.bytes {
		t.bytes[b] = -1
	}
	bytes, words := alphabet(), make([]string, t.Len())
	byText := make(map[string]int32, t.Len())
	for i := len(t.spec.Tokens) - 1; i >= 0; i-- { // downwards: the lower id of two equal texts stays
		id, text := int32(i), t.spec.Tokens[i]
		t.pieces[i] = text
		if typ := t.typeOf(id); typ == Control || typ == Unknown || typ == UserDefined {
			continue
		}
		byText[text] = id
		if raw, ok := unwritten(bytes, text); ok {
			t.pieces[i], words[i] = raw, raw
			if len(raw) == 1 {
				t.bytes[raw[0]] = id
			}
		}
	}
	for b, id := range t.bytes {
		if id < 0 {
			return fmt.Errorf("%w: byte 0x%02x has no token", ErrVocabulary, b)
		}
	}
	t.table = newTable(words)
	t.indexSpecial()
	return t.indexMerges(byText)
}

// unwritten is the bytes that a token's text stands for, not ok if a character stands for none.
func unwritten(bytes map[rune]byte, text string) (raw string, ok bool) {
	b := make([]byte, 0, len(text))
	for _, r := range text {
		x, ok := bytes[r]
		if !ok {
			return "", false
		}
		b = append(b, x)
	}
	return string(b), true
}
