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
	for _, file := range []string{"model-q8_0.gguf", "qwen3moe/model-q8_0.gguf", "gptoss/model-mxfp4.gguf"} {
		t.Run(file, func(t *testing.T) { checkLevels(t, file) })
	}
}

func checkLevels(t *testing.T, file string) {
	var want *model.Result
	for _, l := range levels() {
		d := tiny(t, file, tinyConfig())
		k := d.engine.ranks[0].engine.(*kernels)
		k.output.level = l
		for i := range k.layers {
			w := &k.layers[i]
			list := []*packed{&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down, &w.router}
			for e := range w.experts {
				list = append(list, &w.experts[e].gate, &w.experts[e].up, &w.experts[e].down)
			}
			for _, m := range list {
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
