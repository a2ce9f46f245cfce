package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/kvpool"
)

// Config is what a worker is made of.
type Config struct {
	ID      string               // name in the cluster
	Info    *ledgerv1.WorkerInfo // what the cluster is told; geometry, pages, slots and limits are taken from it
	Card    *workerv1.Card       // tokenizer and template, for routers
	Device  Device
	Vocab   int // ids are in [0, Vocab)
	Routers []string
	Dial    []grpc.DialOption
	Lease   time.Duration // of the incarnation; renewed six times a term, since a router that hangs must be left in time
	// A step that runs longer than StepTimeout takes readiness away and has the device replaced.
	StepTimeout time.Duration
	// Guesses is how many tokens a branch may guess in a step that has few branches; the device takes model.Row.Guesses. 0:
	// none.
	Guesses int
	// Reopen gives up the device, which has a step that does not end, and opens another like it. The first may go on reading
	// its last plan for ever. Nil: the worker ends instead.
	Reopen func() (Device, error)
	// Inspect is shown the pool between steps, by the engine's goroutine, and an error of its ends the incarnation: for tests
	// and simulations. Nil: nobody looks.
	Inspect func(*kvpool.Pool) error
	Log     *slog.Logger
}

// Validate joins everything that is wrong with c.
func (c Config) Validate() error {
	var faults []error
	need := func(ok bool, what string) {
		if !ok {
			faults = append(faults, errors.New(what))
		}
	}
	need(c.ID != "", "a worker needs an id")
	need(len(c.Routers) > 0, "a worker needs a router's address")
	need(c.Device != nil && c.Vocab > 0, "a worker needs a device and its vocabulary")
	need(c.StepTimeout > 0, "the step timeout must be more than 0")
	need(c.Lease >= 100*time.Millisecond, "the lease must be 100 ms or more")
	need(c.Info.GetSlots() > 0 && c.Info.GetMaxModelLen() > 0, "slots and model length must be 1 or more")
	return errors.Join(faults...)
}

// Worker serves reserved requests, one incarnation after another.
type Worker struct {
	workerv1.UnimplementedWorkerServer
	cfg      Config
	geometry kvpool.Geometry
	engine   atomic.Pointer[engine]
	stats    atomic.Pointer[Stats]
	device   *watched
	pace     *pace        // of the device and those like it; the engine's
	failures int          // of devices in a row
	stepping atomic.Int64 // start of the step that runs, Unix nanoseconds, 0 if none
	draining atomic.Bool
	metrics  *metrics
}

// New returns a worker that Run starts.
func New(c Config) (*Worker, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	w := &Worker{cfg: c, geometry: geometryOf(c.Info.Geometry), pace: newPace(c.StepTimeout.Seconds())}
	w.stats.Store(&Stats{})
	m, err := newMetrics(w)
	if err != nil {
		return nil, err
	}
	w.metrics = m
	return w, nil
}

func geometryOf(g *ledgerv1.Geometry) kvpool.Geometry {
	out := kvpool.Geometry{
		BlockSize: int(g.BlockSize), StepsInFlight: int(g.StepsInFlight),
		MaxBatchTokens: int(g.MaxBatchTokens), PrefillsInStep: int(g.PrefillsInStep),
	}
	for _, w := range g.Windows {
		lg := kvpool.Group{Kind: kvpool.Full}
		if w > 0 {
			lg = kvpool.Group{Kind: kvpool.Sliding, Window: int(w)}
		}
		out.Groups = append(out.Groups, lg)
	}
	return out
}

// Ready says why the worker takes no work, nil if it does.
func (w *Worker) Ready() error {
	if w.draining.Load() {
		return errors.New("draining")
	}
	if at := w.stepping.Load(); at != 0 && time.Since(time.Unix(0, at)) > w.cfg.StepTimeout {
		return fmt.Errorf("a step has run for more than %v", w.cfg.StepTimeout)
	}
	if w.engine.Load() == nil {
		return errors.New("not registered with a router")
	}
	return nil
}

// Stats is the state of the last step.
func (w *Worker) Stats() Stats { return *w.stats.Load() }

// Run serves until ctx ends, another process takes the worker's name (ErrSuperseded), or the device fails; one that is
// stuck is replaced.
func (w *Worker) Run(ctx context.Context) error {
	w.device = watch(w.cfg.Device, w.cfg.StepTimeout, &w.stepping)
	defer func() {
		if !w.Stuck() {
			w.device.end()
		}
	}()
	for {
		err := w.registered(ctx)
		switch {
		case errors.Is(err, errImpossible):
			w.cfg.Log.Error("this incarnation ends; registering anew", "error", err)
		case errors.Is(err, errNonceSpent):
			w.cfg.Log.Warn("the ledger has ended this incarnation; registering anew")
		default:
			return err
		}
	}
}

// registered lives under one nonce until that is spent. A fenced nonce is tried once more: the answer tells a lease that
// ran out from another process of the same name, which a new registration would fence in its turn.
func (w *Worker) registered(ctx context.Context) error {
	nonce := make([]byte, 16)
	rand.Read(nonce)
	for {
		if err := w.incarnation(ctx, nonce); !errors.Is(err, ErrFenced) || errors.Is(err, errNonceSpent) {
			return err
		}
	}
}

// errNonceSpent says that a registration was refused because its nonce was fenced.
var errNonceSpent = fmt.Errorf("%w: its nonce is spent", ErrFenced)

// incarnation lives from one registration to its end. The engine starts with the first answer; streams come and go.
func (w *Worker) incarnation(ctx context.Context, nonce []byte) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer w.engine.Store(nil)
	l := newLine(w.cfg.Log)
	var session *ledgerv1.Opened
	ended := make(chan struct{})
	defer func() {
		cancel(err)
		if session != nil {
			<-ended
		}
	}()
	failures := 0
	for attempt := 0; ; attempt++ {
		router := w.cfg.router(attempt)
		err := w.attach(ctx, router, nonce, l, func(opened *ledgerv1.Opened) error {
			failures = 0
			if err := l.mayGoOn(opened); err != nil {
				return err
			}
			if session != nil {
				return sameIncarnation(session, opened)
			}
			session = opened
			return w.startEngine(ctx, l, opened, cancel, ended)
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrFenced), errors.Is(err, ErrSuperseded):
			return err
		}
		w.cfg.Log.Warn("not attached to a router", "router", router, "error", err)
		select {
		case <-time.After(min(10*time.Millisecond<<min(failures, 6), 500*time.Millisecond)):
			failures++
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// router is where the worker attaches at an attempt: all of them in turn, from one that its name decides, so that workers
// that are told the same routers do not all hang on the first.
func (c *Config) router(attempt int) string {
	h := fnv.New32a()
	io.WriteString(h, c.ID)
	return c.Routers[(uint64(h.Sum32())+uint64(attempt))%uint64(len(c.Routers))]
}

// sameIncarnation refuses to go on in another cluster, or as another incarnation, than the engine's.
func sameIncarnation(was, is *ledgerv1.Opened) error {
	if was.Session != is.Session || string(was.ClusterId) != string(is.ClusterId) {
		return ErrFenced
	}
	return nil
}

func (w *Worker) startEngine(ctx context.Context, l *line, o *ledgerv1.Opened, cancel context.CancelCauseFunc, ended chan struct{}) error {
	id := identity{
		session: o.Session, revision: string(w.cfg.Info.ModelRevision),
		numerics: w.cfg.Info.Numerics, layout: w.cfg.Info.Layout,
	}
	copy(id.hashKey[:], o.HashKey)
	e, err := newEngine(w.device, w.geometry, int(w.cfg.Info.Pages), id, l, w.note)
	if err != nil {
		close(ended)
		cancel(err) // no other registration of this process would fare better
		return err
	}
	e.inspect, e.sched.guesses, e.sched.pace = w.cfg.Inspect, w.cfg.Guesses, w.pace
	e.reopen, e.maxSlots = w.restart, int(w.cfg.Info.Slots)
	e.mail.limit = max(e.mail.limit, 2*int(w.cfg.Info.Slots))
	l.deliver = func(f func(*engine)) { e.mail.put(f) } // an engine that has ended wants nothing
	l.notify = e.mail.notify
	go func() {
		defer close(ended)
		cancel(e.run(ctx))
	}()
	w.engine.Store(e)
	w.cfg.Log.Info("registered", "incarnation", o.Session)
	return nil
}

// attach opens a stream to a router, registers, and serves the stream until it breaks.
func (w *Worker) attach(ctx context.Context, router string, nonce []byte, l *line, opened func(*ledgerv1.Opened) error) error {
	conn, err := grpc.NewClient(router, w.cfg.Dial...)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := time.AfterFunc(w.cfg.Lease/4, cancel) // another router may answer in time
	stream, err := workerv1.NewClusterClient(conn).Attach(ctx)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	register := &ledgerv1.Register{Worker: w.cfg.ID, Nonce: nonce, LeaseMs: uint64(w.cfg.Lease.Milliseconds()), Info: w.cfg.Info}
	if err := stream.Send(&workerv1.FromWorker{Kind: &workerv1.FromWorker_Register{Register: register}}); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	m, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	silent.Stop()
	if r := m.GetRegistered().GetRefusal(); r != nil {
		return refusedRegistration(r)
	}
	o := m.GetRegistered().GetOpened()
	if o == nil {
		return errors.New("register: the router's answer is none")
	}
	if err := opened(o); err != nil {
		return err
	}
	return l.serve(ctx, cancel, stream, w.cfg.Lease/6)
}

func refusedRegistration(r *ledgerv1.Refusal) error {
	switch r.Code {
	case ledgerv1.RefusalCode_REFUSAL_CODE_FENCED:
		return errNonceSpent
	case ledgerv1.RefusalCode_REFUSAL_CODE_SUPERSEDED:
		return ErrSuperseded
	}
	return fmt.Errorf("register: %s", r.Message)
}

func (w *Worker) heartbeat() *workerv1.Heartbeat {
	s := w.Stats()
	h := &workerv1.Heartbeat{
		ChargedPages: uint64(s.Pages.Charged), IdlePages: uint64(s.Pages.Idle), FreePages: uint64(s.Pages.Free),
		OverheadPages: uint64(s.Pages.Overhead), Running: uint64(s.Running), Waiting: uint64(s.Waiting),
		HeldPages: uint64(s.Pages.Held),
	}
	if err := w.Ready(); err != nil {
		h.Unready = err.Error()
	}
	return h
}

func (w *Worker) note(s Stats) {
	w.stats.Store(&s)
	w.metrics.step(s)
}

// Drain takes readiness away and waits, at most for the given time, until nothing runs.
func (w *Worker) Drain(timeout time.Duration) {
	w.draining.Store(true)
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if s := w.Stats(); s.Running == 0 && s.Waiting == 0 {
			return
		}
	}
}
