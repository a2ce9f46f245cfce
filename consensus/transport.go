package consensus

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// greetTimeout is how long the other side of a connection may take to say which cluster it is of.
const greetTimeout = 5 * time.Second

// streams is the network under raft's transport. Raft knows replicas by both of their addresses, see Peer. Each side of a
// connection first says which cluster it is of: raft itself would take the log of any.
type streams struct {
	net.Listener
	self     raft.ServerAddress
	identity *identity
	alone    bool // it founds a cluster of one
	open     *connections
}

// connections are those that are open.
type connections struct {
	mu      sync.Mutex
	open    map[net.Conn]struct{}
	severed bool
}

// add takes a connection in, which is closed at once after sever.
func (c *connections) add(conn net.Conn) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.severed {
		conn.Close()
		return conn
	}
	if c.open == nil {
		c.open = map[net.Conn]struct{}{}
	}
	c.open[conn] = struct{}{}
	return &counted{conn, c}
}

// sever closes all connections, and those to come: raft may hang, and its peers shall not wait for it.
func (c *connections) sever() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.severed = true
	for conn := range c.open {
		conn.Close()
	}
}

// counted is an open connection.
type counted struct {
	net.Conn
	of *connections
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c.Conn)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Addr implements net.Listener: the address that others are told.
func (s streams) Addr() net.Addr { return named(s.self) }

// Dial implements raft.StreamLayer.
func (s streams) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	address, _, _ := strings.Cut(string(to), "/")
	conn, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return nil, err
	}
	conn = s.open.add(conn)
	if err := s.exchange(conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Accept implements net.Listener. Who connects is asked when raft first reads, so that one that says nothing holds up none.
func (s streams) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn = s.open.add(conn)
	return &greeted{Conn: conn, greet: sync.OnceValue(func() error { return s.exchange(conn) })}, nil
}

// exchange tells the other side this one's cluster and asks for its.
func (s streams) exchange(conn net.Conn) error {
	mine, theirs := s.identity.get(), make([]byte, idBytes)
	hello := make([]byte, idBytes) // zeros: none is known
	copy(hello, mine)
	if err := conn.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, theirs); err != nil {
		return err
	}
	if bytes.Equal(theirs, make([]byte, idBytes)) {
		theirs = nil
	}
	if err := admits(mine, theirs, s.alone); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// greeted is a connection that begins with an exchange.
type greeted struct {
	net.Conn
	greet func() error
}

// Read implements net.Conn.
func (g *greeted) Read(b []byte) (int, error) {
	if err := g.greet(); err != nil {
		g.Conn.Close()
		return 0, err
	}
	return g.Conn.Read(b)
}

// named is an address that need not be one of this machine's: others may reach it by another name.
type named string

// Network implements net.Addr.
func (named) Network() string { return "tcp" }

// String implements net.Addr.
func (n named) String() string { return string(n) }
