package model

import (
	"cmp"
	"errors"
	"fmt"
	"math"
)

// Model is a decoder with its weights, as views of the mapped file.
type Model struct {
	*File
	Decoder
	Embedding  *Tensor        // [hidden, vocab]
	OutputNorm *Tensor        // [hidden]
	Output     *Tensor        // [hidden, vocab]; the embedding itself where the file ties them
	Weights    []LayerWeights // by layer
	Share      Share          // what of a model this is; zero for all of it
}

// LayerWeights are the tensors of one layer. Norms and biases that the architecture lacks are nil.
type LayerWeights struct {
	AttnNorm, PostAttnNorm *Tensor // [hidden]
	FFNNorm, PostFFNNorm   *Tensor // [hidden]
	QNorm, KNorm           *Tensor // [head_dim]
	Q, K, V                *Tensor // [hidden, heads × head_dim]; a head's rope pairs are rows i and i + head_dim/2
	QBias, KBias, VBias    *Tensor // [heads × head_dim]
	Sinks                  *Tensor // [heads]: a score that has no position
	O                      *Tensor // [heads × head_dim, hidden]
	OBias                  *Tensor // [hidden]

	FeedForward                      // of a dense layer
	Router, RouterBias *Tensor       // [hidden, experts], [experts]: of all experts, on every rank
	Experts            []FeedForward // of a rank, its own
}

// FeedForward is a dense feed-forward part, or an expert.
type FeedForward struct {
	Gate, Up         *Tensor // [hidden, feed_forward]
	Down             *Tensor // [feed_forward, hidden]
	GateBias, UpBias *Tensor // [feed_forward], of experts only
	DownBias         *Tensor // [hidden], of experts only
}

// Open maps a GGUF file or a folder of safetensors and finds the model in it. Faults of the file are *WeightsError.
// Close it (by File) when every device has taken its copy of the weights.
func Open(path string) (*Model, error) {
	f, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	m, err := Load(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return m, nil
}

// Load finds the model in an open file, which stays the caller's to close when it fails.
func Load(f *File) (*Model, error) {
	k := &keyReader{file: f}
	m := &Model{File: f, Decoder: readDecoder(k)}
	if k.err != nil {
		return nil, fmt.Errorf("load model: %w", k.err)
	}
	w := &tensorFinder{file: f, used: map[string]bool{}}
	m.bind(w, architectures[m.Architecture])
	w.checkAllUsed(m.Architecture)
	if v, has := f.keys["tokenizer.ggml.tokens"]; has && v.n != m.Vocab {
		w.fail("%d tokens (tokenizer.ggml.tokens) for an embedding of %d rows", v.n, m.Vocab)
	}
	if w.err != nil {
		return nil, fmt.Errorf("load model: %w", w.err)
	}
	return m, nil
}

// bind finds every tensor and checks its shape.
func (m *Model) bind(w *tensorFinder, arch architecture) {
	m.Embedding = w.find("token_embd.weight", m.Hidden, anySize)
	if w.err != nil {
		return
	}
	m.Vocab = m.Embedding.Rows()
	m.OutputNorm = w.find("output_norm.weight", m.Hidden)
	m.Output = m.Embedding
	if _, untied := w.file.Tensor("output.weight"); untied {
		m.Output = w.find("output.weight", m.Hidden, m.Vocab)
	}
	if _, has := w.file.Tensor("rope_freqs.weight"); has && arch.ropeFactors {
		m.bindRopeFactors(w, "rope_freqs.weight")
	}
	if _, has := w.file.Tensor(shortFactors); has && arch.longrope {
		m.bindRopeFactors(w, shortFactors)
		w.find(longFactors, m.HeadDim/2) // for contexts that longrope keeps out
	}
	for i := range m.Layers {
		m.Weights = append(m.Weights, m.bindLayer(w, arch, i))
	}
}

// bindLayer finds the tensors of layer i.
func (m *Model) bindLayer(w *tensorFinder, arch architecture, i int) LayerWeights {
	q, kv := m.Heads*m.HeadDim, m.KVHeads*m.HeadDim
	name := func(s string) string { return fmt.Sprintf("blk.%d.%s.weight", i, s) }
	l := LayerWeights{
		AttnNorm: w.find(name("attn_norm"), m.Hidden),
		FFNNorm:  w.find(name(cmp.Or(arch.ffnNorm, "ffn_norm")), m.Hidden),
		O:        w.find(name("attn_output"), q, m.Hidden),
	}
	if arch.fused {
		l.Q, l.K, l.V = w.find(name("attn_qkv"), m.Hidden, q+2*kv).split3(q, kv)
	} else {
		l.Q = w.find(name("attn_q"), m.Hidden, q)
		l.K, l.V = w.find(name("attn_k"), m.Hidden, kv), w.find(name("attn_v"), m.Hidden, kv)
	}
	if arch.experts {
		m.bindExperts(w, arch, i, &l)
	} else {
		l.FeedForward = m.bindDense(w, arch, i)
	}
	if arch.sinks {
		l.Sinks = w.find(name("attn_sinks"), m.Heads)
	}
	if arch.qkNorm {
		l.QNorm, l.KNorm = w.find(name("attn_q_norm"), m.HeadDim), w.find(name("attn_k_norm"), m.HeadDim)
	}
	if arch.qkvBias {
		bias := func(s string) string { return fmt.Sprintf("blk.%d.%s.bias", i, s) }
		l.QBias, l.KBias, l.VBias = w.find(bias("attn_q"), q), w.find(bias("attn_k"), kv), w.find(bias("attn_v"), kv)
		if arch.biases {
			l.OBias = w.find(bias("attn_output"), m.Hidden)
		}
	}
	if arch.postNorm {
		l.PostAttnNorm = w.find(name("post_attention_norm"), m.Hidden)
		l.PostFFNNorm = w.find(name("post_ffw_norm"), m.Hidden)
	}
	if arch.interleaved && !w.file.natural && w.err == nil {
		l.Q, l.K = l.Q.deinterleave(m.HeadDim), l.K.deinterleave(m.HeadDim)
	}
	return l
}

// bindRopeFactors gives every layer the factors of a tensor.
func (m *Model) bindRopeFactors(w *tensorFinder, name string) {
	t := w.find(name, m.HeadDim/2)
	if w.err != nil {
		return
	}
	factors := make([]float32, t.Cols())
	Dequantise(t.Type, t.Data, factors)
	for i, f := range factors {
		if !(f > 0 && f <= math.MaxFloat32) {
			w.fail("tensor %q has factor %d = %g, want a positive number", t.Name, i, f)
			return
		}
	}
	for i := range m.Layers {
		m.Layers[i].RopeFactors = factors
	}
}

// anySize stands for a dimension that the file decides.
const anySize = -1

// tensorFinder looks tensors up and checks their shapes. The first fault sticks.
type tensorFinder struct {
	file *File
	used map[string]bool
	err  *WeightsError
}

// checkAllUsed refuses a file with tensors that the architecture has no place for: leaving out a bias would give wrong
// text without a word.
func (w *tensorFinder) checkAllUsed(arch string) {
	for i := range w.file.tensors {
		if t := &w.file.tensors[i]; w.err == nil && !w.used[t.Name] {
			w.fail("tensor %.64q has no place in a %s model", t.Name, arch)
		}
	}
}

func (w *tensorFinder) fail(format string, args ...any) {
	if w.err == nil {
		w.err = &WeightsError{File: w.file.path, Offset: -1, What: fmt.Sprintf(format, args...)}
	}
}

func (w *tensorFinder) find(name string, dims ...int) *Tensor {
	if w.err != nil {
		return nil
	}
	t, ok := w.file.Tensor(name)
	if !ok {
		w.fail("tensor %q is absent", name)
		return nil
	}
	w.used[name] = true
	same := len(t.Dims) == len(dims)
	for i := 0; same && i < len(dims); i++ {
		same = t.Dims[i] == dims[i] || dims[i] == anySize
	}
	if !same {
		w.fail("tensor %q has shape %v, want %v (−1: any)", name, t.Dims, dims)
	}
	return t
}
