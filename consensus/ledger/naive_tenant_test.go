package ledger

import (
	"fmt"
	"maps"
	"slices"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// guest is a tenant of the naive ledger, with its budget refilled at each tick.
type guest struct {
	put             *ledgerv1.Tenant
	at, counter     uint64
	answers, spoken uint64
	level           int64 // in 1/60000 of a token
}

func (n *naive) group(name string) (cap uint64) {
	for _, g := range n.guests {
		if g.put.ShareGroup == name {
			cap = n.caps[name]
		}
	}
	return cap
}

// claimed is what a share group holds of its cap on all workers: of each its grant, or its requests' lives.
func (n *naive) claimedBy(group string) (pages uint64) {
	for worker, incarnation := range n.alive {
		if incarnation != 0 {
			grant, whole := n.held(worker, group)
			pages += max(grant, whole)
		}
	}
	return pages
}

func (n *naive) held(worker, group string) (grant, whole uint64) {
	incarnation := n.alive[worker]
	for _, r := range n.of(worker) {
		if r.group == group {
			whole += r.life
		}
	}
	return n.given(incarnation, group) - n.returned[[2]any{incarnation, group}], whole
}

// exceeds says whether a grant of pages, with a life, would take the group's claim up and above its cap.
func (n *naive) exceeds(worker, group string, pages, life uint64) bool {
	grant, whole := n.held(worker, group)
	before, after := max(grant, whole), max(grant+pages, whole+life)
	return n.group(group) > 0 && after > before && n.claimedBy(group)+after-before > n.group(group)
}

// spare is the most pages, up to a wish, that do not exceed the cap.
func (n *naive) spare(worker, group string, wish uint64) uint64 {
	for wish > 0 && n.exceeds(worker, group, wish, 0) {
		wish--
	}
	return wish
}

func (n *naive) putTenant(m *ledgerv1.PutTenant) string {
	t := m.Tenant
	old := n.guests[t.Id]
	switch {
	case t.Cap > 0 && t.Floor > t.Cap, t.Floor > 0 && n.floors(t)+t.Floor > n.allPages():
		return invalid.String()
	case old != nil && sameTenant(old.put, t, n.caps, n.floorOf):
		return "ok"
	case old == nil && m.Replaces != 0, old != nil && m.Replaces != old.at:
		return ledgerv1.RefusalCode_REFUSAL_CODE_CONFLICT.String()
	}
	g := &guest{put: t, at: n.revision, level: int64(t.Burst) * 60_000}
	if old != nil {
		g.counter, g.answers, g.spoken = old.counter, old.answers, old.spoken
		if old.put.TokensPerMinute > 0 {
			g.level = min(g.level, old.level)
		}
	}
	n.guests[t.Id] = g
	n.caps[t.ShareGroup], n.floorOf[t.ShareGroup] = t.Cap, t.Floor
	n.forgetCaps()
	n.everPut = true
	return "ok"
}

// forgetCaps takes the caps of groups away that nobody is in.
func (n *naive) forgetCaps() {
	for group := range n.caps {
		if !slices.ContainsFunc(slices.Collect(maps.Values(n.guests)), func(g *guest) bool { return g.put.ShareGroup == group }) {
			delete(n.caps, group)
			delete(n.floorOf, group)
		}
	}
}

func sameTenant(a, b *ledgerv1.Tenant, caps, floors map[string]uint64) bool {
	return a.ShareGroup == b.ShareGroup && a.Weight == b.Weight && a.TokensPerMinute == b.TokensPerMinute &&
		a.Burst == b.Burst && caps[a.ShareGroup] == b.Cap && floors[a.ShareGroup] == b.Floor
}

func (n *naive) floors(but *ledgerv1.Tenant) (pages uint64) {
	seen := map[string]bool{but.ShareGroup: true}
	for _, id := range slices.Sorted(maps.Keys(n.guests)) {
		if g := n.guests[id]; id != but.Id && !seen[g.put.ShareGroup] {
			seen[g.put.ShareGroup] = true
			pages += n.floorOf[g.put.ShareGroup]
		}
	}
	return pages
}

func (n *naive) allPages() (pages uint64) {
	for worker, incarnation := range n.alive {
		if incarnation != 0 {
			pages += n.capacity[worker]
		}
	}
	return pages
}

func (n *naive) deleteTenant(id string) string {
	if n.guests[id] == nil {
		return ledgerv1.RefusalCode_REFUSAL_CODE_NO_TENANT.String()
	}
	delete(n.guests, id)
	for _, r := range n.requests {
		if r.tenant == id {
			r.tenant = ""
		}
	}
	n.forgetCaps()
	return "ok"
}

// mayReserve says why a tenant may not, or "".
func (n *naive) mayReserve(m *ledgerv1.Reserve) string {
	g := n.guests[m.Tenant]
	switch {
	case !n.everPut:
	case g == nil || g.put.ShareGroup != m.ShareGroup:
		return ledgerv1.RefusalCode_REFUSAL_CODE_NO_TENANT.String()
	case g.put.TokensPerMinute > 0 && g.level <= 0:
		return ledgerv1.RefusalCode_REFUSAL_CODE_NO_TOKENS.String()
	}
	return ""
}

// weighed is tokens of a prompt and an answer as service: 4096 parts of each, over the weight, rounded up.
func weighed(g *guest, input, output uint64) uint64 {
	parts := (max(1, input+2*output)) * 4096
	w := uint64(g.put.Weight)
	return parts/w + min(1, parts%w)
}

func (n *naive) charge(r *request, m *ledgerv1.Reserve) {
	g := n.guests[m.Tenant]
	if !n.everPut || g == nil {
		return
	}
	each := m.MaxTokens
	if mean := uint64(128); m.OpenEnded {
		if g.answers > 0 {
			mean = g.spoken/g.answers + min(1, g.spoken%g.answers)
		}
		each = min(each, mean)
	}
	r.tenant, r.prompt = m.Tenant, m.PromptTokens
	r.charged = weighed(g, m.PromptTokens-min(m.PromptTokens, m.CachedTokens), each*uint64(m.Branches))
	r.tokens = int64(m.PromptTokens + each*uint64(m.Branches))
	g.counter = max(g.counter, m.Lift) + r.charged
	n.level(g, r.tokens)
}

func (n *naive) level(g *guest, tokens int64) {
	if g.put.TokensPerMinute > 0 {
		g.level = min(int64(g.put.Burst)*60_000, g.level-tokens*60_000)
	}
}

// forgive takes back what a request was charged; with its end it is charged what it came to.
func (n *naive) forgive(r *request, end *ledgerv1.End) {
	g := n.guests[r.tenant]
	if g == nil {
		return
	}
	tokens := r.tokens
	if end != nil {
		if end.Reason == ledgerv1.FinishReason_FINISH_REASON_STOP {
			g.answers += uint64(r.branches)
			g.spoken += end.OutputTokens
		}
		g.counter += weighed(g, end.ComputedTokens, end.OutputTokens)
		tokens -= int64(r.prompt + end.OutputTokens)
	}
	g.counter -= r.charged
	n.level(g, -tokens)
}

// resume serves all waiters again: what a cap stopped may go on.
func (n *naive) resume() {
	for _, worker := range slices.Sorted(maps.Keys(n.alive)) {
		if n.alive[worker] != 0 {
			n.serve(worker)
		}
	}
}

func (n *naive) compareTenants(v *View) error {
	if len(v.Tenants) != len(n.guests) || v.TenantsAt > 0 != n.everPut {
		return fmt.Errorf("%d tenants, naive %d", len(v.Tenants), len(n.guests))
	}
	for _, t := range v.Tenants {
		g := n.guests[t.Id]
		if g == nil || t.Counter != g.counter || t.Claim != n.claimedBy(t.ShareGroup) || t.Cap != n.group(t.ShareGroup) {
			return fmt.Errorf("I10, I11: %+v; naive %+v, claim %d, cap %d", t, g, n.claimedBy(t.ShareGroup), n.group(t.ShareGroup))
		}
		if left, _ := t.Budget(v.ClockMs, 0); t.TokensPerMinute > 0 && left != g.level/60_000 {
			return fmt.Errorf("I10: %q has %d tokens left, naive %d/60000", t.Id, left, g.level)
		}
	}
	return nil
}

// holdsUp says whether a waiter goes before a reserve of a group: one that its own cap does not stop, or one of the group.
func (n *naive) holdsUp(worker, group string) bool {
	stopped := map[string]bool{}
	for _, x := range n.waiting(worker) {
		stopped[x.of.group] = stopped[x.of.group] || n.exceeds(worker, x.of.group, x.need, 0)
		if !stopped[x.of.group] || x.of.group == group {
			return true
		}
	}
	return false
}
