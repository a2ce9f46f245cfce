package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxThreads = 256
	maxChunks  = 1 << 16
	// spins before a waiter lets other goroutines run, and the time after which it sleeps. The machine is often shared,
	// and what is spun away while the partner has no processor is missing from the share that the work itself gets.
	spins     = 2000
	idleLimit = 100 * time.Microsecond
	// patience is the wait at the end of an op that counts as a strike; after maxStrikes in a row one helper fewer works,
	// for penalty ops.
	patience   = 50 * time.Microsecond
	maxStrikes = 6
	penalty    = 2000
	// hung is the wait at the end of an op that no op takes: what is left may never end, and needs no processor to be
	// waited for.
	hung = time.Second
	// benched is how often a helper that was taken out looks whether it may come back.
	benched = 2 * time.Millisecond
)

// task is work that can be cut into chunks: do(chunk, worker) may run in any order, on any worker, at once. Fields that
// do reads are set before run and left alone until it returns.
type task struct {
	do func(chunk, worker int)
}

// pool runs tasks on a fixed set of goroutines. Chunks are claimed from one counter, the caller claims too, so a helper
// that has no processor costs nothing but its share. What a chunk computes does not depend on who claims it or when.
type pool struct {
	word atomic.Uint64 // generation (32 bits), chunks (16), next chunk (16): one word, so that a late claim can't succeed
	_    [56]byte
	done atomic.Uint32
	_    [60]byte
	task atomic.Pointer[task]

	threads int          // the caller included
	active  atomic.Int32 // threads that may claim now
	strikes int
	quiet   int // ops until a helper comes back

	mu     sync.Mutex
	wake   *sync.Cond
	asleep atomic.Int32
	stop   atomic.Bool
	wg     sync.WaitGroup

	// order, in tests, turns claim i of n into another chunk.
	order func(n int) []int
	perm  []int
}

func newPool(threads int) *pool {
	p := &pool{threads: threads}
	p.wake = sync.NewCond(&p.mu)
	p.active.Store(int32(threads))
	for w := 1; w < threads; w++ {
		p.wg.Go(func() { p.work(w) })
	}
	return p
}

// close ends the helpers and waits for them.
func (p *pool) close() {
	p.stop.Store(true)
	p.mu.Lock()
	p.wake.Broadcast()
	p.mu.Unlock()
	p.wg.Wait()
}

// run does chunks [0, n) of t and returns when all are done; n < maxChunks. Only one goroutine may call it.
func (p *pool) run(t *task, n int) {
	if n >= maxChunks {
		panic("cpu: more chunks in an op than its counter holds")
	}
	if p.order != nil {
		p.perm = p.order(n)
	}
	if n <= 1 || p.threads == 1 {
		for c := range n {
			t.do(p.chunk(c), 0)
		}
		return
	}
	gen := p.word.Load()>>32 + 1
	p.done.Store(0)
	p.task.Store(t)
	p.word.Store(gen<<32 | uint64(n)<<16)
	if p.asleep.Load() > 0 {
		p.mu.Lock()
		p.wake.Broadcast()
		p.mu.Unlock()
	}
	start := time.Now()
	mine := p.drain(uint32(gen), 0)
	p.await(n, mine, start)
}

// chunk is the chunk that claim i stands for.
func (p *pool) chunk(i int) int {
	if p.order == nil {
		return i
	}
	return p.perm[i]
}

// drain claims and does chunks of generation gen until none is left.
func (p *pool) drain(gen uint32, worker int) (done int) {
	for {
		w := p.word.Load()
		t := p.task.Load()
		if uint32(w>>32) != gen || w&0xffff >= w>>16&0xffff {
			return done
		}
		// The word unchanged means that the generation did not end since, so t is its task.
		if p.word.CompareAndSwap(w, w+1) {
			t.do(p.chunk(int(w&0xffff)), worker)
			p.done.Add(1)
			done++
		}
	}
}

// await waits for chunks that helpers still work on, and judges whether helpers are worth having.
func (p *pool) await(n, mine int, start time.Time) {
	if int(p.done.Load()) == n {
		p.judge(0, 0)
		return
	}
	drained := time.Now()
	for s := 1; int(p.done.Load()) < n; s++ {
		if s%spins != 0 {
			continue
		}
		runtime.Gosched()
		if time.Since(drained) > hung {
			time.Sleep(benched)
		}
	}
	p.judge(time.Since(drained), drained.Sub(start)/time.Duration(max(mine, 1)))
}

// judge takes a helper out when the end of ops keeps waiting for longer than a few chunks take, and brings it back
// later.
func (p *pool) judge(wait, chunk time.Duration) {
	if wait > patience+4*chunk {
		if p.strikes++; p.strikes >= maxStrikes && p.active.Load() > 1 {
			p.active.Add(-1)
			p.strikes, p.quiet = 0, penalty
		}
		return
	}
	p.strikes = 0
	if p.quiet--; p.quiet <= 0 && int(p.active.Load()) < p.threads {
		p.active.Add(1)
		p.quiet = penalty
	}
}

// work is a helper's life: wait for a generation, drain it, sleep when nothing comes.
func (p *pool) work(worker int) {
	gen, fresh := uint32(0), false
	for !p.stop.Load() {
		gen, fresh = p.next(gen)
		switch {
		case worker >= int(p.active.Load()):
			time.Sleep(benched)
		case fresh:
			p.drain(gen, worker)
		default:
			p.sleep(gen)
		}
	}
}

// next spins for a generation after gen; false when none came within idleLimit.
func (p *pool) next(gen uint32) (uint32, bool) {
	var start time.Time
	for s := 1; !p.stop.Load(); s++ {
		if now := uint32(p.word.Load() >> 32); now != gen {
			return now, true
		}
		if s%spins != 0 {
			continue
		}
		runtime.Gosched()
		if start.IsZero() {
			start = time.Now()
		} else if time.Since(start) > idleLimit {
			break
		}
	}
	return gen, false
}

// sleep parks until the next generation is published.
func (p *pool) sleep(gen uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asleep.Add(1)
	if uint32(p.word.Load()>>32) == gen && !p.stop.Load() {
		p.wake.Wait()
	}
	p.asleep.Add(-1)
}
