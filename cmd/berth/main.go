// Command berth is what people use a Berth cluster with: start one, ask it, look inside it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/berthd/berth/cmd/flags"
)

type cli struct {
	flags.Common
	Up       upCommand       `cmd:"" help:"Start a router and workers on this machine, until interrupted."`
	Pull     pullCommand     `cmd:"" help:"Fetch a known model into the cache folder."`
	Complete completeCommand `cmd:"" help:"Continue a text; the answer streams."`
	Chat     chatCommand     `cmd:"" help:"Talk to a model, one message or a conversation."`
	Bench    benchCommand    `cmd:"" help:"Load a server and time its answers; works with any OpenAI-compatible one."`
	Status   statusCommand   `cmd:"" help:"Show the cluster: workers, pages, tenants, queue."`
	Members  membersCommand  `cmd:"" help:"Add or remove a replica of the ledger."`
	Tenants  tenantsCommand  `cmd:"" help:"Show and change who may use the cluster: API keys, weights, caps, budgets."`
	Trace    traceCommand    `cmd:"" help:"Show where a request's time went."`
}

func main() {
	var c cli
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"--help"}
	}
	k := flags.Parse(&c, "Berth serves large language models on a cluster and never fails an admitted request for want of KV memory.", args,
		map[string]string{"models": modelNames()})
	k.BindTo(ctx, (*context.Context)(nil))
	os.Exit(flags.Finish(os.Stderr, k.Run(&c.Common)))
}
