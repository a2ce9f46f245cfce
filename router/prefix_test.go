package router

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/consensus/ledger"
	"github.com/berthd/berth/kvpool"
)

func event(name kvpool.Hash, full, window bool) *workerv1.BlockEvent {
	return &workerv1.BlockEvent{Hash: name[:], Full: full, Window: window}
}

func named(n int) []kvpool.Hash {
	out := make([]kvpool.Hash, n)
	for i := range out {
		out[i] = kvpool.Hash{byte(i + 1)}
	}
	return out
}

func TestHit(t *testing.T) {
	full := kvpool.Geometry{BlockSize: 4, Groups: []kvpool.Group{{}}}
	mixed := kvpool.Geometry{BlockSize: 4, Groups: []kvpool.Group{{}, {Kind: kvpool.Sliding, Window: 6}}}
	sliding := kvpool.Geometry{BlockSize: 4, Groups: []kvpool.Group{{Kind: kvpool.Sliding, Window: 6}}}
	for _, c := range []struct {
		name string
		g    kvpool.Geometry
		have string // by block: b both, f full, w window, - nothing
		want int    // blocks
	}{
		{"nothing", full, "----", 0},
		{"all", full, "ffff", 4},
		{"a hole", full, "ff-f", 2},
		{"the window of the next position", mixed, "ffbb", 4},
		{"the window has a hole", mixed, "ffbf", 0},
		{"a shorter prefix has its window", mixed, "fbbf", 3},
		{"the first block alone", mixed, "bfff", 1},
		{"window groups only", sliding, "--ww", 4},
		{"window groups only, too few", sliding, "---w", 0},
		{"full pages are needed too", mixed, "wwww", 0},
	} {
		p := newPrefixes(1 << 20)
		chain := named(len(c.have))
		var events []*workerv1.BlockEvent
		for i, h := range c.have {
			if h != '-' {
				events = append(events, event(chain[i], h == 'b' || h == 'f', h == 'b' || h == 'w'))
			}
		}
		p.apply(p.open("w"), events)
		if got := p.hit("w", c.g, chain); got != c.want*4 {
			t.Errorf("%s (%s): %d tokens, want %d", c.name, c.have, got, c.want*4)
		}
	}
}

// R6: what the index expects is never more than the pool gives, and exactly that once all events are told, but for
// windows of two sizes, which events do not tell apart.
func TestHitAgainstPool(t *testing.T) {
	for _, groups := range [][]kvpool.Group{
		{{}}, {{}, {Kind: kvpool.Sliding, Window: 10}},
		{{Kind: kvpool.Sliding, Window: 7}, {Kind: kvpool.Sliding, Window: 12}},
	} {
		g := kvpool.Geometry{BlockSize: 4, Groups: groups, StepsInFlight: 1, MaxBatchTokens: 64, PrefillsInStep: 1}
		pool, err := kvpool.New(g, g.Overhead()+60)
		if err != nil {
			t.Fatal(err)
		}
		account := pool.OpenAccount()
		if err := pool.SetGrant(account, 60); err != nil {
			t.Fatal(err)
		}
		info := &ledgerv1.WorkerInfo{ModelRevision: []byte("r"), Numerics: "n", Layout: "l"}
		view := &ledger.WorkerView{Geometry: g, Info: info}
		hashKey := []byte("0123456789abcdef")
		rng := rand.New(rand.NewPCG(7, uint64(len(groups))))
		index := newPrefixes(1 << 20)
		blocks := index.open("w")
		hits := 0
		for step := range uint64(400) {
			prompt := make([]int32, 1+rng.IntN(60))
			for i := range prompt {
				prompt[i] = int32(i / 16 * rng.IntN(2)) // few different ones, so that prefixes are shared
			}
			key := kvpool.DeriveKey(kvpool.Key(hashKey), openGroup)
			b := pool.Open(account, key, kvpool.Root(key, "r", "n", "l", "salt"))
			expected := index.hit("w", g, newChains(hashKey, openGroup, "salt", prompt).of(view))
			got, err := pool.Match(b, prompt)
			if err != nil {
				t.Fatal(err)
			}
			if exact := len(groups) < 2 || groups[0].Window == 0; got < expected || exact && got != expected {
				t.Fatalf("R6: %v, step %d: %d tokens expected, %d hit, prompt of %d", groups, step, expected, got, len(prompt))
			}
			hits += got
			pool.Begin(step + 1)
			if err := pool.Extend(b, len(prompt)); err != nil {
				t.Fatal(err)
			}
			pool.Advance(b, prompt[got:])
			pool.Retire(step + 1)
			pool.Close(b)
			var told []*workerv1.BlockEvent
			for _, e := range pool.Events(nil) {
				told = append(told, event(e.Name, e.Full, e.Window))
			}
			index.apply(blocks, told)
		}
		if hits == 0 {
			t.Error("no prefix was ever shared")
		}
	}
}

// R6: the index has a hard bound, and a worker's death gives all of its part back.
func TestIndexIsBounded(t *testing.T) {
	p := newPrefixes(10 * entryBytes)
	a, b := p.open("a"), p.open("b")
	names := named(20)
	for _, n := range names[:6] {
		p.apply(a, []*workerv1.BlockEvent{event(n, true, false)})
		p.apply(a, []*workerv1.BlockEvent{event(n, true, true)}) // twice is once
		p.apply(b, []*workerv1.BlockEvent{event(n, true, false)})
	}
	if n, refused := p.size(); n != 10 || refused != 3 {
		t.Errorf("R6: %d entries, %d refused", n, refused)
	}
	p.apply(a, []*workerv1.BlockEvent{event(names[0], false, false), event(names[19], false, false)})
	if n, _ := p.size(); n != 9 {
		t.Errorf("R6: %d entries after a block went", n)
	}
	p.forget(a)
	p.apply(a, []*workerv1.BlockEvent{event(names[0], true, true)}) // late words of a stream that is gone
	if n, _ := p.size(); n != 5 {
		t.Errorf("R6: %d entries after a worker died", n)
	}
	again := p.open("b")
	p.forget(b)
	p.apply(again, []*workerv1.BlockEvent{event(names[0], true, true)})
	if n, _ := p.size(); n != 1 || p.hit("b", kvpool.Geometry{BlockSize: 4, Groups: []kvpool.Group{{}}}, names) != 4 {
		t.Errorf("R6: %d entries after a worker's new stream", n)
	}
	if p.apply(again, []*workerv1.BlockEvent{{Hash: []byte{1}}}) {
		t.Error("a name of one byte was taken")
	}
}

// Names are made once for each way of naming, however many workers there are, and leave the last token's block out.
func TestChainsAreSharedByEqualWorkers(t *testing.T) {
	prompt := make([]int32, 33)
	c := newChains([]byte("k"), "g", "", prompt)
	worker := func(revision string, block int) *ledger.WorkerView {
		info := &ledgerv1.WorkerInfo{ModelRevision: []byte(revision)}
		return &ledger.WorkerView{Geometry: kvpool.Geometry{BlockSize: block}, Info: info}
	}
	one, two := c.of(worker("r", 16)), c.of(worker("r", 16))
	if len(one) != 2 || &one[0] != &two[0] || len(c.of(worker("r", 8))) != 4 ||
		len(c.of(worker("s", 16))) != 2 || len(c.made) != 3 {
		t.Errorf("%d names, %d ways", len(one), len(c.made))
	}
	salted := newChains([]byte("k"), "g", "s", prompt).of(worker("r", 16))
	if slices.Equal(one, c.of(worker("s", 16))) || slices.Equal(one, salted) {
		t.Error("other weights or another salt have the same names")
	}
	if n := len(newChains(nil, "g", "", prompt[:32]).of(worker("r", 16))); n != 1 {
		t.Errorf("32 tokens: %d whole blocks that may be hit", n)
	}
}

// R6: a churn of unique prompts, which workers drop as they go, neither grows the index beyond its bytes nor blinds it.
func TestIndexInAChurn(t *testing.T) {
	const bytes, workers, held, each = 4 << 20, 4, 40_000, 64 // together more than fits
	p := newPrefixes(bytes)
	var all [workers]*blocks
	for w := range all {
		all[w] = p.open(itoa(w))
	}
	name := func(w, i int) (h kvpool.Hash) {
		binary.LittleEndian.PutUint64(h[:], uint64(i)<<8|uint64(w))
		return h
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for round := range 4000 {
		for w, b := range all {
			var events []*workerv1.BlockEvent
			for i := round * each; i < (round+1)*each; i++ {
				events = append(events, event(name(w, i), true, true))
				if i >= held {
					events = append(events, event(name(w, i-held), false, false))
				}
			}
			p.apply(b, events)
		}
		if round%1000 == 999 {
			count, refused := p.size()
			grown := int64(heap()) - int64(before)
			t.Logf("%d blocks, %d refused, %d KiB", count, refused, grown>>10)
			if grown > bytes {
				t.Errorf("R6: the index of %d bytes takes %d", bytes, grown)
			}
			if count < p.limit/2 {
				t.Errorf("R6: %d of %d entries are used", count, p.limit)
			}
		}
	}
	runtime.KeepAlive(p)
}
