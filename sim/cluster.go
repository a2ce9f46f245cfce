package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus"
	"github.com/berthd/berth/consensus/ledger"
	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/router"
)

// lease is that of the router's session and of workers' incarnations, as programs have it by default.
const lease = 3 * time.Second

// patience is how long a client waits for its answer, on devices that are not slow: no scenario is so hard that it would
// take as long.
const patience = 10 * time.Minute

// sabotage is what tests break on purpose, to see that it is noticed.
type sabotage struct {
	ledger func(router.Ledger) router.Ledger // between the router, with all workers behind it, and the node
	device func(*device)                     // before each step
	pool   func(*kvpool.Pool)                // between steps, before it is checked
	pages  func(n uint64) uint64             // of a dispatch, in place of those reserved
	line   func(*device) grpc.DialOption     // of a worker
	// unpaced has workers plan by another timeout than the one that devices keep.
	unpaced bool
}

// cluster is a run under way.
type cluster struct {
	Scenario
	sabotage
	net    *network
	memory *consensus.Memory
	rng    *rand.Rand // of the disk, used by the log's writer alone
	lives  int        // of the router
	log    *slog.Logger
	began  time.Time
	story  story
	order  order

	stepped atomic.Int64 // until when a device has last had a step
	waiting atomic.Int64 // clients

	life context.Context // ends when a rule is broken
	fail context.CancelCauseFunc

	mu      sync.Mutex
	router  *routerLife
	workers []*workerLife
}

func newCluster(s Scenario, x sabotage, log *slog.Logger) *cluster {
	c := &cluster{
		Scenario: s, sabotage: x, net: newNetwork(s.Seed, s.Network), memory: consensus.NewMemory(),
		rng: rand.New(rand.NewPCG(s.Seed, 2)), log: log, began: time.Now(), workers: make([]*workerLife, len(s.Workers)),
	}
	c.life, c.fail = context.WithCancelCause(context.Background())
	if s.Disk > 0 {
		c.memory.Write = func() { time.Sleep(time.Duration(c.rng.Int64N(int64(s.Disk)))) }
	}
	return c
}

// dial is how a host reaches others.
func (c *cluster) dial(from string, more ...grpc.DialOption) []grpc.DialOption {
	return append(more,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return c.net.dial(ctx, from, address)
		}))
}

// audit proves the ledger's rules at each index (P3).
func (c *cluster) audit(s *ledger.State, p *ledgerv1.Proposal, _ *ledgerv1.Result) {
	c.story.audited.Add(1)
	if err := s.Check(); err != nil {
		c.fail(fmt.Errorf("P3: after %v at revision %d: %w", p.Command, s.Revision(), err))
	}
}

// start brings the router and all workers up and waits until they serve.
func (c *cluster) start() error {
	if err := c.startRouter(); err != nil {
		return err
	}
	for i := range c.Workers {
		if err := c.startWorker(i); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(time.Minute); !c.registered(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("the cluster does not come up")
		}
	}
	time.Sleep(time.Second) // the router fetches the card
	c.began = time.Now()
	return nil
}

func (c *cluster) stop() {
	for i := range c.Workers {
		c.stopWorker(i)
	}
	c.stopRouter()
}

// apply lets a fault happen, and end.
func (c *cluster) apply(f Fault) {
	if !c.sleepUntil(f.At) {
		return
	}
	c.story.add(c.now(), f.Host, f.Kind.String())
	switch {
	case f.Kind == Hold:
		c.net.hold(f.Host, f.For)
		c.sleepUntil(f.At + f.For)
	case f.Kind == Hang:
		c.mu.Lock()
		for i, life := range c.workers {
			if workerName(i) == f.Host && life != nil {
				life.device.Load().hangs.Store(true)
			}
		}
		c.mu.Unlock()
	case f.Host == routerName:
		c.stopRouter()
		if c.sleepUntil(f.At + f.For) {
			c.again(c.startRouter())
		}
	default:
		var i int
		if _, err := fmt.Sscanf(f.Host, "w%d", &i); err != nil || i < 1 || i > len(c.Workers) {
			c.fail(fmt.Errorf("no host %q", f.Host))
			return
		}
		c.stopWorker(i - 1)
		if c.sleepUntil(f.At + f.For) {
			c.again(c.startWorker(i - 1))
		}
	}
	c.story.add(c.now(), f.Host, "back")
}

func (c *cluster) again(err error) {
	if err != nil {
		c.fail(fmt.Errorf("start again: %w", err))
	}
}

func (c *cluster) now() time.Duration { return time.Since(c.began) }

// sleepUntil says whether the run goes on then.
func (c *cluster) sleepUntil(at time.Duration) bool {
	select {
	case <-time.After(at - c.now()):
		return true
	case <-c.life.Done():
		return false
	}
}
