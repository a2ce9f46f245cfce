package tokenizer

import (
	"fmt"
	"strings"
)

// ranks finds what two neighbouring tokens merge into, and how early: the lowest rank merges first. It is a table of
// open addressing, since a vocabulary has some 280,000 merges and each byte of a new word asks twice.
type ranks struct {
	slots []rankSlot
}

type rankSlot struct {
	left, right int32 // left is −1 in an empty slot
	rank, id    int32
}

// maxMerges keeps ranks exact as scores, which are float32.
const maxMerges = 1 << 24

func newRanks(n int) ranks {
	size := 1024
	for size < 2*n {
		size *= 2
	}
	r := ranks{slots: make([]rankSlot, size)}
	for i := range r.slots {
		r.slots[i].left = -1
	}
	return r
}

// slot is where the pair stands, or would.
func (r *ranks) slot(left, right int32) *rankSlot {
	h := (uint64(uint32(left))<<32 | uint64(uint32(right))) * 0x9e3779b97f4a7c15
	for at := int(h >> 32); ; at++ {
		s := &r.slots[at&(len(r.slots)-1)]
		if s.left < 0 || s.left == left && s.right == right {
			return s
		}
	}
}

// find is the merge of two tokens; ok is false if they have none.
func (r *ranks) find(left, right int32) (rank, id int32, ok bool) {
	s := r.slot(left, right)
	return s.rank, s.id, s.left >= 0
}

// indexMerges reads the merges, two texts of tokens with a space between; earlier ones rank lower. Every text must be a
// token, as in tokenizers of Hugging Face.
func (t *Tokenizer) indexMerges(byText map[string]int32) error {
	merges := t.spec.Merges
	if len(merges) >= maxMerges {
		return fmt.Errorf("%w: %d merges", ErrVocabulary, len(merges))
	}
	t.ranks = newRanks(len(merges))
	for i, m := range merges {
		left, right, _ := strings.Cut(m, " ")
		ids := [3]int32{}
		for j, text := range []string{left, right, left + right} {
			id, ok := byText[text]
			if !ok {
				return fmt.Errorf("%w: merge %d is %.40q, but %.40q is no token", ErrVocabulary, i, m, text)
			}
			ids[j] = id
		}
		if s := t.ranks.slot(ids[0], ids[1]); s.left < 0 {
			*s = rankSlot{ids[0], ids[1], int32(i), ids[2]}
		}
	}
	return nil
}

// shortWord is the bytes up to which looking at every pair beats a heap.
const shortWord = 32

// word merges the at most shortWord bytes of s, the lowest rank first and the leftmost among equals.
func (m *merger) word(ids []int32, t *Tokenizer, s []byte) []int32 {
	// parts[i] is the token at i, next[i] what it and the one after it merge into.
	var parts [shortWord]int32
	var next [shortWord]rankSlot
	n := len(s)
	for i, b := range s {
		parts[i] = t.bytes[b]
	}
	ask := func(i int) {
		next[i] = rankSlot{rank: maxMerges}
		if i+1 < n {
			if s := t.ranks.slot(parts[i], parts[i+1]); s.left >= 0 {
				next[i] = *s
			}
		}
	}
	for i := range n {
		ask(i)
	}
	for n > 1 {
		best := 0
		for i := 1; i < n-1; i++ {
			if next[i].rank < next[best].rank {
				best = i
			}
		}
		if next[best].rank == maxMerges {
			break
		}
		parts[best] = next[best].id
		copy(parts[best+1:n-1], parts[best+2:n])
		copy(next[best+1:n-1], next[best+2:n])
		n--
		ask(best)
		if best > 0 {
			ask(best - 1)
		}
	}
	return append(ids, parts[:n]...)
}
