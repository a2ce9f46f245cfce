package kvpool

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestForkIsEnough computes a prompt once and then grows it into several branches, inside a grant of one Demand and a Fork
// for each of the others: no allocation fails, the first fork finds all whole blocks, and pages are shared.
func TestForkIsEnough(t *testing.T) {
	for name, g := range geometries {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(80) {
				forkWorld(t, g, rand.New(rand.NewPCG(seed, 3)))
			}
		})
	}
}

func forkWorld(t *testing.T, g Geometry, rng *rand.Rand) {
	prompt, more, forks := 1+rng.IntN(60), 1+rng.IntN(40), 1+rng.IntN(max(1, g.MaxBatchTokens-1))
	total := prompt + more
	grant := g.Demand(total).Pages + forks*g.Fork(prompt, total).Pages
	p, err := New(g, g.Overhead()+grant)
	if err != nil {
		t.Fatal(err)
	}
	a := p.OpenAccount()
	if err := p.SetGrant(a, grant); err != nil {
		t.Fatal(err)
	}
	tokens := make([]int32, prompt)
	for i := range tokens {
		tokens[i] = int32(rng.IntN(1000))
	}
	run := newForkRun(t, p)
	first := p.Open(a, Key{}, Root(Key{}))
	for at := 0; at < prompt; at = p.Tokens(first) {
		run.step(map[BranchID][]int32{first: tokens[at:min(prompt, at+1+rng.IntN(g.MaxBatchTokens))]})
	}
	full := slices.ContainsFunc(g.Groups, func(lg Group) bool { return lg.Kind == Full })
	branches := []BranchID{first}
	for range forks {
		b := p.Open(a, Key{}, Root(Key{}))
		hit, err := p.Match(b, tokens)
		if err != nil {
			t.Fatal(err)
		}
		if want := (prompt - 1) / g.BlockSize * g.BlockSize; hit != want && len(branches) == 1 {
			t.Fatalf("a fork of %d tokens found %d of %d", prompt, hit, want)
		}
		for at := hit; at < prompt; at = p.Tokens(b) {
			run.step(map[BranchID][]int32{b: tokens[at:min(prompt, at+1+rng.IntN(g.MaxBatchTokens))]})
		}
		branches = append(branches, b)
		if c := p.Counts(); full && hit > 0 && c.Held <= c.Charged {
			t.Fatalf("%d pages held, %d charged: nothing is shared", c.Held, c.Charged)
		}
	}
	for i := range more {
		chunk := map[BranchID][]int32{}
		for k, b := range branches {
			if rng.IntN(4) > 0 && p.Tokens(b) < total {
				chunk[b] = []int32{int32(2000 + 100*k + i)}
			}
		}
		run.step(chunk)
	}
}

// forkRun runs steps on a pool and checks it after each.
type forkRun struct {
	t *testing.T
	p *Pool
	n uint64
}

func newForkRun(t *testing.T, p *Pool) *forkRun { return &forkRun{t: t, p: p} }

func (r *forkRun) step(chunk map[BranchID][]int32) {
	r.t.Helper()
	r.n++
	var order []BranchID
	for b := range chunk {
		order = append(order, b)
	}
	slices.Sort(order)
	for _, b := range order {
		if err := r.p.Extend(b, r.p.Tokens(b)+len(chunk[b])); err != nil {
			r.t.Fatalf("step %d: %v", r.n, err)
		}
	}
	r.p.Begin(r.n)
	r.p.Retire(r.n)
	for _, b := range order {
		r.p.Advance(b, chunk[b])
	}
	if err := r.p.Check(); err != nil {
		r.t.Fatalf("step %d: %v", r.n, err)
	}
}
