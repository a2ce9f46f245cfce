package router

import (
	"fmt"
	"time"
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
	}, Message: fmt.Sprintf("%d prompt tokens and %d to generate need %d pages of KV memory, and no worker has more than "+
		"%d (%d tokens): shorten the prompt or lower max_tokens", prompt, maxTokens, pages, capacity, alone)}
}

// tooLong is what a request hears that has waited as long as it may.
func (r *Router) tooLong(q *request, d *decision) error {
	if err := r.cfg.Ledger.Ready(); err != nil {
		return noQuorum(err)
	}
	if q.admitted {
		return workerLost(q.worker, fmt.Sprintf("no other one could take it within %v", r.cfg.ResumeTimeout))
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
	return &Error{kind: kindBusy, RetryAfter: release, Numbers: map[string]any{
		"need": best.Pages, "capacity": best.Capacity, "granted": best.Granted, "reclaimable": reclaimable,
		"slots": best.Slots, "slots_used": best.SlotsUsed, "earliest_release_s": release.Seconds(),
	}, Message: fmt.Sprintf("the request fits, but there was no room for it within %v: it needs %d pages and %d of %d "+
		"are granted (%d of %d slots); try again later", r.cfg.QueueTimeout, best.Pages, best.Granted, best.Capacity,
		best.SlotsUsed, best.Slots)}
}

// defaultRelease is the guess where nothing is known of what runs.
const defaultRelease = 5 * time.Second
