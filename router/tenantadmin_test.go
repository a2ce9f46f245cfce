package router

import (
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// What is wrong with a tenant is said with the name of its field, and nothing is changed.
func TestPutTenantRefuses(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil) // of 200 pages
	h.tenant("red", `,"floor":150,"cap":160`)
	for _, c := range []struct{ body, param string }{
		{`{"weight":0}`, "weight"}, {`{"weight":1001}`, "weight"}, {`{"weight":"3"}`, "weight"},
		{`{"cap":-1}`, "cap"}, {`{"cap":5,"floor":6}`, "floor"}, {`{"floor":51}`, "floor"},
		{`{"priority":1}`, "priority"}, {`{"priority":-101}`, "priority"},
		{`{"tokens_per_minute":-1}`, "tokens_per_minute"}, {`{"burst":5}`, "burst"},
		{`{"models":"tiny"}`, "models"}, {`{"models":[""]}`, "models"},
		{`{"keys":["short"]}`, "keys"}, {`{"keys":["sha256:12"]}`, "keys"}, {`{"keys":["with a blank in it"]}`, "keys"},
		{`{"keys":[` + fmt.Sprintf("%q", keyOf("red")) + `]}`, "keys"},
		{`{"share_group":7}`, "share_group"}, {`{"id":"other"}`, "id"}, {`{"wieght":3}`, "wieght"}, {`{"new_key":1}`, "new_key"},
		{`[]`, ""}, {`no JSON`, ""},
	} {
		r := h.manage("PUT", "/admin/v1/tenants/blue", c.body)
		if id, param := r.fault(t); r.status != 400 || id != "REQ-001" || param != c.param {
			t.Errorf("%s: %d %s, want a fault of %q", c.body, r.status, r.body, c.param)
		}
	}
	if v := h.node.View(); len(v.Tenants) != 1 {
		t.Errorf("%d tenants", len(v.Tenants))
	}
	for path, status := range map[string]int{"/admin/v1/tenants/blue": 404, "/admin/v1/tenants/red": 200, "/admin/v1/tenants": 200} {
		if r := h.manage("GET", path, ""); r.status != status {
			t.Errorf("GET %s: %d", path, r.status)
		}
	}
	if r := h.manage("DELETE", "/admin/v1/tenants/blue", ""); r.status != 404 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := h.manage("POST", "/admin/v1/tenants/red", ""); r.status != 405 || r.header.Get("Allow") != "GET, PUT, DELETE" {
		t.Errorf("%d %v", r.status, r.header)
	}
}

// A key is shown once, when it is drawn; what a put leaves out stays, and members of a share group have one cap.
func TestPutTenantChanges(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	r := h.manage("PUT", "/admin/v1/tenants/red", `{"new_key":true,"weight":3,"cap":100,"floor":10,"tokens_per_minute":60000,"share_group":"warm"}`)
	key, _ := r.json(t)["new_key"].(string)
	if r.status != 200 || !strings.HasPrefix(key, keyPrefix) || len(key) < 50 || r.json(t)["burst"] != 60000.0 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	other := "sha256:" + hex.EncodeToString(hashKey("another-key-of-blue"))
	for _, body := range []string{`{"priority":-5}`, `{"tokens_per_minute":600}`} {
		if r := h.manage("PUT", "/admin/v1/tenants/red", body); r.status != 200 || strings.Contains(r.body, key) {
			t.Errorf("%s: %d %s", body, r.status, r.body)
		}
	}
	h.manage("PUT", "/admin/v1/tenants/blue", `{"share_group":"warm","keys":["`+other+`"]}`)
	got := h.manage("GET", "/admin/v1/tenants/red", "").json(t)
	if got["weight"] != 3.0 || got["priority"] != -5.0 || got["burst"] != 600.0 || len(got["keys"].([]any)) != 1 {
		t.Errorf("%v", got)
	}
	if got := h.manage("GET", "/admin/v1/tenants/blue", "").json(t); got["cap"] != 100.0 || got["floor"] != 10.0 {
		t.Errorf("not the group's cap and floor: %v", got)
	}
	h.manage("PUT", "/admin/v1/tenants/blue", `{"cap":90}`)
	if got := h.manage("GET", "/admin/v1/tenants/red", "").json(t); got["cap"] != 90.0 {
		t.Errorf("the cap is not the group's: %v", got)
	}
	for bearer, status := range map[string]int{key: 200, "another-key-of-blue": 200, other: 401} {
		if r := h.do("GET", "/v1/models", "", "authorization", "bearer "+bearer); r.status != status {
			t.Errorf("%s: %d", bearer, r.status)
		}
	}
	second := h.manage("PUT", "/admin/v1/tenants/red", `{"new_key":true}`).json(t)
	if len(second["keys"].([]any)) != 2 || second["new_key"] == key {
		t.Errorf("%v", second)
	}
	h.manage("PUT", "/admin/v1/tenants/red", `{"keys":[]}`)
	if r := h.do("GET", "/v1/models", "", "Authorization", "Bearer "+key); r.status != 401 {
		t.Errorf("a key that was taken away: %d", r.status)
	}
	var c clusterBody
	h.operator("/admin/v1/cluster", 200, &c)
	if len(c.Tenants) != 2 || c.Tenants[1].ID != "red" || c.Tenants[1].Cap != 90 || c.Tenants[1].Floor != 10 {
		t.Errorf("%+v", c.Tenants)
	}
}

// Puts at the same time of different members all count.
func TestPutsAtOnce(t *testing.T) {
	h := open(t, nil)
	h.tenant("red", "")
	var all sync.WaitGroup
	for _, body := range []string{`{"weight":7}`, `{"cap":77}`, `{"priority":-7}`, `{"models":["m"]}`, `{"tokens_per_minute":7}`} {
		all.Go(func() {
			if r := h.manage("PUT", "/admin/v1/tenants/red", body); r.status != 200 {
				t.Errorf("%s: %d %s", body, r.status, r.body)
			}
		})
	}
	all.Wait()
	x := h.node.View().Tenant("red")
	if x.Weight != 7 || x.Cap != 77 || x.Priority != -7 || len(x.Models) != 1 || x.TokensPerMinute != 7 || len(x.Keys) != 1 {
		t.Errorf("%v", x)
	}
}

// A router with tenants to seed serves nobody without a key from the start, and seeds an empty ledger alone.
func TestSeed(t *testing.T) {
	seeds, err := ReadTenants([]byte(`[{"id":"red","keys":["` + keyOf("red") + `"],"weight":2},{"id":"blue"}]`))
	if err != nil {
		t.Fatal(err)
	}
	h := open(t, func(c *Config) { c.Tenants = seeds })
	h.await("the seed", func() bool { return h.node.View().TenantsAt > 0 })
	if r := h.do("GET", "/v1/models", "", bearer("red")...); r.status != 200 || h.node.View().Tenant("red").Weight != 2 {
		t.Errorf("%d %s", r.status, r.body)
	}
	h.manage("DELETE", "/admin/v1/tenants/red", "")
	h.router.seed(t.Context())
	if h.node.View().Tenant("red") != nil {
		t.Error("a tenant that was deleted came back")
	}
	empty, err := New(Config{ID: "r2", Ledger: h.node, Session: h.router.cfg.Session, Tenants: []*ledgerv1.Tenant{{}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := empty.identify(h.node.View(), nil); err == nil {
		t.Error("open before the seed")
	}
	for _, wrong := range []string{`{}`, `[]`, `[1]`, `[{}]`, `[{"id":"a","weight":-1}]`, `[{"id":"a","new_key":true}]`, `[{"id":"a","colour":1}]`} {
		if _, err := ReadTenants([]byte(wrong)); err == nil {
			t.Errorf("%s is read", wrong)
		}
	}
}

// A priority goes no lower than the tenant may.
func TestPriorityIsClamped(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	if r := h.post("/v1/completions", strings.Replace(tokens(3, 2), "{", `{"priority":-9,`, 1)); r.status != 200 {
		t.Errorf("open: %d %s", r.status, r.body)
	}
	if k := w.last(t).Key; k.Rank != k.Index {
		t.Errorf("everybody's priority gains: %v", k)
	}
	h.tenant("red", `,"priority":-2`)
	for range 300 {
		h.asks("red", tokens(1, 1))
	}
	for priority, steps := range map[int]uint64{0: 0, 5: 0, -1: bonusStep, -2: 2 * bonusStep, -100: 2 * bonusStep} {
		h.asks("red", strings.Replace(tokens(3, 2), "{", fmt.Sprintf(`{"priority":%d,`, priority), 1))
		if k := w.last(t).Key; k.Index-k.Rank != steps {
			t.Errorf("priority %d gains %d steps, want %d", priority, k.Index-k.Rank, steps)
		}
	}
}

// A cluster that was closed by a tenant that nobody wanted can be opened again, once no tenant is left.
func TestAClusterWithoutTenantsCanBeOpenedAgain(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	h.manage("PUT", "/admin/v1/tenants/x", `{"new_key":true}`)
	if r := h.manage("DELETE", "/admin/v1/tenants", ""); r.status != 400 || !strings.Contains(r.body, "delete them first") {
		t.Errorf("with a tenant left: %d %s", r.status, r.body)
	}
	h.manage("DELETE", "/admin/v1/tenants/x", "")
	if r := h.post("/v1/completions", hello); r.status != 401 {
		t.Errorf("the last tenant is deleted: %d %s", r.status, r.body)
	}
	if r := h.manage("DELETE", "/admin/v1/tenants", ""); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if r := h.post("/v1/completions", hello); r.status != 200 {
		t.Errorf("the cluster is open: %d %s", r.status, r.body)
	}
	h.manage("PUT", "/admin/v1/tenants/y", `{"new_key":true}`)
	if r := h.post("/v1/completions", hello); r.status != 401 {
		t.Errorf("a tenant closes it again: %d %s", r.status, r.body)
	}
}
