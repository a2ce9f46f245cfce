//go:build cgo && amd64

package cpu

import (
	"slices"
	"unsafe"
)

// products is one op of several matrix products, each over some rows of activations, cut into runs of weight rows. A chunk
// computes its weight rows for every row of activations of its product.
type products struct {
	kernels *kernels
	task    task
	list    []target // of full capacity from Open on
	ends    []int    // chunks of each product and of those before it
	per     int      // groups of 8 rows in a chunk
}

// target is a product's weights, the activations that it reads, and where its result goes.
type target struct {
	w      *packed
	from   int // first row of activations
	tokens int // rows
	out    []float32
	ld     int
}

func into(w *packed, out []float32, ld int) target { return target{w: w, out: out, ld: ld} }

const (
	chunksWanted = 32  // that an op is cut into, so that a slow helper costs little
	maxGroups    = 512 // in a chunk
	// A chunk's weights are read once for every fewTokens tokens; beyond one reading they should stay in the second-level
	// cache.
	fewTokens  = 24 // TOKENS in matmul.h
	chunkBytes = 256 << 10
)

// groupStep is what a chunk's groups are a multiple of: the most groups that a tile takes at once.
func groupStep(tokens int) int {
	if tokens == 1 {
		return 8
	}
	return 4
}

// multiply runs products over the step's tokens.
func (k *kernels) multiply(tokens int, targets ...target) {
	p := &k.products
	p.list = append(p.list[:0], targets...)
	for i := range p.list {
		p.list[i].tokens = tokens
	}
	p.run()
}

// run runs the listed products.
func (p *products) run() {
	groups, fewest := 0, 2
	for i := range p.list {
		groups += p.list[i].w.groups
		fewest = min(fewest, p.list[i].tokens)
	}
	step := groupStep(fewest)
	p.per = min((groups/chunksWanted+step-1)/step*step, maxGroups)
	for i := range p.list {
		if t := &p.list[i]; t.tokens > fewTokens {
			p.per = min(p.per, chunkBytes/t.w.group/step*step)
		}
	}
	p.per = max(p.per, step)
	n := 0
	p.ends = p.ends[:0]
	for i := range p.list {
		n += (p.list[i].w.groups + p.per - 1) / p.per
		p.ends = append(p.ends, n)
	}
	p.kernels.device.pool.run(&p.task, n)
}

func (p *products) chunk(c, _ int) {
	i, _ := slices.BinarySearch(p.ends, c+1)
	if i > 0 {
		c -= p.ends[i-1]
	}
	k, t := p.kernels, &p.list[i]
	lo, f := c*p.per, t.w.format
	t.w.multiply(unsafe.Add(k.act[f], t.from*k.stride[f]), k.stride[f], unsafe.Pointer(&t.out[0]), t.ld, lo,
		min(lo+p.per, t.w.groups), t.tokens)
}
