package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// greetTimeout is how long the other side of a connection may take to say who it is.
const greetTimeout = 5 * time.Second

// door is the replica behind a transport: what it says of itself, whom it refuses and why, and that it is refused.
type door interface {
	hello() *ledgerv1.Hello
	judge(*ledgerv1.Hello) error
	told(peer, why string)
}

// streams is the network under raft's transport. Raft knows replicas by both of their addresses, see Peer. Each side of a
// connection first says who it is and of which cluster: raft itself would take the log, and the vote, of any.
type streams struct {
	net.Listener
	self raft.ServerAddress
	door door
	open *connections
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
	if err := s.exchange(conn, true); err != nil {
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
	return &greeted{Conn: conn, greet: sync.OnceValue(func() error { return s.exchange(conn, false) })}, nil
}

// exchange tells the other side who this one is and asks the same; who called speaks first. Each says if it refuses the other.
func (s streams) exchange(conn net.Conn, called bool) error {
	if err := conn.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return err
	}
	mine := s.door.hello()
	if called {
		if err := writeHello(conn, mine); err != nil {
			return err
		}
	}
	theirs, err := readHello(conn)
	if err != nil {
		return err
	}
	if theirs.Refused != "" {
		s.door.told(theirs.Replica, theirs.Refused)
		return fmt.Errorf("%s refuses this replica: %s", theirs.Replica, theirs.Refused)
	}
	why := s.door.judge(theirs)
	if called && why != nil {
		return why // whom it calls finds out by the leader
	}
	if why != nil {
		mine.Refused = why.Error()
	}
	if !called {
		why = errors.Join(why, writeHello(conn, mine))
	}
	return errors.Join(why, conn.SetDeadline(time.Time{}))
}

// mostHello is more than any hello has.
const mostHello = 4096

func writeHello(to io.Writer, h *ledgerv1.Hello) error {
	data, err := proto.Marshal(h)
	if err != nil {
		return err
	}
	_, err = to.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(data))), data...))
	return err
}

func readHello(from io.Reader) (*ledgerv1.Hello, error) {
	var length [2]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint16(length[:])
	if size > mostHello {
		return nil, fmt.Errorf("a hello of %d bytes: the other side speaks something else", size)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(from, data); err != nil {
		return nil, err
	}
	h := &ledgerv1.Hello{}
	return h, proto.Unmarshal(data, h)
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
