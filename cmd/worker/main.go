// Command worker serves one model on this machine to a cluster of routers.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/cmd/flags"
	"github.com/berthd/berth/telemetry"
	"github.com/berthd/berth/worker"
)

func main() {
	var c config
	flags.Parse(&c, "A Berth worker: runs a model in paged KV memory and serves it through the cluster's routers.", os.Args[1:], nil)
	os.Exit(flags.Finish(os.Stderr, run(&c)))
}

// run is the worker's life: listen, load, register, serve until a signal or a failure.
func run(c *config) (err error) {
	if err := c.check(); err != nil {
		return &flags.UsageError{Err: err}
	}
	log := c.Logger()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	tel, err := telemetry.Setup(ctx, telemetry.Config{Service: "berth-worker", Instance: c.ID, Version: flags.Version(), OTLP: c.OTLP})
	if err != nil {
		return err
	}
	defer tel.Close()
	rpc, web, err := listen(c)
	if err != nil {
		return err
	}
	defer rpc.Close()
	defer web.Close()
	c.settle(rpc.Addr())
	loaded, err := loadUntil(ctx, c, log)
	if errors.Is(err, errStopped) {
		log.Info(err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	var w *worker.Worker
	defer func() {
		if w == nil || !w.Stuck() {
			loaded.device.Close()
		}
	}()
	w, err = worker.New(worker.Config{
		ID: c.ID, Info: loaded.info, Card: loaded.card, Device: loaded.device, Vocab: loaded.vocab, Routers: c.Router,
		Dial: []grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		},
		Lease: c.Lease, StepTimeout: c.StepTimeout, Guesses: c.Speculate, Reopen: loaded.reopen, Log: log,
	})
	if err != nil {
		return err
	}
	return serve(ctx, stop, c, log, w, tel, rpc, web)
}

func listen(c *config) (rpc, web net.Listener, err error) {
	if rpc, err = net.Listen("tcp", c.RPC); err != nil {
		return nil, nil, fmt.Errorf("--rpc: %w", err)
	}
	if web, err = net.Listen("tcp", c.HTTP); err != nil {
		rpc.Close()
		return nil, nil, fmt.Errorf("--http: %w", err)
	}
	return rpc, web, nil
}

// settle fills in what follows from the bound address.
func (c *config) settle(rpc net.Addr) {
	if c.Advertise == "" {
		c.Advertise = rpc.String()
	}
	if c.ID == "" {
		host, _ := os.Hostname()
		c.ID = fmt.Sprintf("%s-%d", host, rpc.(*net.TCPAddr).Port)
	}
}

// serve runs the servers and the worker until a signal, a failure, or another process takes the name.
func serve(ctx context.Context, stop func(), c *config, log *slog.Logger, w *worker.Worker, tel *telemetry.Telemetry, rpc, web net.Listener) error {
	server := grpc.NewServer(
		// A router whose host vanished is noticed within two of its terms, since what it asked for goes on until then.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Second, Timeout: 2 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	workerv1.RegisterWorkerServer(server, w)
	alive := health.NewServer()
	healthv1.RegisterHealthServer(server, alive)
	go server.Serve(rpc)
	defer server.Stop()
	pages := &http.Server{Handler: pages(w, tel), ReadHeaderTimeout: 10 * time.Second}
	go pages.Serve(web)
	defer pages.Close()
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()
	if err := c.WriteAddrs(map[string]string{"rpc": rpc.Addr().String(), "http": web.Addr().String(), "id": c.ID}); err != nil {
		return err
	}
	log.Info("serving", "model", filepath.Base(c.Model), "rpc", rpc.Addr().String(), "http", web.Addr().String())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once
	log.Info("draining", "timeout", c.DrainTimeout.String())
	w.Drain(c.DrainTimeout)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func pages(w *worker.Worker, tel *telemetry.Telemetry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprintln(rw, "ok") })
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) {
		if err := w.Ready(); err != nil {
			http.Error(rw, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(rw, "ok")
	})
	mux.Handle("GET /metrics", tel.Metrics())
	return mux
}
