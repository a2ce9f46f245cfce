package cpu

import (
	"fmt"
	"testing"

	"github.com/berthd/berth/model"
)

// TestGuesses looks at guesses, right and wrong, in one step: what is chosen after each that follows only right ones is
// what single steps choose.
func TestGuesses(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		for _, reference := range []bool{false, true} {
			t.Run(fmt.Sprintf("tp%d/reference=%v", ranks, reference), func(t *testing.T) {
				cfg := tinyConfig()
				cfg.Ranks, cfg.Reference = ranks, reference
				d := tiny(t, "model-q8_0.gguf", cfg)
				prompt, n := tokens(20), 0
				greedy := func(at int, fed []int32, guesses int) *model.Result {
					row := sequence(d, fed, at, 1+guesses, 0)
					row.Sampling, row.Guesses = &model.Sampling{}, guesses
					n++
					return step(t, d, &model.Plan{Step: uint64(n), Rows: []model.Row{row}})
				}
				said := append(prompt, greedy(0, prompt, 0).IDs[0])
				for len(said) < 30 {
					said = append(said, greedy(len(said)-1, said[len(said)-1:], 0).IDs[0])
				}
				for right := range 4 {
					fed := append([]int32{}, said[20:24]...)
					if right < 3 {
						fed[1+right]++ // wrong from here on
					}
					r := greedy(20, fed, 3)
					got := append([]int32{r.IDs[0]}, r.Guessed[0]...)
					for i := range right + 1 {
						if got[i] != said[21+i] {
							t.Errorf("%d guesses right: chose %v, one by one %v", right, got[:right+1], said[21:])
							break
						}
					}
				}
			})
		}
	}
}
