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

// find returns the tokens to cut out of text, in order.
func (m *matcher) find(text string) []cut {
	places, masks := m.candidates(text)
	if len(places) == 0 {
		return nil
	}
	words := (len(m.lengths) + 63) / 64
	taken := make([]bool, len(text))
	var cuts []cut
	for class, n := range m.lengths {
		for i, lo := range places {
			// What is taken already is at least as long, so it covers an end of whatever it overlaps.
			if masks[i*words+class/64]&(1<<(class%64)) == 0 || taken[lo] || taken[lo+n-1] {
				continue
			}
			for j := lo; j < lo+n; j++ {
				taken[j] = true
			}
			cuts = append(cuts, cut{lo, lo + n, m.lookup(text[lo : lo+n])})
		}
	}
	slices.SortFunc(cuts, func(a, b cut) int { return cmp.Compare(a.lo, b.lo) })
	return cuts
}

// candidates are the places where some token stands, with a bit for each length that stands there.
func (m *matcher) candidates(text string) (places []int, masks []uint64) {
	words := (len(m.lengths) + 63) / 64
	row := make([]uint64, words)
	for lo := range len(text) {
		if !m.starts[text[lo]] {
			continue
		}
		clear(row)
		found := false
		for at, i := m.child(0, text[lo]), lo+1; at != 0; i++ {
			if nd := &m.nodes[at]; nd.id >= 0 {
				row[nd.class/64] |= 1 << (nd.class % 64)
				found = true
			}
			if i == len(text) {
				break
			}
			at = m.child(at, text[i])
		}
		if found {
			places, masks = append(places, lo), append(masks, row...)
		}
	}
	return places, masks
}

func (m *matcher) lookup(s string) int32 {
	at := int32(0)
	for i := range len(s) {
		at = m.child(at, s[i])
	}
	return m.nodes[at].id
}
