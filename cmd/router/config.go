package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/berthd/berth/cmd/flags"
	"github.com/berthd/berth/consensus"
)

type config struct {
	flags.Common
	ID            string        `help:"Name of this replica. Default: the host's."`
	HTTP          string        `name:"http" help:"Address of the OpenAI API, health and metrics." default:"127.0.0.1:8080"`
	RPC           string        `name:"rpc" help:"Address of the gRPC server for workers." default:"127.0.0.1:8081"`
	Admin         string        `help:"Address of the admin API." default:"127.0.0.1:8082"`
	Raft          string        `help:"Address of the ledger's transport." default:"127.0.0.1:8083"`
	Peers         []string      `help:"Every replica of the ledger, this one included, with the raft and rpc addresses that the others reach: the same list for all. Default: a cluster of one." placeholder:"ID=HOST:PORT/HOST:PORT,..."`
	Data          string        `help:"Folder of the ledger: its log and snapshots." default:"./data/router"`
	Open          bool          `help:"Serve without tenants on an address that is not loopback."`
	QueueRequests int           `help:"Requests that may wait." default:"4096"`
	QueueTokens   int           `help:"Prompt tokens that may wait." default:"4194304"`
	QueueTimeout  time.Duration `help:"How long a request may wait for room." default:"60s"`
	ResumeTimeout time.Duration `help:"How long admitted work may wait for a worker." default:"60s"`
	DrainTimeout  time.Duration `help:"How long SIGTERM waits for running requests." default:"25s"`
	Lease         time.Duration `help:"Term of this router's session in the ledger." default:"3s"`
	MaxBody       flags.Bytes   `help:"Largest request body." default:"16MiB"`
	OTLP          string        `name:"otlp" help:"OTLP/gRPC endpoint for traces, host:port."`

	peers []consensus.Peer
}

// check refuses what would expose a cluster that asks nobody who they are, and a replica that its peers could not reach.
func (c *config) check() error {
	host, _, err := net.SplitHostPort(c.HTTP)
	if err != nil {
		return fmt.Errorf("--http %s: want host:port: %w", c.HTTP, err)
	}
	if !c.Open && !loopback(host) {
		return fmt.Errorf("--http %s is not loopback and there are no tenants: say --open if everybody may use this cluster", c.HTTP)
	}
	if c.ID == "" {
		c.ID, _ = os.Hostname()
	}
	for _, s := range c.Peers {
		p, err := consensus.ParsePeer(s)
		if err != nil {
			return fmt.Errorf("--peers: %w", err)
		}
		c.peers = append(c.peers, p)
		if p.ID == c.ID {
			if err := errors.Join(reachable("--raft", c.Raft, p.Raft), reachable("--rpc", c.RPC, p.RPC)); err != nil {
				return err
			}
		}
	}
	return consensus.Config{ID: c.ID, Dir: c.Data, Peers: c.peers}.Validate()
}

// reachable refuses to listen on loopback where the peers are told another address.
func reachable(flag, bind, told string) error {
	at, port, err := net.SplitHostPort(bind)
	if err != nil {
		return fmt.Errorf("%s %s: want host:port: %w", flag, bind, err)
	}
	if host, _, _ := net.SplitHostPort(told); loopback(at) && !loopback(host) {
		return fmt.Errorf("%s %s is loopback, and --peers says that this replica is at %s: say %s 0.0.0.0:%s", flag, bind, told, flag, port)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
