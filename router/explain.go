package router

import "sync"

// keptDecisions is how many requests can be asked about.
const keptDecisions = 512

// decisions is a ring of the last placement of each of the last requests (promise P10).
type decisions struct {
	mu   sync.Mutex
	next int
	ring [keptDecisions]struct {
		request string
		d       decision
	}
	at map[string]int
}

// keep replaces what is known of a request's placement.
func (s *decisions) keep(request string, d decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, known := s.at[request]
	if !known {
		i = s.next
		s.next = (s.next + 1) % keptDecisions
		if old := s.ring[i].request; old != "" {
			delete(s.at, old)
		}
		s.at[request] = i
	}
	s.ring[i].request, s.ring[i].d = request, d
}

// of is the last placement of a request.
func (s *decisions) of(request string) (decision, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.at[request]
	if !ok {
		return decision{}, false
	}
	return s.ring[i].d, true
}
