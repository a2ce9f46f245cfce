package tokenizer

import (
	"cmp"
	"slices"
)

// matcher finds tokens that are cut out of a text before merging: longest first, each from left to right, as llama.cpp
// does. Its work is bounded by the text: one walk of a trie at each place where a token may begin, then one look at
// these places for each length.
type matcher struct {
	nodes   []trieNode
	starts  [256]bool
	lengths []int // distinct lengths of the tokens, descending
}

type trieNode struct {
	byte           byte
	child, sibling int32 // 0 if none
	id             int32 // token that ends here, −1 if none
	class          int32 // index of its length
}

func newMatcher(ids []int32, text func(int32) string) matcher {
	m := matcher{nodes: []trieNode{{id: -1}}}
	for _, id := range ids {
		if n := len(text(id)); n > 0 && !slices.Contains(m.lengths, n) {
			m.lengths = append(m.lengths, n)
		}
	}
	slices.SortFunc(m.lengths, func(a, b int) int { return cmp.Compare(b, a) })
	for _, id := range ids {
		if s := text(id); s != "" {
			m.insert(s, id)
		}
	}
	return m
}

func (m *matcher) insert(s string, id int32) {
	m.starts[s[0]] = true
	at := int32(0)
	for i := range len(s) {
		next := m.child(at, s[i])
		if next == 0 {
			next = int32(len(m.nodes))
			m.nodes = append(m.nodes, trieNode{byte: s[i], sibling: m.nodes[at].child, id: -1})
			m.nodes[at].child = next
		}
		at = next
	}
	if m.nodes[at].id < 0 {
		m.nodes[at].id, m.nodes[at].class = id, int32(slices.Index(m.lengths, len(s)))
	}
}

func (m *matcher) child(at int32, b byte) int32 {
	for c := m.nodes[at].child; c != 0; c = m.nodes[c].sibling {
		if m.nodes[c].byte == b {
			return c
		}
	}
	return 0
}

// cut is a token found at text[lo:hi].
type cut struct {
	lo, hi int
	id     int32
}

// finder is the scratch memory of one text's search.
type finder struct {
	places []int    // where some token stands
	masks  []uint64 // of each place, a bit for each length that stands there
	any    []uint64 // lengths that stand anywhere
	taken  []bool   // by byte of the text
	cuts   []cut
}

// find returns the tokens to cut out of text, in order, without those that skip says; they hold until the next call.
func (f *finder) find(m *matcher, text string, skip func(cut) bool) []cut {
	f.cuts = f.cuts[:0]
	f.candidates(m, text)
	if len(f.places) == 0 {
		return nil
	}
	words := m.words()
	f.taken = append(f.taken[:0], make([]bool, len(text))...)
	for class, n := range m.lengths {
		if f.any[class/64]&(1<<(class%64)) == 0 {
			continue
		}
		for i, lo := range f.places {
			// What is taken already is at least as long, so it covers an end of whatever it overlaps.
			if f.masks[i*words+class/64]&(1<<(class%64)) == 0 || f.taken[lo] || f.taken[lo+n-1] {
				continue
			}
			c := cut{lo, lo + n, m.lookup(text[lo : lo+n])}
			if skip(c) {
				continue
			}
			for j := lo; j < lo+n; j++ {
				f.taken[j] = true
			}
			f.cuts = append(f.cuts, c)
		}
	}
	slices.SortFunc(f.cuts, func(a, b cut) int { return cmp.Compare(a.lo, b.lo) })
	return f.cuts
}

func (m *matcher) words() int { return (len(m.lengths) + 63) / 64 }

// candidates finds the places where some token stands.
func (f *finder) candidates(m *matcher, text string) {
	words := m.words()
	f.places, f.masks = f.places[:0], f.masks[:0]
	f.any = append(f.any[:0], make([]uint64, words)...)
	for lo := range len(text) {
		if !m.starts[text[lo]] {
			continue
		}
		at, i := m.child(0, text[lo]), lo+1
		found := false
		for ; at != 0; i++ {
			if nd := &m.nodes[at]; nd.id >= 0 {
				if !found {
					f.places = append(f.places, lo)
					f.masks = append(f.masks, make([]uint64, words)...)
					found = true
				}
				f.masks[len(f.masks)-words+int(nd.class/64)] |= 1 << (nd.class % 64)
				f.any[nd.class/64] |= 1 << (nd.class % 64)
			}
			if i == len(text) {
				break
			}
			at = m.child(at, text[i])
		}
	}
}

func (m *matcher) lookup(s string) int32 {
	at := int32(0)
	for i := range len(s) {
		at = m.child(at, s[i])
	}
	return m.nodes[at].id
}
