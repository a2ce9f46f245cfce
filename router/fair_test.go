package router

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// Two tenants with weights 1 and 3, both always waiting, are served 1 : 3 by weighted tokens, within 5 %: requests of one
// are many times as long as those of the other, and say less than they may.
func TestWeights(t *testing.T) { // R4
	h := open(t, nil)
	var stop atomic.Bool
	w := h.hire("w1", func(w *hand) {
		w.info.Slots = 3
		w.play = func(ctx context.Context, r *ask, send sender) (ending, error) {
			h.await("both to wait", func() bool {
				red, _ := h.router.queue.of("red")
				blue, _ := h.router.queue.of("blue")
				return red > 2 && blue > 2 || stop.Load()
			})
			for range r.MaxTokens/2 + 1 {
				if err := send(700); err != nil {
					return 0, err
				}
			}
			return ledgerv1.FinishReason_FINISH_REASON_STOP, nil
		}
	})
	h.tenant("red", `,"weight":1`)
	h.tenant("blue", `,"weight":3`)
	var clients sync.WaitGroup
	for _, tenant := range []string{"red", "blue"} {
		for i := range 12 {
			clients.Go(func() {
				for n := i; !stop.Load(); n++ {
					body := tokens(20+n%7, 4+n%5)
					if tenant == "red" {
						body = tokens(60+n%40, 20+n%30)
					}
					if r := h.asks(tenant, body); r.status != 200 {
						t.Errorf("%s: %d %s", tenant, r.status, r.body)
						return
					}
				}
			})
		}
	}
	// What the worker was asked, in its order: service as it came, after everybody waits.
	service := func() (out map[string]float64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		out = map[string]float64{}
		for _, r := range w.asked[min(len(w.asked), 30):] {
			out[r.ShareGroup] += float64(len(r.Prompt)-3) + 2*float64(r.MaxTokens/2+1)
		}
		return out
	}
	h.await("enough service", func() bool { s := service(); return s["red"] > 8000 && s["blue"] > 8000 })
	s := service()
	stop.Store(true)
	clients.Wait()
	if ratio := s["blue"] / s["red"]; ratio < 3*0.95 || ratio > 3*1.05 {
		t.Errorf("R4: blue got %.2f times the service of red, want 3 within 5 %%: %v", ratio, s)
	} else {
		t.Logf("blue got %.3f times the service of red: %v", ratio, s)
	}
	h.await("the drain", h.drained)
}

// An idle tenant that comes is the first to get room, though others have waited longer; it gets no more than its part.
func TestNewcomerIsNext(t *testing.T) { // R4
	h := open(t, nil)
	release := make(chan struct{})
	w := h.hire("w1", func(w *hand) { w.play, w.info.Slots = held(release), 1 })
	for _, tenant := range []string{"red", "blue", "green"} {
		h.tenant(tenant, "")
	}
	var all []<-chan response
	running := func(n int) func() bool {
		return func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.asked) == n }
	}
	all = append(all, h.backgroundAs("red", tokens(8, 4)))
	h.await("red to run", running(1))
	for i, tenant := range []string{"red", "blue", "red", "blue", "red"} {
		all = append(all, h.backgroundAs(tenant, tokens(8, 4)))
		h.await("one more to wait", func() bool { n, _ := h.router.queue.size(); return n == i+1 })
	}
	release <- struct{}{}
	h.await("the next to run", running(2)) // blue: it has had nothing
	for i := range 2 {
		all = append(all, h.backgroundAs("green", tokens(8, 4)))
		h.await("green to wait", func() bool { n, _ := h.router.queue.size(); return n == 5+i })
	}
	for n := 3; n <= len(all); n++ {
		release <- struct{}{}
		h.await("the next to run", running(n))
	}
	close(release)
	for _, one := range all {
		if r := <-one; r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	order := ""
	for _, r := range w.asked {
		order += r.ShareGroup[:1]
	}
	// Green comes when blue runs, and begins where red is.
	if order[:3] != "rbg" || fmt.Sprint(count(order)) != "map[b:2 g:2 r:4]" || count(order[:6])["g"] != 2 {
		t.Errorf("R4: %s ran in this order", order)
	}
	h.await("the drain", h.drained)
}

func count(s string) map[string]int {
	out := map[string]int{}
	for _, c := range s {
		out[string(c)]++
	}
	return out
}
