package sampler

// less orders candidates for cutting: by value, then by id, so that of equal ones the lower id is cut first, as a stable
// ascending sort does.
func less(a, b candidate) bool { return a.x < b.x || a.x == b.x && a.id < b.id }

// heapify makes heap a max-heap of keep.
func (s *Sampler) heapify() {
	s.heap = append(s.heap[:0], s.keep...)
	for i := len(s.heap)/2 - 1; i >= 0; i-- {
		s.sift(i)
	}
}

// pop takes the largest candidate off the heap.
func (s *Sampler) pop() candidate {
	c, n := s.heap[0], len(s.heap)-1
	s.heap[0] = s.heap[n]
	s.heap = s.heap[:n]
	s.sift(0)
	return c
}

func (s *Sampler) sift(i int) {
	for {
		m, l := i, 2*i+1
		for c := l; c <= l+1 && c < len(s.heap); c++ {
			if less(s.heap[m], s.heap[c]) {
				m = c
			}
		}
		if m == i {
			return
		}
		s.heap[i], s.heap[m] = s.heap[m], s.heap[i]
		i = m
	}
}
