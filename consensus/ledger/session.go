package ledger

import (
	"bytes"
	"slices"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// MaxUnacked is the most results that a session keeps for repeats. A client that does not acknowledge gets no further.
const MaxUnacked = 1024

// maxNonce bounds what a client can make the log remember, in bytes.
const maxNonce = 64

// session is a client of the log: a router's lease, or a worker's incarnation.
type session struct {
	id      uint64
	router  string
	worker  *worker // nil for a router
	nonce   []byte
	leaseMs uint64
	leftMs  uint64
	last    uint64             // highest sequence applied
	results []*ledgerv1.Result // of the sequences last − len + 1 … last
}

// once lets through what is next in its session, and nothing else (I7).
func (s *State) once(p *ledgerv1.Proposal) *ledgerv1.Result {
	c := s.session(p.Session)
	switch {
	case c == nil:
		return s.refuse(ledgerv1.RefusalCode_REFUSAL_CODE_FENCED, "no such session, or it has ended")
	case p.Sequence <= c.last:
		return s.repeat(c, p.Sequence)
	case p.Sequence > c.last+1:
		return s.gap(c.last)
	}
	forgotten := max(c.last-uint64(len(c.results)), min(p.Acked, c.last))
	if c.last-forgotten >= MaxUnacked {
		return s.refuse(ledgerv1.RefusalCode_REFUSAL_CODE_UNACKNOWLEDGED, "too many results are not acknowledged")
	}
	c.results = slices.Delete(c.results, 0, len(c.results)-int(c.last-forgotten))
	s.revision++
	c.last++
	r := s.run(c, p.Command)
	s.resume()
	c.results = append(c.results, r)
	return r
}

// repeat answers a sequence that was applied before.
func (s *State) repeat(c *session, sequence uint64) *ledgerv1.Result {
	forgotten := c.last - uint64(len(c.results))
	if sequence <= forgotten {
		return s.refuse(ledgerv1.RefusalCode_REFUSAL_CODE_FORGOTTEN, "the result was acknowledged and is forgotten")
	}
	return c.results[sequence-forgotten-1]
}

// openRouter starts a router's session. The session of an earlier process of that router runs out by itself: a name is
// for people, the nonce tells processes apart.
func (s *State) openRouter(m *ledgerv1.OpenRouter) *ledgerv1.Result {
	if s.clusterID == nil {
		return s.invalid("the cluster has no name yet")
	}
	if err := checkClient("router", m.GetRouter(), m.GetNonce(), m.GetLeaseMs()); err != nil {
		return s.invalid("open router: " + err.Error())
	}
	for _, c := range s.sessions {
		if c.worker == nil && c.router == m.Router && bytes.Equal(c.nonce, m.Nonce) {
			c.leftMs = c.leaseMs
			return s.opened(c)
		}
	}
	return s.opened(s.open(&session{router: m.Router, nonce: m.Nonce, leaseMs: m.LeaseMs}))
}

// open numbers a session and gives it its first term.
func (s *State) open(c *session) *session {
	c.id, c.leftMs = s.nextSession, c.leaseMs
	s.nextSession++
	s.sessions = append(s.sessions, c)
	return c
}

// tick lets time pass: sessions that were heard from get a fresh term, the others come nearer to their end, and workers
// that were fenced before to being forgotten.
func (s *State) tick(m *ledgerv1.Tick) *ledgerv1.Result {
	delta := min(m.GetDeltaMs(), maxTick)
	s.clockMs += delta
	for _, w := range s.workers {
		w.forgetMs -= min(w.forgetMs, delta)
	}
	var expired []*session
	for _, c := range s.sessions {
		if _, live := slices.BinarySearch(m.GetLive(), c.id); live {
			c.leftMs = c.leaseMs
			continue
		}
		c.leftMs -= min(c.leftMs, delta)
		if c.leftMs == 0 {
			expired = append(expired, c)
		}
	}
	for _, c := range expired {
		s.close(c)
	}
	s.forget()
	return s.ok()
}

// close ends a session for ever. Of a router, what it had not handed over waits for its worker's word; of a worker,
// everything goes.
func (s *State) close(c *session) {
	s.sessions = slices.DeleteFunc(s.sessions, func(x *session) bool { return x == c })
	if c.worker != nil {
		s.fence(c.worker)
		return
	}
	for _, r := range s.reservations {
		if r.router == c.id && r.state == ledgerv1.ReservationState_RESERVATION_STATE_RESERVED {
			r.orphan() // into a sorted list: the map's order does not show
		}
	}
}
