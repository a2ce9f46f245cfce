package cpu

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
)

const golden = "../testdata/golden"

// openTiny opens a small model, gemma3 where the file is given without one.
func openTiny(t testing.TB, file string) *model.Model {
	t.Helper()
	if !strings.Contains(file, "/") {
		file = "gemma3/" + file
	}
	m, err := model.Open(filepath.Join(golden, "tiny", file))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// tiny opens a device on it.
func tiny(t testing.TB, file string, cfg Config) *Device {
	t.Helper()
	d, err := Open(openTiny(t, file), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// needKernels skips where the processor can't run them.
func needKernels(t testing.TB) {
	t.Helper()
	if !Kernels() {
		t.Skip("no kernels: they need cgo, and a processor with AVX2, FMA and F16C")
	}
}

func tinyConfig() Config {
	return Config{Threads: 2, Pages: 256, BlockSize: 16, MaxBatchTokens: 128, MaxRows: 8}
}

// sequence is tokens with pages for all of their blocks, the same page in every layer group's own range.
func sequence(d *Device, tokens []int32, start, outputs, firstPage int) model.Row {
	row := model.Row{Tokens: tokens, Start: start, Outputs: outputs}
	blocks := (start+len(tokens)-1)/d.cfg.BlockSize + 1
	for range d.engine.layout.Groups {
		var table []kvpool.PageID
		for range blocks {
			table = append(table, kvpool.PageID(firstPage))
			firstPage++
		}
		row.Pages = append(row.Pages, table)
	}
	return row
}

func step(t testing.TB, d *Device, p *model.Plan) *model.Result {
	t.Helper()
	if err := d.Submit(p); err != nil {
		t.Fatal(err)
	}
	r, err := d.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkGreedy holds greedy tokens to the highest of the logits that a row beside them asks for, and shows each.
func checkGreedy(t *testing.T, d *Device, each func(id int)) {
	t.Helper()
	ids := tokens(60)
	for size := 1; size <= len(ids); size++ {
		logits, token := sequence(d, ids[:size], 0, 1, 0), sequence(d, ids[:size], 0, 1, 100)
		logits.Logits, token.Sampling = true, &model.Sampling{}
		r := step(t, d, &model.Plan{Step: uint64(size), Rows: []model.Row{logits, token}})
		want := 0
		for i, v := range r.Logits[0] {
			if v > r.Logits[0][want] {
				want = i
			}
		}
		if r.IDs[0] != -1 || int(r.IDs[1]) != want {
			t.Fatalf("after %d tokens: chose %d and %d, want none and %d", size, r.IDs[0], r.IDs[1], want)
		}
		each(want)
	}
}

func tokens(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i*37%600 + 2)
	}
	return ids
}

// N1: logits do not depend on the order in which chunks are claimed, or on the number of threads, on one rank or more.
func TestClaimOrder(t *testing.T) {
	for ranks := range 3 {
		for _, file := range []string{
			"model-bf16.gguf", "model-q8_0.gguf", "qwen3moe/model-q8_0.gguf", "gptoss/model-mxfp4.gguf",
		} {
			t.Run(fmt.Sprintf("%s/tp%d", file, ranks+1), func(t *testing.T) { checkClaimOrder(t, file, ranks+1) })
		}
	}
}

func checkClaimOrder(t *testing.T, file string, ranks int) {
	var want []float32
	for seed := range uint64(12) {
		cfg := tinyConfig()
		cfg.Threads, cfg.Ranks = []int{1, 2, 5}[seed%3], ranks
		d := tiny(t, file, cfg)
		for i, rank := range d.engine.ranks {
			if seed > 0 {
				rank.pool.order = rand.New(rand.NewPCG(seed, uint64(i))).Perm
			}
		}
		row := sequence(d, tokens(70), 0, 70, 0)
		row.Logits = true
		got := step(t, d, &model.Plan{Step: 1, Rows: []model.Row{row}}).Logits[0]
		if want == nil {
			want = got
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("%s, seed %d, logit %d: %v, want the bits of %v", file, seed, i, got[i], want[i])
			}
		}
	}
}

// N6: decoding allocates nothing, on any rank.
func TestDecodeAllocatesNothing(t *testing.T) {
	needNoRace(t)
	needKernels(t)
	for _, ranks := range []int{1, 2} {
		for _, file := range []string{"model-q8_0.gguf", "qwen3moe/model-q8_0.gguf", "gptoss/model-mxfp4.gguf"} {
			t.Run(fmt.Sprintf("%s/tp%d", file, ranks), func(t *testing.T) { checkAllocations(t, file, ranks) })
		}
	}
}

func checkAllocations(t *testing.T, file string, ranks int) {
	cfg := tinyConfig()
	cfg.Ranks = ranks
	d := tiny(t, file, cfg)
	row := sequence(d, tokens(40), 0, 1, 0)
	step(t, d, &model.Plan{Step: 1, Rows: []model.Row{row}})
	next := sequence(d, []int32{5}, 40, 1, 0)
	next.Sampling = &model.Sampling{}
	plan := &model.Plan{Step: 2, Rows: []model.Row{next, sequence(d, []int32{9}, 0, 1, 100)}}
	for range 4 {
		step(t, d, plan)
	}
	if n := testing.AllocsPerRun(50, func() { step(t, d, plan) }); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

// N7: a plan that names what does not exist is refused whole.
func TestSubmitRefuses(t *testing.T) {
	d := tiny(t, "model-q8_0.gguf", tinyConfig())
	for _, c := range []struct {
		what  string
		spoil func(p *model.Plan)
	}{
		{"0 rows", func(p *model.Plan) { p.Rows = nil }},
		{"9 rows", func(p *model.Plan) { p.Rows = make([]model.Row, 9) }},
		{"129 tokens", func(p *model.Plan) { p.Rows[1].Tokens = tokens(119) }},
		{"row 1: 0 tokens", func(p *model.Plan) { p.Rows[1].Tokens = nil }},
		{"from position -1", func(p *model.Plan) { p.Rows[1].Start = -1 }},
		{"within the context of 1024", func(p *model.Plan) { p.Rows[1].Start = 1020 }},
		{"token 832", func(p *model.Plan) { p.Rows[1].Tokens[3] = 832 }},
		{"token -1", func(p *model.Plan) { p.Rows[1].Tokens[3] = -1 }},
		{"11 outputs of 10", func(p *model.Plan) { p.Rows[1].Outputs = 11 }},
		{"2 guesses with 1 outputs", func(p *model.Plan) { p.Rows[1].Guesses, p.Rows[1].Sampling = 2, &model.Sampling{} }},
		{"without an output", func(p *model.Plan) { p.Rows[1].Outputs = 0; p.Rows[1].Logits = true }},
		{"5 layer groups", func(p *model.Plan) { p.Rows[1].Pages = p.Rows[1].Pages[:5] }},
		{"has 0 blocks", func(p *model.Plan) { p.Rows[1].Pages[2] = nil }},
		{"page -1 of 256", func(p *model.Plan) { p.Rows[1].Pages[2][0] = kvpool.NoPage }},
		{"page 256 of 256", func(p *model.Plan) { p.Rows[1].Pages[2][0] = 256 }},
		{"sampling names token 832", func(p *model.Plan) { p.Rows[1].Sampling = &model.Sampling{Banned: []int32{832}} }},
		{"sampling biases token -3", func(p *model.Plan) {
			p.Rows[1].Sampling = &model.Sampling{LogitBias: []model.Bias{{ID: -3}}}
		}},
		{"mask of 2 words", func(p *model.Plan) { p.Rows[1].Sampling = &model.Sampling{Mask: make([]uint64, 2)} }},
	} {
		p := &model.Plan{Step: 1, Rows: []model.Row{sequence(d, tokens(10), 0, 1, 0), sequence(d, tokens(10), 0, 1, 50)}}
		c.spoil(p)
		if err := d.Submit(p); err == nil || !strings.Contains(err.Error(), c.what) {
			t.Errorf("%s: got %v", c.what, err)
		}
	}
	if _, err := d.Wait(); !errors.Is(err, ErrIdle) {
		t.Errorf("Wait after refusals: %v", err)
	}
}

// Two steps may be in flight; results come in order, and the first outlives the second's start.
func TestStepsInFlight(t *testing.T) {
	d := tiny(t, "model-q8_0.gguf", tinyConfig())
	row := sequence(d, tokens(10), 0, 1, 0)
	row.Sampling = &model.Sampling{}
	var first int32
	for n := uint64(1); n < 20; n += 2 {
		for s := n; s < n+2; s++ {
			if err := d.Submit(&model.Plan{Step: s, Rows: []model.Row{row}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Submit(&model.Plan{Step: 99, Rows: []model.Row{row}}); !errors.Is(err, ErrBusy) {
			t.Fatalf("third step: %v", err)
		}
		for s := n; s < n+2; s++ {
			r, err := d.Wait()
			if err != nil || r.Step != s {
				t.Fatalf("step %v, %v, want %d", r, err, s)
			}
			if first == 0 {
				first = r.IDs[0]
			}
			if r.IDs[0] != first {
				t.Fatalf("step %d chose %d, before %d", s, r.IDs[0], first)
			}
		}
	}
	if err := d.Submit(&model.Plan{Step: 50, Rows: []model.Row{row}}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil { // with a step in flight
		t.Fatal(err)
	}
	if err := d.Submit(&model.Plan{}); !errors.Is(err, ErrClosed) {
		t.Errorf("Submit after Close: %v", err)
	}
}

// Open joins everything that is wrong with its configuration.
func TestOpenRefuses(t *testing.T) {
	_, err := Open(&model.Model{}, Config{Threads: -1, BlockSize: 6, KV: "q8"})
	for _, what := range []string{"threads -1", "pages 0", "block size 6", `"q8"`, "batch tokens 0"} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v lacks %q", err, what)
		}
	}
}

// The numerics name tells every arithmetic apart.
func TestNumerics(t *testing.T) {
	seen := map[string]bool{}
	for _, kv := range []string{"f16", "f32"} {
		for mode := range 3 {
			cfg := tinyConfig()
			cfg.KV, cfg.Dequantise, cfg.Reference = kv, mode == 1, mode == 2
			d := tiny(t, "model-q8_0.gguf", cfg)
			if Kernels() && seen[d.Numerics()] {
				t.Errorf("%q stands for two arithmetics", d.Numerics())
			}
			seen[d.Numerics()] = true
		}
	}
}
