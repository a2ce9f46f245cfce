package worker

// spent remembers reservations that are over here: ended, or refused for ever. It is bounded; what it forgets, the ledger
// still refuses when it is claimed.
type spent struct {
	ids  map[uint64]bool
	ring []uint64
	next int
}

const maxSpent = 1 << 16

func newSpent() *spent { return &spent{ids: map[uint64]bool{}} }

func (s *spent) has(id uint64) bool { return s.ids[id] }

func (s *spent) add(id uint64) {
	if s.ids[id] {
		return
	}
	s.ids[id] = true
	if len(s.ring) < maxSpent {
		s.ring = append(s.ring, id)
		return
	}
	delete(s.ids, s.ring[s.next])
	s.ring[s.next] = id
	s.next = (s.next + 1) % maxSpent
}
