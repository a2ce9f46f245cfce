package router

// stopMatcher finds stop strings in text that comes in parts: an Aho–Corasick automaton, whose work is linear in the text
// whatever the stop strings are (Aho, Corasick: Efficient String Matching, CACM 18(6), 1975). Many texts may be matched
// at once; each keeps its own state, which begins as 0.
type stopMatcher struct {
	stops []string
	nodes []stopNode
}

// stopNode is a prefix of a stop string.
type stopNode struct {
	byte           byte
	child, sibling int32 // 0 if none
	fail           int32 // longest proper end of the prefix that is a prefix too
	stop           int32 // longest stop string that the prefix ends with, −1 if none
	held           int32 // bytes of the longest end that some stop string begins with, and is not all of
}

// newStopMatcher returns nil if there are no stop strings, and matches nothing then.
func newStopMatcher(stops []string) *stopMatcher {
	if len(stops) == 0 {
		return nil
	}
	m := &stopMatcher{stops: stops, nodes: []stopNode{{stop: -1}}}
	for i, s := range stops {
		m.insert(int32(i), s)
	}
	m.link()
	return m
}

func (m *stopMatcher) insert(stop int32, s string) {
	at := int32(0)
	for i := range len(s) {
		next := m.child(at, s[i])
		if next == 0 {
			next = int32(len(m.nodes))
			m.nodes = append(m.nodes, stopNode{byte: s[i], sibling: m.nodes[at].child, stop: -1})
			m.nodes[at].child = next
		}
		at = next
	}
	m.nodes[at].stop = stop
}

// link fills in what a prefix has from shorter ones, breadth first.
func (m *stopMatcher) link() {
	queue := []int32{0}
	for depth := int32(0); len(queue) > 0; depth++ {
		var deeper []int32
		for _, at := range queue {
			n := &m.nodes[at]
			if at != 0 {
				fail := &m.nodes[n.fail]
				if n.stop < 0 {
					n.stop = fail.stop
				}
				if n.held = fail.held; n.child != 0 {
					n.held = depth
				}
			}
			for c := n.child; c != 0; c = m.nodes[c].sibling {
				if at != 0 {
					m.nodes[c].fail = m.step(n.fail, m.nodes[c].byte)
				}
				deeper = append(deeper, c)
			}
		}
		queue = deeper
	}
}

func (m *stopMatcher) child(at int32, b byte) int32 {
	for c := m.nodes[at].child; c != 0; c = m.nodes[c].sibling {
		if m.nodes[c].byte == b {
			return c
		}
	}
	return 0
}

// step is the state after one more byte.
func (m *stopMatcher) step(at int32, b byte) int32 {
	for {
		if c := m.child(at, b); c != 0 || at == 0 {
			return c
		}
		at = m.nodes[at].fail
	}
}

// find takes the next part of a text. Of the stop strings that end in it, found is the one that begins first, of those
// the longest, and begin where, from the part's first byte; it is "" if there is none.
func (m *stopMatcher) find(state int32, part string) (next int32, begin int, found string) {
	if m == nil {
		return 0, 0, ""
	}
	for i := range len(part) {
		state = m.step(state, part[i])
		stop := m.nodes[state].stop
		if stop < 0 {
			continue
		}
		if s := m.stops[stop]; found == "" || i+1-len(s) <= begin {
			begin, found = i+1-len(s), s
		}
	}
	return state, begin, found
}

// held is how many of the last bytes may yet become a stop string.
func (m *stopMatcher) held(state int32) int {
	if m == nil {
		return 0
	}
	return int(m.nodes[state].held)
}
