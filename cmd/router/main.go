// Command router admits requests to a cluster, and speaks the OpenAI API.
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

	"github.com/berthd/berth/cmd/flags"
	"github.com/berthd/berth/consensus"
	"github.com/berthd/berth/router"
	"github.com/berthd/berth/telemetry"
)

func main() {
	var c config
	flags.Parse(&c, "A Berth router: admits requests through the ledger, places them on workers, speaks the OpenAI API.", os.Args[1:], nil)
	os.Exit(flags.Finish(os.Stderr, run(&c)))
}

// run is the router's life: ledger, session, servers, until a signal or a failure.
func run(c *config) error {
	if err := c.check(); err != nil {
		return &flags.UsageError{Err: err}
	}
	log := c.Logger()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	tel, err := telemetry.Setup(ctx, telemetry.Config{Service: "berth-router", Instance: c.ID, Version: flags.Version(), OTLP: c.OTLP})
	if err != nil {
		return err
	}
	defer tel.Close()
	l, err := listen(c)
	if err != nil {
		return err
	}
	defer l.close()
	token, err := readAdminToken(c)
	if err != nil {
		return err
	}
	warnOpenPorts(log, c)
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
	}
	node, err := consensus.Open(consensus.Config{
		ID: c.ID, Dir: filepath.Join(c.Data, "ledger"), Bind: c.Raft, RPC: l.rpc.Addr().String(), Peers: c.peers, Dial: dial, Log: log,
	})
	if err != nil {
		return err
	}
	defer node.Close()
	session, err := node.OpenSession(c.ID, c.Lease)
	if err != nil {
		return fmt.Errorf("open a session in the ledger: %w", err)
	}
	defer session.Close()
	r, err := router.New(router.Config{
		ID: c.ID, Ledger: node, Session: session, Log: log, Metrics: tel.Metrics(), Dial: dial,
		QueueRequests: c.QueueRequests, QueueTokens: c.QueueTokens, QueueTimeout: c.QueueTimeout,
		ResumeTimeout: c.ResumeTimeout, MaxBodyBytes: int64(c.MaxBody), Tenants: c.tenants,
		Origins: c.CORSOrigins, Hosts: c.AllowedHosts, Version: flags.Version(),
		AdminToken: token.token, AdminTokenFile: token.file, AdminReads: token.reads,
	})
	if err != nil {
		return err
	}
	return serve(ctx, stop, c, log, r, l, node)
}

// warnOpenPorts says which ports trust whoever reaches them.
func warnOpenPorts(log *slog.Logger, c *config) {
	for flag, addr := range map[string]string{"--rpc": c.RPC, "--raft": c.Raft} {
		if host, _, _ := net.SplitHostPort(addr); !loopback(host) {
			log.Warn("this port trusts whoever reaches it: keep it inside a network of the cluster's own", "flag", flag, "address", addr)
		}
	}
}

// listeners are bound before anything else starts, so that a taken address is said at once.
type listeners struct{ http, rpc, admin net.Listener }

func listen(c *config) (*listeners, error) {
	l := &listeners{}
	for _, b := range []struct {
		flag, addr string
		into       *net.Listener
	}{{"--http", c.HTTP, &l.http}, {"--rpc", c.RPC, &l.rpc}, {"--admin", c.Admin, &l.admin}} {
		bound, err := net.Listen("tcp", b.addr)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("%s: %w", b.flag, err)
		}
		*b.into = bound
	}
	return l, nil
}

func (l *listeners) close() {
	for _, one := range []net.Listener{l.http, l.rpc, l.admin} {
		if one != nil {
			one.Close()
		}
	}
}

// lastWords is how long answers that have ended may take to reach their clients.
const lastWords = time.Second

// serve runs the router until a signal or a failure. Requests that run are waited for at a signal, then cut.
func serve(ctx context.Context, stop func(), c *config, log *slog.Logger, r *router.Router, l *listeners,
	node *consensus.Node) error {
	rpc := grpc.NewServer(
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	r.RegisterRPC(rpc)
	node.RegisterRPC(rpc)
	healthv1.RegisterHealthServer(rpc, health.NewServer())
	api := httpServer(r.Handler())
	admin := httpServer(r.AdminHandler())
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := make(chan error, 4)
	go func() { ended <- r.Run(running) }()
	go func() { ended <- rpc.Serve(l.rpc) }()
	go func() { ended <- api.Serve(l.http) }()
	go func() { ended <- admin.Serve(l.admin) }()
	addrs := map[string]string{"http": l.http.Addr().String(), "rpc": l.rpc.Addr().String(), "admin": l.admin.Addr().String(), "id": c.ID}
	if err := c.WriteAddrs(addrs); err != nil {
		return err
	}
	log.Info("serving", "http", addrs["http"], "rpc", addrs["rpc"], "admin", addrs["admin"])
	var failed error
	select {
	case failed = <-ended:
	case failed = <-node.Failed():
	case <-ctx.Done():
		stop() // a second signal ends the process at once
		node.HandOver()
		log.Info("draining", "delay", c.ShutdownDelay.String(), "timeout", c.DrainTimeout.String())
		drain, done := context.WithTimeout(context.Background(), c.ShutdownDelay+c.DrainTimeout)
		defer done()
		if err := r.Drain(drain, c.ShutdownDelay); err != nil {
			log.Warn("requests are cut off", "reason", "they run longer than --drain-timeout")
		}
		last, sent := context.WithTimeout(context.Background(), lastWords)
		defer sent()
		if err := api.Shutdown(last); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			failed = err
		}
	}
	api.Close()
	admin.Close()
	cancel()
	rpc.Stop()
	return errors.Join(failed, r.Close())
}

// httpServer speaks HTTP/1.1 and, without TLS, HTTP/2.
func httpServer(h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, Protocols: protocols}
}
