package sim

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/kvpool"
)

// Scenario is all that a run is given. Times count from the moment at which every worker serves.
type Scenario struct {
	Seed     uint64 // of delays of the network and the disk
	Geometry kvpool.Geometry
	Slots    int // of each worker
	Guesses  int // that a branch may make in a step
	Workers  []Worker
	Requests []Request
	Caps     map[string]int // pages of share groups; without one there is none
	Faults   []Fault
	Network  time.Duration // most of a usual delay of what is sent; 0: 1 ms
	Disk     time.Duration // most of a write to the ledger's log; 0: none
	// StepTimeout is that of all workers; 0 for 30 s.
	StepTimeout time.Duration
}

func (s *Scenario) stepTimeout() time.Duration {
	if s.StepTimeout > 0 {
		return s.StepTimeout
	}
	return 30 * time.Second
}

// patience is how long a client waits for its answer: on slow devices longer.
func (s *Scenario) patience() time.Duration {
	slowest := 1.0
	for _, w := range s.Workers {
		slowest = min(slowest, w.Speed)
	}
	return time.Duration(float64(patience) / slowest)
}

// Worker is a machine, named w1, w2, and so on.
type Worker struct {
	Pages int
	Speed float64 // over that of the cost model
}

// Request is what a client asks, named q0, q1, and so on.
type Request struct {
	At      time.Duration
	Group   string // share group, each with a tenant of its own; all of a scenario's requests have one, or none has
	Prompts [][]int32
	Max     int // tokens of a choice
	N       int // choices of a prompt
	Stop    string
	Greedy  bool // the likeliest token each time: one of few, so that it can be guessed
	Seed    uint64
	Stream  bool
	Leaves  time.Duration // how long after At the client leaves; 0: never
}

// Fault is something that happens to a host, for a while.
type Fault struct {
	At, For time.Duration
	Host    string // w1 … or r1
	Kind    FaultKind
}

// FaultKind is what happens.
type FaultKind uint8

const (
	// Kill ends the host's process without a word; another is started when the time is over, with the same disk and none of
	// the memory.
	Kill FaultKind = iota
	// Hold keeps all that the host sends and is sent on its way until the time is over.
	Hold
	// Hang keeps the step that a worker runs then, or its next one, from ever ending.
	Hang
)

func (k FaultKind) String() string { return [...]string{"killed", "held", "hangs"}[k] }

func workerName(i int) string { return fmt.Sprintf("w%d", i+1) }

// modelLen is the longest branch that workers allow.
const modelLen = 512

// tenants are those of the scenario's share groups. Every second one has three times the weight of the others.
func (s *Scenario) tenants() (out []*ledgerv1.Tenant) {
	for _, q := range s.Requests {
		if q.Group == "" || slices.ContainsFunc(out, func(t *ledgerv1.Tenant) bool { return t.Id == q.Group }) {
			continue
		}
		sum := sha256.Sum256([]byte(keyOf(q.Group)))
		out = append(out, &ledgerv1.Tenant{
			Id: q.Group, Weight: uint32(1 + 2*(len(out)%2)), Cap: uint64(s.Caps[q.Group]), Keys: [][]byte{sum[:]},
		})
	}
	return out
}

// keyOf is the API key of a share group's tenant.
func keyOf(group string) string { return "key-of-tenant-" + group }

// wholeLife is the least cap under which each request of a share group fits.
func (s *Scenario) wholeLife(group string) (pages int) {
	for _, q := range s.Requests {
		for _, p := range q.Prompts {
			if q.Group == group {
				pages = max(pages, min(q.N, s.Slots)*s.Geometry.Demand(len(p)+q.Max).Pages)
			}
		}
	}
	return pages
}

// fits is the least pages of a worker on which the longest of the requests fits alone.
func fits(g kvpool.Geometry, requests []Request) int {
	most := 0
	for _, q := range requests {
		for _, p := range q.Prompts {
			most = max(most, g.Demand(len(p)+q.Max).Pages)
		}
	}
	return g.Overhead() + most
}
