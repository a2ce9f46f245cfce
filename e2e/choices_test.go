//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// choices asks for n sampled choices that do not end by themselves.
func choices(prompt []int32, most, n int, seed uint64) object {
	b := greedy(prompt, most)
	maps.Copy(b, object{"n": n, "temperature": 1, "seed": seed})
	return b
}

func (a answer) ids() (out [][]int32) {
	for _, c := range a.Choices {
		out = append(out, c.TokenIDs)
	}
	return out
}

// TestChoicesShareTheirPrompt sees in the cluster's state that the branches of a request hold more pages than they are
// charged, and all of these come back.
func TestChoicesShareTheirPrompt(t *testing.T) {
	c := startCluster(t)
	c.addWorker("w1", tinyModel, "--kv-memory", "16MiB")
	stop := make(chan struct{})
	var asked sync.WaitGroup
	asked.Go(func() {
		for seed := uint64(0); ; seed++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := c.complete(choices(ids(3, 400), 400, 4, seed)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	await(t, "shared pages", time.Minute, func() error {
		s, err := c.state()
		if err != nil {
			return err
		}
		w := s.Workers[0]
		if w.Running != 4 || w.Pages["held"] <= w.Pages["charged"]+w.Pages["overhead"]+3*20 {
			return fmt.Errorf("%d branches run, %v", w.Running, w.Pages)
		}
		t.Logf("%d branches: %v", w.Running, w.Pages)
		return nil
	})
	close(stop)
	asked.Wait()
	c.awaitDrained()
}

// TestChoicesOnATightPool has crowds of requests with several choices share pools that hold little more than one branch of
// one of them: every choice is what it is on a roomy worker.
func TestChoicesOnATightPool(t *testing.T) { // P1, P2, P6
	bodies := make([]object, 16)
	for i := range bodies {
		bodies[i] = choices(ids(uint64(i%5), 20+20*(i%8)), 60+10*(i%4), 1+i%5, uint64(i))
	}
	want := make([][][]int32, len(bodies))
	tight := fmt.Sprint(165 * 2048)
	for _, memory := range []string{"16MiB", fmt.Sprint(340 * 2048), tight} {
		c := startCluster(t)
		w := c.addWorker("w1", tinyModel, "--kv-memory", memory, "--max-seqs", "6")
		var all sync.WaitGroup
		for i := range bodies {
			all.Go(func() {
				a, err := c.complete(maps.Clone(bodies[i]))
				switch {
				case err != nil:
					t.Errorf("%s, request %d: %v", memory, i, err)
				case want[i] == nil:
					want[i] = a.ids()
				case !slices.EqualFunc(a.ids(), want[i], slices.Equal[[]int32]):
					t.Errorf("%s, request %d: not as on a roomy worker", memory, i)
				}
			})
		}
		all.Wait()
		c.awaitDrained()
		preempted := metric(t, w, "berth_preemptions_total")
		t.Logf("%s bytes: %s", memory, preempted)
		if memory == tight && strings.HasSuffix(preempted, " 0") {
			t.Error("the pool is too large for this test")
		}
	}
}
