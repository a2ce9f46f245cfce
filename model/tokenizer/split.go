package tokenizer

// family is how the vocabularies of one tokenizer.ggml.pre are used beside their merges.
type family struct {
	// word is the length of the word that text begins with; text is not empty. No merge spans two words.
	word func(c *classes, text string) int
	// whole: a word that is a token itself is taken as it stands, however its bytes would merge.
	whole bool
	// nfc: text is brought to Unicode's normal form C first, as these models' own tokenizer.json says (llama.cpp leaves
	// it out).
	nfc bool
}

// families are the values of tokenizer.ggml.pre that Berth knows. The patterns that the functions stand for are those
// of llama.cpp's llama-vocab.cpp and of the models' tokenizer.json.
var families = map[string]family{
	"gpt-2":            {word: gpt2Word},
	"phi-2":            {word: gpt2Word},
	"llama-bpe":        {word: llamaWord, whole: true},
	"llama3":           {word: llamaWord, whole: true},
	"llama-v3":         {word: llamaWord, whole: true},
	"qwen2":            {word: qwenWord, nfc: true},
	"deepseek-r1-qwen": {word: qwenWord},
	"qwen35":           {word: qwen35Word, nfc: true},
	"gpt-4o":           {word: o200kWord},
	"llama4":           {word: o200kWord, whole: true},
	"tekken":           {word: tekkenWord, whole: true},
}

// llamaWord cuts by
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func llamaWord(c *classes, s string) int { return bpeWord(c, s, letter, 3) }

// qwenWord is llamaWord with numbers cut into single digits.
func qwenWord(c *classes, s string) int { return bpeWord(c, s, letter, 1) }

// qwen35Word is qwenWord with \p{M} beside \p{L} in words, and outside of what is no word.
func qwen35Word(c *classes, s string) int { return bpeWord(c, s, letter|mark, 1) }

// bpeWord is the pattern above with words made of a class, and numbers of up to digits characters.
func bpeWord(c *classes, s string, words class, digits int) int {
	if n := contraction(s, true); n > 0 {
		return n
	}
	first, n := c.at(s, 0)
	if first&(newline|letter|number) == 0 {
		if next, _ := c.at(s, n); next&words != 0 {
			return c.run(s, n, words, 0)
		}
	}
	switch {
	case first&words != 0:
		return c.run(s, 0, words, 0)
	case first&number != 0:
		return c.number(s, digits)
	}
	if end := c.symbols(s, words|number|space); end > 0 {
		return c.run(s, end, newline, 0)
	}
	return c.spaces(s, true)
}

// gpt2Word cuts by
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func gpt2Word(c *classes, s string) int {
	if n := contraction(s, false); n > 0 {
		return n
	}
	from := 0
	if s[0] == ' ' {
		from = 1
	}
	for _, kind := range []class{letter, number} {
		if end := c.run(s, from, kind, 0); end > from {
			return end
		}
	}
	if end := c.symbols(s, letter|number|space); end > 0 {
		return end
	}
	return c.spaces(s, false)
}

// number is the end of up to n characters of \p{N}, of which there is one.
func (c *classes) number(s string, n int) int {
	end := 0
	for range n {
		k, size := c.at(s, end)
		if k&number == 0 {
			break
		}
		end += size
	}
	return end
}

// symbols is the end of ` ?X+`, X being what has no class of out; 0 if there is none.
func (c *classes) symbols(s string, out class) int {
	from := 0
	if s[0] == ' ' {
		from = 1
	}
	if end := c.run(s, from, 0, out); end > from {
		return end
	}
	return 0
}

// spaces is the end of `\s*[\r\n]+|\s+(?!\S)|\s+`, without its first part if lines is not set: up to the last line
// break, else all spaces but the one before a word, which belongs to that. s begins with a space.
func (c *classes) spaces(s string, lines bool) int {
	end, last, broken := 0, 0, 0
	for {
		k, n := c.at(s, end)
		if n == 0 || k&space == 0 {
			break
		}
		last, end = end, end+n
		if k&newline != 0 {
			broken = end
		}
	}
	switch {
	case lines && broken > 0:
		return broken
	case end < len(s) && last > 0:
		return last
	}
	return end
}

// contraction is the length of an English ending at the front of s: 's 't 're 've 'm 'll 'd, in any case if fold is
// set, when U+017F (ſ) is an s too; 0 if there is none.
func contraction(s string, fold bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	small := func(i int) byte {
		if i >= len(s) {
			return 0
		}
		if b := s[i]; fold && b >= 'A' && b <= 'Z' {
			return b + 'a' - 'A'
		}
		return s[i]
	}
	switch a, b := small(1), small(2); {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 2
	case a == 'r' && b == 'e' || a == 'v' && b == 'e' || a == 'l' && b == 'l':
		return 3
	case fold && len(s) >= 3 && s[1:3] == "ſ":
		return 3
	}
	return 0
}
