package router

import (
	"maps"
	"slices"
	"sync"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// member is a worker that is watched. Only beat and card change, under the lock of members.
type member struct {
	name        string
	incarnation uint64
	info        *ledgerv1.WorkerInfo
	beat        *workerv1.Heartbeat
	card        *card         // nil until it is fetched and checked
	cardFault   string        // why there is none yet
	left        chan struct{} // closed by leave
}

// members are the workers that this router watches, by name.
type members struct {
	mu     sync.Mutex
	byName map[string]*member
	faults map[living]string // why a living one is not watched
	bell   *bell
}

// join makes m the worker's stream, unless there is one of a younger incarnation.
func (s *members) join(m *member) {
	s.mu.Lock()
	if old := s.byName[m.name]; old == nil || old.incarnation <= m.incarnation {
		s.byName[m.name] = m
	}
	delete(s.faults, living{m.name, m.incarnation})
	s.mu.Unlock()
	s.bell.ring()
}

// lost notes why an incarnation is not watched.
func (s *members) lost(at living, why string) {
	s.mu.Lock()
	s.faults[at] = why
	s.mu.Unlock()
	s.bell.ring()
}

// forget drops what is known of an incarnation that has ended.
func (s *members) forget(at living) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.faults, at)
}

// fault is why an incarnation is not watched.
func (s *members) fault(at living) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults[at]
}

// leave takes m out, unless a younger stream has taken its place. It is called once.
func (s *members) leave(m *member) {
	close(m.left)
	s.mu.Lock()
	if s.byName[m.name] == m {
		delete(s.byName, m.name)
	}
	s.mu.Unlock()
	s.bell.ring()
}

// change edits a member.
func (s *members) change(m *member, edit func(*member)) {
	s.mu.Lock()
	edit(m)
	s.mu.Unlock()
	s.bell.ring()
}

// hear keeps a heartbeat; those who wait for room hear of it only if readiness changed.
func (s *members) hear(m *member, beat *workerv1.Heartbeat) {
	s.mu.Lock()
	turned := (m.beat.GetUnready() == "") != (beat.GetUnready() == "")
	m.beat = beat
	s.mu.Unlock()
	if turned {
		s.bell.ring()
	}
}

// snapshot is a copy of all members by name.
func (s *members) snapshot() map[string]member {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]member, len(s.byName))
	for name, m := range s.byName {
		out[name] = *m
	}
	return out
}

// bare are the members without a card, by ascending name.
func (s *members) bare() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*member
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		if m := s.byName[name]; m.card == nil {
			out = append(out, m)
		}
	}
	return out
}

// serves says whether the worker has the model under that name.
func serves(info *ledgerv1.WorkerInfo, model string) bool {
	return slices.Contains(info.GetModels(), model)
}

// holds says whether m is still its worker's stream.
func (s *members) holds(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[m.name] == m
}
