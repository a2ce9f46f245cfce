package router

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus"
	"github.com/berthd/berth/consensus/ledger"
)

// tenantForm is a tenant as operators see it.
type tenantForm struct {
	ID              string   `json:"id"`
	ShareGroup      string   `json:"share_group"`
	Weight          uint32   `json:"weight"`
	Cap             uint64   `json:"cap"`
	Floor           uint64   `json:"floor"`
	Priority        int32    `json:"priority"`
	TokensPerMinute uint64   `json:"tokens_per_minute"`
	Burst           uint64   `json:"burst"`
	Models          []string `json:"models"`
	Keys            []string `json:"keys"` // sha256:HEX
	Revision        uint64   `json:"revision"`

	Claimed    uint64 `json:"claimed"`     // of the cap, by grants and lives
	TokensLeft int64  `json:"tokens_left"` // of the budget
	Service    uint64 `json:"service"`     // by weight: 4096 for each token of a prompt at weight 1, twice that for one of an answer
	MeanAnswer uint64 `json:"mean_answer"` // tokens
	Live       int    `json:"reservations"`

	NewKey string `json:"new_key,omitempty"` // shown this once
}

func describeTenant(v *ledger.View, t *ledger.TenantView) tenantForm {
	f := tenantForm{
		ID: t.Id, ShareGroup: t.ShareGroup, Weight: t.Weight, Cap: t.Cap, Floor: t.Floor, Priority: t.Priority,
		TokensPerMinute: t.TokensPerMinute, Burst: t.Burst, Models: append([]string{}, t.Models...), Keys: []string{},
		Revision: t.Revision, Claimed: t.Claim, Service: t.Counter, MeanAnswer: t.Mean, Live: t.Live,
	}
	f.TokensLeft, _ = t.Budget(v.ClockMs, 0)
	for _, sum := range t.Keys {
		f.Keys = append(f.Keys, hashPrefix+hex.EncodeToString(sum))
	}
	return f
}

// listTenants serves GET /admin/v1/tenants.
func (r *Router) listTenants(w http.ResponseWriter, _ *http.Request) error {
	v := r.cfg.Ledger.View()
	out := []tenantForm{}
	for _, t := range v.Tenants {
		out = append(out, describeTenant(v, t))
	}
	return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusOK, map[string]any{"tenants": out}))
}

// openCluster serves DELETE /admin/v1/tenants: a cluster without tenants asks nobody for a key any more.
func (r *Router) openCluster(w http.ResponseWriter, req *http.Request) error {
	if len(r.cfg.Tenants) > 0 {
		return invalid("", "this router was started with --tenants: it serves nobody without a key; start it without them first")
	}
	err := r.change(req.Context(), func(v *ledger.View) (*ledgerv1.Command, error) {
		if n := len(v.Tenants); n > 0 {
			return nil, invalid("", "there are %d tenants: delete them first", n)
		}
		return &ledgerv1.Command{Kind: &ledgerv1.Command_OpenCluster{OpenCluster: &ledgerv1.OpenCluster{}}}, nil
	})
	if err != nil {
		return err
	}
	r.cfg.Log.Warn("the cluster is open: nobody is asked for a key")
	return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusOK, map[string]any{"open": true}))
}

// allTenants serves /admin/v1/tenants.
func (r *Router) allTenants(w http.ResponseWriter, req *http.Request) error {
	switch req.Method {
	case http.MethodGet, http.MethodHead:
		return r.listTenants(w, req)
	case http.MethodDelete:
		return r.openCluster(w, req)
	}
	w.Header().Set("Allow", "GET, DELETE")
	return &Error{kind: kindNoMethod, Message: req.URL.Path + " takes GET and DELETE"}
}

// tenants are what a cluster's state says of them, and of everybody while the router is open.
func (r *Router) tenants(v *ledger.View) []tenantBody {
	pages, running := map[string]uint64{}, r.flights.byTenant()
	for _, w := range v.Workers {
		for _, a := range w.Accounts {
			pages[a.ShareGroup] += a.Grant()
		}
	}
	out := []tenantBody{}
	add := func(id, group string, floor, cap uint64) {
		queued, _ := r.queue.of(id)
		out = append(out, tenantBody{
			ID: id, Pages: pages[group], Floor: floor, Cap: cap, Queued: queued,
			Running: running[id].requests, Tokens: running[id].tokens,
		})
	}
	if !r.closed(v) {
		add(openTenant, openGroup, 0, 0)
	}
	for _, t := range v.Tenants {
		add(t.Id, t.ShareGroup, t.Floor, t.Cap)
	}
	return out
}

// tenantByID serves GET, PUT and DELETE of /admin/v1/tenants/{id}.
func (r *Router) tenantByID(w http.ResponseWriter, req *http.Request) error {
	id := req.PathValue("id")
	switch req.Method {
	case http.MethodPut:
		return r.putTenant(w, req, id)
	case http.MethodDelete:
		return r.deleteTenant(w, req, id)
	case http.MethodGet, http.MethodHead:
		v := r.cfg.Ledger.View()
		if t := v.Tenant(id); t != nil {
			return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusOK, describeTenant(v, t)))
		}
		return noTenant(id)
	}
	w.Header().Set("Allow", "GET, PUT, DELETE")
	return &Error{kind: kindNoMethod, Message: req.URL.Path + " takes GET, PUT and DELETE"}
}

func noTenant(id string) *Error {
	return &Error{kind: kindNoPath, Message: fmt.Sprintf("there is no tenant %q", id)}
}

// changeTimeout is how long the ledger has to take a change of a tenant.
const changeTimeout = 10 * time.Second

// putTenant makes a tenant or changes one: what the body leaves out stays.
func (r *Router) putTenant(w http.ResponseWriter, req *http.Request, id string) error {
	f, err := r.readBody(w, req)
	if err != nil {
		return err
	}
	defer f.done()
	var key string
	if f.boolean("new_key", false) {
		key = newKey()
	}
	err = r.change(req.Context(), func(v *ledger.View) (*ledgerv1.Command, error) {
		put, replaces, err := changedTenant(f, id, v)
		if err != nil {
			return nil, err
		}
		if key != "" {
			put.Keys = withKey(put.Keys, hashKey(key))
		}
		return &ledgerv1.Command{Kind: &ledgerv1.Command_PutTenant{PutTenant: &ledgerv1.PutTenant{Tenant: put, Replaces: replaces}}}, nil
	})
	if err != nil {
		return err
	}
	r.cfg.Log.Info("tenant put", "tenant", id, "new_key", key != "")
	v := r.cfg.Ledger.View()
	t := v.Tenant(id)
	if t == nil { // deleted meanwhile
		return noTenant(id)
	}
	form := describeTenant(v, t)
	form.NewKey = key
	return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusOK, form))
}

func (r *Router) deleteTenant(w http.ResponseWriter, req *http.Request, id string) error {
	err := r.change(req.Context(), func(*ledger.View) (*ledgerv1.Command, error) {
		return &ledgerv1.Command{Kind: &ledgerv1.Command_DeleteTenant{DeleteTenant: &ledgerv1.DeleteTenant{Id: id}}}, nil
	})
	if err != nil {
		return err
	}
	r.cfg.Log.Info("tenant deleted", "tenant", id)
	return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusOK, map[string]any{"id": id, "deleted": true}))
}

// change carries a change of the tenants out, made anew from the view as long as somebody else is faster.
func (r *Router) change(ctx context.Context, command func(v *ledger.View) (*ledgerv1.Command, error)) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if err := r.quorum(ctx); err != nil {
		return err
	}
	for {
		c, err := command(r.cfg.Ledger.View())
		if err != nil {
			return err
		}
		result, err := r.cfg.Session.Do(ctx, c)
		switch {
		case errors.Is(err, consensus.ErrFenced): // maybe done: then the next one changes nothing
			if err := r.quorum(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return noQuorum(err)
		}
		switch why := result.GetRefusal(); why.GetCode() {
		case ledgerv1.RefusalCode_REFUSAL_CODE_UNSPECIFIED:
			return nil
		case ledgerv1.RefusalCode_REFUSAL_CODE_CONFLICT:
			if c.GetSeedTenants() != nil {
				return errSeeded
			}
		case ledgerv1.RefusalCode_REFUSAL_CODE_NO_TENANT:
			return noTenant(c.GetDeleteTenant().GetId())
		case ledgerv1.RefusalCode_REFUSAL_CODE_INVALID:
			field, what, _ := strings.Cut(why.GetMessage(), ": ")
			return invalid(field, "%s: %s", field, what)
		default:
			return fmt.Errorf("change the tenants: %w", ledger.Err(result))
		}
	}
}

// errSeeded says that the ledger had tenants before.
var errSeeded = errors.New("the ledger has had tenants before")

// errUnseeded says that the ledger has none yet of the tenants that it is to have.
var errUnseeded = errors.New("its first tenants are being put")

// seed puts the configured tenants into a ledger that never had any. It is tried until it is known how it ends.
func (r *Router) seed(ctx context.Context) {
	if len(r.cfg.Tenants) == 0 {
		return
	}
	for {
		err := r.change(ctx, func(v *ledger.View) (*ledgerv1.Command, error) {
			if v.TenantsAt > 0 {
				return nil, errSeeded
			}
			return &ledgerv1.Command{Kind: &ledgerv1.Command_SeedTenants{SeedTenants: &ledgerv1.SeedTenants{Tenants: r.cfg.Tenants}}}, nil
		})
		var e *Error
		switch {
		case err == nil:
			r.cfg.Log.Info("tenants seeded", "tenants", len(r.cfg.Tenants))
			return
		case errors.Is(err, errSeeded):
			r.cfg.Log.Info("tenants not seeded", "reason", err.Error())
			return
		case errors.As(err, &e) && e.kind == kindInvalid:
			r.cfg.Log.Error("tenants refused: nobody is served", "error", err.Error())
			return
		}
		select {
		case <-time.After(time.Second / 4):
		case <-ctx.Done():
			return
		}
	}
}
