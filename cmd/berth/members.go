package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"text/tabwriter"

	"github.com/berthd/berth/cmd/flags"
	"github.com/berthd/berth/consensus"
)

// membersCommand changes who keeps the ledger.
type membersCommand struct {
	operator

	Add    addMember    `cmd:"" help:"Let a new replica in: then start its router with an empty --data, and --peers that name it and the others."`
	Remove removeMember `cmd:"" help:"Take a replica out: its router ends. To bring it back, add it again with an empty --data."`
}

type addMember struct {
	Peer string `arg:"" help:"The replica, as in --peers of the routers." placeholder:"ID=HOST:PORT/HOST:PORT"`
}

type removeMember struct {
	ID string `arg:"" help:"The replica's name."`
}

// Run adds a replica.
func (c *addMember) Run(ctx context.Context, m *membersCommand) error {
	p, err := consensus.ParsePeer(c.Peer)
	if err != nil {
		return &flags.UsageError{Err: err}
	}
	return m.change(ctx, http.MethodPost, p.ID, map[string]string{"raft": p.Raft, "rpc": p.RPC})
}

// Run removes a replica.
func (c *removeMember) Run(ctx context.Context, m *membersCommand) error {
	return m.change(ctx, http.MethodDelete, c.ID, nil)
}

// change asks for one, and prints the members after it.
func (c *membersCommand) change(ctx context.Context, method, id string, body any) error {
	raw, err := c.ask(ctx, method, "members/"+url.PathEscape(id), body)
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := os.Stdout.Write(append(raw, '\n'))
		return err
	}
	var s clusterState
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	drawReplicas(os.Stdout, s.Replicas)
	return nil
}

func drawReplicas(out io.Writer, replicas []replica) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "REPLICA\tRAFT\tRPC\tSTATE")
	for _, r := range replicas {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", r.ID, r.Raft, r.RPC, r.State)
	}
	t.Flush()
}
