package router

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/berthd/berth/consensus/ledger"
)

// capacityExceeded is KV-001: no worker could hold the request alone. Its numbers are those of the worker that comes
// nearest.
func capacityExceeded(q *request, d decision) *Error {
	var best candidate
	for _, s := range d.Scored {
		if best.Worker == "" || s.Capacity > best.Capacity {
			best = s.candidate
		}
	}
	return capacityError(len(q.prompt), q.maxTokens, q.alone, best.PagesMax, best.Capacity)
}

func capacityError(prompt, maxTokens, alone int, pages, capacity uint64) *Error {
	return &Error{kind: kindCapacity, Param: "max_tokens", Numbers: map[string]any{
		"need_tokens": prompt + maxTokens, "capacity_tokens": alone, "need_pages": pages, "capacity_pages": capacity,
	}, Message: fmt.Sprintf("This model's maximum context length is %d tokens with the KV memory of its workers. However, "+
		"you requested %d tokens (%d in the prompt, %d for the completion), which need %d pages of KV memory, and no worker "+
		"has more than %d. Please reduce the length of the prompt or completion.",
		alone, prompt+maxTokens, prompt, maxTokens, pages, capacity)}
}

// capError is TEN-003: the share group's cap is too small for the request, or full. Its numbers are those of the worker
// where the request would claim least.
func (r *Router) capError(q *request, d *decision) *Error {
	var best candidate
	for _, s := range d.Scored {
		if c := s.candidate; c.alone(d.Need) && (best.Worker == "" || c.Life < best.Life) {
			best = c
		}
	}
	e := &Error{kind: kindCap, RetryAfter: r.flights.earliest(d, r.cfg.Now()), Numbers: map[string]any{
		"need": best.Life, "cap": best.Cap, "claimed": best.Claimed, "share_group": q.guest.group,
	}, Message: fmt.Sprintf("the request may come to %d pages of KV memory, and %d of the %d that its tenant may have are "+
		"claimed: try again later", best.Life, best.Claimed, best.Cap)}
	if d.Verdict != capFull {
		e.RetryAfter, e.Param = time.Minute, "max_tokens"
		e.Message = fmt.Sprintf("the request may come to %d pages of KV memory, and its tenant may have %d: shorten the prompt "+
			"or lower max_tokens", best.Life, best.Cap)
	}
	return e
}

// affords refuses with TEN-002 who has used the tokens up that it may use, those counted that what it has waiting will
// take.
func (r *Router) affords(v *ledger.View, g *guest) error {
	if g.tenant == nil || g.tenant.TokensPerMinute == 0 {
		return nil
	}
	_, due := r.queue.of(g.id)
	left, waitMs := g.tenant.Budget(v.ClockMs, due)
	if left > int64(due) {
		return nil
	}
	wait := time.Duration(min(max(waitMs, 1), 3_600_000)) * time.Millisecond
	return &Error{kind: kindRate, RetryAfter: wait, Numbers: map[string]any{
		"tokens_per_minute": g.tenant.TokensPerMinute, "burst": g.tenant.Burst, "left": left, "waiting": due,
		"retry_after_s": wait.Seconds(),
	}, Message: fmt.Sprintf("the tenant may use %d tokens a minute, and has none left: try again in %.0f s",
		g.tenant.TokensPerMinute, math.Ceil(wait.Seconds()))}
}

// tellBudget says in OpenAI's headers what is left of the tokens that a tenant may use.
func (r *Router) tellBudget(w http.ResponseWriter, g *guest) {
	if g.tenant == nil || g.tenant.TokensPerMinute == 0 {
		return
	}
	v := r.cfg.Ledger.View()
	t := v.Tenant(g.id)
	if t == nil {
		return
	}
	_, due := r.queue.of(g.id)
	left, _ := t.Budget(v.ClockMs, due)
	left = max(0, left-int64(due))
	missing := max(0, int64(cmp.Or(t.Burst, t.TokensPerMinute))-left)
	h := w.Header()
	h.Set("X-Ratelimit-Limit-Tokens", strconv.FormatUint(t.TokensPerMinute, 10))
	h.Set("X-Ratelimit-Remaining-Tokens", strconv.FormatInt(left, 10))
	h.Set("X-Ratelimit-Reset-Tokens", (time.Duration(missing) * time.Minute / time.Duration(t.TokensPerMinute)).Round(time.Second).String())
}

// outOfTokens is what the ledger's refusal to charge a budget comes to. Who was admitted before waits for it.
func (r *Router) outOfTokens(ctx context.Context, q *request) error {
	v := r.cfg.Ledger.View()
	g, err := r.again(v, q.guest)
	if err != nil {
		return err
	}
	if err = r.affords(v, g); err == nil || !q.isAdmitted() {
		return err // there are some after all: try again
	}
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	return nil
}

// tooLong is what a request hears that has waited as long as it may.
func (r *Router) tooLong(q *request, d *decision) error {
	if err := r.cfg.Ledger.Ready(); err != nil {
		return noQuorum(err)
	}
	if q.admitted {
		return workerLost(q.worker, fmt.Sprintf("no other one could take it within %v", r.cfg.ResumeTimeout))
	}
	reached := d.Verdict != "" // the head of the queue
	if !reached {
		*d = place(r.candidates(r.cfg.Ledger.View(), q), need{Prompt: len(q.prompt), Total: q.total()})
	}
	if d.Verdict == capFull {
		return r.capError(q, d)
	}
	if d.Verdict == nowhere && q.batch != nil && q.batch.admitted.Load() {
		return workerLost(q.worker, "none became ready in time for another of the request's prompts")
	}
	if d.Verdict == nowhere {
		return noWorker(q.model, "none became ready in time")
	}
	var best candidate
	for _, s := range d.Scored {
		if c := s.candidate; c.alone(d.Need) && (best.Worker == "" || c.Capacity-c.Granted > best.Capacity-best.Granted) {
			best = c
		}
	}
	reclaimable := uint64(0)
	if m, ok := r.members.snapshot()[best.Worker]; ok && m.beat != nil {
		reclaimable = best.Granted - min(best.Granted, m.beat.ChargedPages)
	}
	release := r.flights.earliest(d, r.cfg.Now())
	requests, tokens := r.queue.size()
	why := "there was no room for it"
	if !reached {
		why = fmt.Sprintf("its turn did not come, with %d requests waiting here,", requests)
	}
	return &Error{kind: kindBusy, RetryAfter: release, Numbers: map[string]any{
		"need": best.Pages, "capacity": best.Capacity, "granted": best.Granted, "reclaimable": reclaimable,
		"slots": best.Slots, "slots_used": best.SlotsUsed, "earliest_release_s": release.Seconds(),
		"reached_head": reached, "queue_requests": requests, "queue_tokens": tokens,
	}, Message: fmt.Sprintf("the request fits, but %s within %v: it needs %d pages and %d of %d "+
		"are granted (%d of %d slots); try again later", why, r.cfg.QueueTimeout, best.Pages, best.Granted, best.Capacity,
		best.SlotsUsed, best.Slots)}
}

// defaultRelease is the guess where nothing is known of what runs.
const defaultRelease = 5 * time.Second
