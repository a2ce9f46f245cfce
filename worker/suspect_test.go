package worker

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/model"
)

// poisonedDevice never ends a step that is bad.
type poisonedDevice struct {
	*hashDevice
	bad   func(rows []model.Row) bool
	stuck bool
	let   chan struct{} // closed when the test is over
}

func (d *poisonedDevice) Submit(p *model.Plan) error {
	d.stuck = d.bad(p.Rows)
	return d.hashDevice.Submit(p)
}

func (d *poisonedDevice) Wait() (*model.Result, error) {
	if d.stuck {
		<-d.let
	}
	return d.hashDevice.Wait()
}

// poisoned is a cluster whose devices, one after another, never end a bad step. opened counts them.
func poisoned(t *testing.T, bad func([]model.Row) bool) (c *cluster, opened *atomic.Int64) {
	opened = new(atomic.Int64)
	let := make(chan struct{})
	t.Cleanup(func() { close(let) })
	open := func(d *hashDevice) Device {
		opened.Add(1)
		return &poisonedDevice{hashDevice: d, bad: bad, let: let}
	}
	s := setup{pages: 400, slots: 16, stepTimeout: 100 * time.Millisecond, device: open}
	s.reopen = func() (Device, error) { return open(newHashDevice(c.device.geometry, 400)), nil }
	c = start(t, s)
	return c, opened
}

// TestACauseIsFoundAlone: a request whose every step is fatal is in three of them and ends with their number, for its router
// to know; those that were in a step with it, and those that come later, are answered on the same incarnation.
func TestACauseIsFoundAlone(t *testing.T) { // P1
	const poison = 7
	c, opened := poisoned(t, func(rows []model.Row) bool {
		return slices.ContainsFunc(rows, func(r model.Row) bool { return slices.Contains(r.Tokens, poison) })
	})
	engine := c.worker.engine.Load()
	var all sync.WaitGroup
	ask := func(i, n int) {
		p := slices.DeleteFunc(prompt(uint64(i), 20), func(id int32) bool { return id == poison })
		if slices.Contains(say(p, n), poison) {
			return
		}
		r := c.reserve(ask{"g", p, n})
		all.Go(func() {
			if a, err := c.generate(t.Context(), r, 0); err != nil || !slices.Equal(a.ids, say(p, n)) {
				t.Errorf("request %d beside the cause: %v, said %d tokens", i, err, len(a.ids))
			}
		})
	}
	for i := range 5 {
		ask(i, 150)
	}
	p := prompt(99, 40)
	p[30] = poison
	_, err := c.generate(t.Context(), c.reserve(one(p, 10)), 0)
	steps := uint32(0)
	for _, d := range status.Convert(err).Details() {
		if f, ok := d.(*workerv1.FatalStep); ok {
			steps = f.Steps
		}
	}
	if status.Code(err) != codes.Aborted || steps != maxFatal {
		t.Errorf("the cause ended with %v, in %d fatal steps", err, steps)
	}
	ask(50, 20)
	all.Wait()
	if n := opened.Load(); n != 1+maxFatal || c.worker.engine.Load() != engine {
		t.Errorf("%d devices, same incarnation: %v", n, c.worker.engine.Load() == engine)
	}
	c.await("drain", c.drained)
}

func one(p []int32, n int) ask { return ask{"g", p, n} }

// TestALargeStepIsFatalOnce: a step is fatal for its size, on a machine that is slow for a while. What was in it goes on in
// smaller ones, and nothing is lost.
func TestALargeStepIsFatalOnce(t *testing.T) { // P1, W4
	slow := 3
	c, opened := poisoned(t, func(rows []model.Row) bool {
		tokens := 0
		for _, r := range rows {
			tokens += len(r.Tokens)
		}
		if tokens > 20 && slow > 0 {
			slow--
			return true
		}
		return false
	})
	var all sync.WaitGroup
	for i := range 8 {
		p := prompt(uint64(i), 60)
		r := c.reserve(ask{fmt.Sprint("g", i%2), p, 40})
		all.Go(func() {
			if a, err := c.generate(t.Context(), r, 0); err != nil || !slices.Equal(a.ids, say(p, 40)) {
				t.Errorf("request %d: %v, said %d tokens", i, err, len(a.ids))
			}
		})
	}
	all.Wait()
	if n := opened.Load(); n < 2 {
		t.Error("no step was fatal: the test shows nothing")
	}
	c.await("drain", c.drained)
}

// A dispatch that was in fatal steps elsewhere has its prompt to itself from the start.
func TestASuspectComesFromElsewhere(t *testing.T) {
	c := start(t, setup{pages: 200, slots: 8})
	p := prompt(5, 60)
	r := c.reserve(ask{"g", p, 20})
	r.FatalSteps = 2
	if a, err := c.generate(t.Context(), r, 0); err != nil || !slices.Equal(a.ids, say(p, 20)) {
		t.Errorf("%v, said %v", err, a.ids)
	}
	c.await("drain", c.drained)
}
