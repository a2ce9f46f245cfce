// Command berth is what people use a Berth cluster with: start one, ask it, look inside it.
package main

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
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
	Top      topCommand      `cmd:"" help:"Show the cluster live: tokens a second, first tokens, queue, pages, tenants."`
	Members  membersCommand  `cmd:"" help:"Add or remove a replica of the ledger."`
	Tenants  tenantsCommand  `cmd:"" help:"Show and change who may use the cluster: API keys, weights, caps, budgets."`
	Trace    traceCommand    `cmd:"" help:"Show where a request's time went."`
}

func main() {
	var c cli
	ctx, interrupted := untilSignal()
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"--help"}
	}
	k := flags.Parse(&c, "Berth serves large language models on a cluster and never fails an admitted request for want of KV memory.", args,
		map[string]string{"models": modelNames()})
	k.BindTo(ctx, (*context.Context)(nil))
	err := k.Run(&c.Common)
	if by := interrupted(); by != 0 && err != nil {
		os.Exit(128 + int(by)) // what was cut short is no failure, and needs no words
	}
	os.Exit(flags.Finish(os.Stderr, err))
}

// untilSignal is a context that the first signal to end cancels; the second one ends the program at once. The function
// says which signal came, 0 if none.
func untilSignal() (context.Context, func() syscall.Signal) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	var by atomic.Int32
	go func() {
		first := (<-signals).(syscall.Signal)
		by.Store(int32(first))
		cancel()
		<-signals
		atOnce()
		os.Exit(128 + int(first))
	}()
	return ctx, func() syscall.Signal { return syscall.Signal(by.Load()) }
}
