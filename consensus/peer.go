package consensus

import (
	"fmt"
	"net"
	"strings"

	"github.com/hashicorp/raft"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// Peer is a replica: its name, which is for ever, and where the others reach its raft transport and its gRPC server.
type Peer struct {
	ID, Raft, RPC string
}

// ParsePeer reads ID=HOST:PORT/HOST:PORT, raft's address and gRPC's.
func ParsePeer(s string) (Peer, error) {
	id, addresses, named := strings.Cut(s, "=")
	p := peerAt(id, raft.ServerAddress(addresses))
	if !named || id == "" || p.RPC == "" {
		return Peer{}, fmt.Errorf("peer %q: want ID=HOST:PORT/HOST:PORT, the raft and the gRPC address", s)
	}
	for _, address := range []string{p.Raft, p.RPC} {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return Peer{}, fmt.Errorf("peer %q: %w", s, err)
		}
		if ip := net.ParseIP(host); host == "" || port == "" || ip != nil && ip.IsUnspecified() {
			return Peer{}, fmt.Errorf("peer %q: %s is no address that others can reach", s, address)
		}
	}
	return p, nil
}

// String is what ParsePeer reads.
func (p Peer) String() string { return p.ID + "=" + string(p.address()) }

// address is what raft knows a peer by, and replicates: both addresses.
func (p Peer) address() raft.ServerAddress { return raft.ServerAddress(p.Raft + "/" + p.RPC) }

func peerAt(id string, address raft.ServerAddress) Peer {
	r, rpc, _ := strings.Cut(string(address), "/")
	return Peer{ID: id, Raft: r, RPC: rpc}
}

func (p Peer) server() raft.Server { return raft.Server{ID: raft.ServerID(p.ID), Address: p.address()} }

func (p Peer) message() *ledgerv1.Member { return &ledgerv1.Member{Id: p.ID, Raft: p.Raft, Rpc: p.RPC} }

func peerOf(m *ledgerv1.Member) Peer { return Peer{ID: m.GetId(), Raft: m.GetRaft(), RPC: m.GetRpc()} }
