package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
)

// TestMixedChoices lets requests of many branches, groups and wishes meet on small pools, while clients leave, routers stop
// branches, and the line to the ledger breaks. Whoever stays gets what it would get alone, the pool is whole after every
// step, and at the end everything has come back.
func TestMixedChoices(t *testing.T) { // P1, P2, W2 to W6
	seeds := 12
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			c := start(t, setup{pages: 44 + rng.IntN(60), slots: 1 + rng.IntN(9)})
			checked := func(e *engine) { e.inspect = func(p *kvpool.Pool) error { return p.Check() } }
			if err := c.worker.engine.Load().mail.put(checked); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			for i := range 40 {
				m := draw(rng, i)
				wg.Go(func() { m.run(ctx, c) })
				if rng.IntN(8) == 0 {
					c.breakStreams()
				}
			}
			wg.Wait()
			c.await("drain", c.drained)
		})
	}
}

// wish is a request of a mix, and what becomes of it.
type wish struct {
	choices
	name   string
	seed   uint64
	leaves int    // after so many tokens of its first branch; 0: it stays
	stops  uint32 // the branch that its router stops
	stopAt int    // after so many tokens of that; 0: none
	stopID int    // the token of the first branch whose id ends branches; 0: none
	scored bool
}

func draw(rng *rand.Rand, i int) wish {
	w := wish{name: fmt.Sprint("request ", i), seed: uint64(rng.IntN(5)), scored: rng.IntN(4) == 0}
	w.choices = choices{ask{fmt.Sprint("g", rng.IntN(3)), prompt(uint64(rng.IntN(6)), 1+rng.IntN(50)), 1 + rng.IntN(30)}, 1 + rng.IntN(7)}
	switch rng.IntN(5) {
	case 0:
		w.leaves = 1 + rng.IntN(10)
	case 1:
		w.stops, w.stopAt = uint32(rng.IntN(w.n)), 1+rng.IntN(10)
	case 2:
		w.stopID = 1 + rng.IntN(10)
	case 3:
		if w.scored {
			w.max = 0
		}
	}
	return w
}

// says is what a branch says to its end.
func (w *wish) says(branch int) []int32 {
	all := sayBy(model.Stream(w.seed, uint32(branch)), w.prompt, w.max)
	if w.stopID == 0 {
		return all
	}
	if at := slices.Index(all, w.ends()); at >= 0 {
		return all[:at+1]
	}
	return all
}

func (w *wish) ends() int32 {
	return sayBy(model.Stream(w.seed, 0), w.prompt, w.stopID)[w.stopID-1]
}

func (w *wish) run(ctx context.Context, c *cluster) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := c.reserveAll(w.choices)
	r.Sampling.Seed = w.seed
	if w.scored {
		r.PromptScoring, r.Scoring = &workerv1.Scoring{Top: 1}, &workerv1.Scoring{}
	}
	if w.stopID > 0 {
		r.StopIds = []int32{w.ends()}
	}
	s, err := c.client.Generate(ctx, r)
	if err != nil {
		c.t.Errorf("%s: %v", w.name, err)
		return
	}
	got, left, scores := make([][]int32, w.n), w.n, 0
	for left > 0 {
		m, err := s.Recv()
		if err != nil {
			c.t.Errorf("%s: with %d branches left: %v", w.name, left, err)
			return
		}
		scores += len(m.GetPromptScores().GetScores())
		if k := m.GetTokens(); k != nil {
			got[k.Branch] = append(got[k.Branch], k.Ids...)
			if w.leaves > 0 && k.Branch == 0 && len(got[0]) >= w.leaves {
				return
			}
			if w.stopAt > 0 && k.Branch == w.stops && len(got[k.Branch]) >= w.stopAt {
				stop := &workerv1.StopRequest{Reservation: r.Reservation, Incarnation: r.Incarnation, Branch: w.stops}
				if _, err := c.client.Stop(ctx, stop); err != nil {
					c.t.Errorf("%s: %v", w.name, err)
				}
			}
		}
		if m.GetFinished() != nil {
			left--
		}
	}
	for i, ids := range got {
		want := w.says(i)
		if w.stopAt > 0 && i == int(w.stops) {
			want = want[:min(len(want), len(ids))]
		}
		if !slices.Equal(ids, want) {
			c.t.Errorf("W4: %s, branch %d of %d: %v, want %v", w.name, i, w.n, ids, want)
		}
	}
	if w.scored && scores != len(w.prompt)-1 {
		c.t.Errorf("%s: %d scores of a prompt of %d", w.name, scores, len(w.prompt))
	}
}
