package router

import (
	"fmt"
	"sync"
	"time"
)

const (
	// smallBody is the bytes up to which a body needs no room among the large ones.
	smallBody = 64 << 10
	// smallBodies are the bytes of all small bodies that are being read or parsed.
	smallBodies = 32 << 20
	// adminBodies are the bytes of all bodies of operators.
	adminBodies = 8 << 20
)

// bodies bound the bytes of bodies that are being read or parsed. Small ones have a room of their own, so that large ones
// keep none of them out. What was parsed is bounded by the queue.
type bodies struct{ small, large *room }

func newBodies(small, large int64) *bodies {
	return &bodies{small: newRoom(small), large: newRoom(large)}
}

// of is the room of a body of that many bytes.
func (b *bodies) of(bytes int64) *room {
	if bytes <= smallBody {
		return b.small
	}
	return b.large
}

// room is a bound on bytes, with a share of it for each tenant.
type room struct {
	mu          sync.Mutex
	used, limit int64
	byTenant    map[string]int64
}

func newRoom(limit int64) *room { return &room{limit: limit, byTenant: map[string]int64{}} }

// take is without waiting: whoever waited with half a body would hold what another one needs. A tenant, if it shares the
// room with others, may have half of what they leave: however much it sends, there is room for the next one (Choudhury
// and Hahne, Dynamic queue length thresholds, 1998).
func (s *room) take(tenant string, shares bool, bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.byTenant[tenant]
	most := s.limit - (s.used - mine)
	if shares {
		most /= 2
	}
	if mine+bytes > most {
		return &Error{kind: kindQueueFull, RetryAfter: time.Second, Numbers: map[string]any{
			"body_bytes": mine, "body_bytes_limit": most, "need": bytes,
		}, Message: fmt.Sprintf("too many large requests are being read: they have %d of %d bytes; try again later", mine, most)}
	}
	s.used += bytes
	s.byTenant[tenant] += bytes
	return nil
}

func (s *room) give(tenant string, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= bytes
	if s.byTenant[tenant] -= bytes; s.byTenant[tenant] == 0 {
		delete(s.byTenant, tenant)
	}
}
