package worker

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

func TestGuess(t *testing.T) {
	for _, c := range []struct {
		name   string
		tokens []int32
		n      int
		want   []int32
	}{
		{"nothing came before", []int32{1}, 3, nil},
		{"one equal token is too little", []int32{5, 1, 6, 2, 7, 1}, 3, nil},
		{"as the last time", []int32{1, 2, 3, 4, 9, 1, 2}, 2, []int32{3, 4}},
		{"the longer match", []int32{7, 1, 2, 3, 0, 1, 2, 4, 7, 1, 2}, 1, []int32{3}},
		{"the later of equal ones", []int32{1, 2, 3, 1, 2, 4, 1, 2}, 1, []int32{4}},
		{"a loop goes on", []int32{8, 1, 2, 1, 2, 1, 2}, 5, []int32{1, 2, 1, 2, 1}},
		{"one token for ever", []int32{3, 4, 4, 4, 4}, 3, []int32{4, 4, 4}},
	} {
		if got := guess(c.tokens, c.n, nil); !slices.Equal(got, c.want) {
			t.Errorf("%s: guessed %v, want %v", c.name, got, c.want)
		}
	}
}

// TestGuessesChangeNothing has a device that repeats itself now and then, so that guesses are right and wrong, under
// pressure and in blocks of 4: everyone hears what the device says alone, token by token.
func TestGuessesChangeNothing(t *testing.T) { // W4
	const ids = 2
	for _, pages := range []int{60, 90, 1000} {
		t.Run(fmt.Sprint(pages), func(t *testing.T) {
			c := start(t, setup{pages: pages, slots: 16, guesses: 3})
			c.device.ids = ids
			var wg sync.WaitGroup
			for i := range 24 {
				wg.Go(func() {
					p := prompt(uint64(i%5), 1+i*2)
					a, err := c.generate(t.Context(), c.reserve(ask{fmt.Sprint("g", i%3), p, 40}), 0)
					if want := sayOf(ids, p, 40); err != nil || !slices.Equal(a.ids, want) {
						t.Errorf("request %d: %v, said %v, want %v", i, err, a.ids, want)
					}
				})
			}
			wg.Wait()
			c.await("drain", c.drained)
			alone := prompt(99, 7)
			steps := c.device.steps
			if a, err := c.generate(t.Context(), c.reserve(ask{"g", alone, 60}), 0); err != nil || !slices.Equal(a.ids, sayOf(ids, alone, 60)) {
				t.Errorf("alone: %v, said %v", err, a.ids)
			}
			if took := c.device.steps - steps; c.device.guesses == 0 || took >= 60 {
				t.Errorf("%d guesses in all, and 60 tokens took %d steps: guessing spares nothing", c.device.guesses, took)
			}
		})
	}
}
