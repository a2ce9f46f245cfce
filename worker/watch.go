package worker

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/model"
)

// ErrStuck says that a step did not end in time. Its device can't be used any more, nor closed.
var ErrStuck = errors.New("a step does not end")

// watched is a device that is waited for no longer than a limit. The waiting is done by a goroutine of its own, since
// neither a device nor a call into C can be interrupted; when the limit has passed, it is left behind with the device.
type watched struct {
	Device
	limit   time.Duration
	since   *atomic.Int64 // start of the step that runs, Unix nanoseconds, 0 if none; of one that did not end, for good
	steps   int           // that have ended
	asked   chan struct{}
	answers chan waited
	timer   *time.Timer
}

type waited struct {
	result *model.Result
	err    error
}

func watch(d Device, limit time.Duration, since *atomic.Int64) *watched {
	w := &watched{
		Device: d, limit: limit, since: since, asked: make(chan struct{}, 1), answers: make(chan waited, 1),
		timer: time.NewTimer(limit),
	}
	w.timer.Stop()
	go w.serve()
	return w
}

func (w *watched) serve() {
	defer close(w.answers)
	for range w.asked {
		r, err := w.Device.Wait()
		w.answers <- waited{r, err}
	}
}

// Submit notes when the step began.
func (w *watched) Submit(p *model.Plan) error {
	w.since.Store(time.Now().UnixNano())
	err := w.Device.Submit(p)
	if err != nil {
		w.since.Store(0)
	}
	return err
}

// Wait fails with ErrStuck when the step takes longer than the limit. What its plan refers to must stay as it is then.
func (w *watched) Wait() (*model.Result, error) {
	w.timer.Reset(w.limit)
	w.asked <- struct{}{}
	select {
	case a := <-w.answers:
		w.timer.Stop()
		if errors.Is(a.err, ErrStuck) { // the device knows by itself
			close(w.asked)
			return nil, a.err
		}
		w.steps++
		w.since.Store(0)
		return a.result, a.err
	case <-w.timer.C:
		close(w.asked)
		return nil, fmt.Errorf("%w within the step timeout of %v: raise it if a step of this model may take as long", ErrStuck, w.limit)
	}
}

// end stops the waiting; no step is in flight.
func (w *watched) end() {
	close(w.asked)
	for range w.answers { // serve closes it
	}
}

// maxFailures is how often in a row a new device may not come up, or end no step, before the worker ends.
const maxFailures = 2

// restart puts a new device in the place of one that is stuck. A step that a suspect had to itself says nothing of the
// device: such steps are counted by request.
func (w *Worker) restart(stuck error, quarantined bool) (Device, error) {
	if w.cfg.Reopen == nil {
		return nil, stuck
	}
	if w.device.steps > 0 {
		w.failures = 0
	} else if !quarantined {
		w.failures++
	}
	faults := []error{stuck}
	for w.failures < maxFailures {
		w.cfg.Log.Error("the device is given up with its memory and threads, and another is opened", "error", errors.Join(faults...))
		d, err := w.cfg.Reopen()
		if err == nil {
			w.device = watch(d, w.cfg.StepTimeout, &w.stepping)
			w.stepping.Store(0)
			return w.device, nil
		}
		faults = append(faults, fmt.Errorf("open it anew: %w", err))
		w.failures++
	}
	return nil, fmt.Errorf("%d times in a row the device did not come up or ended no step: %w", w.failures, errors.Join(faults...))
}

// Stuck says, after Run, that the device has a step that does not end: it must not be closed.
func (w *Worker) Stuck() bool { return w.stepping.Load() != 0 }
