package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/consensus"
	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/router"
	"github.com/berthd/berth/worker"
)

const (
	routerName = "r1"
	modelName  = "sim"
)

// routerLife is one process of the router, wired as cmd/router does it.
type routerLife struct {
	node    *consensus.Node
	session *consensus.Session
	router  *router.Router
	rpc     *grpc.Server
	http    *http.Server
	ran     chan error
}

func (c *cluster) startRouter() error {
	c.lives++
	node, err := c.memory.Open(consensus.Config{ID: routerName, Random: source(c.Seed, uint64(c.lives)), Audit: c.audit, Log: c.log})
	if err != nil {
		return err
	}
	session, err := node.OpenSession(routerName, lease)
	if err != nil {
		return errors.Join(err, node.Close())
	}
	var l router.Ledger = node
	if c.sabotage.ledger != nil {
		l = c.sabotage.ledger(l)
	}
	r, err := router.New(router.Config{
		ID: routerName, Ledger: l, Session: session, Tenants: c.tenants(), Log: c.log, Dial: c.dial(routerName, c.tapped()),
		QueueTimeout: 2 * c.patience(), ResumeTimeout: time.Minute,
	})
	if err != nil {
		return errors.Join(err, node.Close())
	}
	life := &routerLife{
		node: node, session: session, router: r, rpc: grpc.NewServer(), http: &http.Server{Handler: r.Handler()},
		ran: make(chan error, 1),
	}
	r.RegisterRPC(life.rpc)
	go life.rpc.Serve(c.net.listen(routerName + ":rpc"))
	go life.http.Serve(c.net.listen(routerName + ":http"))
	go func() { life.ran <- r.Run(context.Background()) }()
	c.mu.Lock()
	c.router = life
	c.mu.Unlock()
	return nil
}

// stopRouter kills the router: it is cut off first, then its ledger, so that nothing that it does in its last moment is
// heard of.
func (c *cluster) stopRouter() {
	c.mu.Lock()
	life := c.router
	c.router = nil
	c.mu.Unlock()
	if life == nil {
		return
	}
	c.net.down(routerName)
	if err := life.node.Close(); err != nil {
		c.fail(fmt.Errorf("close the ledger: %w", err))
	}
	_ = life.http.Close() // nobody is there
	if err := life.router.Close(); err != nil {
		c.fail(fmt.Errorf("close the router: %w", err))
	}
	<-life.ran
	life.rpc.Stop()
}

// workerLife is one process of a worker, wired as cmd/worker does it.
type workerLife struct {
	worker *worker.Worker
	device atomic.Pointer[device]
	rpc    *grpc.Server
	cancel context.CancelFunc
	ran    chan error
}

// open gives a worker a device. Another one after it is a fault unless the scenario let the first one hang.
func (c *cluster) open(life *workerLife, i int) *device {
	spec := c.Workers[i]
	d := newDevice(c.Geometry, spec.Pages, spec.Speed)
	d.over = c.life.Done()
	d.before = func() {
		if c.sabotage.device != nil {
			c.sabotage.device(d)
		}
	}
	d.during = func(takes time.Duration) { c.moved(c.now() + takes) }
	if c.sabotage.unpaced {
		d.timeout = c.stepTimeout()
	}
	if last := life.device.Swap(d); last != nil && !last.hangs.Load() {
		c.fail(fmt.Errorf("P1: %s gave its device up for a step that was only slow", workerName(i)))
	}
	return d
}

func (c *cluster) startWorker(i int) error {
	name, spec := workerName(i), c.Workers[i]
	life := &workerLife{ran: make(chan error, 1)}
	d := c.open(life, i)
	timeout := c.stepTimeout()
	if c.sabotage.unpaced {
		timeout *= 1000 // what the worker plans by
	}
	var dial []grpc.DialOption
	if c.sabotage.line != nil {
		dial = append(dial, c.sabotage.line(d))
	}
	print, err := worker.Fingerprint(theCard)
	if err != nil {
		return err
	}
	w, err := worker.New(worker.Config{
		ID: name, Device: d, Vocab: vocabulary, Routers: []string{"passthrough:///" + routerName + ":rpc"}, Dial: c.dial(name, dial...),
		Lease: lease, StepTimeout: timeout, Reopen: func() (worker.Device, error) { return c.open(life, i), nil },
		Guesses: c.Guesses, Card: theCard, Log: c.log,
		Inspect: c.inspect,
		Info: &ledgerv1.WorkerInfo{
			Address: "passthrough:///" + name + ":rpc", Models: []string{modelName}, ModelRevision: []byte("rev"),
			Numerics: "hash", Layout: "l", Pages: uint64(spec.Pages), Slots: uint64(c.Slots), MaxModelLen: modelLen,
			Geometry: geometryMessage(c.Geometry), Card: print,
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	life.worker, life.rpc, life.cancel = w, grpc.NewServer(), cancel
	workerv1.RegisterWorkerServer(life.rpc, w)
	go life.rpc.Serve(c.net.listen(name + ":rpc"))
	go func() {
		err := w.Run(ctx)
		if !errors.Is(err, context.Canceled) {
			c.fail(fmt.Errorf("%s ended: %w", name, err))
		}
		life.ran <- err
	}()
	c.mu.Lock()
	c.workers[i] = life
	c.mu.Unlock()
	return nil
}

// inspect proves the pool's rules between any two steps (P4).
func (c *cluster) inspect(p *kvpool.Pool) error {
	if c.sabotage.pool != nil {
		c.sabotage.pool(p)
	}
	c.story.inspected.Add(1)
	if err := p.Check(); err != nil {
		return fmt.Errorf("P4: %w", err)
	}
	return nil
}

// stopWorker kills a worker, after cutting it off.
func (c *cluster) stopWorker(i int) {
	c.mu.Lock()
	life := c.workers[i]
	c.workers[i] = nil
	c.mu.Unlock()
	if life == nil {
		return
	}
	c.net.down(workerName(i))
	life.cancel()
	<-life.ran
	life.rpc.Stop()
}

// registered says that every worker is.
func (c *cluster) registered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, life := range c.workers {
		if life == nil || life.worker.Ready() != nil {
			return false
		}
	}
	return true
}

var theCard = card()

func geometryMessage(g kvpool.Geometry) *ledgerv1.Geometry {
	m := &ledgerv1.Geometry{BlockSize: uint32(g.BlockSize), StepsInFlight: uint32(g.StepsInFlight),
		MaxBatchTokens: uint32(g.MaxBatchTokens), PrefillsInStep: uint32(g.PrefillsInStep)}
	for _, lg := range g.Groups {
		m.Windows = append(m.Windows, uint32(lg.Window))
	}
	return m
}

// source is a stream of random bytes that the seed fixes.
func source(seed, life uint64) *rand.ChaCha8 {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], life)
	return rand.NewChaCha8(key)
}
