package cpu

import (
	"errors"
	"fmt"
	"runtime"

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

// Device runs forward passes of one model on this machine's processors. Submit, Wait and Close are for one goroutine.
type Device struct {
	cfg     Config
	decoder model.Decoder
	memory  *memory
	pages   pages
	pool    *pool
	engine  engine
	batch   *batch
	head    *head

	plans    chan *model.Plan
	results  chan *model.Result
	inFlight int
	closed   bool
	ring     [stepsInFlight + 1]model.Result // so that a result outlives the next Wait's step
	turn     int
}

// engine is a way to compute the layers: kernels, or plain Go.
type engine interface {
	// forward runs every layer over the batch, reading and writing pages, and keeps the hidden state of each token.
	forward(b *batch)
	// logits writes one row of Vocab logits for each token, at out[i·stride].
	logits(tokens []output, out []float32, stride int)
	// chooser finds highest logits without the others; nil where there is no such way.
	chooser() chooser
	// numerics names the arithmetic: two engines with one name give the same bits.
	numerics() string
}

// chooser writes, for each token, the lowest id of the highest logit: the argmax of engine.logits. It takes as many tokens
// as the head computes at a time, and room for their logits.
type chooser interface {
	choose(tokens []output, room []float32, ids []int32)
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
	d := &Device{cfg: cfg, decoder: m.Decoder, memory: &memory{}, pool: newPool(cfg.Threads), batch: newBatch(cfg)}
	if err := d.build(m); err != nil {
		d.pool.close()
		return nil, fmt.Errorf("open cpu device: %w", errors.Join(err, d.memory.close()))
	}
	d.plans = make(chan *model.Plan, stepsInFlight)
	d.results = make(chan *model.Result, stepsInFlight)
	go d.serve()
	return d, nil
}

// build allocates pages, engine and head.
func (d *Device) build(m *model.Model) (err error) {
	if d.pages, err = newPages(d.memory, m.KVLayout(), d.cfg); err != nil {
		return err
	}
	if d.engine, err = newEngine(d, m); err != nil {
		return err
	}
	d.head, err = newHead(d)
	return err
}

// newEngine picks the arithmetic: kernels where they can run and were not refused.
func newEngine(d *Device, m *model.Model) (engine, error) {
	if !d.cfg.Reference && Kernels() {
		return newKernels(d, m)
	}
	return newReference(d, m), nil
}

// Submit checks a plan and starts it, or queues it behind the one that runs. It returns at once: what is wrong with the
// plan, ErrBusy, or nil. The plan must not change until its result was waited for.
func (d *Device) Submit(p *model.Plan) error {
	switch {
	case d.closed:
		return ErrClosed
	case d.inFlight == stepsInFlight:
		return ErrBusy
	}
	if err := d.check(p); err != nil {
		return fmt.Errorf("submit step %d: %w", p.Step, err)
	}
	d.inFlight++
	d.plans <- p
	return nil
}

// Wait returns the result of the oldest step in flight, when it is done. The result is the device's own, and valid
// until Wait is called again.
func (d *Device) Wait() (*model.Result, error) {
	switch {
	case d.closed:
		return nil, ErrClosed
	case d.inFlight == 0:
		return nil, ErrIdle
	}
	d.inFlight--
	return <-d.results, nil
}

// Close waits for the steps in flight, then releases threads and memory.
func (d *Device) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	close(d.plans)
	for range d.results { // serve closes it when it has ended
	}
	d.pool.close()
	return d.memory.close()
}

// Numerics names the arithmetic that KV entries and logits come from: instruction set, weights, element type of pages,
// ranks. Pages may be exchanged only between devices of one name and one model revision.
func (d *Device) Numerics() string { return d.engine.numerics() + "," + d.cfg.KV + ",tp1" }

// Layout is how pages are laid out: groups, and each layer's place in them.
func (d *Device) Layout() model.KVLayout { return d.pages.layout }

// PageBytes is the size of a page.
func (d *Device) PageBytes() int { return d.pages.page }

// Buffers lists what Open mapped, summed by name: all that the device will ever hold outside the Go heap.
func (d *Device) Buffers() []Buffer { return d.memory.sizes }

// Page is the memory of one page, for copies to and from other workers and tiers. The caller sees to it that no step in
// flight writes it.
func (d *Device) Page(id int) []byte {
	return d.pages.mem[id*d.pages.page : (id+1)*d.pages.page : (id+1)*d.pages.page]
}

// serve is the device's goroutine: one step after the other.
func (d *Device) serve() {
	defer close(d.results)
	for p := range d.plans {
		d.results <- d.step(p)
	}
}

// step runs one plan.
func (d *Device) step(p *model.Plan) *model.Result {
	r := &d.ring[d.turn]
	d.turn = (d.turn + 1) % len(d.ring)
	d.batch.fill(p)
	d.engine.forward(d.batch)
	d.head.finish(d.batch, r)
	return r
}
