package router

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// more plays two tokens more than it was asked for, at once or one by one.
func more(at int) play {
	return func(_ context.Context, r *ask, send sender) (ending, error) {
		ids := make([]int32, r.MaxTokens+2)
		for i := range ids {
			ids[i] = 700
		}
		for lo := 0; lo < len(ids); lo += at {
			if err := send(ids[lo:min(len(ids), lo+at)]...); err != nil {
				return 0, err
			}
		}
		return endLength, nil
	}
}

// What a faulty worker says beyond what it can have is not passed on.
func TestFaultyWorkerIsNotBelieved(t *testing.T) {
	h := open(t, nil)
	w := h.hire("w1", nil)
	body := `{"model":"tiny","prompt":"hi","max_tokens":3,"return_token_ids":true,"temperature":0}`
	for _, at := range []int{1, 2, 100} {
		w.play = more(at)
		r := h.post("/v1/completions", body)
		if id, _ := r.fault(t); r.status != 502 || id != "WRK-002" {
			t.Errorf("%d tokens at once: %d %s", at, r.status, r.body)
		}
		r = h.post("/v1/completions", strings.Replace(body, "{", `{"stream":true,`, 1))
		h.http.Client().CloseIdleConnections() // the one of a broken stream is about to close
		if n := strings.Count(r.body, "700"); n > 3 || !strings.Contains(r.body, "worker_lost") {
			t.Errorf("%d tokens at once: %d ids in %s", at, n, r.body)
		}
		h.await("the drain", h.drained)
	}
	w.play = stopAfterMax
	pretend := func(cached uint32) {
		w.mu.Lock()
		w.cached = cached
		w.mu.Unlock()
	}
	for _, cached := range []uint32{1 << 31, 40} {
		pretend(cached)
		r := h.post("/v1/completions", body)
		if id, _ := r.fault(t); r.status != 502 || id != "WRK-002" {
			t.Errorf("%d cached tokens: %d %s", cached, r.status, r.body)
		}
		h.await("the drain", h.drained)
	}
	pretend(1)
	if r := h.post("/v1/completions", body); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A request at which a worker fails goes to no other one: it might fail them all.
func TestPoisonousRequestIsFinal(t *testing.T) { // R2
	h := open(t, nil)
	var asked atomic.Int32
	poison := status.Error(codes.Internal, "out of cheese")
	edit := func(w *hand) {
		w.refuse = func(*ask) error { asked.Add(1); return poison }
	}
	w1, w2 := h.hire("w1", edit), h.hire("w2", edit)
	body := `{"model":"tiny","prompt":"hi","max_tokens":3}`
	r := h.post("/v1/completions", body)
	if id, _ := r.fault(t); r.status != 500 || id != "INT-001" || asked.Load() != 1 || strings.Contains(r.body, "cheese") {
		t.Errorf("R2: %d %s after %d dispatches", r.status, r.body, asked.Load())
	}
	h.await("the drain", h.drained)
	for _, w := range []*hand{w1, w2} {
		w.mu.Lock()
		w.refuse = nil
		w.mu.Unlock()
		w.play = func(_ context.Context, _ *ask, send sender) (ending, error) {
			asked.Add(1)
			if err := send(700); err != nil {
				return 0, err
			}
			return ledgerv1.FinishReason_FINISH_REASON_ERROR, poison
		}
	}
	asked.Store(0)
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Post(h.http.URL+"/v1/completions",
		"application/json", strings.NewReader(strings.Replace(body, "{", `{"stream":true,`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var got strings.Builder
	if _, err := copyAll(&got, res.Body); err != nil {
		t.Error(err)
	}
	if asked.Load() != 1 || !strings.Contains(got.String(), `"INT-001"`) || strings.Contains(got.String(), "[DONE]") {
		t.Errorf("R2: %s after %d dispatches", got.String(), asked.Load())
	}
	h.await("the drain", h.drained)
}

// A request that was in steps that did not end goes on with their number, to a worker that runs it alone; of three it is
// taken for the cause and goes nowhere any more.
func TestASuspectIsPassedOnWithItsNumber(t *testing.T) { // R2
	h := open(t, nil)
	var told []uint32
	worst := uint32(2)
	edit := func(w *hand) {
		w.refuse = func(r *ask) error {
			told = append(told, r.FatalSteps)
			if r.FatalSteps >= worst {
				return nil
			}
			s, err := status.New(codes.Aborted, "a step did not end").WithDetails(&workerv1.FatalStep{Steps: r.FatalSteps + 1})
			if err != nil {
				t.Error(err)
			}
			return s.Err()
		}
	}
	h.hire("w1", edit)
	h.hire("w2", edit)
	body := `{"model":"tiny","prompt":"hi","max_tokens":3}`
	if r := h.post("/v1/completions", body); r.status != 200 || !slices.Equal(told, []uint32{0, 1, 2}) {
		t.Errorf("after two fatal steps: %d %s, workers were told %d", r.status, r.body, told)
	}
	told, worst = nil, 10
	r := h.post("/v1/completions", body)
	if id, _ := r.fault(t); r.status != 502 || id != "WRK-002" || !slices.Equal(told, []uint32{0, 1, 2}) {
		t.Errorf("after three: %d %s, workers were told %d", r.status, r.body, told)
	}
	h.await("the drain", h.drained)
}
