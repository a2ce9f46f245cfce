package router

import (
	"context"
	"errors"
	"time"

	"github.com/berthd/berth/consensus/ledger"
)

// gauges are what is read when somebody asks for the metrics.
type gauges struct {
	queueRequests, queueTokens, queueLimit int
	ready, leads                           bool
	applied                                uint64
	workers                                map[string]int // by state
	replicas                               map[string]int // by state
	view                                   *ledger.View
	tenantPages                            map[string]int64 // by label
}

// workerStates are all states that a worker may have, so that each has a series.
var workerStates = []string{stateReady, stateUnready, stateLoading, stateUnreachable, stateFenced}

// gauges looks at the router as it is now.
func (r *Router) gauges() gauges {
	v := r.cfg.Ledger.View()
	g := gauges{
		queueLimit: r.cfg.QueueRequests, ready: r.ready() == nil, applied: v.Revision, view: v,
		workers: map[string]int{}, replicas: map[string]int{}, tenantPages: map[string]int64{},
	}
	g.queueRequests, g.queueTokens = r.queue.size()
	_, g.leads = r.cfg.Ledger.Leader()
	members := r.members.snapshot()
	for _, state := range workerStates {
		g.workers[state] = 0
	}
	for _, w := range v.Workers {
		var m *member
		if one, ok := members[w.Name]; ok {
			m = &one
		}
		state, _ := memberState(w, m)
		g.workers[state]++
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, one := range r.replicas(ctx) {
		g.replicas[one.State]++
	}
	for _, t := range r.tenants(v) {
		g.tenantPages[r.trace.tenant(t.ID)] += int64(t.Pages)
	}
	return g
}

// logRequest writes the one line that a request leaves in the log: never a text of it.
func (r *Router) logRequest(ctx context.Context, rec *record, status int, model string, began time.Time) {
	args := []any{
		"request_id", requestID(ctx), "tenant", guestOf(ctx).id, "model", model, "status", status,
		"prompt_tokens", rec.prompt, "output_tokens", rec.usage.completion, "cached_tokens", rec.usage.cached,
		"total_ms", r.cfg.Now().Sub(began).Milliseconds(),
	}
	if !rec.admitted.IsZero() {
		args = append(args, "queue_ms", rec.admitted.Sub(began).Milliseconds())
	}
	if !rec.first.IsZero() {
		args = append(args, "first_token_ms", rec.first.Sub(began).Milliseconds())
	}
	if rec.worker != "" {
		args = append(args, "worker", rec.worker)
	}
	switch {
	case errors.Is(rec.fault, errGone) || status == statusGone:
		args = append(args, "finish", "client_left")
	case rec.fault != nil:
		args = append(args, "error", asError(rec.fault).ID())
	case rec.reason != "":
		args = append(args, "finish", rec.reason)
	}
	r.cfg.Log.Info("request", args...)
}
