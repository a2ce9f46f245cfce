package consensus

import (
	"fmt"
	"net"
	"slices"
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

// Member is a replica of the cluster.
type Member struct {
	Peer
	// Voter: it counts for a quorum. Before, it only receives the log.
	Voter bool
}

// Members are the cluster's replicas as far as this one knows, by ascending id.
func (n *Node) Members() []Member {
	r := n.raft()
	if r == nil {
		return nil
	}
	known := r.GetConfiguration()
	if known.Error() != nil {
		return nil // it is closed
	}
	var out []Member
	for _, s := range known.Configuration().Servers {
		out = append(out, Member{peerAt(string(s.ID), s.Address), s.Suffrage == raft.Voter})
	}
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// member is the replica of that name, nil if there is none.
func (n *Node) member(id string) *Member {
	all := n.Members()
	if i := slices.IndexFunc(all, func(m Member) bool { return m.ID == id }); i >= 0 {
		return &all[i]
	}
	return nil
}
