package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/berthd/berth/kvpool"
)

// Random is the scenario of a seed: a few workers on which a part of what is asked fits, and mostly something that happens
// to them.
func Random(seed uint64) Scenario {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := Scenario{Seed: seed, Geometry: randomGeometry(rng), Slots: 2 + rng.IntN(14), Guesses: rng.IntN(2) * rng.IntN(8)}
	groups := 1 + rng.IntN(3)
	span := []time.Duration{time.Millisecond, time.Second / 2, time.Second, 4 * time.Second}[rng.IntN(4)]
	shared := randomTokens(rng, 60)
	for range 8 + rng.IntN(24) {
		s.Requests = append(s.Requests, randomRequest(rng, groups, span, shared))
	}
	least := fits(s.Geometry, s.Requests)
	for range 1 + rng.IntN(3) {
		most := []int{1, 20, 200}[rng.IntN(3)] // per cent beyond what the longest needs: the first ones are the hard ones
		room := (least - s.Geometry.Overhead()) * rng.IntN(most) / 100
		s.Workers = append(s.Workers, Worker{Pages: least + room, Speed: 0.5 + 1.5*rng.Float64()})
	}
	if rng.IntN(4) > 0 {
		for range 1 + rng.IntN(3) {
			s.Faults = append(s.Faults, randomFault(rng, len(s.Workers), span))
		}
		s.Faults = apart(s.Faults)
	}
	if rng.IntN(3) == 0 {
		s.Network = time.Duration(1+rng.IntN(20)) * time.Millisecond
	}
	s.Disk = time.Duration(rng.IntN(8)) * time.Millisecond
	s.Caps = map[string]int{}
	for i := range groups {
		if group := fmt.Sprint("g", i); rng.IntN(2) == 0 {
			s.Caps[group] = s.wholeLife(group) * (100 + rng.IntN(150)) / 100
		}
	}
	if rng.IntN(6) == 0 { // steps of seconds, some longer than a lease
		for i := range s.Workers {
			s.Workers[i].Speed *= 0.004
		}
	}
	return s
}

func randomGeometry(rng *rand.Rand) kvpool.Geometry {
	g := kvpool.Geometry{
		BlockSize: 4 << rng.IntN(3), StepsInFlight: 1, MaxBatchTokens: 16 + rng.IntN(64), PrefillsInStep: 1 + rng.IntN(4),
	}
	for range 1 + rng.IntN(2) {
		g.Groups = append(g.Groups, kvpool.Group{Kind: kvpool.Full})
	}
	for range rng.IntN(3) {
		g.Groups = append(g.Groups, kvpool.Group{Kind: kvpool.Sliding, Window: 1 + rng.IntN(40)})
	}
	return g
}

// randomRequest often begins as others do, so that there is something to find in caches.
func randomRequest(rng *rand.Rand, groups int, span time.Duration, shared []int32) Request {
	q := Request{
		At: time.Duration(rng.Int64N(int64(span))), Group: fmt.Sprint("g", rng.IntN(groups)),
		Max: 1 + rng.IntN(80), N: 1, Seed: rng.Uint64() >> 1, Stream: rng.IntN(3) > 0,
	}
	prompts := 1
	if rng.IntN(6) == 0 {
		prompts = 2 + rng.IntN(2)
	}
	for range prompts {
		q.Prompts = append(q.Prompts, slices.Concat(shared[:rng.IntN(len(shared))], randomTokens(rng, 1+rng.IntN(60))))
	}
	if rng.IntN(4) == 0 {
		q.N = 2 + rng.IntN(3)
	}
	q.Greedy = rng.IntN(3) == 0
	if rng.IntN(4) == 0 { // a token that one of the choices comes to, with the end of the one before
		ids, _ := q.say(rng.IntN(q.N))
		q.Stop = "." + word(ids[rng.IntN(len(ids))])
	}
	if rng.IntN(5) == 0 {
		q.Leaves = time.Duration(1 + rng.Int64N(int64(span)))
	}
	return q
}

func randomTokens(rng *rand.Rand, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = firstToken + rng.Int32N(vocabulary-firstToken)
	}
	return out
}

// randomFault is short or longer than a lease: one that the cluster may not notice, or one that ends incarnations.
func randomFault(rng *rand.Rand, workers int, span time.Duration) Fault {
	f := Fault{
		At: time.Duration(rng.Int64N(int64(span))), For: time.Duration(1+rng.IntN(6000)) * time.Millisecond,
		Host: workerName(rng.IntN(workers)), Kind: FaultKind(rng.IntN(2)),
	}
	if rng.IntN(3) == 0 {
		f.Host = routerName
	}
	return f
}

// apart moves faults of the same host behind one another.
func apart(faults []Fault) []Fault {
	slices.SortFunc(faults, func(a, b Fault) int { return int(a.At - b.At) })
	free := map[string]time.Duration{}
	for i := range faults {
		f := &faults[i]
		f.At = max(f.At, free[f.Host])
		free[f.Host] = f.At + f.For + time.Millisecond
	}
	return faults
}
