package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/berthd/berth/consensus/ledger"
)

const (
	// recovery is how long after a fault's end a request may find no worker, or no quorum: a leader is elected, workers
	// attach and register, a card is fetched.
	recovery = 2 * lease
	// harmless is how long a link may be held without any effect but lateness: a lease outlasts it and a missed renewal.
	harmless = time.Second
	// aftermath is how long after a fault's end its victims may learn of it.
	aftermath = time.Second
	// standstill is how long no device may step while a client waits.
	standstill = 5 * time.Second
)

// judge says whether a client asks again, or which rule is broken by what it got.
func (c *cluster) judge(q *Request, a *answer, err error, began time.Duration) (again bool, broken error) {
	if broken := c.check(q, a, err == nil); broken != nil {
		return false, broken
	}
	var said *serverError
	switch {
	case err == nil, errors.Is(err, errLeft):
		return false, nil
	case errors.Is(err, context.DeadlineExceeded):
		return false, fmt.Errorf("P2: no end after %v", c.patience())
	case !errors.As(err, &said):
		if c.struck(began, aftermath, func(f Fault) bool { return f.Kind == Kill && f.Host == routerName }) {
			return true, nil
		}
		return false, fmt.Errorf("P1: the connection broke, though the router lives: %w", err)
	case said.id == "WRK-002": // a router that is held hears from nobody, and ends all incarnations
		if c.struck(began, aftermath, func(f Fault) bool {
			return f.Kind != Hang && (f.Host == said.worker || f.Host == routerName)
		}) {
			return true, nil
		}
		return false, fmt.Errorf("P1: lost by a worker to which nothing happened: %w", said)
	case said.id == "WRK-001" || said.id == "LDG-001":
		if c.struck(began, recovery, func(Fault) bool { return true }) {
			return true, nil
		}
		return false, fmt.Errorf("P1: not admitted, though nothing happened to anybody: %w", said)
	}
	return false, fmt.Errorf("P1: %w", said)
}

// struck says whether such a fault could show between then and now, or until some time after its end.
func (c *cluster) struck(then, after time.Duration, such func(Fault) bool) bool {
	for _, f := range c.Faults {
		if (f.Kind == Kill || f.For > harmless) && such(f) && f.At <= c.now() && then <= f.At+f.For+after {
			return true
		}
	}
	return false
}

// watch notices when nothing moves any more while clients wait, though nothing has happened to anybody (P2).
func (c *cluster) watch(ctx context.Context) {
	for {
		select {
		case <-time.After(standstill / 5):
		case <-ctx.Done():
			return
		}
		quiet := c.now() - time.Duration(c.stepped.Load())
		if c.waiting.Load() == 0 || quiet < standstill || c.struck(c.now()-standstill, recovery, func(Fault) bool { return true }) {
			continue
		}
		c.fail(fmt.Errorf("P2: %d clients wait, and no device has stepped for %v", c.waiting.Load(), quiet))
		return
	}
}

// moved notes that a client begins to wait, or until when a step runs.
func (c *cluster) moved(until time.Duration) {
	for {
		last := c.stepped.Load()
		if last >= int64(until) || c.stepped.CompareAndSwap(last, int64(until)) {
			return
		}
	}
}

// want is what a choice of a request comes to, and why it ends.
func (q *Request) want(choice int) (text, reason string) {
	ids, ended := q.say(choice)
	text, reason = read(ids), "length"
	if ended {
		reason = "stop"
	}
	if at := strings.Index(text, q.Stop); q.Stop != "" && at >= 0 {
		return text[:at], "stop"
	}
	return text, reason
}

// check compares an answer, whole or a part of one, with what any device says to the prompt (P6).
func (c *cluster) check(q *Request, a *answer, whole bool) error {
	for i, got := range a.texts {
		want, reason := q.want(i)
		switch {
		case !strings.HasPrefix(want, got):
			return fmt.Errorf("P6: choice %d says %q, want %q", i, got, want)
		case whole && got != want:
			return fmt.Errorf("P1: choice %d ends after %q, want %q", i, got, want)
		case whole && a.reasons[i] != reason, !strings.HasPrefix(reason, a.reasons[i]):
			return fmt.Errorf("P1: choice %d ends with %q, want %q", i, a.reasons[i], reason)
		}
	}
	return nil
}

// settle waits until nothing is granted in the ledger and nothing charged on workers (P8).
func (c *cluster) settle() {
	var left error
	for range 600 {
		if left = c.left(); left == nil || c.life.Err() != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.fail(fmt.Errorf("P8: a minute after the last answer: %w", left))
}

// left is what has not been given back.
func (c *cluster) left() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.router.node.View()
	var faults []error
	if v.Reservations != 0 {
		faults = append(faults, fmt.Errorf("%d reservations", v.Reservations))
	}
	for i, life := range c.workers {
		name := workerName(i)
		w, s := v.Worker(name), life.worker.Stats()
		if w == nil || w.Incarnation == 0 || life.worker.Ready() != nil {
			faults = append(faults, fmt.Errorf("%s does not serve", name))
			continue
		}
		faults = append(faults, leftOn(w))
		if s.Pages.Charged != 0 || s.Pages.Overhead != 0 || s.Granted != 0 || s.Running+s.Waiting != 0 {
			faults = append(faults, fmt.Errorf("%s has %d pages charged, %d as overhead, %d granted, %d branches",
				name, s.Pages.Charged, s.Pages.Overhead, s.Granted, s.Running+s.Waiting))
		}
	}
	return errors.Join(faults...)
}

func leftOn(w *ledger.WorkerView) error {
	if w.Granted == 0 && w.SlotsUsed == 0 && w.Reservations == 0 && len(w.Waiters) == 0 && len(w.Orphans) == 0 {
		return nil
	}
	return fmt.Errorf("%s has %d pages granted, %d slots, %d reservations, %d waiters, %d orphans in the ledger",
		w.Name, w.Granted, w.SlotsUsed, w.Reservations, len(w.Waiters), len(w.Orphans))
}
