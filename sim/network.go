package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// network joins hosts by connections that carry bytes late but in order, as TCP does. A host is what stands before the
// colon of an address; one that is down refuses, and its connections are broken.
type network struct {
	seed uint64

	mu     sync.Mutex
	doors  map[string]*door     // by address
	links  map[string]int       // connections so far, by the two ends
	open   map[*conn]struct{}   // this side of each connection
	held   map[string]time.Time // by host: nothing that it sends, or is sent, arrives before
	slower time.Duration        // the most that a write takes; 0 for 1 ms
}

func newNetwork(seed uint64, slower time.Duration) *network {
	if slower == 0 {
		slower = time.Millisecond
	}
	return &network{seed: seed, slower: slower, doors: map[string]*door{}, links: map[string]int{},
		open: map[*conn]struct{}{}, held: map[string]time.Time{}}
}

func host(address string) string {
	h, _, _ := strings.Cut(address, ":")
	return h
}

// listen opens an address.
func (n *network) listen(address string) net.Listener {
	d := &door{net: n, address: address, arrived: make(chan net.Conn, 256), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.doors[address] = d
	return d
}

// dial connects a host to an address. Each direction of each connection draws its delays from a source of its own, so
// that they depend on its own writes alone.
func (n *network) dial(ctx context.Context, from, address string) (net.Conn, error) {
	n.mu.Lock()
	link := from + ">" + address
	n.links[link]++
	serial := n.links[link]
	there, back := n.direction(from, address, serial), n.direction(host(address), from, -serial)
	n.mu.Unlock()
	wait := max(there.delay(), time.Until(n.heldUntil(host(from), host(address))))
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.doors[address]
	if d == nil {
		return nil, &net.OpError{Op: "dial", Net: "sim", Addr: addr(address), Err: syscall.ECONNREFUSED}
	}
	here := &conn{net: n, local: addr(from), remote: addr(address), in: back, out: there}
	far := &conn{net: n, local: addr(address), remote: addr(from), in: there, out: back}
	select {
	case d.arrived <- far:
	default:
		return nil, &net.OpError{Op: "dial", Net: "sim", Addr: addr(address), Err: syscall.ECONNREFUSED}
	}
	n.open[here], n.open[far] = struct{}{}, struct{}{}
	return here, nil
}

func (n *network) direction(from, to string, serial int) *direction {
	h := fnv.New64a()
	fmt.Fprint(h, from, ">", to, serial)
	return &direction{net: n, from: host(from), to: host(to), changed: make(chan struct{}),
		rng: rand.New(rand.NewPCG(n.seed, h.Sum64()))}
}

// down breaks all connections of a host and closes its addresses: nothing more leaves it, or reaches it.
func (n *network) down(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for address, d := range n.doors {
		if host(address) == name {
			delete(n.doors, address)
			d.close()
		}
	}
	for c := range n.open {
		if host(string(c.local)) == name || host(string(c.remote)) == name {
			delete(n.open, c)
			c.in.fail(syscall.ECONNRESET)
			c.out.fail(syscall.ECONNRESET)
		}
	}
}

// hold keeps what a host sends and is sent from arriving for a while, as a link that loses everything does under TCP.
func (n *network) hold(name string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[name] = time.Now().Add(d)
}

func (n *network) heldUntil(a, b string) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held[b].After(n.held[a]) {
		return n.held[b]
	}
	return n.held[a]
}

func (n *network) forget(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open, c)
}

type addr string

func (addr) Network() string  { return "sim" }
func (a addr) String() string { return string(a) }

// door is a listening address.
type door struct {
	net     *network
	address string
	arrived chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

func (d *door) close() { d.once.Do(func() { close(d.closed) }) }

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.arrived:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (d *door) Close() error {
	d.close()
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if d.net.doors[d.address] == d {
		delete(d.net.doors, d.address)
	}
	return nil
}

// Addr implements net.Listener.
func (d *door) Addr() net.Addr { return addr(d.address) }
