package router

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/berthd/berth/consensus"
)

// memberTimeout is how long the cluster has to agree to a change of its members.
const memberTimeout = 10 * time.Second

// addMember serves POST /admin/v1/members/{id} with {"raft": host:port, "rpc": host:port}: the replica may join then.
func (r *Router) addMember(w http.ResponseWriter, req *http.Request) error {
	f, err := r.readBody(w, req)
	if err != nil {
		return err
	}
	defer f.done()
	raft, _ := f.text("raft")
	rpc, _ := f.text("rpc")
	if f.fault != nil || raft == "" || rpc == "" {
		return invalid("", `want {"raft": "host:port", "rpc": "host:port"}`)
	}
	p, err := consensus.ParsePeer(req.PathValue("id") + "=" + raft + "/" + rpc)
	if err != nil {
		return invalid("", "%v", err)
	}
	return r.changeMembers(w, req, func(ctx context.Context) error { return r.cfg.Ledger.AddMember(ctx, p) })
}

// removeMember serves DELETE /admin/v1/members/{id}.
func (r *Router) removeMember(w http.ResponseWriter, req *http.Request) error {
	return r.changeMembers(w, req, func(ctx context.Context) error { return r.cfg.Ledger.RemoveMember(ctx, req.PathValue("id")) })
}

func (r *Router) changeMembers(w http.ResponseWriter, req *http.Request, change func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(req.Context(), memberTimeout)
	defer cancel()
	err := change(ctx)
	switch {
	case errors.Is(err, consensus.ErrMember):
		return invalid("", "%v", err)
	case err != nil && req.Context().Err() != nil:
		return errGone
	case err != nil:
		return noQuorum(err)
	}
	return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusOK, map[string]any{"replicas": r.replicas(ctx)}))
}

type replicaBody struct {
	ID    string `json:"id"`
	Raft  string `json:"raft"`
	RPC   string `json:"rpc"`
	State string `json:"state"`
}

// States of a replica of the ledger, for operators.
const (
	replicaLeads   = "leads"
	replicaFollows = "follows"
	replicaJoins   = "joins" // it receives the log and has no vote yet
	replicaAway    = "away"  // the leader does not hear from it
	replicaUnknown = "no leader could say"
)

// replicas are those of the ledger, as far as this one knows.
func (r *Router) replicas(ctx context.Context) []replicaBody {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	leader, _ := r.cfg.Ledger.Leader()
	online := r.cfg.Ledger.Online(ctx)
	out := []replicaBody{}
	for _, m := range r.cfg.Ledger.Members() {
		state := replicaFollows
		switch {
		case leader == "":
			state = replicaUnknown
		case !slices.Contains(online, m.ID):
			state = replicaAway
		case m.ID == leader:
			state = replicaLeads
		case !m.Voter:
			state = replicaJoins
		}
		out = append(out, replicaBody{m.ID, m.Raft, m.RPC, state})
	}
	return out
}
