package consensus

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/hashicorp/raft"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// Peer is a replica: its name, which is for ever, and where the others reach its raft transport and its gRPC server.
type Peer struct {
	ID, Raft, RPC string

	instance string // of the disk that has the seat, see holder; "" while none is known
}

// saneID is a name that flags, files and addresses can carry.
var saneID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// ParsePeer reads ID=HOST:PORT/HOST:PORT, raft's address and gRPC's.
func ParsePeer(s string) (Peer, error) {
	id, addresses, _ := strings.Cut(s, "=")
	p := peerAt(id, raft.ServerAddress(addresses))
	if err := p.check(); err != nil {
		return Peer{}, fmt.Errorf("peer %q: %w; want ID=HOST:PORT/HOST:PORT, the raft and the gRPC address", s, err)
	}
	return p, nil
}

// check says why others could not name or reach the peer.
func (p Peer) check() error {
	if !saneID.MatchString(p.ID) {
		return errors.New("its name has other characters than letters, digits, '.', '_' and '-', or more than 128")
	}
	for _, address := range []string{p.Raft, p.RPC} {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if ip := net.ParseIP(host); err != nil || number == 0 || host == "" || strings.ContainsAny(host, "/=,") || ip != nil && ip.IsUnspecified() {
			return fmt.Errorf("%s is no address that others can reach", address)
		}
	}
	if p.Raft == p.RPC {
		return errors.New("raft and gRPC have the same address")
	}
	return nil
}

// String is what ParsePeer reads.
func (p Peer) String() string { return p.ID + "=" + string(p.address()) }

// address is where a peer is: both addresses.
func (p Peer) address() raft.ServerAddress { return raft.ServerAddress(p.Raft + "/" + p.RPC) }

// seat is what raft knows a peer by, and replicates: where it is, and whose disk has the seat.
func (p Peer) seat() raft.ServerAddress {
	if p.instance == "" {
		return p.address()
	}
	return p.address() + raft.ServerAddress("/"+p.instance)
}

// peerAt reads an address or a seat.
func peerAt(id string, address raft.ServerAddress) Peer {
	r, rest, _ := strings.Cut(string(address), "/")
	rpc, instance, _ := strings.Cut(rest, "/")
	return Peer{ID: id, Raft: r, RPC: rpc, instance: instance}
}

// at is the peer without its disk.
func (p Peer) at() Peer {
	p.instance = ""
	return p
}

func (p Peer) server() raft.Server { return raft.Server{ID: raft.ServerID(p.ID), Address: p.seat()} }

func (p Peer) message() *ledgerv1.Member {
	return &ledgerv1.Member{Id: p.ID, Raft: p.Raft, Rpc: p.RPC, Instance: p.instance}
}

func peerOf(m *ledgerv1.Member) Peer {
	return Peer{ID: m.GetId(), Raft: m.GetRaft(), RPC: m.GetRpc(), instance: m.GetInstance()}
}
