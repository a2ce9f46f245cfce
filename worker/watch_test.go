package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berthd/berth/model"
)

// hangingDevice has a rank that may hang: Wait does not return before it is let go.
type hangingDevice struct {
	Device
	hangs  atomic.Bool
	let    chan struct{}
	waited chan struct{} // closed when it was let go
}

func newHangingDevice(d Device) *hangingDevice {
	return &hangingDevice{Device: d, let: make(chan struct{}), waited: make(chan struct{})}
}

func (d *hangingDevice) Wait() (*model.Result, error) {
	if d.hangs.Load() {
		<-d.let
		defer close(d.waited)
	}
	return d.Device.Wait()
}

// A step that does not end takes readiness away and the incarnation's requests with it; the worker registers anew on
// another device, and what the first one does later touches nothing.
func TestStuckDeviceIsReplaced(t *testing.T) {
	var first *hangingDevice
	var c *cluster
	opened := make(chan *hashDevice, 1)
	let := make(chan struct{})
	s := setup{pages: 150, slots: 16, stepTimeout: 50 * time.Millisecond}
	s.device = func(d *hashDevice) Device {
		first = newHangingDevice(d)
		return first
	}
	s.reopen = func() (Device, error) {
		<-let
		d := newHashDevice(c.device.geometry, 150)
		opened <- d
		return d, nil
	}
	c = start(t, s)
	was := c.view().Worker("w1").Incarnation
	first.hangs.Store(true)
	failed := make(chan error, 3)
	for i := range cap(failed) {
		r := c.reserve(ask{fmt.Sprint("g", i), prompt(uint64(i), 20), 30})
		go func() {
			_, err := c.generate(t.Context(), r, 0)
			failed <- err
		}()
	}
	for range cap(failed) {
		if err := <-failed; status.Code(err) != codes.Aborted && status.Code(err) != codes.Unavailable {
			t.Errorf("a request of a stuck step ended with %v", err)
		}
	}
	if err := c.worker.Ready(); err == nil {
		t.Error("ready with a stuck device")
	}
	close(let)
	c.await("a new incarnation", func() bool {
		is := c.view().Worker("w1").Incarnation
		return is != 0 && is != was && c.worker.Ready() == nil
	})
	<-opened
	close(first.let) // the step ends after all
	<-first.waited
	p := prompt(4, 30)
	a, err := c.generate(t.Context(), c.reserve(ask{"g", p, 10}), 0)
	if err != nil || !slices.Equal(a.ids, say(p, 10)) {
		t.Errorf("on the new device: %v, %v", a.ids, err)
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
	w.device = watch(newHangingDevice(nil), time.Minute, &w.stepping)
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
		if err := w.restart(ErrStuck); !errors.Is(err, ErrStuck) || !errors.Is(err, broken) || calls != c.calls || !w.Stuck() {
			t.Errorf("after %d steps: %v, %d calls", c.steps, err, calls)
		}
	}
	if err := stuckWorker(t, 7, nil).restart(ErrStuck); !errors.Is(err, ErrStuck) {
		t.Errorf("with no way to open another: %v", err)
	}
	once := func() (Device, error) {
		if calls++; calls == 1 {
			return nil, broken
		}
		return newHangingDevice(nil), nil
	}
	calls = 0
	w := stuckWorker(t, 7, once)
	if err := w.restart(ErrStuck); err != nil || w.Stuck() {
		t.Fatalf("at the second try: %v", err)
	}
	if err := w.restart(ErrStuck); !errors.Is(err, ErrStuck) || calls != 2 {
		t.Errorf("a new device that ended no step was replaced: %v", err)
	}
}
