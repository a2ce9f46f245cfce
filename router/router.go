package router

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// errClosed says that the router is going down.
var errClosed = errors.New("router: closed")

// Router serves clients, workers and operators. All methods may be called by many goroutines at once.
type Router struct {
	cfg         Config
	started     int64 // Unix seconds, when models were made as far as clients are told
	bell        *bell // rings when members, or what this router has asked of the ledger, changed
	members     members
	prefixes    *prefixes
	catalog     catalog
	conns       conns
	origins     *http.CrossOriginProtection
	bodies      *bodies // of clients
	encoders    *gate
	keyring     keyring
	adminBodies *bodies
	woke        atomic.Bool // the view has been up to date once
	queue       *queue
	outage      outage
	claims      claims
	flights     flights
	decisions   decisions
	turn        atomic.Uint64
	drain       drain
	trace       *traces

	life context.Context // ends with Close
	end  context.CancelCauseFunc
	runs sync.WaitGroup
}

// New returns a router. Run makes it fetch what workers bring.
func New(c Config) (*Router, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("router config: %w", err)
	}
	c = c.withDefaults()
	b := newBell()
	r := &Router{
		cfg: c, started: c.Now().Unix(), bell: b,
		members:     members{byName: map[string]*member{}, faults: map[living]string{}, bell: b},
		prefixes:    newPrefixes(c.IndexBytes),
		catalog:     catalog{cards: map[string]*card{}, turns: map[string]*turn{}},
		conns:       conns{dial: c.Dial, open: map[string]*conn{}},
		bodies:      newBodies(smallBodies, c.BodiesBytes),
		encoders:    newGate(runtime.GOMAXPROCS(0) / 2),
		adminBodies: newBodies(adminBodies, adminBodies),
		queue:       newQueue(c.QueueRequests, c.QueueTokens),
		claims:      claims{pending: map[string]claim{}, groups: map[string]uint64{}},
		flights:     flights{all: map[*flight]struct{}{}},
		decisions:   decisions{at: map[string]int{}},
	}
	var err error
	if r.origins, err = crossOrigin(c.Origins); err != nil {
		return nil, fmt.Errorf("router config: %w", err)
	}
	r.life, r.end = context.WithCancelCause(context.Background())
	if r.trace, err = newTraces(r); err != nil {
		r.end(err)
		return nil, fmt.Errorf("router metrics: %w", err)
	}
	return r, nil
}

// RegisterRPC adds what workers call to a gRPC server.
func (r *Router) RegisterRPC(s grpc.ServiceRegistrar) {
	workerv1.RegisterClusterServer(s, cluster{Router: r})
}

// Run watches the workers that the ledger knows, fetches their cards and cuts off fenced ones, until ctx ends or Close.
// Without it no model is served.
func (r *Router) Run(ctx context.Context) error {
	r.runs.Add(1)
	defer r.runs.Done()
	ctx, cancel := r.owned(ctx)
	defer cancel()
	var others sync.WaitGroup
	others.Go(func() { r.warden(ctx) })
	others.Go(func() { r.scout(ctx) })
	others.Go(func() { r.seed(ctx) })
	others.Go(func() { r.watchQuorum(ctx) })
	r.librarian(ctx)
	others.Wait()
	return context.Cause(ctx)
}

// Close ends the streams of workers and waits for Run. Requests of clients end with their HTTP server.
func (r *Router) Close() error {
	r.end(errClosed)
	r.runs.Wait()
	return r.trace.close()
}

// owned is a context that ends with the router too.
func (r *Router) owned(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.life, func() { cancel(context.Cause(r.life)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}
