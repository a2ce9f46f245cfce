package router

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus/ledger"
)

// Everybody's tenant and share group while the router is open.
const (
	openTenant = "default"
	openGroup  = "default"
)

// bonusStep is the steps in the ledger's order that a request gains for each priority below 0.
const bonusStep = 64

// guest is who asks: a tenant as the ledger had it, or everybody.
type guest struct {
	id, group string
	at        uint64             // change of the tenants that it was looked up after
	tenant    *ledger.TenantView // nil while the router is open
}

// may says whether the guest may use a model under that name.
func (g *guest) may(model string) bool {
	return g.tenant == nil || len(g.tenant.Models) == 0 || slices.Contains(g.tenant.Models, model)
}

// estimate is what a reserve is to cost: service by weight, and tokens of the guest's budget.
func (g *guest) estimate(m *ledgerv1.Reserve) (service, tokens uint64) {
	if g.tenant == nil {
		return 0, 0
	}
	return g.tenant.Estimate(m)
}

// bonus is what a request's priority gains it: the lower, the sooner, and no lower than the guest may.
func (g *guest) bonus(priority int64) uint64 {
	lowest := int64(0)
	if g.tenant != nil {
		lowest = int64(g.tenant.Priority)
	}
	return uint64(max(0, -max(priority, lowest))) * bonusStep
}

// keyring finds tenants by the SHA-256 of their keys. It is made anew when the tenants have changed.
type keyring struct{ made atomic.Pointer[keys] }

type keys struct {
	at     uint64 // change of the tenants
	tenant map[[sha256.Size]byte]string
}

func (k *keyring) of(v *ledger.View) map[[sha256.Size]byte]string {
	if m := k.made.Load(); m != nil && m.at >= v.TenantsAt {
		return m.tenant
	}
	m := &keys{at: v.TenantsAt, tenant: map[[sha256.Size]byte]string{}}
	for _, t := range v.Tenants {
		for _, sum := range t.Keys {
			m.tenant[[sha256.Size]byte(sum)] = t.Id
		}
	}
	k.made.Store(m)
	return m.tenant
}

// closed says whether nobody is served without a key: from the first tenant on, even if all are deleted, and where the
// ledger is to be seeded with tenants.
func (r *Router) closed(v *ledger.View) bool { return v.TenantsAt > 0 || len(r.cfg.Tenants) > 0 }

// awake waits, once in the router's life, until its view has what the ledger had committed before: tenants too.
func (r *Router) awake(ctx context.Context) error {
	if r.woke.Load() {
		return nil
	}
	err := r.quorum(ctx)
	if err == nil {
		r.woke.Store(true)
	}
	return err
}

// identify finds out who asks. No key and a wrong one are the same to it, down to the work that it does.
func (r *Router) identify(v *ledger.View, header http.Header) (*guest, error) {
	switch {
	case !r.closed(v):
		return &guest{id: openTenant, group: openGroup}, nil
	case v.TenantsAt == 0:
		return nil, noQuorum(errUnseeded)
	}
	scheme, key, _ := strings.Cut(header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		key = ""
	}
	return r.known(v, r.keyring.of(v)[sha256.Sum256([]byte(strings.TrimSpace(key)))])
}

// known is the tenant of that name as a guest.
func (r *Router) known(v *ledger.View, id string) (*guest, error) {
	t := v.Tenant(id)
	if t == nil {
		return nil, invalidKey()
	}
	return &guest{id: id, group: t.ShareGroup, at: v.TenantsAt, tenant: t}, nil
}

// again is a guest as it is now: changed, or not known any more.
func (r *Router) again(v *ledger.View, g *guest) (*guest, error) {
	if g.tenant == nil && !r.closed(v) {
		return g, nil
	}
	return r.known(v, g.id)
}

// guestKey is where a request's guest is in its context.
type guestKey struct{}

func guestOf(ctx context.Context) *guest { return ctx.Value(guestKey{}).(*guest) }

// unkeyed are the paths that ask nobody who they are.
var unkeyed = []string{"/healthz", "/health", "/ping", "/version", "/readyz", "/readyz/replica", "/metrics", "/"}

// keyed lets in who has a key, before anything else is looked at.
func (r *Router) keyed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if slices.Contains(unkeyed, req.URL.Path) {
			next.ServeHTTP(w, req)
			return
		}
		var g *guest
		err := r.awake(req.Context())
		if err == nil {
			g, err = r.identify(r.cfg.Ledger.View(), req.Header)
		}
		if err != nil {
			r.answerError(w, req, err)
			return
		}
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), guestKey{}, g)))
	})
}
