package cpu

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/berthd/berth/model"
)

var (
	// ErrBusy is returned by Submit while as many steps as the device takes are in flight.
	ErrBusy = errors.New("too many steps in flight")
	// ErrIdle is returned by Wait when no step is in flight.
	ErrIdle = errors.New("no step in flight")
	// ErrClosed is returned by Submit and Wait after Close.
	ErrClosed = errors.New("device is closed")
)

// stepsInFlight is how many steps may be submitted and not waited for: one runs, one is ready behind it.
const stepsInFlight = 2

// Device runs forward passes of one model on this machine's processors. Submit, Wait and Close are for one goroutine at a
// time; Abandon may be called while Wait waits.
type Device struct {
	cfg     Config
	decoder model.Decoder
	memory  *memory // the head's
	engine  *group
	pool    runner // all threads
	batch   *batch
	head    *head

	plans    chan order
	results  chan outcome
	inFlight int
	closed   atomic.Bool
	left     atomic.Bool                     // abandoned
	ring     [stepsInFlight + 1]model.Result // so that a result outlives the next Wait's step
	turn     int
}

// order is a plan that passed the checks, and its digest then.
type order struct {
	plan   *model.Plan
	digest uint64
}

// outcome is what became of a step.
type outcome struct {
	result *model.Result
	err    error
}

// runner does chunks [0, n) of a task on its threads: a pool, or the pools of all ranks.
type runner interface {
	run(t *task, n int)
}

// Open copies the weights into the device's own layout and allocates every buffer. m may be closed afterwards.
func Open(m *model.Model, cfg Config) (*Device, error) {
	if cfg.KV == "" {
		cfg.KV = "f16"
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open cpu device: %w", err)
	}
	if cfg.Threads == 0 {
		cfg.Threads = min(runtime.NumCPU(), maxThreads)
	}
	cfg.Ranks = max(cfg.Ranks, 1)
	d := &Device{cfg: cfg, decoder: m.Decoder, memory: &memory{}}
	if err := d.build(m); err != nil {
		return nil, fmt.Errorf("open cpu device: %w", errors.Join(err, d.release()))
	}
	d.plans = make(chan order, stepsInFlight)
	d.results = make(chan outcome, stepsInFlight)
	go d.serve()
	return d, nil
}

// build allocates ranks and head.
func (d *Device) build(m *model.Model) (err error) {
	if d.engine, err = openGroup(m, d.cfg); err != nil {
		return err
	}
	d.pool, d.cfg.Threads = d.engine, d.engine.threads()
	d.batch = newBatch(d.cfg)
	d.head, err = newHead(d)
	return err
}

// release gives back threads and memory.
func (d *Device) release() error {
	err := d.memory.close()
	if d.engine != nil {
		err = errors.Join(err, d.engine.close())
	}
	return err
}

// Submit checks a plan and starts it, or queues it behind the one that runs. It returns at once: what is wrong with the
// plan, ErrBusy, or nil. The plan must not change until its result was waited for.
func (d *Device) Submit(p *model.Plan) error {
	switch {
	case d.closed.Load():
		return ErrClosed
	case d.inFlight == stepsInFlight:
		return ErrBusy
	}
	if err := d.check(p); err != nil {
		return fmt.Errorf("submit step %d: %w", p.Step, err)
	}
	d.inFlight++
	d.plans <- order{p, p.Digest()}
	return nil
}

// Wait returns the result of the oldest step in flight, when it is done. The result is the device's own, and valid
// until Wait is called again. A *PlanError says that the plan was changed after Submit.
func (d *Device) Wait() (*model.Result, error) {
	switch {
	case d.closed.Load():
		return nil, ErrClosed
	case d.inFlight == 0:
		return nil, ErrIdle
	}
	d.inFlight--
	o, open := <-d.results
	if !open {
		return nil, ErrClosed
	}
	return o.result, o.err
}

// Close waits for the steps in flight, then releases threads and memory.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	close(d.plans)
	for range d.results { // serve closes it when it has ended
	}
	return d.release()
}

// Abandon gives up a device whose step does not end. What runs in C can't be stopped, so the step keeps its threads and
// addresses until it ends, if ever; the memory behind them goes back to the system at once, and what the step still
// computes from it is lost. The plan must stay as it is for ever.
func (d *Device) Abandon() {
	if d.closed.Swap(true) {
		return
	}
	d.left.Store(true)
	d.memory.forget()
	for _, r := range d.engine.ranks {
		r.memory.forget()
	}
	close(d.plans)
}

// Numerics names the arithmetic that KV entries and logits come from: instruction set, weights, element type of pages,
// ranks. Pages may be exchanged only between devices of one name and one model revision.
func (d *Device) Numerics() string {
	return fmt.Sprintf("%s,%s,tp%d", d.engine.numerics(), d.cfg.KV, d.cfg.Ranks)
}

// Layout is how pages are laid out on every rank: groups, and each layer's place in them.
func (d *Device) Layout() model.KVLayout { return d.engine.layout }

// PageBytes is the size of a page on one rank.
func (d *Device) PageBytes() int { return d.engine.ranks[0].pages.page }

// Buffers lists what Open mapped, summed by name over the ranks: all that the device will ever hold outside the Go heap.
func (d *Device) Buffers() []Buffer {
	all := memory{sizes: slices.Clone(d.memory.sizes)}
	for _, r := range d.engine.ranks {
		for _, b := range r.memory.sizes {
			all.count(b.Name, b.Bytes)
		}
	}
	return all.sizes
}

// Page is a rank's memory of one page, for copies to and from other workers and tiers. The caller sees to it that no
// step in flight writes it.
func (d *Device) Page(rank, id int) []byte {
	p := &d.engine.ranks[rank].pages
	return p.mem[id*p.page : (id+1)*p.page : (id+1)*p.page]
}

// serve is the device's goroutine: one step after the other. Of an abandoned device it is the last to leave.
func (d *Device) serve() {
	defer close(d.results)
	defer func() {
		if d.left.Load() {
			_ = d.release() // nobody is there to be told
		}
	}()
	for o := range d.plans {
		r, err := d.step(o)
		d.results <- outcome{r, err}
	}
}

// step runs one plan.
func (d *Device) step(o order) (*model.Result, error) {
	if err := d.engine.agree(o); err != nil {
		return nil, err
	}
	r := &d.ring[d.turn]
	d.turn = (d.turn + 1) % len(d.ring)
	d.batch.fill(o.plan)
	d.engine.forward(d.batch)
	d.head.finish(d.batch, r)
	return r, nil
}
