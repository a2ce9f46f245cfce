package cpu

import (
	"bytes"
	"errors"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/model"
)

// Goroutines that meet are never a turn apart, however long they stay away.
func TestBarrier(t *testing.T) {
	for _, size := range []int{1, 2, 5} {
		var b barrier
		b.init(size)
		var turns [5]atomic.Int32
		var wg sync.WaitGroup
		for i := range size {
			wg.Go(func() {
				for turn := range int32(300) {
					if i == int(turn)%size && turn%100 == 7 {
						time.Sleep(2 * idleLimit) // the others fall asleep
					}
					turns[i].Store(turn)
					b.meet()
					for j := range size {
						if other := turns[j].Load(); other < turn || other > turn+1 {
							t.Errorf("in turn %d, goroutine %d is in %d", turn, j, other)
						}
					}
				}
			})
		}
		wg.Wait()
	}
}

func rankConfig(ranks int) Config {
	cfg := tinyConfig()
	cfg.Ranks = ranks
	return cfg
}

// N7: a plan that changes after its submission runs on no rank, and the error tells whose eyes saw it.
func TestChangedPlan(t *testing.T) {
	for _, ranks := range []int{1, 3} {
		d := tiny(t, "model-q8_0.gguf", rankConfig(ranks))
		row := sequence(d, tokens(10), 0, 1, 0)
		row.Logits = true
		want := step(t, d, &model.Plan{Step: 1, Rows: []model.Row{row}}).Logits[0]
		changed := row
		changed.Tokens = tokens(10)
		bad := &model.Plan{Step: 3, Rows: []model.Row{changed}}
		hold := make(chan struct{})
		d.engine.ranks[0].engine = &heldEngine{d.engine.ranks[0].engine, hold}
		for _, p := range []*model.Plan{{Step: 2, Rows: []model.Row{row}}, bad} {
			if err := d.Submit(p); err != nil {
				t.Fatal(err)
			}
		}
		bad.Rows[0].Tokens[3]++ // while the step before it runs
		close(hold)
		if r, err := d.Wait(); err != nil || r.Step != 2 {
			t.Fatalf("step 2: %v", err)
		}
		_, err := d.Wait()
		var fault *PlanError
		if !errors.As(err, &fault) || fault.Step != 3 || fault.Want == fault.Got {
			t.Errorf("%d ranks: %v, want a *PlanError", ranks, err)
		}
		next := sequence(d, []int32{5}, 10, 1, 0) // reads what step 1 wrote
		if err := d.Submit(&model.Plan{Step: 4, Rows: []model.Row{next}}); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Wait(); err != nil {
			t.Errorf("%d ranks, after the fault: %v", ranks, err)
		}
		row.Logits = true
		got := step(t, d, &model.Plan{Step: 5, Rows: []model.Row{row}}).Logits[0]
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("%d ranks: logit %d differs after the fault", ranks, i)
			}
		}
	}
}

// heldEngine does not begin a forward pass before it is let go.
type heldEngine struct {
	engine
	hold chan struct{}
}

func (e *heldEngine) forward(b *batch) {
	<-e.hold
	e.engine.forward(b)
}

// A device with a rank that hangs can be given up at once, and cleans up after itself if the rank comes back.
func TestAbandon(t *testing.T) {
	for hangs := range 3 {
		d := tiny(t, "model-q8_0.gguf", rankConfig(3))
		hold := make(chan struct{})
		d.engine.ranks[hangs].engine = &heldEngine{d.engine.ranks[hangs].engine, hold}
		row := sequence(d, tokens(10), 0, 1, 0)
		row.Sampling = &model.Sampling{}
		for s := range uint64(2) {
			if err := d.Submit(&model.Plan{Step: s, Rows: []model.Row{row}}); err != nil {
				t.Fatal(err)
			}
		}
		d.Abandon()
		if err := d.Submit(&model.Plan{Step: 3, Rows: []model.Row{row}}); !errors.Is(err, ErrClosed) {
			t.Errorf("Submit: %v", err)
		}
		if _, err := d.Wait(); !errors.Is(err, ErrClosed) {
			t.Errorf("Wait: %v", err)
		}
		if err := d.Close(); err != nil { // does not wait
			t.Error(err)
		}
		close(hold)
		for range d.results { // closed when all is released
		}
		for i, r := range d.engine.ranks {
			if r.memory.blocks != nil {
				t.Errorf("rank %d keeps memory after its end", i)
			}
		}
	}
}

// The greedy token of all ranks is the arg-max of the full logits, wherever it lies.
func TestGreedyOverRanks(t *testing.T) {
	needKernels(t)
	for _, ranks := range []int{2, 3, 4} {
		d := tiny(t, "model-q8_0.gguf", rankConfig(ranks))
		if d.engine.chooser() == nil {
			t.Fatal("no greedy head")
		}
		winners := map[int]bool{}
		checkGreedy(t, d, func(id int) {
			winners[owner(d.engine.vocab, id, func(s model.Span) int { return s.Lo })] = true
		})
		if len(winners) < 2 {
			t.Errorf("%d ranks: all winners on one", ranks)
		}
	}
}

// Ranks have the same pages, and as many key heads on them as the rank with most.
func TestPagesOfRanks(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4} {
		d := tiny(t, "model-q8_0.gguf", rankConfig(ranks))
		threads := 0
		for i, r := range d.engine.ranks {
			if len(d.Page(i, 7)) != d.PageBytes() || len(r.pages.mem) != d.cfg.Pages*d.PageBytes() {
				t.Errorf("rank %d: pages of %d bytes, %d in all", i, len(d.Page(i, 7)), len(r.pages.mem))
			}
			if r.first != threads || r.cfg.Threads < 1 {
				t.Errorf("rank %d: %d threads from %d", i, r.cfg.Threads, r.first)
			}
			threads += r.cfg.Threads
		}
		if threads != max(ranks, 2) || d.cfg.Threads != threads {
			t.Errorf("%d ranks have %d threads, said %d", ranks, threads, d.cfg.Threads)
		}
		total := 0
		for _, b := range d.Buffers() {
			if b.Name == "pages" {
				total = b.Bytes
			}
		}
		if total != ranks*d.cfg.Pages*d.PageBytes() {
			t.Errorf("%d bytes of pages on %d ranks", total, ranks)
		}
	}
}

// A device is refused that has less to share than ranks.
func TestTooManyRanks(t *testing.T) {
	var small *model.ShareError
	if _, err := Open(openTiny(t, "model-q8_0.gguf"), rankConfig(5)); !errors.As(err, &small) || small.Have != 4 {
		t.Errorf("5 ranks for 4 query heads: %v", err)
	}
}

// BenchmarkBarrier is one meeting of goroutines that all have a processor.
func BenchmarkBarrier(b *testing.B) {
	var bar barrier
	bar.init(2)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range b.N {
			bar.meet()
		}
	})
	for range b.N {
		bar.meet()
	}
	wg.Wait()
}

// N8: with equal page ids, a rank's pages hold the keys and values of its own heads. In the first layer, which no sum
// comes before, they are those of a single rank bit for bit.
func TestPagesHoldOwnHeads(t *testing.T) {
	m, err := model.Open(filepath.Join(golden, "tiny/qwen2/model-q8_0.gguf")) // 2 key heads
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var whole *Device
	for _, ranks := range []int{1, 2, 4} {
		d, err := Open(m, rankConfig(ranks))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if whole == nil {
			whole = d
		}
		step(t, d, &model.Plan{Step: 1, Rows: []model.Row{sequence(d, tokens(17), 0, 1, 9)}})
		shares, err := m.Shares(ranks)
		if err != nil {
			t.Fatal(err)
		}
		for r, s := range shares {
			for head := range s.KVHeads.Len() {
				if !bytes.Equal(headOf(d, r, 9, head), headOf(whole, 0, 9, s.KVHeads.Lo+head)) {
					t.Errorf("%d ranks: head %d of rank %d is not head %d of one rank", ranks, head, r, s.KVHeads.Lo+head)
				}
			}
		}
	}
}

// headOf is the keys and values of one head of the first layer in a rank's page.
func headOf(d *Device, rank, page, head int) []byte {
	p := &d.engine.ranks[rank].pages
	lo := p.layout.Offset(p.blockSize, p.layout.Places[0].Index, head) * p.elem
	size := p.blockSize * p.layout.HeadDim * p.elem
	mem := d.Page(rank, page)
	return append(bytes.Clone(mem[lo:lo+size]), mem[lo+p.valueOffset():][:size]...)
}
