//go:build cgo && amd64

package cpu

import (
	"unsafe"

	"github.com/berthd/berth/model"
)

// mixture is a layer's experts. Tokens are dealt to the experts that they chose, so that an expert's weights meet all of
// its tokens at once; a pair is a token and one of its experts. How a token's products are summed does not depend on the
// company that it has at its experts, nor on how many of them other ranks have.
//
//	router ▸ choose ▸ group ▸ deal ▸ { gate, up } of all experts ▸ gate·up ▸ down of all experts ▸ gather
type mixture struct {
	kernels *kernels
	routes  routes
	logits  []float32 // [tokens][experts]
	out     []float32 // [pairs][hidden]
	ld      int       // of logits
	rows    int       // of activations before those of pairs

	chooseOp, dealOp, gateOp, gatherOp task
}

// newMixture maps room for a step's pairs; nil for a dense model.
func newMixture(k *kernels, a *allocator) *mixture {
	d := &k.d
	if d.Experts == 0 {
		return nil
	}
	n := k.device.cfg.MaxBatchTokens
	x := &mixture{kernels: k, routes: newRoutes(n, d), ld: wholeRows(d.Experts), rows: max(n, headRows)}
	x.logits, x.out = a.floats(n*x.ld), a.floats(n*d.ExpertsUsed*k.ldOut)
	x.chooseOp.do, x.dealOp.do, x.gateOp.do, x.gatherOp.do = x.choose, x.deal, x.gate, x.gather
	return x
}

// pairs is how many pairs a step has at most.
func (x *mixture) pairs() int {
	if x == nil {
		return 0
	}
	return len(x.routes.pairs)
}

// run computes the layer's feed-forward branch of n tokens.
func (x *mixture) run(n int) {
	k, w := x.kernels, &x.kernels.layers[x.kernels.layer]
	run := k.device.pool.run
	k.multiply(n, into(&w.router, x.logits, x.ld))
	run(&x.chooseOp, n)
	x.routes.group(n)
	lo, hi := x.own()
	chunks := (hi - lo + pairsAtATime - 1) / pairsAtATime
	run(&x.dealOp, chunks)
	k.products.list = k.products.list[:0]
	for e := range w.experts {
		x.add(e, &w.experts[e].gate, k.gate, k.ldFF)
		x.add(e, &w.experts[e].up, k.up, k.ldFF)
	}
	k.products.run()
	run(&x.gateOp, chunks)
	k.products.list = k.products.list[:0]
	for e := range w.experts {
		x.add(e, &w.experts[e].down, x.out, k.ldOut)
	}
	k.products.run()
	run(&x.gatherOp, n)
}

// own is the pairs of the rank's experts.
func (x *mixture) own() (lo, hi int) {
	s := x.kernels.share.Experts
	return x.routes.starts[s.Lo], x.routes.starts[s.Hi]
}

// add lists a product of one of the rank's experts, if it has tokens.
func (x *mixture) add(expert int, w *packed, out []float32, ld int) {
	e := x.kernels.share.Experts.Lo + expert
	lo, hi := x.routes.starts[e], x.routes.starts[e+1]
	if lo < hi {
		t := target{w: w, from: x.rows + lo, tokens: hi - lo, out: out[lo*ld:], ld: ld}
		x.kernels.products.list = append(x.kernels.products.list, t)
	}
}

// choose takes token t's experts.
func (x *mixture) choose(t, _ int) {
	d, bias := &x.kernels.d, x.kernels.layers[x.kernels.layer].routerBias
	logits := x.logits[t*x.ld:][:d.Experts]
	for e, b := range bias {
		logits[e] += b
	}
	x.routes.choose(t, logits)
}

// pairsAtATime is how many pairs a chunk has: a step may have more pairs than a pool counts chunks.
const pairsAtATime = 8

// chunk is the places, among all pairs, of a run of the rank's.
func (x *mixture) chunk(c int) (from, to int) {
	lo, hi := x.own()
	return lo + c*pairsAtATime, min(lo+(c+1)*pairsAtATime, hi)
}

// deal copies tokens' activations to their pairs'.
func (x *mixture) deal(chunk, _ int) {
	k := x.kernels
	from, to := x.chunk(chunk)
	for f, wanted := range k.uses[k.layer].experts {
		if !wanted {
			continue
		}
		size := k.stride[f]
		all := unsafe.Slice((*byte)(k.act[f]), (x.rows+x.pairs())*size)
		for p := from; p < to; p++ {
			copy(all[(x.rows+p)*size:][:size], all[x.routes.pairs[p].token*size:])
		}
	}
}

// gate is act(Gate·x + bG, Up·x + bU) of pairs.
func (x *mixture) gate(chunk, _ int) {
	k := x.kernels
	from, to := x.chunk(chunk)
	for p := from; p < to; p++ {
		w := &k.layers[k.layer].experts[x.routes.pairs[p].expert-k.share.Experts.Lo]
		gate, up := at(k.gate, p*k.ldFF), at(k.up, p*k.ldFF)
		if w.gateBias != nil {
			addVector(gate, w.gateBias, k.d.FeedForward)
			addVector(up, w.upBias, k.d.FeedForward)
		}
		gatedActivation(&k.d, gate, up, k.d.FeedForward)
		k.quantise(x.rows+p, gate, k.d.FeedForward, &k.uses[k.layer].down)
	}
}

// gather adds up what the rank's experts say of token t, experts ascending.
func (x *mixture) gather(t, _ int) {
	k, r := x.kernels, &x.routes
	out := k.terms[afterDown][t*k.ldOut:][:k.d.Hidden]
	clear(out)
	for i := t * r.used; i < (t+1)*r.used; i++ {
		c := &r.chosen[i]
		if c.expert < k.share.Experts.Lo || c.expert >= k.share.Experts.Hi {
			continue
		}
		row := at(x.out, int(r.place[i])*k.ldOut)
		if bias := k.layers[k.layer].experts[c.expert-k.share.Experts.Lo].downBias; bias != nil {
			addVector(row, bias, k.d.Hidden)
		}
		addScaled(at(out, 0), row, c.weight, k.d.Hidden)
	}
}

// packedForward is model.FeedForward in the device's layout.
type packedForward struct {
	gate, up, down             packed
	gateBias, upBias, downBias unsafe.Pointer
}

func (p *packer) forward(f *model.FeedForward) packedForward {
	return packedForward{
		gate: p.matrix(f.Gate), up: p.matrix(f.Up), down: p.matrix(f.Down),
		gateBias: p.vector(f.GateBias), upBias: p.vector(f.UpBias), downBias: p.vector(f.DownBias),
	}
}

// mixtureOf packs a layer's router and experts.
func (p *packer) mixtureOf(m *model.LayerWeights, w *packedLayer) {
	w.router = p.matrix(m.Router)
	if m.RouterBias != nil {
		w.routerBias = make([]float32, m.RouterBias.Cols())
		model.Dequantise(m.RouterBias.Type, m.RouterBias.Data, w.routerBias)
	}
	for i := range m.Experts {
		w.experts = append(w.experts, p.forward(&m.Experts[i]))
	}
}
