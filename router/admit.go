package router

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus"
	"github.com/berthd/berth/consensus/ledger"
	"github.com/berthd/berth/kvpool"
)

// headroomTokens is how much of what it may generate a request is granted room for at admission; its worker asks for
// more ahead of need.
const headroomTokens = 64

// shareGroup and tenant are everybody's while the router is open.
const (
	openTenant = "default"
	openGroup  = "default"
)

// reservation is an admitted request's place on a worker.
type reservation struct {
	id     uint64
	key    *ledgerv1.OrderKey
	worker string
	in     candidate
}

// claims are the reservations that this router has asked for and has no answer to, by worker: the view may not show
// them yet, and whoever is placed next must know. For a moment both do, which errs to the safe side.
type claims struct {
	mu      sync.Mutex
	pending map[string]claim
}

type claim struct{ pages, slots uint64 }

func (c *claims) add(d *decision) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.pending[d.Worker]
	c.pending[d.Worker] = claim{x.pages + d.chosen.Pages, x.slots + d.chosen.SlotsNeeded}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		x := c.pending[d.Worker]
		if x = (claim{x.pages - d.chosen.Pages, x.slots - d.chosen.SlotsNeeded}); x.slots == 0 {
			delete(c.pending, d.Worker)
			return
		}
		c.pending[d.Worker] = x
	})
}

// open says whether any answer is awaited.
func (c *claims) open() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) > 0
}

func (c *claims) of(worker string) claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[worker]
}

// admit finds a queued request a place and reserves it; again says that it was admitted before.
func (r *Router) admit(ctx context.Context, q *request, again bool) (*reservation, error) {
	limit := r.cfg.QueueTimeout
	if again {
		limit = r.cfg.ResumeTimeout
		r.queue.rejoin(q.ticket)
	}
	defer func() { r.queue.leave(q.ticket) }()
	for {
		res, err := r.admitWithin(ctx, q, limit)
		if !q.patient(err) {
			return res, err
		}
		r.queue.leave(q.ticket)
		r.queue.rejoin(q.ticket)
	}
}

// admitWithin waits in the request's lane until it is the first one and there is room, at most for the given time.
func (r *Router) admitWithin(ctx context.Context, q *request, limit time.Duration) (*reservation, error) {
	timer, stop := context.WithTimeout(ctx, limit)
	defer stop()
	for {
		d, err := r.awaitRoom(ctx, timer, q)
		if err != nil {
			return nil, err
		}
		unclaim := r.claims.add(d)
		r.queue.leave(q.ticket)
		res, err := r.reserve(timer, q, d)
		unclaim()
		r.bell.ring()
		switch {
		case res != nil:
			return res, nil
		case ctx.Err() != nil:
			return nil, errGone
		case timer.Err() != nil:
			return nil, r.tooLong(q, d)
		case err != nil:
			return nil, err
		}
		r.queue.rejoin(q.ticket) // the view was behind: try again, in the old place
	}
}

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
	if len(r.candidates(r.cfg.Ledger.View(), q)) == 0 {
		return noWorker(q.model, "none is attached and ready")
	}
	t, err := r.queue.join(q.model+"\x00"+q.card.print, len(q.prompt), r.cfg.Now())
	q.ticket = t
	return err
}

// awaitRoom waits until the request is the first of its lane and a worker has room for it.
func (r *Router) awaitRoom(ctx, timer context.Context, q *request) (*decision, error) {
	_, span := r.trace.start(ctx, spanQueue)
	began := r.cfg.Now()
	defer func() {
		span.end(nil)
		r.trace.queued(r.cfg.Now().Sub(began))
	}()
	var d decision
	for {
		changed, heard := r.cfg.Ledger.Changed(), r.bell.heard()
		select {
		case <-q.ticket.first:
			d = r.decide(ctx, q)
			switch d.Verdict {
			case placed:
				return &d, nil
			case neverFits:
				return nil, capacityExceeded(q, d)
			}
			select { // busy, or its workers are away for now
			case <-changed:
			case <-heard:
			case <-timer.Done():
				return nil, r.timedOut(ctx, q, &d)
			}
		default:
			select {
			case <-q.ticket.first:
			case <-timer.Done():
				return nil, r.timedOut(ctx, q, &d)
			}
		}
	}
}

func (r *Router) timedOut(ctx context.Context, q *request, d *decision) error {
	if ctx.Err() != nil {
		return errGone
	}
	return r.tooLong(q, d)
}

// decide places the request as things are now.
func (r *Router) decide(ctx context.Context, q *request) decision {
	began := r.cfg.Now()
	v := r.cfg.Ledger.View()
	d := place(r.candidates(v, q), need{Prompt: len(q.prompt), Total: q.total(), Turn: r.turn.Add(1)})
	d.Revision = v.Revision
	r.decisions.keep(q.id, d)
	r.trace.placed(ctx, began, r.cfg.Now(), &d)
	return d
}

// candidates are the workers that could take the request (R5), with what they would need.
func (r *Router) candidates(v *ledger.View, q *request) []candidate {
	members := r.members.snapshot()
	if q.chains == nil {
		q.chains = newChains(v.HashKey, openGroup, q.salt, q.prompt)
	}
	var out []candidate
	for _, w := range v.Workers {
		m, attached := members[w.Name]
		switch {
		case !attached, w.Incarnation == 0, m.incarnation != w.Incarnation, m.card == nil, m.card.print != q.card.print,
			m.beat.GetUnready() != "", !serves(w.Info, q.model):
			continue
		}
		pending := r.claims.of(w.Name)
		g := w.Geometry
		slots := min(uint64(q.bestOf), max(1, w.Info.GetSlots()))
		out = append(out, candidate{
			Worker: w.Name, Incarnation: w.Incarnation,
			Pages:    min(q.pages(g, int(slots)), w.Capacity),
			PagesMax: uint64(g.Demand(q.total()).Pages), SlotsNeeded: slots,
			Capacity: w.Capacity, Granted: w.Granted + pending.pages,
			Slots: w.Info.GetSlots(), SlotsUsed: w.SlotsUsed + pending.slots, Waiters: len(w.Waiters),
			MaxTokens: w.Info.GetMaxModelLen(), Hit: r.prefixes.hit(w.Name, g, q.chains.of(w)),
		})
	}
	return out
}

// pages are what the request needs now: a branch with room ahead, and its forks up to the slots.
func (q *request) pages(g kvpool.Geometry, slots int) uint64 {
	soon := len(q.prompt) + min(q.maxTokens, headroomTokens)
	return uint64(g.Demand(soon).Pages + (slots-1)*g.Fork(len(q.prompt), soon).Pages)
}

// reserve asks the ledger. Neither a reservation nor an error: try again.
func (r *Router) reserve(ctx context.Context, q *request, d *decision) (*reservation, error) {
	c, changed := d.chosen, r.cfg.Ledger.Changed()
	began := r.cfg.Now()
	spanCtx, span := r.trace.start(ctx, spanReserve)
	span.reserving(&c)
	result, err := r.cfg.Session.Do(spanCtx, &ledgerv1.Command{Kind: &ledgerv1.Command_Reserve{Reserve: &ledgerv1.Reserve{
		RequestId: q.id, Worker: c.Worker, Incarnation: c.Incarnation, ShareGroup: openGroup, Tenant: openTenant,
		Pages: c.Pages, Slots: c.SlotsNeeded, Branches: uint32(q.bestOf), PagesMax: c.PagesMax, PromptTokens: uint64(len(q.prompt)), MaxTokens: uint64(q.maxTokens),
	}}})
	span.reserved(result.GetRevision())
	span.end(err)
	r.trace.committed(r.cfg.Now().Sub(began))
	switch {
	case errors.Is(err, consensus.ErrFenced):
		select { // the next session is being opened
		case <-changed:
		case <-ctx.Done():
		}
		return nil, nil
	case err != nil:
		return nil, noQuorum(err)
	}
	if ok := result.GetReserved(); ok != nil {
		r.trace.expected(c.Hit)
		return &reservation{id: ok.Reservation, key: ok.Key, worker: c.Worker, in: c}, nil
	}
	switch why := result.GetRefusal(); why.GetCode() {
	case ledgerv1.RefusalCode_REFUSAL_CODE_BUSY, ledgerv1.RefusalCode_REFUSAL_CODE_NO_WORKER,
		ledgerv1.RefusalCode_REFUSAL_CODE_FENCED:
		return nil, nil
	case ledgerv1.RefusalCode_REFUSAL_CODE_NEVER_FITS:
		return nil, capacityExceeded(q, *d)
	default:
		return nil, fmt.Errorf("reserve on %s: %w", c.Worker, ledger.Err(result))
	}
}

// dropTimeout is how long a request waits for the ledger to take a reservation back; the session goes on by itself.
const dropTimeout = time.Second

// drop gives a reservation up that its worker does not have, or may not have. A worker that has it after all ends it.
func (r *Router) drop(ctx context.Context, id uint64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	_, err := r.cfg.Session.Do(ctx, &ledgerv1.Command{Kind: &ledgerv1.Command_Drop{Drop: &ledgerv1.Drop{Reservation: id}}})
	if err != nil {
		r.cfg.Log.Warn("drop is late", "reservation", id, "error", err.Error())
	}
}

// aloneLimit is the longest branch that fits on the empty worker.
func aloneLimit(w *ledger.WorkerView) int {
	lo, hi := 0, int(min(w.Info.GetMaxModelLen(), math.MaxInt32))
	for lo < hi {
		mid := hi - (hi-lo)/2
		if uint64(w.Geometry.Demand(mid).Pages) <= w.Capacity {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}
