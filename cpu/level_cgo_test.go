//go:build cgo && amd64

package cpu

import (
	"slices"
	"testing"

	"github.com/berthd/berth/model"
)

// N1: whole steps have the same logit bits and the same greedy token on every instruction set.
func TestLevels(t *testing.T) {
	needKernels(t)
	var want *model.Result
	for _, l := range levels() {
		d := tiny(t, "model-q8_0.gguf", tinyConfig())
		k := d.engine.ranks[0].engine.(*kernels)
		k.output.level = l
		for i := range k.layers {
			w := &k.layers[i]
			for _, m := range []*packed{&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down} {
				m.level = l
			}
		}
		rows := []model.Row{sequence(d, tokens(70), 0, 70, 0), sequence(d, tokens(40), 0, 1, 64)}
		rows[0].Logits, rows[1].Sampling = true, &model.Sampling{}
		got := step(t, d, &model.Plan{Step: 1, Rows: rows})
		if want == nil {
			want = got
		}
		if !slices.Equal(got.Logits[0], want.Logits[0]) || !slices.Equal(got.IDs, want.IDs) {
			t.Errorf("level %d: other logits or tokens than on AVX2", l)
		}
	}
}
