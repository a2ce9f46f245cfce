package cpu

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// Every chunk of every task is done exactly once, whatever the number of threads and the order of claims.
func TestPoolDoesEachChunkOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		p := newPool(threads)
		r := rand.New(rand.NewPCG(uint64(threads), 1))
		p.order = r.Perm
		var counts [300]atomic.Int32
		var sum atomic.Int64
		work := task{do: func(c, worker int) {
			if worker < 0 || worker >= threads {
				t.Errorf("worker %d of %d", worker, threads)
			}
			counts[c].Add(1)
			sum.Add(int64(c))
		}}
		want := int64(0)
		for range 3000 {
			n := r.IntN(len(counts))
			p.run(&work, n)
			want += int64(n * (n - 1) / 2)
			for c := range n {
				if got := counts[c].Swap(0); got != 1 {
					t.Fatalf("%d threads: chunk %d of %d was done %d times", threads, c, n, got)
				}
			}
		}
		if sum.Load() != want {
			t.Errorf("%d threads: sum %d, want %d", threads, sum.Load(), want)
		}
		p.close()
	}
}

// A pool whose helpers keep it waiting drops them, and takes them back when the machine is quiet.
func TestPoolShrinks(t *testing.T) {
	p := newPool(3)
	defer p.close()
	for range maxStrikes {
		p.judge(2*patience, 0)
	}
	if n := p.active.Load(); n != 2 {
		t.Fatalf("%d threads after %d long waits, want 2", n, maxStrikes)
	}
	for range penalty {
		p.judge(0, 0)
	}
	if n := p.active.Load(); n != 3 {
		t.Fatalf("%d threads after %d short waits, want 3", n, penalty)
	}
}
