package router

import (
	"encoding/hex"
	"net/http"

	"github.com/berthd/berth/consensus/ledger"
)

// States of a worker, for operators.
const (
	stateReady       = "ready"
	stateUnready     = "unready"     // it says itself that it takes no work
	stateLoading     = "loading"     // its card is not here yet
	stateUnreachable = "unreachable" // its lease runs, but this router has no stream from it
	stateFenced      = "fenced"      // it has no living incarnation
)

// memberState is a worker's state, and why if it is not ready. A nil member is not watched.
func memberState(w *ledger.WorkerView, m *member) (state, why string) {
	switch {
	case w.Incarnation == 0:
		return stateFenced, ""
	case m == nil || m.incarnation != w.Incarnation:
		return stateUnreachable, ""
	case m.card == nil:
		return stateLoading, m.cardFault
	case m.beat.GetUnready() != "":
		return stateUnready, m.beat.GetUnready()
	}
	return stateReady, ""
}

// AdminHandler serves operators.
func (r *Router) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/admin/v1/cluster", r.get(r.clusterState))
	mux.HandleFunc("/admin/v1/requests/{id}/explain", r.get(r.explain))
	mux.HandleFunc("/admin/v1/tenants", r.failing(r.allTenants))
	mux.HandleFunc("/admin/v1/tenants/{id}", r.failing(r.tenantByID))
	mux.HandleFunc("POST /admin/v1/members/{id}", r.failing(r.addMember))
	mux.HandleFunc("DELETE /admin/v1/members/{id}", r.failing(r.removeMember))
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		r.refuse(w, req, &Error{kind: kindNoPath, Message: "there is nothing at " + req.URL.Path})
	})
	return r.guarded(r.fromPages(func() bool { return false }, r.exact(r.operated(mux))))
}

// clusterBody is the cluster as this router sees it.
type clusterBody struct {
	Router   string            `json:"router"`
	Revision uint64            `json:"revision"`
	Leader   string            `json:"leader"`
	Term     uint64            `json:"term"`
	Replicas []replicaBody     `json:"replicas"`
	Workers  []workerBody      `json:"workers"`
	Tenants  []tenantBody      `json:"tenants"`
	Moves    []struct{}        `json:"moves"`
	Queue    queueBody         `json:"queue"`
	Refusals map[string]uint64 `json:"refusals"`
	Index    indexBody         `json:"prefix_index"`
	Digests  []digestBody      `json:"digests"`
}

type workerBody struct {
	ID           string    `json:"id"`
	Incarnation  uint64    `json:"incarnation"`
	State        string    `json:"state"`
	Why          string    `json:"why,omitempty"`
	Model        string    `json:"model"`
	Models       []string  `json:"models"`
	Device       string    `json:"device"`
	TP           uint32    `json:"tp"`
	Address      string    `json:"address"`
	Pages        pagesBody `json:"pages"`
	Slots        uint64    `json:"slots"`
	SlotsUsed    uint64    `json:"slots_used"`
	Reservations int       `json:"reservations"`
	Running      uint64    `json:"running"`
	Waiting      uint64    `json:"waiting"`
}

type pagesBody struct {
	Total         uint64 `json:"total"`
	OverheadLimit uint64 `json:"overhead_limit"`
	Overhead      uint64 `json:"overhead"`
	Granted       uint64 `json:"granted"`
	Charged       uint64 `json:"charged"`
	Held          uint64 `json:"held"` // charged, with a page that branches share counted for each
	Idle          uint64 `json:"idle"`
	Free          uint64 `json:"free"`
}

type tenantBody struct {
	ID      string `json:"id"`
	Pages   uint64 `json:"pages"` // of its share group
	Floor   uint64 `json:"floor"`
	Cap     uint64 `json:"cap"`
	Queued  int    `json:"queued"`
	Running int    `json:"running"`
	Tokens  int    `json:"tokens"`
}

type queueBody struct {
	Requests int `json:"requests"`
	Tokens   int `json:"tokens"`
}

type indexBody struct {
	Blocks  int    `json:"blocks"`
	Limit   int    `json:"limit"`
	Refused uint64 `json:"refused"`
}

type digestBody struct {
	Revision uint64 `json:"revision"`
	Digest   string `json:"digest"`
}

func (r *Router) clusterState(w http.ResponseWriter, req *http.Request) error {
	v := r.cfg.Ledger.View()
	leader, _ := r.cfg.Ledger.Leader()
	b := clusterBody{
		Router: r.cfg.ID, Revision: v.Revision, Leader: leader, Term: r.cfg.Ledger.Term(), Moves: []struct{}{},
		Replicas: r.replicas(req.Context()), Workers: []workerBody{}, Refusals: r.trace.refusalCounts(),
	}
	b.Queue.Requests, b.Queue.Tokens = r.queue.size()
	b.Index.Blocks, b.Index.Refused = r.prefixes.size()
	b.Index.Limit = r.prefixes.limit
	members := r.members.snapshot()
	for _, wv := range v.Workers {
		var m *member
		if one, ok := members[wv.Name]; ok {
			m = &one
		}
		b.Workers = append(b.Workers, describeWorker(wv, m, r.members.fault(living{wv.Name, wv.Incarnation})))
	}
	b.Tenants = r.tenants(v)
	for _, d := range r.cfg.Ledger.Digests() {
		b.Digests = append(b.Digests, digestBody{d.Revision, hex.EncodeToString(d.Digest[:])})
	}
	return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusOK, b))
}

// describeWorker tells of a worker; fault is why it is not watched, if it is not.
func describeWorker(w *ledger.WorkerView, m *member, fault string) workerBody {
	b := workerBody{
		ID: w.Name, Incarnation: w.Incarnation, Models: w.Info.GetModels(), Device: w.Info.GetDevice(), TP: w.Info.GetTp(),
		Address: w.Info.GetAddress(), Slots: w.Info.GetSlots(), SlotsUsed: w.SlotsUsed, Reservations: w.Reservations,
		Pages: pagesBody{Total: w.Info.GetPages(), OverheadLimit: w.Overhead, Granted: w.Granted},
	}
	if b.State, b.Why = memberState(w, m); b.State == stateUnreachable {
		b.Why = fault
	}
	if len(b.Models) > 0 {
		b.Model = b.Models[0]
	}
	if m != nil && m.beat != nil {
		b.Running, b.Waiting = m.beat.Running, m.beat.Waiting
		b.Pages.Overhead, b.Pages.Charged = m.beat.OverheadPages, m.beat.ChargedPages
		b.Pages.Idle, b.Pages.Free = m.beat.IdlePages, m.beat.FreePages
		b.Pages.Held = m.beat.HeldPages
	}
	return b
}

// explain serves the last placement of a request, with what it was made from.
func (r *Router) explain(w http.ResponseWriter, req *http.Request) error {
	d, ok := r.decisions.of(req.PathValue("id"))
	if !ok {
		return &Error{kind: kindNoPath, Message: "nothing is known of that request: only the last ones are remembered"}
	}
	return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusOK, d))
}
