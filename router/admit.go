package router

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus"
	"github.com/berthd/berth/consensus/ledger"
	"github.com/berthd/berth/kvpool"
)

// headroomTokens is how much of what it may generate a request is granted room for at admission; its worker asks for
// more ahead of need.
const headroomTokens = 64

// reservation is an admitted request's place on a worker.
type reservation struct {
	id     uint64
	key    *ledgerv1.OrderKey
	worker string
	in     candidate
}

// admit finds a queued request a place and reserves it; again says that it was admitted before.
func (r *Router) admit(ctx context.Context, q *request, again bool) (*reservation, error) {
	limit := r.cfg.QueueTimeout
	if again {
		limit = r.cfg.ResumeTimeout
		r.queue.rejoin(q.ticket, r.cfg.Ledger.View())
	}
	defer func() { r.queue.leave(q.ticket) }()
	for {
		res, err := r.admitWithin(ctx, q, limit)
		if !q.patient(err) {
			return res, err
		}
		r.queue.leave(q.ticket)
		r.queue.rejoin(q.ticket, r.cfg.Ledger.View())
	}
}

// admitWithin waits until it is the request's turn and there is room, at most for the given time.
func (r *Router) admitWithin(ctx context.Context, q *request, limit time.Duration) (*reservation, error) {
	wait := ctx
	if !q.isAdmitted() { // what is admitted waits for its worker as long as for any other reason
		bound, free := r.outage.bound(ctx)
		defer free()
		wait = bound
	}
	timer, stop := context.WithTimeout(wait, limit)
	defer stop()
	for {
		d, err := r.awaitRoom(ctx, timer, q)
		if err != nil {
			return nil, err
		}
		unclaim := r.claims.add(q.guest.group, d)
		command, v := q.reserve(&d.chosen), r.cfg.Ledger.View()
		service, _ := q.guest.estimate(command)
		command.Lift = r.queue.charge(q.ticket, service, v)
		r.queue.leave(q.ticket)
		res, err := r.reserve(timer, q, d, command)
		r.queue.settle(q.ticket, service, res != nil, r.cfg.Ledger.View())
		unclaim()
		r.bell.ring()
		switch {
		case res != nil:
			r.trace.note(ctx, func(rec *record) { rec.admitted = r.cfg.Now() })
			return res, nil
		case ctx.Err() != nil:
			return nil, errGone
		case timer.Err() != nil:
			return nil, r.timedOut(ctx, timer, q, d)
		case err != nil:
			return nil, err
		}
		r.queue.rejoin(q.ticket, r.cfg.Ledger.View()) // the view was behind: try again, in the old place
	}
}

// decide places the request as things are now.
func (r *Router) decide(ctx context.Context, v *ledger.View, q *request) decision {
	began := r.cfg.Now()
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
		q.chains = newChains(v.HashKey, q.guest.group, q.salt, q.prompt)
	}
	var cap, claimed uint64
	if t := v.Tenant(q.guest.id); t != nil && t.Cap > 0 {
		cap, claimed = t.Cap, t.Claim+r.claims.ofGroup(q.guest.group)
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
		slots, pages := q.room(w, pending)
		c := candidate{
			Worker: w.Name, Incarnation: w.Incarnation,
			Pages:    pages,
			PagesMax: uint64(g.Demand(q.total()).Pages), SlotsNeeded: slots,
			Capacity: w.Capacity, Granted: w.Granted + pending.pages,
			Slots: w.Info.GetSlots(), SlotsUsed: w.SlotsUsed + pending.slots, Waiters: w.Ahead(q.guest.group),
			MaxTokens: w.Info.GetMaxModelLen(), Hit: r.prefixes.hit(w.Name, g, q.chains.of(w)),
			Cap: cap, Claimed: claimed,
		}
		c.Life = w.Life(uint64(q.bestOf), slots, c.PagesMax)
		c.Rise = w.Rise(q.guest.group, c.Pages, c.Life)
		out = append(out, c)
	}
	return out
}

// reserve is what the ledger is asked for a place on a worker.
func (q *request) reserve(c *candidate) *ledgerv1.Reserve {
	return &ledgerv1.Reserve{
		RequestId: q.id, Worker: c.Worker, Incarnation: c.Incarnation, ShareGroup: q.guest.group, Tenant: q.guest.id,
		Pages: c.Pages, Slots: c.SlotsNeeded, Branches: uint32(q.bestOf), PagesMax: c.PagesMax, Bonus: q.guest.bonus(q.priority),
		PromptTokens: uint64(len(q.prompt)), MaxTokens: uint64(q.maxTokens), OpenEnded: q.openEnded, CachedTokens: uint64(c.Hit),
	}
}

// room is the slots that the request asks a worker for, and their pages: as many of its choices as fit there now, and one
// at least. The others take the slots of those that have ended.
func (q *request) room(w *ledger.WorkerView, pending claim) (slots, pages uint64) {
	granted, used := w.Granted+pending.pages, w.SlotsUsed+pending.slots
	for slots = min(uint64(q.bestOf), max(1, w.Info.GetSlots())); ; slots-- {
		pages = min(q.pages(w.Geometry, int(slots)), w.Capacity)
		if slots == 1 || granted+pages <= w.Capacity && used+slots <= w.Info.GetSlots() {
			return slots, pages
		}
	}
}

// pages are what the request needs now: a branch with room ahead, and its forks up to the slots.
func (q *request) pages(g kvpool.Geometry, slots int) uint64 {
	soon := len(q.prompt) + min(q.maxTokens, headroomTokens)
	return uint64(g.Demand(soon).Pages + (slots-1)*g.Fork(len(q.prompt), soon).Pages)
}

// reserve asks the ledger. Neither a reservation nor an error: try again.
func (r *Router) reserve(ctx context.Context, q *request, d *decision, m *ledgerv1.Reserve) (*reservation, error) {
	c, changed := d.chosen, r.cfg.Ledger.Changed()
	began := r.cfg.Now()
	spanCtx, span := r.trace.start(ctx, spanReserve)
	span.reserving(&c)
	result, err := r.cfg.Session.Do(spanCtx, &ledgerv1.Command{Kind: &ledgerv1.Command_Reserve{Reserve: m}})
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
		ledgerv1.RefusalCode_REFUSAL_CODE_FENCED, ledgerv1.RefusalCode_REFUSAL_CODE_CAP_FULL,
		ledgerv1.RefusalCode_REFUSAL_CODE_NO_TENANT:
		return nil, nil // the tenant is looked up again too
	case ledgerv1.RefusalCode_REFUSAL_CODE_NO_TOKENS:
		return nil, r.outOfTokens(ctx, q)
	case ledgerv1.RefusalCode_REFUSAL_CODE_OVER_CAP:
		d.Verdict = overCap
		if q.isAdmitted() {
			return nil, nil // the cap was lowered since: it may be raised again
		}
		return nil, r.capError(q, d)
	case ledgerv1.RefusalCode_REFUSAL_CODE_NEVER_FITS:
		return nil, capacityExceeded(q, *d)
	default:
		return nil, fmt.Errorf("reserve on %s: %w", c.Worker, ledger.Err(result))
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
