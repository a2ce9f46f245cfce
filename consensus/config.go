package consensus

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus/ledger"
)

// Config is what a node needs to start.
type Config struct {
	// ID is the node's name in the cluster, for ever.
	ID string
	// Dir holds the log and the snapshots; it is made if it is missing. One process at a time.
	Dir string
	// Bind is host:port of the raft transport. Zero: 127.0.0.1:0.
	Bind string
	// RPC is host:port of the gRPC server that RegisterRPC's service is served by; not asked for if there are peers.
	RPC string
	// Peers are all replicas that found the cluster, this one included, or of a cluster that has a member of this name. None:
	// a cluster of one.
	Peers []Peer
	// Dial is how the gRPC servers of others are reached.
	Dial []grpc.DialOption

	// TickInterval is the longest time between two ticks of the leader; a third of the shortest lease if that is less.
	// Zero: 500 ms.
	TickInterval time.Duration
	// SnapshotThreshold is how many log entries make a snapshot worth it; as many stay after one. Zero: 8192.
	SnapshotThreshold uint64
	// SnapshotInterval is how often that is looked at. Zero: 30 s.
	SnapshotInterval time.Duration

	// Clock is the leader's monotonic clock. Zero: the machine's.
	Clock Clock
	// Random is where the cluster id, the hash key and nonces come from. Zero: crypto/rand.
	Random io.Reader
	// Audit looks at every proposal as it is applied. Zero: nobody does.
	Audit Audit
	// Log gets what operators should see. Zero: nothing.
	Log *slog.Logger
}

// Audit is shown each applied proposal with its result and the state after it, on the way of all others: for tests and
// simulations. It must not write to what it is shown, nor keep the state.
type Audit func(*ledger.State, *ledgerv1.Proposal, *ledgerv1.Result)

// Clock tells time that only goes forward.
type Clock interface {
	Now() time.Time
	// After gives a value once d has passed.
	After(d time.Duration) <-chan time.Time
}

// wall is the machine's clock.
type wall struct{}

func (wall) Now() time.Time                         { return time.Now() }
func (wall) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Validate joins everything that is wrong with c.
func (c Config) Validate() error {
	var faults []error
	if c.ID == "" {
		faults = append(faults, errors.New("no node id"))
	}
	if c.Dir == "" {
		faults = append(faults, errors.New("no directory"))
	}
	if c.TickInterval < 0 || c.TickInterval > 0 && c.TickInterval < time.Millisecond {
		faults = append(faults, fmt.Errorf("tick interval %v: want ≥ 1 ms", c.TickInterval))
	}
	if c.SnapshotInterval < 0 || c.SnapshotInterval > 0 && c.SnapshotInterval < 5*time.Millisecond {
		faults = append(faults, fmt.Errorf("snapshot interval %v: want ≥ 5 ms", c.SnapshotInterval))
	}
	seen := map[string]bool{}
	for _, p := range c.Peers {
		if seen[p.ID] {
			faults = append(faults, fmt.Errorf("two peers have the id %s", p.ID))
		}
		seen[p.ID] = true
	}
	if len(c.Peers) > 0 && !seen[c.ID] {
		faults = append(faults, fmt.Errorf("%s is none of the peers: the list must have this replica too", c.ID))
	}
	return errors.Join(faults...)
}

// peers are this replica, and with whom it founds a cluster; bound is where raft listens.
func (c Config) peers(bound string) (self Peer, founders []Peer) {
	if len(c.Peers) == 0 {
		self = Peer{ID: c.ID, Raft: bound, RPC: c.RPC}
		return self, []Peer{self}
	}
	founders = slices.Clone(c.Peers)
	slices.SortFunc(founders, func(a, b Peer) int { return strings.Compare(a.ID, b.ID) })
	i := slices.IndexFunc(founders, func(p Peer) bool { return p.ID == c.ID })
	return founders[i], founders
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	if c.Bind == "" {
		c.Bind = "127.0.0.1:0"
	}
	if c.TickInterval == 0 {
		c.TickInterval = 500 * time.Millisecond
	}
	if c.SnapshotThreshold == 0 {
		c.SnapshotThreshold = 8192
	}
	if c.SnapshotInterval == 0 {
		c.SnapshotInterval = 30 * time.Second
	}
	if c.Clock == nil {
		c.Clock = wall{}
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
