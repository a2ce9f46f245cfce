package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/kvpool"
)

// A step that does not end takes readiness away. The worker goes on with another device as the same incarnation: what the
// first one does later touches nothing, and the requests of the step come to their ends as if nothing had been.
func TestStuckDeviceIsReplaced(t *testing.T) { // P1, W4
	var c *cluster
	asked, let := make(chan struct{}, 9), make(chan struct{})
	s := setup{pages: 150, slots: 16, stepTimeout: 300 * time.Millisecond}
	s.reopen = func() (Device, error) {
		asked <- struct{}{}
		<-let
		return newHashDevice(c.device.geometry, 150), nil
	}
	c = start(t, s)
	was := c.view().Worker("w1").Incarnation
	c.device.hold = make(chan struct{}) // the eleventh step
	var all sync.WaitGroup
	for i := range 3 {
		p := prompt(uint64(i), 20)
		r := c.reserve(ask{fmt.Sprint("g", i), p, 100})
		all.Go(func() {
			a, err := c.generate(t.Context(), r, 0)
			if err != nil || !slices.Equal(a.ids, say(p, 100)) {
				t.Errorf("request %d, beside a stuck step: %v, said %d tokens", i, err, len(a.ids))
			}
		})
	}
	<-asked
	if err := c.worker.Ready(); err == nil {
		t.Error("ready with a stuck device")
	}
	close(let)
	all.Wait()
	close(c.device.hold) // the step ends after all
	if err := c.worker.Ready(); err != nil || c.view().Worker("w1").Incarnation != was {
		t.Errorf("on the new device: %v, incarnation %d, was %d", err, c.view().Worker("w1").Incarnation, was)
	}
	c.await("drain", c.drained)
	if c.worker.Stuck() {
		t.Error("stuck after a restart")
	}
}

// stuckWorker has a device that has ended some steps and then hangs.
func stuckWorker(t *testing.T, steps int, reopen func() (Device, error)) *Worker {
	t.Helper()
	w := &Worker{cfg: Config{StepTimeout: time.Minute, Log: slog.New(slog.DiscardHandler), Reopen: reopen}}
	w.device = watch(newHashDevice(kvpool.Geometry{}, 0), time.Minute, &w.stepping)
	t.Cleanup(func() { w.device.end() })
	w.device.steps = steps
	w.stepping.Store(1)
	return w
}

// A device that does not come up twice in a row, or ends no step, ends the worker.
func TestRestartFails(t *testing.T) {
	broken := errors.New("no memory")
	calls := 0
	fail := func() (Device, error) { calls++; return nil, broken }
	for _, c := range []struct{ steps, calls int }{{0, 1}, {7, 2}} {
		calls = 0
		w := stuckWorker(t, c.steps, fail)
		if _, err := w.restart(ErrStuck, false); !errors.Is(err, ErrStuck) || !errors.Is(err, broken) || calls != c.calls || !w.Stuck() {
			t.Errorf("after %d steps: %v, %d calls", c.steps, err, calls)
		}
	}
	if _, err := stuckWorker(t, 7, nil).restart(ErrStuck, false); !errors.Is(err, ErrStuck) {
		t.Errorf("with no way to open another: %v", err)
	}
	once := func() (Device, error) {
		if calls++; calls == 1 {
			return nil, broken
		}
		return newHashDevice(kvpool.Geometry{}, 0), nil
	}
	calls = 0
	w := stuckWorker(t, 7, once)
	if _, err := w.restart(ErrStuck, false); err != nil || w.Stuck() {
		t.Fatalf("at the second try: %v", err)
	}
	if _, err := w.restart(ErrStuck, false); !errors.Is(err, ErrStuck) || calls != 2 {
		t.Errorf("a new device that ended no step was replaced: %v", err)
	}
}
