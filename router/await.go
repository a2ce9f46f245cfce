package router

import (
	"context"
	"time"

	"github.com/berthd/berth/consensus/ledger"
)

// quorumPatience is how long a request waits for a ledger that cannot commit: longer than it takes to elect a leader.
const quorumPatience = 2 * time.Second

// quorum waits until the ledger can commit, and this router knows what it has committed.
func (r *Router) quorum(ctx context.Context) error {
	patience, stop := context.WithTimeout(ctx, quorumPatience)
	defer stop()
	for {
		err := r.cfg.Ledger.Ready()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-patience.Done():
			if ctx.Err() != nil {
				return errGone
			}
			return noQuorum(err)
		}
	}
}

// enter puts the request into the queue.
func (r *Router) enter(q *request) error {
	v := r.cfg.Ledger.View()
	if err := r.welcome(v, q); err != nil {
		return err
	}
	d := place(r.candidates(v, q), need{Prompt: len(q.prompt), Total: q.total()})
	switch d.Verdict {
	case nowhere:
		return noWorker(q.model, "none is attached and ready")
	case overCap:
		return r.capError(q, &d)
	}
	_, due := q.guest.estimate(q.reserve(&candidate{}))
	t, err := r.queue.join(entry{
		lane: q.model + "\x00" + q.card.print, tenant: q.guest.id, shared: q.guest.tenant != nil, tokens: len(q.prompt), due: due,
	}, v, r.cfg.Now())
	q.ticket = t
	return err
}

// welcome takes what has become of the request's tenant since it came.
func (r *Router) welcome(v *ledger.View, q *request) error {
	now, err := r.again(v, q.guest)
	if err == nil && now.group != q.guest.group {
		q.chains = nil
	}
	if err == nil {
		q.guest = now
	}
	return err
}

// awaitRoom waits until it is the request's turn and a worker has room for it.
func (r *Router) awaitRoom(ctx, timer context.Context, q *request) (*decision, error) {
	_, span := r.trace.start(ctx, spanQueue)
	began := r.cfg.Now()
	defer func() {
		span.end(nil)
		r.trace.queued(r.cfg.Now().Sub(began))
	}()
	var d decision
	for {
		changed, heard, v := r.cfg.Ledger.Changed(), r.bell.heard(), r.cfg.Ledger.View()
		if err := r.welcome(v, q); err != nil {
			return nil, err
		}
		mine, called := r.queue.turn(q.ticket, v)
		if !mine {
			select {
			case <-called:
			case <-timer.Done():
				return nil, r.timedOut(ctx, timer, q, &d)
			}
			continue
		}
		d = r.decide(ctx, v, q)
		switch d.Verdict {
		case placed:
			return &d, nil
		case neverFits:
			return nil, capacityExceeded(q, d)
		case overCap, capFull:
			if d.Verdict == overCap && !q.isAdmitted() {
				return nil, r.capError(q, &d)
			}
			if r.queue.park(q.ticket) {
				r.awaitCap(timer, q, &d.Scored[0].candidate)
				r.queue.unpark(q.ticket, r.cfg.Ledger.View())
			}
		default: // busy, or its workers are away for now
			select {
			case <-changed:
			case <-heard:
			case <-timer.Done():
			}
		}
		if timer.Err() != nil {
			return nil, r.timedOut(ctx, timer, q, &d)
		}
	}
}

// awaitCap waits until less is claimed of a share group's cap than a decision saw, or it is another one.
func (r *Router) awaitCap(timer context.Context, q *request, seen *candidate) {
	state := func(v *ledger.View) (claimed, cap uint64) {
		if t := v.Tenant(q.guest.id); t != nil {
			return t.Claim + r.claims.ofGroup(q.guest.group), t.Cap
		}
		return 0, 0
	}
	for {
		changed, heard := r.cfg.Ledger.Changed(), r.bell.heard()
		if claimed, cap := state(r.cfg.Ledger.View()); claimed < seen.Claimed || cap != seen.Cap {
			return
		}
		select {
		case <-changed:
		case <-heard:
		case <-timer.Done():
			return
		}
	}
}

func (r *Router) timedOut(ctx, timer context.Context, q *request, d *decision) error {
	if ctx.Err() != nil {
		return errGone
	}
	if err := lostQuorum(timer); err != nil {
		return err
	}
	return r.tooLong(q, d)
}
