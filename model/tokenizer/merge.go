package tokenizer

// merger joins the characters of a run, two neighbours at a time, the highest score first and the leftmost among equals,
// until no two make a token (SentencePiece's BPE, as llama.cpp carries it out). Byte-level vocabularies join bytes, the
// lowest rank first: their scores are the ranks' negatives.
//
// A long run is merged a window at a time. That is exact: what two neighbours become depends on themselves alone, so a
// sequence of tokens is a text's own if and only if each two neighbours, merged by themselves, give these two again.
type merger struct {
	syms []sym
	heap []pair
	sums []uint64 // hashes of the window's prefixes
	join *merger  // of two neighbours from two windows
}

// sym is a piece of the window: s[at:at+n]; n = 0 once it was joined to the one before it.
type sym struct {
	at, n      int32
	prev, next int32
	id         int32 // token, where merges go by ranks
}

// pair is two neighbours that make a token; size tells a stale one.
type pair struct {
	score float32
	left  int32
	size  int32
	id    int32 // what they make
}

func (p pair) before(q pair) bool { return p.score > q.score || p.score == q.score && p.left < q.left }

// window is the bytes of a run that are merged together; the last eighth of them is merged again with what follows.
const window = 1 << 14

// joint is where a window begins: before s, after the token last.
type joint struct {
	s, last []byte
	ids     int // before it
	size    int // of the window
}

// run appends the ids of a run, merged in windows of so many bytes; over ends it early.
func (m *merger) run(ids []int32, t *Tokenizer, s []byte, window int, over func([]int32) bool) []int32 {
	var done []joint
	at := joint{s: s, size: window, ids: len(ids)}
	for {
		n := m.begin(t, at.s, at.size)
		m.merge(t, at.s[:n])
		if at.last != nil && !m.apart(t, at.last, at.s[:m.syms[0].n]) {
			// The two windows do not fit together: the one before is made again, larger.
			at, done = done[len(done)-1], done[:len(done)-1]
			at.size *= 2
			ids = ids[:at.ids]
			continue
		}
		upTo := n
		if n < len(at.s) {
			upTo = max(n-n/8, 1)
		}
		next := joint{size: window}
		ids, next.s, next.last = m.emit(ids, t, at.s, n, upTo)
		if len(next.s) == 0 || over(ids) {
			return ids
		}
		next.ids = len(ids)
		done, at = append(done, at), next
	}
}

// begin makes symbols of at least size bytes of s, or of all, and returns how many.
func (m *merger) begin(t *Tokenizer, s []byte, size int) int {
	m.syms = m.syms[:0]
	at := 0
	for at < len(s) && at < size {
		n, id, i := 1, int32(0), int32(len(m.syms))
		if t.classes == nil {
			_, n = symbol(s[at:])
		} else {
			id = t.bytes[s[at]]
		}
		m.syms = append(m.syms, sym{int32(at), int32(n), i - 1, i + 1, id})
		at += n
	}
	m.syms[len(m.syms)-1].next = -1
	return at
}

// merge joins the symbols of s until no two make a token.
func (m *merger) merge(t *Tokenizer, s []byte) {
	m.heap = m.heap[:0]
	if t.classes == nil {
		m.sums = prefixSums(m.sums[:0], s)
	}
	for i := range len(m.syms) - 1 {
		m.consider(t, s, int32(i))
	}
	for len(m.heap) > 0 {
		p := m.pop()
		l := &m.syms[p.left]
		if l.n == 0 || l.next < 0 || l.n+m.syms[l.next].n != p.size {
			continue // stale
		}
		r := &m.syms[l.next]
		l.n, r.n, l.id = p.size, 0, p.id
		if l.next = r.next; l.next >= 0 {
			m.syms[l.next].prev = p.left
		}
		m.consider(t, s, l.prev)
		m.consider(t, s, p.left)
	}
}

// apart says that two tokens stay two, and the same, where they are neighbours.
func (m *merger) apart(t *Tokenizer, left, right []byte) bool {
	if m.join == nil {
		m.join = &merger{}
	}
	both := append(append(make([]byte, 0, len(left)+len(right)), left...), right...)
	m.join.begin(t, both, len(both))
	m.join.merge(t, both)
	first := m.join.syms[0]
	return int(first.n) == len(left) && first.next >= 0 && m.join.syms[first.next].next < 0
}

// emit appends the ids of the symbols of s[:n] that begin before byte upTo, and returns what follows them, and the last.
func (m *merger) emit(ids []int32, t *Tokenizer, s []byte, n, upTo int) (out []int32, rest, last []byte) {
	for i := int32(0); i >= 0 && int(m.syms[i].at) < upTo; i = m.syms[i].next {
		y := &m.syms[i]
		lo, hi := int(y.at), int(y.at+y.n)
		rest, last = s[hi:], s[lo:hi]
		if t.classes != nil {
			ids = append(ids, y.id)
			continue
		}
		if id, ok := t.table.find(s[:n], m.sums, lo, hi); ok {
			ids = append(ids, id)
			continue
		}
		for _, b := range last {
			ids = append(ids, t.bytes[b])
		}
	}
	return ids, rest, last
}

// consider enters a symbol and the one after it if they make a token.
func (m *merger) consider(t *Tokenizer, s []byte, left int32) {
	if left < 0 || m.syms[left].next < 0 {
		return
	}
	l := &m.syms[left]
	r := &m.syms[l.next]
	if t.classes != nil {
		if rank, id, ok := t.ranks.find(l.id, r.id); ok {
			m.push(pair{-float32(rank), left, l.n + r.n, id})
		}
		return
	}
	if id, ok := t.table.find(s, m.sums, int(l.at), int(r.at+r.n)); ok {
		m.push(pair{t.spec.Scores[id], left, l.n + r.n, id})
	}
}

func (m *merger) push(p pair) {
	m.heap = append(m.heap, p)
	i := len(m.heap) - 1
	for i > 0 && p.before(m.heap[(i-1)/2]) {
		m.heap[i] = m.heap[(i-1)/2]
		i = (i - 1) / 2
	}
	m.heap[i] = p
}

func (m *merger) pop() pair {
	top, n := m.heap[0], len(m.heap)-1
	p := m.heap[n]
	m.heap = m.heap[:n]
	i := 0
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && m.heap[c+1].before(m.heap[c]) {
			c++
		}
		if !m.heap[c].before(p) {
			break
		}
		m.heap[i] = m.heap[c]
		i = c
	}
	if n > 0 {
		m.heap[i] = p
	}
	return top
}
