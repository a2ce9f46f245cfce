package backendtest

import (
	"math/rand/v2"
	"testing"

	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
)

// bench is a device with its pages, driven step by step.
type bench struct {
	t      testing.TB
	device Device
	model  *model.Model
	shape  Shape
	layout model.KVLayout
	free   []kvpool.PageID
	step   uint64
}

// newBench opens a device. Pages are handed out in an order that differs from test to test, but not from run to run.
func newBench(t testing.TB, open Opener, m *model.Model, s Shape) *bench {
	t.Helper()
	b := &bench{t: t, model: m, shape: s, layout: m.KVLayout(), device: open(t, m, s)}
	for i := range s.Pages {
		b.free = append(b.free, kvpool.PageID(i))
	}
	r := rand.New(rand.NewPCG(uint64(s.BlockSize), uint64(s.MaxBatchTokens)))
	r.Shuffle(len(b.free), func(i, j int) { b.free[i], b.free[j] = b.free[j], b.free[i] })
	t.Cleanup(func() {
		if err := b.device.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// branch is one sequence: its length and its pages.
type branch struct {
	bench *bench
	pages [][]kvpool.PageID
	size  int
}

func (b *bench) branch() *branch {
	return &branch{bench: b, pages: make([][]kvpool.PageID, len(b.layout.Groups))}
}

// next is the row that appends tokens, with pages taken for them and those given back that windows have passed.
func (s *branch) next(tokens []int32, outputs int) model.Row {
	row := model.Row{Tokens: tokens, Start: s.size, Outputs: outputs, Logits: outputs > 0}
	end := s.size + len(tokens)
	blockSize := s.bench.shape.BlockSize
	for g, group := range s.bench.layout.Groups {
		if group.Kind == kvpool.Sliding {
			for block := range max(0, s.size-group.Window+1) / blockSize {
				s.bench.giveBack(s.pages[g][block])
				s.pages[g][block] = kvpool.NoPage
			}
		}
		for len(s.pages[g])*blockSize < end {
			s.pages[g] = append(s.pages[g], s.bench.take())
		}
	}
	s.size = end
	row.Pages = s.pages
	return row
}

// drop gives all pages back.
func (s *branch) drop() {
	for _, table := range s.pages {
		for _, page := range table {
			s.bench.giveBack(page)
		}
	}
}

func (b *bench) take() kvpool.PageID {
	b.t.Helper()
	if len(b.free) == 0 {
		b.t.Fatal("the test's device has too few pages")
	}
	page := b.free[0]
	b.free = b.free[1:]
	return page
}

func (b *bench) giveBack(page kvpool.PageID) {
	if page != kvpool.NoPage {
		b.free = append(b.free, page)
	}
}

// run is one step.
func (b *bench) run(rows ...model.Row) *model.Result {
	b.t.Helper()
	b.step++
	if err := b.device.Submit(&model.Plan{Step: b.step, Rows: rows}); err != nil {
		b.t.Fatal(err)
	}
	r, err := b.device.Wait()
	if err != nil {
		b.t.Fatal(err)
	}
	if r.Step != b.step {
		b.t.Fatalf("result of step %d, want %d", r.Step, b.step)
	}
	return r
}

// prefill appends a prompt in chunks and returns the logits of its last `outputs` positions, [outputs][vocab].
func (s *branch) prefill(prompt []int32, chunk, outputs int) []float32 {
	s.bench.t.Helper()
	var logits []float32
	for lo := 0; lo < len(prompt); lo += chunk {
		hi := min(lo+chunk, len(prompt))
		r := s.bench.run(s.next(prompt[lo:hi], min(hi-lo, max(0, hi-(len(prompt)-outputs)))))
		logits = append(logits, r.Logits[0]...)
	}
	return logits
}
