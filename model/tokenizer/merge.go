package tokenizer

// merger joins the characters of a run, two neighbours at a time, the highest score first and the leftmost among equals,
// until no two make a token (SentencePiece's BPE, as llama.cpp carries it out).
type merger struct {
	syms []sym
	heap []pair
	sums []uint64 // hashes of the run's prefixes
}

// sym is a piece of the run: s[at:at+n]; n = 0 once it was joined to the one before it.
type sym struct {
	at, n      int
	prev, next int32
	id         int32 // token, where merges go by ranks
}

// pair is two neighbours that make a token; size tells a stale one.
type pair struct {
	score       float32
	left, right int32
	size        int
	id          int32 // what they make
}

func (p pair) before(q pair) bool { return p.score > q.score || p.score == q.score && p.left < q.left }

func (m *merger) run(ids []int32, t *Tokenizer, s []byte) []int32 {
	m.syms, m.heap, m.sums = m.syms[:0], m.heap[:0], prefixSums(m.sums[:0], s)
	for at := 0; at < len(s); {
		_, n := symbol(s[at:])
		i := int32(len(m.syms))
		m.syms = append(m.syms, sym{at, n, i - 1, i + 1, 0})
		at += n
	}
	m.syms[len(m.syms)-1].next = -1
	for i := 1; i < len(m.syms); i++ {
		m.consider(t, s, int32(i-1), int32(i))
	}
	for p, ok := m.join(); ok; p, ok = m.join() {
		m.consider(t, s, m.syms[p.left].prev, p.left)
		m.consider(t, s, p.left, m.syms[p.left].next)
	}
	for i := int32(0); i >= 0; i = m.syms[i].next {
		lo, hi := m.syms[i].at, m.syms[i].at+m.syms[i].n
		if id, ok := t.table.find(s, m.sums, lo, hi); ok {
			ids = append(ids, id)
			continue
		}
		for _, b := range s[lo:hi] {
			ids = append(ids, t.bytes[b])
		}
	}
	return ids
}

// join takes the best pair off the heap that is not stale and makes it one symbol, the left; not ok if there is none.
func (m *merger) join() (p pair, ok bool) {
	for len(m.heap) > 0 {
		p = m.pop()
		l, r := &m.syms[p.left], &m.syms[p.right]
		if l.n == 0 || r.n == 0 || l.n+r.n != p.size {
			continue
		}
		l.n, r.n = p.size, 0
		if l.next = r.next; l.next >= 0 {
			m.syms[l.next].prev = p.left
		}
		return p, true
	}
	return p, false
}

// consider enters two neighbours if they make a token.
func (m *merger) consider(t *Tokenizer, s []byte, left, right int32) {
	if left < 0 || right < 0 {
		return
	}
	l, r := m.syms[left], m.syms[right]
	if id, ok := t.table.find(s, m.sums, l.at, r.at+r.n); ok {
		m.push(pair{t.spec.Scores[id], left, right, l.n + r.n, id})
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
