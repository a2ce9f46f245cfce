//go:build cgo && amd64

package cpu

import (
	"errors"
	"unsafe"

	"github.com/berthd/berth/model"
)

// kernels runs the layers in C: an op at a time over the whole batch, each op cut into chunks for the pool.
//
//	embed ▸ { norm ▸ QKV ▸ rope, store ▸ attend ▸ O ▸ add, norm ▸ gate, up ▸ gate·up ▸ down ▸ add } … ▸ norm ▸ output
//	                                                            or experts: see mixture
//
// A matrix product reads activations that an earlier op has written in the formats of its weights: see quantise.
type kernels struct {
	device *rank
	d      model.Decoder // sizes are the rank's
	share  model.Share
	peers  []*kernels // of all ranks
	batch  *batch

	embedding, output packed
	outputNorm        unsafe.Pointer
	layers            []packedLayer
	uses              []layerFormats

	// Per token, in the device's memory. q, k, v, gate and up have their rows padded to whole groups.
	x, norm                []float32    // [tokens][hidden]
	terms                  [2][]float32 // [tokens][hidden]: the rank's products of O, and of Down
	q, k, v, mix, gate, up []float32
	ldQ, ldKV, ldFF, ldOut int
	act                    [formatCount]unsafe.Pointer // [tokens], stride bytes apart
	stride                 [formatCount]int
	cos, sin               [2][]float32 // by attention kind: [tokens][head_dim/2]

	layer     int
	spans     []span
	products  products
	outputs   []output
	greedy    *greedy  // nil: none
	mixture   *mixture // nil: dense
	embedOp   task
	enterOp   task
	rotateOp  task
	attendOp  task
	mixOp     task
	middleOp  task
	gateOp    task
	leaveOp   task
	collectOp task
}

// layerFormats are the activation formats that a layer's products read.
type layerFormats struct {
	qkv, o, ffn, down formats
	experts           formats // of those in ffn, what experts read
}

func usesOf(w *packedLayer) layerFormats {
	f := layerFormats{qkv: formatsOf(&w.q, &w.k, &w.v), o: formatsOf(&w.o)}
	if w.router.w == nil {
		f.ffn, f.down = formatsOf(&w.gate, &w.up), formatsOf(&w.down)
		return f
	}
	f.ffn = formatsOf(&w.router)
	for i := range w.experts {
		e := &w.experts[i]
		f.ffn[e.gate.format], f.ffn[e.up.format], f.down[e.down.format] = true, true, true
		f.experts[e.gate.format], f.experts[e.up.format] = true, true
	}
	return f
}

// formats is a set.
type formats [formatCount]bool

func formatsOf(weights ...*packed) (f formats) {
	for _, w := range weights {
		f[w.format] = true
	}
	return f
}

func newKernels(d *rank, m *model.Model) (engine, error) {
	k := &kernels{device: d, d: m.Decoder, share: m.Share}
	p := newPacker(d)
	k.embedding = p.matrix(m.Embedding)
	k.output = k.embedding
	if m.Output != m.Embedding {
		k.output = p.matrix(m.Output)
	}
	k.outputNorm = p.vector(m.OutputNorm)
	for i := range m.Weights {
		w := p.layer(&m.Weights[i])
		k.layers = append(k.layers, w)
		k.uses = append(k.uses, usesOf(&w))
	}
	a := &allocator{memory: d.memory, name: "activations"}
	k.buffers(a)
	k.greedy = newGreedy(k, p, a)
	k.embedOp.do, k.enterOp.do, k.rotateOp.do = k.embed, k.enter, k.rotateStore
	k.attendOp.do, k.mixOp.do, k.middleOp.do = k.attend, k.quantiseMix, k.middle
	k.gateOp.do, k.leaveOp.do, k.collectOp.do = k.gated, k.leave, k.collect
	k.products.kernels, k.products.task.do = k, k.products.chunk
	room := max(3, 2*m.Share.Experts.Len())
	k.products.list, k.products.ends = make([]target, 0, room), make([]int, 0, room)
	return k, errors.Join(p.err, a.err)
}

// buffers maps room for one step. Formats that no product reads get none.
func (k *kernels) buffers(a *allocator) {
	n, d := k.device.cfg.MaxBatchTokens, &k.d
	k.ldQ, k.ldKV = wholeRows(k.share.Mix.Len()), wholeRows(d.KVHeads*d.HeadDim)
	k.ldFF, k.ldOut = wholeRows(d.FeedForward), wholeRows(d.Hidden)
	k.mixture = newMixture(k, a)
	k.x, k.norm = a.floats(n*d.Hidden), a.floats(n*d.Hidden)
	k.terms[afterO], k.terms[afterDown] = a.floats(n*k.ldOut), a.floats(n*k.ldOut)
	k.q, k.mix, k.k, k.v = a.floats(n*k.ldQ), a.floats(n*k.ldQ), a.floats(n*k.ldKV), a.floats(n*k.ldKV)
	forward := max(n, k.mixture.pairs())
	k.gate, k.up = a.floats(forward*k.ldFF), a.floats(forward*k.ldFF)
	for kind := range k.cos {
		k.cos[kind], k.sin[kind] = a.floats(n*d.HeadDim/2), a.floats(n*d.HeadDim/2)
	}
	k.spans = make([]span, 0, k.device.cfg.MaxRows+n/spanTokens+1)
	n = max(n, headRows) + k.mixture.pairs()
	for f := range formatCount {
		cols := 0
		if k.output.format == f {
			cols = d.Hidden
		}
		for i := range k.uses {
			for used, width := range map[*formats]int{
				&k.uses[i].qkv: d.Hidden, &k.uses[i].o: k.share.Mix.Len(),
				&k.uses[i].ffn: d.Hidden, &k.uses[i].down: d.FeedForward,
			} {
				if used[f] {
					cols = max(cols, width)
				}
			}
		}
		if cols > 0 {
			k.stride[f] = f.bytes(cols)
			k.act[f] = a.block(n * k.stride[f])
		}
	}
}

// wholeRows is room for the results of so many weight rows, and a line more: tokens a power of two apart would fall on
// the same sets of the first-level cache.
func wholeRows(rows int) int { return (rows+7)&^7 + 16 }

func (k *kernels) join(all []engine) {
	for _, e := range all {
		k.peers = append(k.peers, e.(*kernels))
	}
}

func (k *kernels) chooser() finalist {
	if k.greedy == nil {
		return nil
	}
	return k.greedy
}

func (k *kernels) numerics() string {
	if k.device.cfg.Dequantise {
		return "avx2,f32"
	}
	return "avx2,quantised"
}

// spanTokens is how many tokens of a row one chunk of attention has.
const spanTokens = 8

// Which of a layer's two sums over ranks a term is of. They have buffers of their own: a rank that writes terms of one has
// met the others since they read the one before.
const (
	afterO = iota
	afterDown
)

// forward runs the layers. An op's chunks are tokens, spans of tokens × key heads, or runs of weight rows.
func (k *kernels) forward(b *batch) {
	run, n := k.device.pool.run, len(b.ids)
	k.batch, k.spans = b, b.spans(k.spans[:0], spanTokens)
	run(&k.embedOp, n)
	for i := range k.layers {
		k.layer = i
		w := &k.layers[i]
		run(&k.enterOp, n)
		k.multiply(n, into(&w.q, k.q, k.ldQ), into(&w.k, k.k, k.ldKV), into(&w.v, k.v, k.ldKV))
		run(&k.rotateOp, n)
		run(&k.attendOp, len(k.spans)*k.d.KVHeads)
		run(&k.mixOp, n)
		k.multiply(n, into(&w.o, k.terms[afterO], k.ldOut))
		k.device.partners.meet()
		run(&k.middleOp, n)
		if k.mixture != nil {
			k.mixture.run(n)
		} else {
			k.multiply(n, into(&w.gate, k.gate, k.ldFF), into(&w.up, k.up, k.ldFF))
			run(&k.gateOp, n)
			k.multiply(n, into(&w.down, k.terms[afterDown], k.ldOut))
		}
		k.device.partners.meet()
		run(&k.leaveOp, n)
	}
}

// logits norms the chosen tokens and multiplies them by the rank's rows of the output matrix.
func (k *kernels) logits(tokens []output, out []float32, stride int) {
	k.outputs = tokens
	k.device.pool.run(&k.collectOp, len(tokens))
	k.multiply(len(tokens), into(&k.output, out[k.share.Vocab.Lo:], stride))
}

// embed starts token t: its embedding, and the angles of its position for each attention kind.
func (k *kernels) embed(t, _ int) {
	id := int(k.batch.ids[t])
	p := k.peers[owner(k.peers, id, func(p *kernels) int { return p.share.Vocab.Lo })]
	p.embedding.gather(id-p.share.Vocab.Lo, k.d.EmbedScale, at(k.x, t*k.d.Hidden))
	half := k.d.HeadDim / 2
	var done [2]bool
	for i := range k.d.Layers {
		l := &k.d.Layers[i]
		if !done[l.Kind] {
			done[l.Kind] = true
			rotation(l, k.d.HeadDim, k.batch.pos[t], k.cos[l.Kind][t*half:], k.sin[l.Kind][t*half:])
		}
	}
}

// enter is the norm before attention.
func (k *kernels) enter(t, _ int) {
	k.normalise(t, k.layers[k.layer].attnNorm, &k.uses[k.layer].qkv)
}

// normalise writes norm(x[t]) in the wanted formats.
func (k *kernels) normalise(t int, w unsafe.Pointer, f *formats) {
	h := at(k.norm, t*k.d.Hidden)
	rmsnorm(at(k.x, t*k.d.Hidden), w, h, k.d.Hidden, k.d.Epsilon)
	k.quantise(t, h, k.d.Hidden, f)
}

// quantise writes a vector as token t's activations.
func (k *kernels) quantise(t int, x unsafe.Pointer, cols int, f *formats) {
	for i, wanted := range f {
		if wanted {
			format(i).write(x, unsafe.Add(k.act[i], t*k.stride[i]), cols)
		}
	}
}

// rotateStore adds biases, norms and rotates token t's queries and keys, and writes keys and values to their page.
func (k *kernels) rotateStore(t, _ int) {
	w, l, d := &k.layers[k.layer], &k.d.Layers[k.layer], &k.d
	if w.qBias != nil {
		addVector(at(k.q, t*k.ldQ), w.qBias, d.Heads*d.HeadDim)
		addVector(at(k.k, t*k.ldKV), w.kBias, d.KVHeads*d.HeadDim)
		addVector(at(k.v, t*k.ldKV), w.vBias, d.KVHeads*d.HeadDim)
	}
	place := k.device.pages.layout.Places[k.layer]
	half := d.HeadDim / 2
	cos, sin := at(k.cos[l.Kind], t*half), at(k.sin[l.Kind], t*half)
	for h := range d.Heads {
		k.rotate(at(k.q, t*k.ldQ+h*d.HeadDim), w.qNorm, cos, sin)
	}
	table := k.batch.plan.Rows[k.batch.row[t]].Pages[place.Group]
	for h := range d.KVHeads {
		key := at(k.k, t*k.ldKV+h*d.HeadDim)
		k.rotate(key, w.kNorm, cos, sin)
		to := k.device.pages.key(table, place, h, int(k.batch.pos[t]))
		storeKV(to, k.device.pages.valueOffset(), key, at(k.v, t*k.ldKV+h*d.HeadDim), d.HeadDim, k.device.pages.elem == 2)
	}
}

func (k *kernels) rotate(x, norm, cos, sin unsafe.Pointer) {
	if norm != nil {
		rmsnorm(x, norm, x, k.d.HeadDim, k.d.Epsilon)
	}
	rope(x, cos, sin, k.d.HeadDim)
}

// attend is one span of tokens with one key head.
func (k *kernels) attend(chunk, _ int) {
	s, head := k.spans[chunk/k.d.KVHeads], chunk%k.d.KVHeads
	place := k.device.pages.layout.Places[k.layer]
	table := k.batch.plan.Rows[s.row].Pages[place.Group]
	share := k.d.Heads / k.d.KVHeads
	from := s.lo*k.ldQ + head*share*k.d.HeadDim
	sinks := k.layers[k.layer].sinks
	if sinks != nil {
		sinks = unsafe.Add(sinks, 4*head*share)
	}
	attendSpan(&k.device.pages, place, head, &k.d.Layers[k.layer], sinks, k.d.QueryScale, table,
		at(k.q, from), at(k.mix, from+k.share.MixSkip(k.d.HeadDim)), k.ldQ, share, int(k.batch.pos[s.lo]), s.hi-s.lo)
}

func (k *kernels) quantiseMix(t, _ int) {
	k.quantise(t, at(k.mix, t*k.ldQ), k.share.Mix.Len(), &k.uses[k.layer].o)
}

// middle adds attention's branch to the residual stream and norms it for the feed-forward part.
func (k *kernels) middle(t, _ int) {
	w := &k.layers[k.layer]
	k.addBranch(t, afterO, w.oBias, w.postAttnNorm)
	k.normalise(t, w.ffnNorm, &k.uses[k.layer].ffn)
}

// leave adds the feed-forward branch.
func (k *kernels) leave(t, _ int) { k.addBranch(t, afterDown, nil, k.layers[k.layer].postFFNNorm) }

func (k *kernels) addBranch(t, sum int, bias, norm unsafe.Pointer) {
	x, branch := at(k.x, t*k.d.Hidden), k.total(t, sum)
	if bias != nil {
		addVector(branch, bias, k.d.Hidden)
	}
	if norm == nil {
		addVector(x, branch, k.d.Hidden)
		return
	}
	rmsnormAdd(x, branch, norm, k.d.Hidden, k.d.Epsilon)
}

// total is the sum of all ranks' terms of token t, in rank order. It may lie in k.norm.
func (k *kernels) total(t, sum int) unsafe.Pointer {
	if len(k.peers) == 1 {
		return at(k.terms[sum], t*k.ldOut)
	}
	out := k.norm[t*k.d.Hidden:][:k.d.Hidden]
	copy(out, k.peers[0].terms[sum][t*k.ldOut:])
	for _, p := range k.peers[1:] {
		addVector(at(out, 0), at(p.terms[sum], t*k.ldOut), k.d.Hidden)
	}
	return at(out, 0)
}

// gated is act(gate) ⊙ up of token t.
func (k *kernels) gated(t, _ int) {
	gate, up := at(k.gate, t*k.ldFF), at(k.up, t*k.ldFF)
	gatedActivation(&k.d, gate, up, k.d.FeedForward)
	k.quantise(t, gate, k.d.FeedForward, &k.uses[k.layer].down)
}

// collect norms the i-th output token as activation i.
func (k *kernels) collect(i, _ int) {
	h := at(k.norm, i*k.d.Hidden)
	rmsnorm(at(k.x, k.outputs[i].token*k.d.Hidden), k.outputNorm, h, k.d.Hidden, k.d.Epsilon)
	f := formatsOf(&k.output)
	k.quantise(i, h, k.d.Hidden, &f)
}

// at is the address of element i.
func at(x []float32, i int) unsafe.Pointer { return unsafe.Pointer(&x[i]) }
