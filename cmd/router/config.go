package main

import (
	"fmt"
	"net"
	"time"

	"github.com/berthd/berth/cmd/flags"
)

type config struct {
	flags.Common
	ID            string        `help:"Name of this replica. Default: the host's."`
	HTTP          string        `name:"http" help:"Address of the OpenAI API, health and metrics." default:"127.0.0.1:8080"`
	RPC           string        `name:"rpc" help:"Address of the gRPC server for workers." default:"127.0.0.1:8081"`
	Admin         string        `help:"Address of the admin API." default:"127.0.0.1:8082"`
	Raft          string        `help:"Address of the ledger's transport." default:"127.0.0.1:8083"`
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
}

// check refuses what would expose a cluster that asks nobody who they are.
func (c *config) check() error {
	host, _, err := net.SplitHostPort(c.HTTP)
	if err != nil {
		return fmt.Errorf("--http %s: want host:port: %w", c.HTTP, err)
	}
	if ip := net.ParseIP(host); !c.Open && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--http %s is not loopback and there are no tenants: say --open if everybody may use this cluster", c.HTTP)
	}
	return nil
}
