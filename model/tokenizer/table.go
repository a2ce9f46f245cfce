package tokenizer

// table finds tokens by their text. Its hash is a polynomial over the bytes, so that those of all substrings of a run
// come from one pass over it; what it finds is compared, so collisions cost time only.
type table struct {
	slots  []tableSlot
	tokens []string
	powers []uint64 // of base, up to the longest token
}

type tableSlot struct {
	tag uint32 // of the hash; 0 is empty
	id  int32
}

const base = 0x9e3779b97f4a7c15

func newTable(tokens []string) table {
	size := 1024
	for size < 3*len(tokens) {
		size *= 2
	}
	t := table{slots: make([]tableSlot, size), tokens: tokens, powers: []uint64{1}}
	var sums []uint64
	for i, text := range tokens {
		for len(t.powers) <= len(text) {
			t.powers = append(t.powers, t.powers[len(t.powers)-1]*base)
		}
		sums = prefixSums(sums[:0], []byte(text))
		tag, at := t.place(sums[len(text)])
		for ; t.slots[at].tag != 0; at = (at + 1) & (size - 1) {
			if t.slots[at].tag == tag && tokens[t.slots[at].id] == text {
				break // the lower id of two equal texts stays
			}
		}
		if t.slots[at].tag == 0 {
			t.slots[at] = tableSlot{tag, int32(i)}
		}
	}
	return t
}

// prefixSums appends the hash of each prefix of s, the empty one first.
func prefixSums(sums []uint64, s []byte) []uint64 {
	h := uint64(0)
	sums = append(sums, 0)
	for _, b := range s {
		h = h*base + uint64(b) + 1
		sums = append(sums, h)
	}
	return sums
}

func (t *table) place(hash uint64) (tag uint32, at int) {
	hash = (hash ^ hash>>29) * 0xbf58476d1ce4e5b9
	return uint32(hash>>32) | 1, int(hash>>20) & (len(t.slots) - 1)
}

// find returns the token that is s[lo:hi]; sums are those of s.
func (t *table) find(s []byte, sums []uint64, lo, hi int) (int32, bool) {
	if hi-lo >= len(t.powers) {
		return 0, false
	}
	tag, at := t.place(sums[hi] - sums[lo]*t.powers[hi-lo])
	for ; t.slots[at].tag != 0; at = (at + 1) & (len(t.slots) - 1) {
		if t.slots[at].tag == tag && t.tokens[t.slots[at].id] == view(s[lo:hi]) {
			return t.slots[at].id, true
		}
	}
	return 0, false
}
