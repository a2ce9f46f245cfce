package consensus

import (
	"net"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// streams is the network under raft's transport. Raft knows replicas by both of their addresses, see Peer.
type streams struct {
	net.Listener
	self raft.ServerAddress
}

// Addr implements net.Listener: the address that others are told.
func (s streams) Addr() net.Addr { return named(s.self) }

// Dial implements raft.StreamLayer.
func (s streams) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	address, _, _ := strings.Cut(string(to), "/")
	return net.DialTimeout("tcp", address, timeout)
}

// named is an address that need not be one of this machine's: others may reach it by another name.
type named string

// Network implements net.Addr.
func (named) Network() string { return "tcp" }

// String implements net.Addr.
func (n named) String() string { return string(n) }
