package router

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// bearer is the header of a tenant's key in tests.
func bearer(tenant string) []string { return []string{"Authorization", "Bearer " + keyOf(tenant)} }

func keyOf(tenant string) string { return "sk-" + strings.Repeat(tenant+"-", 16) }

// manage asks the admin API.
func (h *house) manage(method, path, body string) response {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.admin.URL+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := h.admin.Client().Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return response{res.StatusCode, res.Header, string(data)}
}

// tenant puts a tenant with its key, and what else the members say.
func (h *house) tenant(id, members string) {
	h.t.Helper()
	body := fmt.Sprintf(`{"keys":[%q]%s}`, keyOf(id), members)
	if r := h.manage("PUT", "/admin/v1/tenants/"+id, body); r.status != 200 {
		h.t.Fatalf("put %s: %d %s", id, r.status, r.body)
	}
}

// asks is a completion of a tenant.
func (h *house) asks(tenant, body string) response {
	h.t.Helper()
	return h.do("POST", "/v1/completions", body, bearer(tenant)...)
}

func tokens(prompt, most int) string {
	return fmt.Sprintf(`{"model":"tiny","prompt":[%s5],"max_tokens":%d,"ignore_eos":true}`, strings.Repeat("5,", prompt-1), most)
}

// While there are no tenants everybody is served; from the first one on a key is needed, for good.
func TestKeysAreAskedFor(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	if r := h.post("/v1/completions", tokens(3, 2)); r.status != 200 {
		t.Fatalf("open: %d %s", r.status, r.body)
	}
	h.tenant("red", "")
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/healthz", "", 200}, {"GET", "/readyz", "", 200}, {"GET", "/", "", 404},
		{"GET", "/v1/models", "", 401}, {"GET", "/v1/models/tiny", "", 401}, {"GET", "/v1/models/nobody", "", 401},
		{"POST", "/v1/completions", tokens(3, 2), 401}, {"POST", "/v1/chat/completions", "{}", 401},
		{"POST", "/tokenize", `{"prompt":"x"}`, 401}, {"POST", "/detokenize", `{"tokens":[1]}`, 401},
		{"POST", "/v1/embeddings", "{}", 401}, {"POST", "/v1/messages", "{}", 401}, {"GET", "/v1/nowhere", "", 401},
	} {
		if r := h.do(c.method, c.path, c.body); r.status != c.status {
			t.Errorf("%s %s without a key: %d %s, want %d", c.method, c.path, r.status, r.body, c.status)
		}
		want := c.status
		if c.status == 401 {
			want = 0
		}
		if r := h.do(c.method, c.path, c.body, bearer("red")...); want != 0 && r.status != want || want == 0 && r.status == 401 {
			t.Errorf("%s %s with a key: %d %s", c.method, c.path, r.status, r.body)
		}
	}
	if r := h.manage("DELETE", "/admin/v1/tenants/red", ""); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	for _, header := range [][]string{nil, bearer("red")} {
		if r := h.do("POST", "/v1/completions", tokens(3, 2), header...); r.status != 401 {
			t.Errorf("the last tenant's deletion opened the cluster: %d", r.status)
		}
	}
}

// A wrong key learns nothing: every answer is the same as without one, but for its request's id and the date.
func TestWrongKeyLearnsNothing(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	h.tenant("red", `,"models":["tiny"]`)
	hash := hex.EncodeToString(hashKey(keyOf("red")))
	seen := map[string]string{}
	for _, auth := range []string{
		"", "Bearer", "Bearer ", "Bearer wrong", "Basic " + keyOf("red"), keyOf("red"), "Bearer " + keyOf("red")[1:],
		"Bearer " + hash, "Bearer sha256:" + hash, "Bearer " + keyOf("red") + "x", "Bearer " + strings.Repeat("x", 4000),
	} {
		for _, c := range [][3]string{
			{"POST", "/v1/completions", tokens(3, 2)}, {"POST", "/v1/completions", `{"model":"nobody","prompt":"x"}`},
			{"POST", "/v1/completions", "no JSON"}, {"GET", "/v1/completions", ""}, {"GET", "/v1/models", ""},
			{"GET", "/v1/models/tiny", ""}, {"GET", "/v1/models/nobody", ""}, {"POST", "/tokenize", `{"prompt":"x"}`},
			{"POST", "/detokenize", `{"tokens":[1]}`}, {"GET", "/v1/nowhere", ""}, {"DELETE", "/v1/models/tiny", ""},
		} {
			var header []string
			if auth != "" {
				header = []string{"Authorization", auth}
			}
			r := h.do(c[0], c[1], c[2], header...)
			r.header.Del("X-Request-Id")
			r.header.Del("Date")
			seen[fmt.Sprintf("%d %v %s", r.status, r.header, r.body)] = auth + " " + c[0] + " " + c[1]
		}
	}
	if len(seen) != 1 {
		for what, who := range seen {
			t.Errorf("%s: %s", who, what)
		}
	}
	if r := h.asks("red", tokens(3, 2)); r.status != 200 || len(h.router.trace.refusalCounts()) != 1 {
		t.Errorf("%d %s, %v", r.status, r.body, h.router.trace.refusalCounts())
	}
}

func TestForbiddenModel(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	h.tenant("red", `,"models":["tiny-alias"]`)
	h.tenant("blue", "")
	for _, c := range []struct {
		method, path, body string
		status             int
		id                 string
	}{
		{"POST", "/v1/completions", tokens(3, 2), 403, "TEN-004"},
		{"POST", "/v1/completions", `{"model":"nobody","prompt":"x"}`, 404, "MDL-001"},
		{"POST", "/tokenize", `{"model":"tiny","prompt":"x"}`, 403, "TEN-004"},
		{"GET", "/v1/models/tiny", "", 403, "TEN-004"},
		{"GET", "/v1/models/nobody", "", 404, "MDL-001"},
	} {
		r := h.do(c.method, c.path, c.body, bearer("red")...)
		if id, _ := r.fault(t); r.status != c.status || id != c.id {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, r.status, r.body, c.status, c.id)
		}
	}
	for tenant, want := range map[string]int{"red": 1, "blue": 2} {
		r := h.do("GET", "/v1/models", "", bearer(tenant)...)
		if list := r.json(t)["data"].([]any); len(list) != want {
			t.Errorf("%s sees %v", tenant, list)
		}
	}
	if r := h.do("POST", "/tokenize", `{"prompt":"x"}`, bearer("red")...); r.status != 200 {
		t.Errorf("without a name: %d %s", r.status, r.body)
	}
	if r := h.asks("red", strings.Replace(tokens(3, 2), "tiny", "tiny-alias", 1)); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// P7: a prefix is found again within a share group, and never outside: not by the router's index, and not by the worker,
// which is told the group.
func TestPrefixesStayInTheirGroup(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	h.tenant("red", `,"share_group":"warm"`)
	h.tenant("pink", `,"share_group":"warm"`)
	h.tenant("blue", "")
	prompt := make([]int32, 120)
	for i := range prompt {
		prompt[i] = 5
	}
	view := h.node.View()
	names := newChains(view.HashKey, "warm", "", prompt).of(view.Worker("w1"))
	w.tell(1, true, names...)
	h.await("the index", func() bool { n, _ := h.router.prefixes.size(); return n == len(names) })
	for tenant, want := range map[string]int{"red": len(names) * 4, "pink": len(names) * 4, "blue": 0} {
		r := h.do("POST", "/v1/completions", tokens(120, 2), append(bearer(tenant), "X-Request-Id", "of-"+tenant)...)
		var d decision
		h.operator("/admin/v1/requests/of-"+tenant+"/explain", 200, &d)
		group := map[bool]string{true: "warm", false: "blue"}[tenant != "blue"]
		if r.status != 200 || d.Scored[0].Hit != want || w.last(t).ShareGroup != group {
			t.Errorf("P7: %s: %d, hit %d, want %d, as %q", tenant, r.status, d.Scored[0].Hit, want, w.last(t).ShareGroup)
		}
	}
}

// A budget that is used up is refused with the time that it takes to come back, and comes back.
func TestBudget(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	h.tenant("red", `,"tokens_per_minute":600,"burst":20`)
	if r := h.asks("red", tokens(20, 10)); r.status != 200 { // 10 tokens of debt
		t.Fatalf("%d %s", r.status, r.body)
	}
	h.await("the end in the ledger", h.drained)
	r := h.asks("red", tokens(1, 1))
	if id, _ := r.fault(t); r.status != 429 || id != "TEN-002" || !r.retryAfter() || r.berth(t)["left"].(float64) > 0 {
		t.Errorf("%d %v %s", r.status, r.header, r.body)
	}
	h.await("the refill", func() bool { return h.asks("red", tokens(1, 1)).status == 200 })
	h.tenant("red", `,"tokens_per_minute":0`)
	if r := h.asks("red", tokens(20, 100)); r.status != 200 {
		t.Errorf("without a budget: %d %s", r.status, r.body)
	}
}

// TEN-003: at once if the request never fits under the cap, after a wait if others of the group live. Another tenant is
// not held up by it.
func TestCap(t *testing.T) {
	h := open(t, func(c *Config) { c.QueueTimeout = 300 * time.Millisecond })
	release := make(chan struct{})
	h.hire("w1", func(w *hand) { w.play = held(release) })
	need := uint64(h.node.View().Worker("w1").Geometry.Demand(44).Pages)
	h.tenant("red", fmt.Sprintf(`,"cap":%d`, need+1))
	h.tenant("blue", "")
	r := h.asks("red", tokens(40, 40))
	if id, param := r.fault(t); r.status != 429 || id != "TEN-003" || param != "max_tokens" || !r.retryAfter() {
		t.Errorf("never: %d %s", r.status, r.body)
	}
	first := h.backgroundAs("red", tokens(40, 4))
	h.await("the first to run", func() bool { n, _ := h.router.flights.running(); return n == 1 })
	began := time.Now()
	second := h.backgroundAs("red", tokens(40, 4))
	h.await("the second to wait", func() bool { n, _ := h.router.queue.size(); return n == 1 })
	third := h.backgroundAs("blue", tokens(40, 4))
	h.await("another tenant to pass it", func() bool { n, _ := h.router.flights.running(); return n == 2 })
	r = <-second
	if id, _ := r.fault(t); r.status != 429 || id != "TEN-003" || !r.retryAfter() || time.Since(began) < 300*time.Millisecond {
		t.Errorf("full: %d %s after %v", r.status, r.body, time.Since(began))
	}
	// A cap that is lowered below what is held breaks nothing; one that is raised lets in who waits.
	h.tenant("red", `,"cap":1`)
	h.router.cfg.QueueTimeout = 10 * time.Second
	fourth := h.backgroundAs("red", tokens(40, 4))
	h.await("the fourth to be refused", func() bool { return len(fourth) == 1 })
	h.tenant("red", fmt.Sprintf(`,"cap":%d`, need))
	fifth := h.backgroundAs("red", tokens(40, 4))
	h.await("the fifth to wait", func() bool { n, _ := h.router.queue.size(); return n == 1 })
	h.tenant("red", fmt.Sprintf(`,"cap":%d`, 3*need))
	h.await("the fifth to run", func() bool { n, _ := h.router.flights.running(); return n == 3 })
	close(release)
	for _, one := range []<-chan response{first, third, fifth} {
		if r := <-one; r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	h.await("the drain", h.drained)
}

// backgroundAs sends a tenant's request that a test does not wait for; its answer comes on the channel.
func (h *house) backgroundAs(tenant, body string) <-chan response {
	out := make(chan response, 1)
	go func() { out <- h.asks(tenant, body) }()
	return out
}

// Caps and keys hold whatever is asked at once, and a tenant's changes meanwhile.
func TestCapsHoldUnderConcurrency(t *testing.T) {
	h := open(t, nil)
	for _, name := range []string{"w1", "w2"} {
		h.hire(name, nil)
	}
	need := uint64(h.node.View().Worker("w1").Geometry.Demand(44).Pages)
	most := 3 * need
	h.tenant("red", fmt.Sprintf(`,"cap":%d`, most))
	h.tenant("blue", "")
	var stop atomic.Bool
	var over atomic.Int64
	var watch, clients sync.WaitGroup
	watch.Go(func() {
		for !stop.Load() {
			changed := h.node.Changed()
			granted := uint64(0)
			v := h.node.View()
			for _, w := range v.Workers {
				for _, a := range w.Accounts {
					if a.ShareGroup == "red" {
						granted += a.Grant()
					}
				}
			}
			if claimed := v.Tenant("red").Claim; granted > most || claimed > most {
				over.Add(1)
			}
			<-changed
		}
	})
	for i := range 8 {
		clients.Go(func() {
			for range 10 {
				tenant := []string{"red", "blue"}[i%2]
				if r := h.asks(tenant, tokens(40, 4)); r.status != 200 {
					t.Errorf("%s: %d %s", tenant, r.status, r.body)
				}
				if r := h.asks("green", tokens(40, 4)); r.status != 401 {
					t.Errorf("nobody: %d", r.status)
				}
			}
		})
	}
	clients.Wait()
	stop.Store(true)
	watch.Wait()
	if over.Load() > 0 {
		t.Errorf("P7: the cap was exceeded %d times", over.Load())
	}
	h.await("the drain", h.drained)
}

// A tenant deleted while its requests run: they finish, what waits and what is new gets 401.
func TestDeletedTenant(t *testing.T) {
	h := open(t, nil)
	release := make(chan struct{})
	h.hire("w1", func(w *hand) { w.play, w.info.Slots = held(release), 1 })
	h.tenant("red", "")
	h.tenant("blue", "")
	runs := h.backgroundAs("red", tokens(8, 4))
	h.await("the first to run", func() bool { n, _ := h.router.flights.running(); return n == 1 })
	waits := h.backgroundAs("red", tokens(8, 4))
	h.await("the second to wait", func() bool { n, _ := h.router.queue.size(); return n == 1 })
	if r := h.manage("DELETE", "/admin/v1/tenants/red", ""); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	for _, r := range []response{<-waits, h.asks("red", tokens(8, 4))} {
		if id, _ := r.fault(t); r.status != 401 || id != "TEN-001" {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	close(release)
	if r := <-runs; r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	h.await("the drain", h.drained)
}

// However many tenants there are, a hundred have series of their own.
func TestTenantLabelsAreBounded(t *testing.T) {
	h := open(t, nil)
	labels := map[string]int{}
	for i := range 2 * maxTenantLabels {
		labels[h.router.trace.tenant(fmt.Sprint("t", i))]++
		labels[h.router.trace.tenant(fmt.Sprint("t", i))]++
	}
	if len(labels) != maxTenantLabels+1 || labels["other"] != 2*maxTenantLabels || labels["t7"] != 2 {
		t.Errorf("%d labels, %d of them other", len(labels), labels["other"])
	}
}

// What was claimed when a request was stopped may be given up before it begins to wait: then it does not wait.
func TestCapFreedBeforeTheWait(t *testing.T) {
	h := open(t, nil)
	h.tenant("red", `,"cap":100`)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	h.router.awaitCap(ctx, &request{guest: &guest{id: "red", group: "red"}}, &candidate{Cap: 100, Claimed: 60})
	if ctx.Err() != nil {
		t.Error("a request waits for what has happened already")
	}
}
