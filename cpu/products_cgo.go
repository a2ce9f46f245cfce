//go:build cgo && amd64

package cpu

import "unsafe"

// products is one op of up to three matrix products over the same tokens, cut into runs of weight rows. A chunk
// computes its rows for every token.
type products struct {
	kernels *kernels
	task    task
	list    [3]target
	count   int
	per     int    // groups of 8 rows in a chunk
	chunks  [3]int // of each product
	tokens  int
}

// target is a product's weights and where its result goes.
type target struct {
	w   *packed
	out []float32
	ld  int
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

// multiply runs the products.
func (k *kernels) multiply(tokens int, targets ...target) {
	p := &k.products
	p.kernels, p.tokens, p.count = k, tokens, copy(p.list[:], targets)
	groups := 0
	for i := range targets {
		groups += targets[i].w.groups
	}
	step := groupStep(tokens)
	p.per = min((groups/chunksWanted+step-1)/step*step, maxGroups)
	if tokens > fewTokens {
		for i := range targets {
			p.per = min(p.per, chunkBytes/groupBytes(targets[i].w.kind, targets[i].w.cols)/step*step)
		}
	}
	p.per = max(p.per, step)
	n := 0
	for i := range targets {
		p.chunks[i] = (targets[i].w.groups + p.per - 1) / p.per
		n += p.chunks[i]
	}
	k.device.pool.run(&p.task, n)
}

func (p *products) chunk(c, _ int) {
	i := 0
	for c >= p.chunks[i] {
		c -= p.chunks[i]
		i++
	}
	k, t := p.kernels, &p.list[i]
	lo, f := c*p.per, t.w.format
	t.w.multiply(k.act[f], k.stride[f], unsafe.Pointer(&t.out[0]), t.ld, lo, min(lo+p.per, t.w.groups), p.tokens)
}
