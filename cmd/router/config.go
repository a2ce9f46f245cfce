package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"go.yaml.in/yaml/v4"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/cmd/flags"
	"github.com/berthd/berth/consensus"
	"github.com/berthd/berth/router"
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
	Tenants       string        `help:"YAML file of the tenants that a ledger begins with which never had any; nobody is served without a key then." type:"existingfile" placeholder:"FILE"`
	Open          bool          `help:"Serve without tenants on an address that is not loopback."`
	CORSOrigins   []string      `name:"cors-origins" help:"Origins whose pages may use the API, as scheme://host[:port]; * is all of them. Default: none." placeholder:"ORIGIN,..."`
	AllowedHosts  []string      `help:"Names of this machine, beside localhost, that requests over loopback may use while no key is asked for." placeholder:"HOST,..."`
	AdminToken    string        `name:"admin-token-file" help:"File with the token of the admin API. Default: one that is drawn at the first start, in --data; then it is needed for changes only, unless --admin is beyond loopback." type:"existingfile" placeholder:"FILE"`
	QueueRequests int           `help:"Requests that may wait." default:"4096"`
	QueueTokens   int           `help:"Prompt tokens that may wait." default:"4194304"`
	QueueTimeout  time.Duration `help:"How long a request may wait for room." default:"60s"`
	ResumeTimeout time.Duration `help:"How long admitted work may wait for a worker." default:"60s"`
	ShutdownDelay time.Duration `help:"How long SIGTERM leaves the router serving, though not ready, so that nothing is sent to it any more when it stops taking work." default:"0s"`
	DrainTimeout  time.Duration `help:"How long SIGTERM waits after that for running requests." default:"25s"`
	Lease         time.Duration `help:"Term of this router's session in the ledger." default:"3s"`
	MaxBody       flags.Bytes   `help:"Largest request body." default:"16MiB"`
	OTLP          string        `name:"otlp" help:"OTLP/gRPC endpoint for traces, host:port."`

	peers   []consensus.Peer
	tenants []*ledgerv1.Tenant
}

// check refuses what would expose a cluster that asks nobody who they are, and a replica that its peers could not reach.
func (c *config) check() error {
	host, _, err := net.SplitHostPort(c.HTTP)
	if err != nil {
		return fmt.Errorf("--http %s: want host:port: %w", c.HTTP, err)
	}
	if c.Tenants != "" {
		if c.tenants, err = readTenants(c.Tenants); err != nil {
			return fmt.Errorf("--tenants %s: %w", c.Tenants, err)
		}
	}
	if !c.Open && c.Tenants == "" && !loopback(host) {
		return fmt.Errorf("--http %s is not loopback and there are no --tenants: say --open if everybody may use this cluster", c.HTTP)
	}
	if c.ID == "" {
		c.ID, _ = os.Hostname()
	}
	if err := flags.CheckName("--id", c.ID); err != nil {
		return err
	}
	if err := router.CheckOrigins(c.CORSOrigins); err != nil {
		return fmt.Errorf("--cors-origins: %w", err)
	}
	if c.QueueTimeout <= 0 || c.ResumeTimeout <= 0 || c.QueueRequests < 1 || c.QueueTokens < 1 {
		return errors.New("--queue-timeout, --resume-timeout, --queue-requests and --queue-tokens must be more than 0")
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

// readTenants reads a file with a list of tenants, each as in the admin API, under the key tenants.
func readTenants(path string) ([]*ledgerv1.Tenant, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Tenants []map[string]any `yaml:"tenants"`
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	data, err := json.Marshal(file.Tenants)
	if err != nil {
		return nil, err
	}
	return router.ReadTenants(data)
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
