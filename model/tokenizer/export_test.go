package tokenizer

import "math"

// EncodeWhole is Encode without control tokens, without cutting runs apart and without the cache.
func EncodeWhole(t *Tokenizer, text string) []int32 {
	var ids []int32
	at := 0
	whole := func(s string) {
		if s == "" {
			return
		}
		var b []byte
		for i := range len(s) {
			if s[i] == ' ' {
				b = append(b, spaceMark...)
			} else {
				b = append(b, s[i])
			}
		}
		ids = new(merger).run(ids, t, b, math.MaxInt32, never)
	}
	for _, c := range new(finder).find(&t.own, text, func(cut) bool { return false }) {
		whole(text[at:c.lo])
		ids = append(ids, c.id)
		at = c.hi
	}
	whole(text[at:])
	return ids
}

func never([]int32) bool { return false }

// EncodeWindowed is a run of merges in windows of so many bytes.
func EncodeWindowed(t *Tokenizer, text string, window int) []int32 {
	return new(merger).run(nil, t, []byte(text), window, never)
}
