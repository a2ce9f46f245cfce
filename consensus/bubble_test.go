package consensus

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// network is between the nodes of a bubble: every message takes its time, some are lost, links can be cut one way.
type network struct {
	mu   sync.Mutex
	rng  *rand.Rand
	loss float64
	cut  map[[2]raft.ServerAddress]bool
}

func (n *network) hop(from, to raft.ServerAddress) error {
	n.mu.Lock()
	takes := time.Duration(100+n.rng.IntN(900)) * time.Microsecond
	lost := n.cut[[2]raft.ServerAddress{from, to}] || n.rng.Float64() < n.loss
	n.mu.Unlock()
	time.Sleep(takes)
	if lost {
		time.Sleep(50 * time.Millisecond)
		return errors.New("lost")
	}
	return nil
}

// isolate cuts a node off, or only the way to it or from it.
func (n *network) isolate(node raft.ServerAddress, to, from bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = map[[2]raft.ServerAddress]bool{}
	for i := range 3 {
		other := raft.ServerAddress(fmt.Sprintf("n%d", i))
		n.cut[[2]raft.ServerAddress{other, node}] = to
		n.cut[[2]raft.ServerAddress{node, other}] = from
	}
}

// wire is a node's end of the network.
type wire struct {
	*raft.InmemTransport
	net *network
}

func (w *wire) both(to raft.ServerAddress, call func() error) error {
	if err := w.net.hop(w.LocalAddr(), to); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	return w.net.hop(to, w.LocalAddr())
}

// AppendEntriesPipeline keeps raft to calls that can be lost one by one.
func (w *wire) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (w *wire) AppendEntries(id raft.ServerID, to raft.ServerAddress, a *raft.AppendEntriesRequest,
	r *raft.AppendEntriesResponse) error {
	return w.both(to, func() error { return w.InmemTransport.AppendEntries(id, to, a, r) })
}

func (w *wire) RequestVote(id raft.ServerID, to raft.ServerAddress, a *raft.RequestVoteRequest,
	r *raft.RequestVoteResponse) error {
	return w.both(to, func() error { return w.InmemTransport.RequestVote(id, to, a, r) })
}

func (w *wire) RequestPreVote(id raft.ServerID, to raft.ServerAddress, a *raft.RequestPreVoteRequest,
	r *raft.RequestPreVoteResponse) error {
	return w.both(to, func() error { return w.InmemTransport.RequestPreVote(id, to, a, r) })
}

func (w *wire) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, a *raft.InstallSnapshotRequest,
	r *raft.InstallSnapshotResponse, data io.Reader) error {
	return w.both(to, func() error { return w.InmemTransport.InstallSnapshot(id, to, a, r, data) })
}

// bubble is a cluster in memory and virtual time.
type bubble struct {
	net   *network
	nodes []*Node
}

func newBubble(t *testing.T, size int, seed uint64) *bubble {
	b := &bubble{net: &network{rng: rand.New(rand.NewPCG(seed, 1))}}
	var servers []raft.Server
	var ends []*raft.InmemTransport
	for i := range size {
		id := fmt.Sprintf("n%d", i)
		_, end := raft.NewInmemTransport(raft.ServerAddress(id))
		ends = append(ends, end)
		servers = append(servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	for i, end := range ends {
		for _, other := range ends {
			if end != other {
				end.Connect(other.LocalAddr(), other)
			}
		}
		store := raft.NewInmemStore()
		n, err := start(Config{ID: string(servers[i].ID)}.withDefaults(), &seat{
			log: store, stable: store, snapshots: raft.NewInmemSnapshotStore(),
			transport: &wire{end, b.net}, founders: servers, close: end.Close,
		})
		if err != nil {
			t.Fatal(err)
		}
		b.nodes = append(b.nodes, n)
	}
	return b
}

// leader waits for a node that is ready and is not the one given.
func (b *bubble) leader(not *Node) *Node {
	for {
		for _, n := range b.nodes {
			if n != not && n.Ready() == nil {
				return n
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (b *bubble) close(t *testing.T) {
	for _, n := range b.nodes {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}
