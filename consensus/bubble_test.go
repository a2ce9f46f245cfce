package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// network is between the nodes of a bubble: every message takes its time, some are lost, links can be cut one way.
type network struct {
	mu   sync.Mutex
	rng  *rand.Rand
	loss float64
	cut  map[[2]raft.ServerAddress]bool
	hung map[raft.ServerAddress]bool // whose gRPC connections swallow everything
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

// lose makes a part of the messages go astray.
func (n *network) lose(part float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loss = part
}

// hang makes the lines of a node's gRPC server and clients hang, while raft's go on: nothing breaks, nothing arrives.
func (n *network) hang(node raft.ServerAddress, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hung == nil {
		n.hung = map[raft.ServerAddress]bool{}
	}
	n.hung[node] = on
}

func (n *network) hangs(node raft.ServerAddress) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hung[node]
}

// isolate cuts a node off, or only the way to it or from it.
func (n *network) isolate(node raft.ServerAddress, to, from bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = map[[2]raft.ServerAddress]bool{}
	for i := range 5 {
		other := addressOf(i)
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
	to = peerAt("", to).address()
	return w.both(to, func() error { return w.InmemTransport.AppendEntries(id, to, a, r) })
}

func (w *wire) RequestVote(id raft.ServerID, to raft.ServerAddress, a *raft.RequestVoteRequest,
	r *raft.RequestVoteResponse) error {
	to = peerAt("", to).address()
	return w.both(to, func() error { return w.InmemTransport.RequestVote(id, to, a, r) })
}

func (w *wire) RequestPreVote(id raft.ServerID, to raft.ServerAddress, a *raft.RequestPreVoteRequest,
	r *raft.RequestPreVoteResponse) error {
	to = peerAt("", to).address()
	return w.both(to, func() error { return w.InmemTransport.RequestPreVote(id, to, a, r) })
}

func (w *wire) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, a *raft.InstallSnapshotRequest,
	r *raft.InstallSnapshotResponse, data io.Reader) error {
	to = peerAt("", to).address()
	return w.both(to, func() error { return w.InmemTransport.InstallSnapshot(id, to, a, r, data) })
}

func (w *wire) TimeoutNow(id raft.ServerID, to raft.ServerAddress, q *raft.TimeoutNowRequest, r *raft.TimeoutNowResponse) error {
	to = peerAt("", to).address()
	return w.both(to, func() error { return w.InmemTransport.TimeoutNow(id, to, q, r) })
}

// addressOf is where node i is, for raft and for gRPC.
func addressOf(i int) raft.ServerAddress { return raft.ServerAddress(fmt.Sprintf("n%d/n%d", i, i)) }

// bubble is a cluster in memory and virtual time.
type bubble struct {
	net     *network
	config  Config
	boxes   []*box
	nodes   []*Node // of the boxes that run
	mu      sync.Mutex
	servers map[string]*pipes // by name, of the boxes that run
}

// box is what a node is put into: it outlives the node.
type box struct {
	self      Peer
	founders  []Peer
	dir       string // "": its disk is in memory
	write     func() // before each write to a disk in memory
	store     *raft.InmemStore
	snapshots *raft.InmemSnapshotStore
	identity  *identity
	holder    holder
	end       *raft.InmemTransport // of the node that runs, or ran last
	node      *Node                // nil while none runs
	rpc       *grpc.Server
	served    sync.WaitGroup
}

func newBubble(t *testing.T, size int, seed uint64) *bubble {
	b := emptyBubble(size, seed)
	for i := range b.boxes {
		b.start(t, i)
	}
	return b
}

func emptyBubble(size int, seed uint64) *bubble {
	b := &bubble{net: &network{rng: rand.New(rand.NewPCG(seed, 1))}, servers: map[string]*pipes{}}
	var founders []Peer
	for i := range size {
		founders = append(founders, peerAt(fmt.Sprintf("n%d", i), addressOf(i)))
	}
	for range size {
		b.box(founders)
	}
	return b
}

// box adds a box, with the founders that its node will be told.
func (b *bubble) box(founders []Peer) int {
	i := len(b.boxes)
	x := &box{self: peerAt(fmt.Sprintf("n%d", i), addressOf(i)), founders: founders}
	b.boxes = append(b.boxes, x)
	b.wipe(i)
	return i
}

// wipe empties a box's disk.
func (b *bubble) wipe(i int) {
	b.boxes[i].store, b.boxes[i].snapshots = raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	b.boxes[i].identity, b.boxes[i].holder = &identity{}, holder{}
}

// start runs a node on what the box's disk has.
func (b *bubble) start(t *testing.T, i int) *Node {
	x := b.boxes[i]
	c := b.config
	c.ID, c.Peers = x.self.ID, x.founders
	_, x.end = raft.NewInmemTransport(x.self.address())
	for _, other := range b.boxes {
		if other != x && other.end != nil {
			x.end.Connect(other.self.address(), other.end)
			other.end.Connect(x.self.address(), x.end)
		}
	}
	end := x.end
	c = c.withDefaults()
	s := &seat{log: slowLog{x.store, x.write}, stable: x.store, snapshots: x.snapshots, identity: x.identity, holder: x.holder}
	var opened closers
	if c.Dir = x.dir; x.dir != "" {
		var err error
		if s, opened, err = openDisk(c, realFiles()); err != nil {
			t.Fatal(err)
		}
	}
	s.self, s.founders = x.self, x.founders
	s.listen, s.close = func(door) raft.Transport { return &wire{end, b.net} }, append(opened, end.Close).close
	s.dial = func(to string) (*grpc.ClientConn, error) { return b.dial(x.self.RPC, to) }
	n, err := start(c, s)
	if err != nil {
		t.Fatal(err)
	}
	x.holder = s.holder
	x.node, x.rpc = n, grpc.NewServer()
	n.RegisterRPC(x.rpc)
	l := &pipes{accepts: make(chan net.Conn), closed: make(chan struct{})}
	b.mu.Lock()
	b.servers[x.self.RPC] = l
	b.mu.Unlock()
	x.served.Go(func() { _ = x.rpc.Serve(l) })
	b.running()
	return n
}

// stop ends a box's node.
func (b *bubble) stop(t *testing.T, i int) {
	x := b.boxes[i]
	if x.node == nil {
		return
	}
	if err := x.node.Close(); err != nil {
		t.Error(err)
	}
	x.rpc.Stop()
	x.served.Wait()
	x.node = nil
	b.running()
}

func (b *bubble) running() {
	b.nodes = nil
	for _, x := range b.boxes {
		if x.node != nil {
			b.nodes = append(b.nodes, x.node)
		}
	}
}

func (b *bubble) dial(from, to string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			b.mu.Lock()
			l := b.servers[to]
			b.mu.Unlock()
			if l == nil {
				return nil, errors.New("nobody listens")
			}
			ends := [2]raft.ServerAddress{raft.ServerAddress(from + "/" + from), raft.ServerAddress(to + "/" + to)}
			if err := b.net.hop(ends[0], ends[1]); err != nil {
				return nil, err
			}
			mine, theirs := net.Pipe()
			select {
			case l.accepts <- newPiped(theirs, b.net, ends[1], ends[0]):
				return newPiped(mine, b.net, ends[0], ends[1]), nil
			case <-l.closed:
				return nil, errors.New("nobody listens")
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}))
}

// pipes is a listener in memory.
type pipes struct {
	accepts chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepts:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return named("pipe") }

// piped is an end of a connection through the network: what is lost breaks it.
type piped struct {
	net.Conn
	net      *network
	from, to raft.ServerAddress
	once     sync.Once
	closed   chan struct{}
}

func newPiped(c net.Conn, n *network, from, to raft.ServerAddress) *piped {
	return &piped{Conn: c, net: n, from: from, to: to, closed: make(chan struct{})}
}

func (p *piped) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.Conn.Close()
}

func (p *piped) Write(data []byte) (int, error) {
	for p.net.hangs(p.from) || p.net.hangs(p.to) { // as where every packet is lost: it is sent again and again
		select {
		case <-p.closed:
			return 0, net.ErrClosed
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := p.net.hop(p.from, p.to); err != nil {
		return 0, errors.Join(err, p.Close())
	}
	return p.Conn.Write(data)
}

// leader waits for a node that leads and is not the one given.
func (b *bubble) leader(not *Node) *Node {
	for {
		for _, n := range b.nodes {
			if n != not && n.leads() && n.Ready() == nil {
				return n
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (b *bubble) close(t *testing.T) {
	for i := range b.boxes {
		b.stop(t, i)
	}
	time.Sleep(time.Minute) // gRPC does not wait for its connections' last goroutines
}
