package router

import (
	"testing"
	"testing/synctest"
	"time"
)

// A worker that is asked for its card and says nothing holds up nobody with the same card, and its fetch ends when it
// leaves.
func TestSilentWorkerHoldsUpNobody(t *testing.T) { // R5
	h := open(t, nil)
	silent := h.hire("w1", func(w *hand) { w.silent, w.unready = true, "not for placing" })
	turns := func() int {
		h.router.catalog.mu.Lock()
		defer h.router.catalog.mu.Unlock()
		return len(h.router.catalog.turns)
	}
	h.await("the fetch from the silent worker", func() bool { return turns() == 1 })
	began := time.Now()
	h.hire("w2", nil)
	if took := time.Since(began); took > cardPatience+2*time.Second {
		t.Errorf("R5: served after %v", took)
	}
	if r := h.post("/v1/completions", `{"model":"tiny","prompt":"hi","max_tokens":2}`); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	silent.detach()
	other := h.hire("w3", func(w *hand) {
		w.silent, w.unready, w.info.Card = true, "not for placing", make([]byte, 32)
	})
	h.await("the fetch of another card", func() bool { return turns() == 1 })
	other.detach()
	h.await("its end", func() bool { return turns() == 0 })
}

// Equal workers take turns: the next one comes when the one before has ended or has had its time.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &catalog{cards: map[string]*card{}, turns: map[string]*turn{}}
		first, mine := c.take("a")
		if other, also := c.take("b"); !mine || !also || other == first {
			t.Error("other cards do not wait")
		}
		if again, mine := c.take("a"); mine || again != first {
			t.Error("two at once")
		}
		time.Sleep(cardPatience)
		second, mine := c.take("a")
		if !mine {
			t.Error("no patience ends")
		}
		<-first.over
		c.end("a", first)
		if again, mine := c.take("a"); mine || again != second {
			t.Error("who lost its turn ended another's")
		}
		c.put(&card{print: "a"}, nil)
		<-second.over
		c.end("a", second)
		if len(c.turns) != 1 || c.get("a") == nil {
			t.Errorf("%d turns are left", len(c.turns))
		}
	})
}
