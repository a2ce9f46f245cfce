package router

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/consensus"
	"github.com/berthd/berth/kvpool"
)

// R8: many proposals are on their way at once; their results come in order, and a notice that is as new follows.
func TestProposalsInOrder(t *testing.T) { // R8
	h := open(t, nil)
	w := h.hire("w1", nil)
	const n = 500
	var last <-chan *ledgerv1.Result
	for range n {
		last = w.propose(&ledgerv1.Command{Kind: &ledgerv1.Command_Noop{Noop: &ledgerv1.Noop{}}})
	}
	revision := (<-last).Revision
	w.mu.Lock()
	order := slices.Clone(w.order)
	w.mu.Unlock()
	if len(order) != n || !slices.IsSorted(order) || order[0] != 1 {
		t.Errorf("R8: results in the order %v", order)
	}
	h.await("R8: a notice as new as the last result", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.notices[len(w.notices)-1].Revision >= revision
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.notices) > n {
		t.Errorf("%d notices for %d results", len(w.notices), n)
	}
}

// A worker hears what the ledger holds for it and did not ask for: here a reservation to answer for.
func TestOrphansAreNoticed(t *testing.T) { // R2
	h := open(t, nil)
	w := h.hire("w1", nil)
	reserve := &ledgerv1.Reserve{
		Worker: "w1", Incarnation: w.session, ShareGroup: openGroup, Pages: 3, PagesMax: 3, Slots: 1,
	}
	command := &ledgerv1.Command{Kind: &ledgerv1.Command_Reserve{Reserve: reserve}}
	result, err := h.router.cfg.Session.Do(t.Context(), command)
	if err != nil || result.GetReserved() == nil {
		t.Fatalf("%v, %v", result, err)
	}
	h.router.cfg.Session.Drop(result.GetReserved().Reservation)
	h.await("the tombstone", h.drained)
}

// The same nonce is the same incarnation; another process takes over, and the old one is told that it is superseded.
func TestRegistrations(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	before := w.session
	w.detach()
	w.attach()
	if w.session != before {
		t.Errorf("incarnation %d became %d", before, w.session)
	}
	conn, err := grpc.NewClient("passthrough:///router", h.dial()...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	register := func(nonce string) *ledgerv1.Result {
		s, err := workerv1.NewClusterClient(conn).Attach(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := &ledgerv1.Register{Worker: "w1", Nonce: []byte(nonce), LeaseMs: 60_000, Info: w.info}
		if err := s.Send(&workerv1.FromWorker{Kind: &workerv1.FromWorker_Register{Register: r}}); err != nil {
			t.Fatal(err)
		}
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m.GetRegistered()
	}
	if r := register("another process"); r.GetOpened().GetSession() <= before {
		t.Errorf("another process: %v", r)
	}
	if r := register("w1"); r.GetRefusal() == nil {
		t.Errorf("the old process: %v", r)
	}
	<-w.ended // it is told that it was fenced
	s, err := workerv1.NewClusterClient(conn).Attach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&workerv1.FromWorker{Kind: &workerv1.FromWorker_Renewal{}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a stream without a registration: %v", err)
	}
}

// tell sends cache events for blocks that are all there.
func (w *hand) tell(sequence uint64, reset bool, names ...kvpool.Hash) {
	e := &workerv1.CacheEvents{Sequence: sequence, Reset_: reset}
	for _, n := range names {
		e.Blocks = append(e.Blocks, event(n, true, true))
	}
	w.told <- &workerv1.Watched{Kind: &workerv1.Watched_Cache{Cache: e}}
}

func TestCacheEvents(t *testing.T) { // R6
	h := open(t, nil)
	w := h.hire("w1", nil)
	names := named(9)
	entries := func(n int) func() bool {
		return func() bool { got, _ := h.router.prefixes.size(); return got == n }
	}
	w.tell(7, true, names[:3]...)
	w.tell(8, false, names[3:5]...)
	h.await("five blocks", entries(5))
	w.tell(7, false, names[7]) // heard before
	w.tell(8, false, names[7])
	w.tell(9, false, names[5])
	h.await("R6: repeats to change nothing", entries(6))
	w.tell(11, false, names[6]) // 10 is missing
	h.await("R6: everything to be forgotten", entries(0))
	h.await("the worker to be watched anew", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.watches == 2 })
	w.tell(12, true, names[0])
	h.await("R6: the new truth", entries(1))
	w.detach()
	h.await("R6: nothing of a worker that is gone", entries(0))
}

// R5: a worker that says nothing, though its stream is up, is not placed on, and the reason is told; it may come back.
func TestMuteWorker(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	w.mute.Store(true)
	h.await("the worker to be given up", func() bool { return h.do("GET", "/readyz", "").status == 503 })
	var c clusterBody
	h.await("the reason", func() bool {
		h.operator("/admin/v1/cluster", 200, &c)
		return c.Workers[0].State == stateReady || strings.Contains(c.Workers[0].Why, "said nothing")
	})
	w.mute.Store(false)
	h.await("the worker to be back", func() bool { return h.do("GET", "/readyz", "").status == 200 })
}

// A router that cannot commit does not take renewals: its workers go elsewhere in time.
func TestRenewals(t *testing.T) {
	ledger := &sullen{}
	h := open(t, func(c *Config) {
		ledger.Node = c.Ledger.(*consensus.Node)
		c.Ledger = ledger
	})
	w := h.hire("w1", nil)
	renew := func() int {
		w.out <- &workerv1.FromWorker{Kind: &workerv1.FromWorker_Renewal{Renewal: &workerv1.Renewal{}}}
		time.Sleep(50 * time.Millisecond)
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.renewals
	}
	h.await("an answer", func() bool { return renew() > 0 })
	ledger.lost.Store(true)
	time.Sleep(100 * time.Millisecond)
	w.mu.Lock()
	before := w.renewals
	w.mu.Unlock()
	if renew() != before {
		t.Error("a router without a quorum takes a renewal")
	}
	ledger.lost.Store(false)
	h.await("an answer again", func() bool { return renew() > before })
	ledger.lost.Store(true)
	h.await("the end of a line whose renewals are not passed on", func() bool {
		select {
		case <-w.ended:
			return true
		default:
			renew() // those that come at once are answered as one
			return false
		}
	})
}

// A worker whose cache has the prompt is chosen, and a card that is not the registered one is not served.
func TestPrefixDecides(t *testing.T) {
	h := open(t, nil)
	w1, w2 := h.hire("w1", nil), h.hire("w2", nil)
	prompt := make([]int32, 121)
	names := newChains(h.node.View().HashKey, openGroup, "", prompt).of(h.node.View().Worker("w2"))
	w2.tell(1, true, names...)
	h.await("the blocks", func() bool { n, _ := h.router.prefixes.size(); return n == len(names) })
	body := string(encode(map[string]any{"model": "tiny", "prompt": prompt, "max_tokens": 2}))
	for range 4 {
		r := h.do("POST", "/v1/completions", body, "X-Request-Id", "asked")
		if r.status != 200 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		h.await("the drain", h.drained)
	}
	if len(w1.asked) != 0 || len(w2.asked) != 4 {
		t.Errorf("%d requests went to the empty cache, %d to the full one", len(w1.asked), len(w2.asked))
	}
	var d decision
	h.operator("/admin/v1/requests/asked/explain", 200, &d)
	if d.Verdict != placed || d.Worker != "w2" || d.Scored[0].Hit != 120 || len(d.Scored) != 2 {
		t.Errorf("%+v", d)
	}
	h.operator("/admin/v1/requests/nobody/explain", 404, nil)
}

func TestWrongCard(t *testing.T) { // R5
	h := open(t, nil)
	w := h.hire("w1", func(w *hand) { w.unready = "not for placing"; w.info.Card = make([]byte, 32) })
	w.isUnready("")
	var c clusterBody
	h.await("the fault", func() bool {
		h.operator("/admin/v1/cluster", 200, &c)
		return len(c.Workers) == 1 && c.Workers[0].State == stateLoading && c.Workers[0].Why != ""
	})
	r := h.post("/v1/completions", `{"model":"tiny","prompt":"hi"}`)
	if id, _ := r.fault(t); id != "WRK-001" {
		t.Errorf("R5: %d %s", r.status, r.body)
	}
}

// operator asks the admin API.
func (h *house) operator(path string, status int, into any) {
	h.t.Helper()
	res, err := http.Get(h.admin.URL + path)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		h.t.Fatalf("%s: %d %s, %v", path, res.StatusCode, data, err)
	}
	if into != nil {
		if err := json.Unmarshal(data, into); err != nil {
			h.t.Fatal(err)
		}
	}
}

func TestClusterState(t *testing.T) {
	h := open(t, nil)
	release := make(chan struct{})
	h.hire("w1", nil).play = held(release)
	got := h.background("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":3}`)
	h.await("a request to run", func() bool { n, _ := h.router.flights.running(); return n == 1 })
	h.post("/v1/completions", `{"model":"nobody","prompt":"hi"}`)
	var c clusterBody
	h.operator("/admin/v1/cluster", 200, &c)
	w := c.Workers[0]
	if c.Leader != "r1" || c.Term == 0 || c.Revision == 0 || w.ID != "w1" || w.State != stateReady || w.Model != "tiny" ||
		w.Pages.Total != 209 || w.Pages.OverheadLimit != 9 || w.Pages.Granted == 0 ||
		w.Pages.Charged != 1 || w.Reservations != 1 ||
		c.Tenants[0].Pages != w.Pages.Granted || c.Tenants[0].Running != 1 || c.Refusals["model_not_found"] != 1 {
		t.Errorf("%+v", c)
	}
	h.await("digests", func() bool {
		h.operator("/admin/v1/cluster", 200, &c)
		return len(c.Digests) > 0 && len(c.Digests[0].Digest) == 64
	})
	h.operator("/admin/v1/nothing", 404, nil)
	close(release)
	if r := <-got; r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A burst on equal workers falls on all of them, though the ledger has not shown any of it yet.
func TestBurstIsSpread(t *testing.T) {
	h := open(t, nil)
	var workers []*hand
	for _, name := range []string{"w1", "w2", "w3", "w4"} {
		workers = append(workers, h.hire(name, func(w *hand) { w.info.Slots = 16 }))
	}
	release := make(chan struct{})
	for _, w := range workers {
		w.play = held(release)
	}
	var answers []<-chan response
	for range 40 {
		answers = append(answers, h.background("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":3}`))
	}
	h.await("the burst to run", func() bool { _, tokens := h.router.flights.running(); return tokens == 40 })
	for _, w := range workers {
		w.mu.Lock()
		if n := len(w.asked); n < 8 || n > 12 { // between answer and hearing a claim counts twice
			t.Errorf("%s has %d", w.name, len(w.asked))
		}
		w.mu.Unlock()
	}
	close(release)
	for _, c := range answers {
		if r := <-c; r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	h.await("the drain", h.drained)
}

// Many requests on little room all end well, and nothing is left of them (B02).
func TestManyOnLittleRoom(t *testing.T) { // R1, R2
	h := open(t, nil)
	for _, name := range []string{"w1", "w2"} {
		h.hire(name, func(w *hand) { w.info.Pages, w.info.Slots = 9+40, 3 })
	}
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for j := range 20 {
				r := h.post("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":`+itoa(1+(i*7+j*3)%50)+`}`)
				if r.status != 200 {
					t.Errorf("%d %s", r.status, r.body)
				}
			}
		})
	}
	all.Wait()
	h.await("the drain", h.drained)
}
