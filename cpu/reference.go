package cpu

import (
	"math"

	"github.com/berthd/berth/model"
)

// reference is the forward pass in plain Go, token by token and element by element: what the kernels are held to, and
// the device of builds without cgo. Products are rounded before they are added (float32(a*b) + c), so that no compiler
// fuses them. It keeps its own copy of the weights, as stored, and dequantises a row when it needs it.
type reference struct {
	device *rank
	m      *model.Model // the rank's shard; tensors are copies
	peers  []*reference // of all ranks
	routes routes
	rows   [][]float32 // by worker: one dequantised weight row

	x, h          []float32    // [tokens][hidden]: residual stream, normalised input or branch output
	terms         [2][]float32 // [tokens][hidden]: the rank's products of O, and of Down
	q, k, v       []float32    // [tokens][heads × head_dim], k and v [tokens][key heads × head_dim]
	mix           []float32    // [tokens][columns of O]
	gate, up      []float32    // [tokens][feed_forward]
	product, heed task
	op            product
	att           attendance
	batch         *batch
}

func newReference(d *rank, m *model.Model) *reference {
	n := d.cfg.MaxBatchTokens
	q, kv := n*m.Heads*m.HeadDim, n*m.KVHeads*m.HeadDim
	r := &reference{device: d, m: copyWeights(m)}
	r.x, r.h = make([]float32, n*m.Hidden), make([]float32, n*m.Hidden)
	r.terms = [2][]float32{make([]float32, n*m.Hidden), make([]float32, n*m.Hidden)}
	r.q, r.k, r.v = make([]float32, q), make([]float32, kv), make([]float32, kv)
	r.mix = make([]float32, n*m.Share.Mix.Len())
	r.gate, r.up = make([]float32, n*m.FeedForward), make([]float32, n*m.FeedForward)
	r.routes = newRoutes(n, &m.Decoder)
	for range d.cfg.Threads {
		r.rows = append(r.rows, make([]float32, max(m.Hidden, m.FeedForward, m.Share.Mix.Len())))
	}
	r.product.do, r.heed.do = r.multiplyRows, r.attend
	return r
}

func (r *reference) numerics() string { return "go,f32" }

func (r *reference) chooser() finalist { return nil }

func (r *reference) join(all []engine) {
	for _, e := range all {
		r.peers = append(r.peers, e.(*reference))
	}
}

// forward is model.architecture's two lines for each layer.
func (r *reference) forward(b *batch) {
	r.batch = b
	m, n := r.m, len(b.ids)
	for t, id := range b.ids {
		x := r.x[t*m.Hidden:][:m.Hidden]
		p := r.peers[owner(r.peers, int(id), func(p *reference) int { return p.m.Share.Vocab.Lo })].m
		model.Dequantise(p.Embedding.Type, p.Embedding.Row(int(id)-p.Share.Vocab.Lo), x)
		for i := range x {
			x[i] *= m.EmbedScale
		}
	}
	for i := range m.Weights {
		w := &m.Weights[i]
		r.norm(r.h, r.x, w.AttnNorm, n, m.Hidden)
		r.multiply(w.Q, r.h, r.q, n)
		r.multiply(w.K, r.h, r.k, n)
		r.multiply(w.V, r.h, r.v, n)
		addBias(r.q, w.QBias, n)
		addBias(r.k, w.KBias, n)
		addBias(r.v, w.VBias, n)
		r.norm(r.q, r.q, w.QNorm, n*m.Heads, m.HeadDim)
		r.norm(r.k, r.k, w.KNorm, n*m.KVHeads, m.HeadDim)
		r.attention(i)
		r.multiply(w.O, r.mix, r.terms[0], n)
		r.sum(0, n)
		addBias(r.h, w.OBias, n)
		r.norm(r.h, r.h, w.PostAttnNorm, n, m.Hidden)
		add(r.x, r.h, n*m.Hidden)

		r.norm(r.h, r.x, w.FFNNorm, n, m.Hidden)
		if w.Router == nil {
			r.feedForward(&w.FeedForward, r.h, r.terms[1], n)
		} else {
			r.experts(w, n)
		}
		r.sum(1, n)
		r.norm(r.h, r.h, w.PostFFNNorm, n, m.Hidden)
		add(r.x, r.h, n*m.Hidden)
	}
}

// feedForward is Down·act(Gate·x + bG, Up·x + bU) + bD of n vectors.
func (r *reference) feedForward(f *model.FeedForward, x, out []float32, n int) {
	r.multiply(f.Gate, x, r.gate, n)
	r.multiply(f.Up, x, r.up, n)
	addBias(r.gate, f.GateBias, n)
	addBias(r.up, f.UpBias, n)
	activate(&r.m.Decoder, r.gate, r.up, n*r.m.FeedForward)
	r.multiply(f.Down, r.gate, out, n)
	addBias(out, f.DownBias, n)
}

// experts adds up what each of the rank's experts says of the tokens that chose it, experts ascending.
func (r *reference) experts(w *model.LayerWeights, n int) {
	m, out := r.m, r.terms[1]
	logits := make([]float32, n*m.Experts)
	r.multiply(w.Router, r.h, logits, n)
	addBias(logits, w.RouterBias, n)
	for t := range n {
		r.routes.choose(t, logits[t*m.Experts:][:m.Experts])
	}
	r.routes.group(n)
	clear(out[:n*m.Hidden])
	x, y := make([]float32, n*m.Hidden), make([]float32, n*m.Hidden)
	for e := range w.Experts {
		pairs := r.routes.of(m.Share.Experts.Lo + e)
		for i, p := range pairs {
			copy(x[i*m.Hidden:], r.h[p.token*m.Hidden:][:m.Hidden])
		}
		r.feedForward(&w.Experts[e], x, y, len(pairs))
		for i, p := range pairs {
			to := out[p.token*m.Hidden:][:m.Hidden]
			for k, v := range y[i*m.Hidden:][:m.Hidden] {
				to[k] += float32(p.weight * v)
			}
		}
	}
}

// sum meets the other ranks and adds up, in rank order, what all have in one of their terms.
func (r *reference) sum(term, n int) {
	r.device.partners.meet()
	copy(r.h[:n*r.m.Hidden], r.peers[0].terms[term])
	for _, p := range r.peers[1:] {
		add(r.h, p.terms[term], n*r.m.Hidden)
	}
}

// logits is Output · outputNorm(x) for the chosen tokens.
func (r *reference) logits(tokens []output, out []float32, stride int) {
	m := r.m
	for i, o := range tokens {
		copy(r.h[i*m.Hidden:], r.x[o.token*m.Hidden:][:m.Hidden])
	}
	r.norm(r.h, r.h, m.OutputNorm, len(tokens), m.Hidden)
	r.multiplyInto(m.Output, r.h, out[m.Share.Vocab.Lo:], len(tokens), stride)
}

// norm is RMSNorm of n vectors of the given width: x / √(mean x² + ε) · w. A nil w leaves x as it is (dst is x then).
func (r *reference) norm(dst, x []float32, w *model.Tensor, n, width int) {
	if w == nil {
		return
	}
	weight := make([]float32, width)
	model.Dequantise(w.Type, w.Data, weight)
	for t := range n {
		in, out := x[t*width:][:width], dst[t*width:][:width]
		sum := float32(0)
		for _, v := range in {
			sum += float32(v * v)
		}
		scale := 1 / float32(math.Sqrt(float64(sum/float32(width)+r.m.Epsilon)))
		for i, v := range in {
			out[i] = float32(v*scale) * weight[i]
		}
	}
}

// product is out[t·stride + row] = w[row] · x[t] for n vectors x.
type product struct {
	w      *model.Tensor
	x, out []float32
	n      int
	stride int
}

// rowsAtATime is how many weight rows a chunk of a product has.
const rowsAtATime = 32

func (r *reference) multiply(w *model.Tensor, x, out []float32, n int) {
	r.multiplyInto(w, x, out, n, w.Rows())
}

func (r *reference) multiplyInto(w *model.Tensor, x, out []float32, n, stride int) {
	r.op = product{w: w, x: x, out: out, n: n, stride: stride}
	r.device.pool.run(&r.product, (w.Rows()+rowsAtATime-1)/rowsAtATime)
}

func (r *reference) multiplyRows(chunk, worker int) {
	op, width := &r.op, r.op.w.Cols()
	weights := r.rows[worker][:width]
	for row := chunk * rowsAtATime; row < min((chunk+1)*rowsAtATime, op.w.Rows()); row++ {
		model.Dequantise(op.w.Type, op.w.Row(row), weights)
		for t := range op.n {
			sum := float32(0)
			for i, v := range op.x[t*width:][:width] {
				sum += float32(weights[i] * v)
			}
			op.out[t*op.stride+row] = sum
		}
	}
}

// addBias adds w to each of n vectors; a nil w leaves them as they are.
func addBias(x []float32, w *model.Tensor, n int) {
	if w == nil {
		return
	}
	bias := make([]float32, w.Cols())
	model.Dequantise(w.Type, w.Data, bias)
	for t := range n {
		add(x[t*len(bias):], bias, len(bias))
	}
}

func add(x, y []float32, n int) {
	for i := range n {
		x[i] += y[i]
	}
}

// activate is gate = act(gate, up).
func activate(d *model.Decoder, gate, up []float32, n int) {
	for i, x := range gate[:n] {
		f, u := float64(x), up[i]
		switch d.Activation {
		case model.ClampedSwiGLU:
			f = min(f, float64(d.GateLimit))
			f /= 1 + math.Exp(-model.GateAlpha*f)
			u = min(max(u, -d.GateLimit), d.GateLimit) + 1
		case model.GELUTanh:
			f = 0.5 * f * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(f+0.044715*f*f*f)))
		case model.SiLU:
			f /= 1 + math.Exp(-f)
		}
		gate[i] = float32(f) * u
	}
}
