package tokenizer

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
		ids = new(merger).run(ids, t, b)
	}
	for _, c := range new(finder).find(&t.own, text) {
		whole(text[at:c.lo])
		ids = append(ids, c.id)
		at = c.hi
	}
	whole(text[at:])
	return ids
}
