package kvpool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// world drives a pool with random operations beside a naive model of the device: what each page's slots hold, as the
// name of the prefix that was computed there. A step executes only when it retires, so that a page given out too early
// is caught by its content.
type world struct {
	t        *testing.T
	rng      *rand.Rand
	pool     *Pool
	content  map[slot]string
	live     []*sequence
	accounts []AccountID
	step     uint64
	flights  []flight // oldest first
}

// flight is a step that was submitted and has not retired.
type flight struct {
	step uint64
	rows []row
}

// row is what a step computes of a sequence: positions [lo, hi).
type row struct {
	s        *sequence
	lo, hi   int
	pages    [][]PageID
	versions [][]uint32
}

type slot struct {
	page   PageID
	offset int
}

type sequence struct {
	id      BranchID
	account int
	prompt  []int32
	done    int  // positions computed
	busy    bool // a step in flight has a row of it
	closed  bool
}

var geometries = map[string]Geometry{
	"full":   {BlockSize: 4, Groups: []Group{{Kind: Full}}, StepsInFlight: 1, MaxBatchTokens: 16, PrefillsInStep: 3},
	"window": {BlockSize: 4, Groups: []Group{{Sliding, 6}}, StepsInFlight: 1, MaxBatchTokens: 16, PrefillsInStep: 3},
	"tiny":   {BlockSize: 8, Groups: []Group{{Sliding, 2}, {Sliding, 8}}, StepsInFlight: 1, MaxBatchTokens: 16, PrefillsInStep: 3},
	"hybrid": {BlockSize: 4, Groups: []Group{{Sliding, 9}, {Kind: Full}, {Sliding, 9}}, StepsInFlight: 1, MaxBatchTokens: 16, PrefillsInStep: 3},
	"async":  {BlockSize: 4, Groups: []Group{{Sliding, 9}, {Kind: Full}}, StepsInFlight: 3, MaxBatchTokens: 16, PrefillsInStep: 3},
}

func TestRandomOperations(t *testing.T) { // K1 … K8
	for name, g := range geometries {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				newWorld(t, g, seed).run(600)
			}
		})
	}
}

func newWorld(t *testing.T, g Geometry, seed uint64) *world {
	pages := g.Overhead() + 40
	p, err := New(g, pages)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), pool: p, content: map[slot]string{}}
	for range 2 {
		a := p.OpenAccount()
		if err := p.SetGrant(a, 20); err != nil {
			t.Fatal(err)
		}
		w.accounts = append(w.accounts, a)
	}
	return w
}

func (w *world) run(turns int) {
	for turn := range turns {
		switch w.rng.IntN(7) {
		case 0, 1:
			w.open()
		case 2, 3:
			if len(w.flights) < w.pool.geometry.StepsInFlight {
				w.plan()
			}
		case 4:
			w.retire()
		case 5:
			w.release()
		case 6:
			w.shiftGrant()
		}
		if err := w.pool.Check(); err != nil {
			w.t.Fatalf("turn %d: %v", turn, err)
		}
	}
}

// open starts a sequence whose prompt shares prefixes with others, and takes what the pool has of it.
func (w *world) open() {
	account := w.rng.IntN(len(w.accounts))
	s := &sequence{account: account}
	for range 1 + w.rng.IntN(30) {
		s.prompt = append(s.prompt, int32(w.rng.IntN(12)/11)) // mostly 0
	}
	s.id = w.pool.Open(w.accounts[account], Key{byte(account)}, Root(Key{byte(account)}, "r"))
	before, best := w.pool.Counts(), w.longest(s)
	n, err := w.pool.Match(s.id, s.prompt)
	if err != nil {
		w.wantShortfall(err, before)
	} else if n != best {
		w.t.Fatalf("hit of %d tokens of a prompt of %d, want %d", n, len(s.prompt), best)
	}
	s.done = n
	w.live = append(w.live, s)
}

func (w *world) wantShortfall(err error, before Counts) {
	var short *ShortfallError
	if !errors.As(err, &short) || short.Need <= short.Room {
		w.t.Fatalf("want a shortfall, got %v", err)
	}
	if after := w.pool.Counts(); after != before {
		w.t.Fatalf("K4: a failed allocation changed %+v to %+v", before, after)
	}
}

// longest is the longest hit by brute force over positions: whole blocks, one token left to compute, and every position
// that the next one attends to in an indexed page of its group.
func (w *world) longest(s *sequence) int {
	g, p := w.pool.geometry, w.pool
	key := Key{byte(s.account)}
	names := []Hash{Root(key, "r")}
	for i := 0; (i+1)*g.BlockSize < len(s.prompt); i++ {
		names = append(names, Chain(key, names[i], s.prompt[i*g.BlockSize:(i+1)*g.BlockSize]))
	}
	has := func(group, position int) bool {
		n, ok := p.index.byName[names[position/g.BlockSize+1]]
		return ok && p.index.pages[p.index.at(n, group)] != NoPage
	}
	for n := (len(names) - 1) * g.BlockSize; n > 0; n -= g.BlockSize {
		ok := true
		for grp, lg := range g.Groups {
			for i := range n {
				if lg.Kind == Full || i > n-lg.Window {
					ok = ok && has(grp, i)
				}
			}
		}
		if ok {
			return n
		}
	}
	return 0
}

// plan submits a step with chunks of some sequences.
func (w *world) plan() {
	g := w.pool.geometry
	left, prefills := g.MaxBatchTokens, g.PrefillsInStep
	w.step++
	f := flight{step: w.step}
	for _, s := range w.live {
		n := min(left, 1+w.rng.IntN(9), len(s.prompt)-s.done)
		if n <= 0 || prefills == 0 || s.busy {
			continue
		}
		before := w.pool.Counts()
		if err := w.pool.Extend(s.id, s.done+n); err != nil {
			w.wantShortfall(err, before)
			continue
		}
		left, prefills = left-n, prefills-1
		r := row{s: s, lo: s.done, hi: s.done + n}
		for _, pages := range w.pool.Pages(s.id, nil) {
			r.pages = append(r.pages, slices.Clone(pages))
			var versions []uint32
			for _, id := range pages {
				if id == NoPage {
					versions = append(versions, 0)
				} else {
					versions = append(versions, w.pool.Version(id))
				}
			}
			r.versions = append(r.versions, versions)
		}
		s.busy = true
		f.rows = append(f.rows, r)
	}
	w.pool.Begin(f.step)
	w.flights = append(w.flights, f)
}

// retire executes the oldest step in flight, whose sequences may have been let go meanwhile.
func (w *world) retire() {
	if len(w.flights) == 0 {
		return
	}
	f := w.flights[0]
	w.flights = w.flights[1:]
	for _, r := range f.rows {
		w.execute(r)
	}
	w.pool.Retire(f.step)
	for _, r := range f.rows {
		if r.s.busy = false; !r.s.closed {
			w.pool.Advance(r.s.id, r.s.prompt[r.lo:r.hi])
			r.s.done = r.hi
		}
	}
}

// execute reads and writes as a device would: every position that attention reads must hold that very prefix.
func (w *world) execute(r row) {
	g := w.pool.geometry
	for pos := r.lo; pos < r.hi; pos++ {
		for grp, lg := range g.Groups {
			at := func(i int) slot {
				page := r.pages[grp][i/g.BlockSize]
				if page == NoPage {
					w.t.Fatalf("K6: position %d reads position %d of group %d, whose page is gone", pos, i, grp)
				}
				if v := w.pool.Version(page); v != r.versions[grp][i/g.BlockSize] {
					w.t.Fatalf("K5, K8: page %d was given out anew while a step could touch it", page)
				}
				return slot{page, i % g.BlockSize}
			}
			lo := 0
			if lg.Kind == Sliding {
				lo = max(0, pos-lg.Window+1)
			}
			for i := lo; i < pos; i++ {
				if got, want := w.content[at(i)], w.prefix(r.s, grp, i); got != want {
					w.t.Fatalf("K6: position %d of group %d holds %q, want %q", i, grp, got, want)
				}
			}
			w.content[at(pos)] = w.prefix(r.s, grp, pos)
		}
	}
}

func (w *world) prefix(s *sequence, group, pos int) string {
	return fmt.Sprint(s.account, group, s.prompt[:pos+1])
}

func (w *world) release() {
	if len(w.live) == 0 {
		return
	}
	i := w.rng.IntN(len(w.live))
	w.pool.Close(w.live[i].id)
	w.live[i].closed = true
	w.live = slices.Delete(w.live, i, i+1)
}

func (w *world) shiftGrant() {
	from := w.rng.IntN(len(w.accounts))
	n := w.rng.IntN(8)
	a, b := w.accounts[from], w.accounts[1-from]
	if err := w.pool.SetGrant(a, w.pool.Grant(a)-n); err != nil {
		if w.pool.Room(a) >= n {
			w.t.Fatal(err)
		}
		return
	}
	if err := w.pool.SetGrant(b, w.pool.Grant(b)+n); err != nil {
		w.t.Fatal(err)
	}
}

// TestDemandIsEnough grows branches by random chunks inside grants of exactly their final Demand: no allocation fails.
func TestDemandIsEnough(t *testing.T) {
	for name, g := range geometries {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(50) {
				demandWorld(t, g, rand.New(rand.NewPCG(seed, 2)))
			}
		})
	}
}

func demandWorld(t *testing.T, g Geometry, rng *rand.Rand) {
	type seq struct {
		id            BranchID
		prompt, total int
	}
	var seqs []*seq
	need := 0
	for range 1 + rng.IntN(2*g.MaxBatchTokens) {
		s := &seq{prompt: 1 + rng.IntN(60)}
		s.total = s.prompt + rng.IntN(40)
		need += g.Demand(s.total).Pages
		seqs = append(seqs, s)
	}
	p, err := New(g, g.Overhead()+need)
	if err != nil {
		t.Fatal(err)
	}
	a := p.OpenAccount()
	if err := p.SetGrant(a, need); err != nil {
		t.Fatal(err)
	}
	for _, s := range seqs {
		s.id = p.Open(a, Key{}, Root(Key{}, fmt.Sprint(s)))
	}
	for step, busy := uint64(1), true; busy; step++ {
		busy = false
		left, prefills := g.MaxBatchTokens, g.PrefillsInStep
		chunk := map[*seq]int{}
		for _, s := range seqs {
			n := 1
			if at := p.Tokens(s.id); at < s.prompt {
				n = min(left, 1+rng.IntN(g.MaxBatchTokens), s.prompt-at)
				if prefills--; prefills < 0 {
					n = 0
				}
			} else if at == s.total {
				n = 0
			}
			if n = min(n, left); n == 0 {
				continue
			}
			busy, left, chunk[s] = true, left-n, n
			if err := p.Extend(s.id, p.Tokens(s.id)+n); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		p.Begin(step)
		p.Retire(step)
		for s, n := range chunk {
			p.Advance(s.id, slices.Repeat([]int32{int32(s.total)}, n))
		}
		if err := p.Check(); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
}
