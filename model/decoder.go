package model

import (
	"math"

	"github.com/berthd/berth/kvpool"
)

// Decoder is a decoder-only transformer as data: sizes and constants, the same for every device.
type Decoder struct {
	Architecture string
	Hidden       int // width of the residual stream
	FeedForward  int // width between Up and Down, of each expert
	Experts      int // 0: feed-forward parts are dense
	ExpertsUsed  int // by each token
	Heads        int // query heads
	KVHeads      int // key and value heads; Heads is a multiple
	HeadDim      int // elements of a query, key or value head
	Vocab        int
	Context      int // positions that the model was trained for
	Epsilon      float32
	Activation   Activation
	GateLimit    float32 // of ClampedSwiGLU
	// EmbedScale multiplies embeddings, QueryScale the products q·k.
	EmbedScale float32
	QueryScale float32
	// LogitCap bounds logits: LogitCap · tanh(x / LogitCap); 0 for none.
	LogitCap float32
	Layers   []Layer
}

// Layer is what differs between layers.
type Layer struct {
	Kind   kvpool.Kind
	Window int // positions, 0 for full attention
	// The angle of pair i at a position is RopeScale · position · RopeBase^(−2i/HeadDim) / RopeFactors[i]. Pair i is
	// elements i and i + HeadDim/2. Turned pairs are multiplied by RopeGain.
	RopeBase    float64
	RopeScale   float64
	RopeGain    float64
	RopeFactors []float32 // [HeadDim/2], nil for ones
	// ScoreCap bounds QueryScale · q·k, as Decoder.LogitCap does logits; 0 for none.
	ScoreCap float32
}

// largeGemma are the models whose query scale stands in no key: the 27B ones divide by √(hidden/heads), not √head_dim.
// llama.cpp tells them by their layer counts too.
var largeGemma = map[string]int{"gemma2": 46, "gemma3": 62}

// readDecoder fills a Decoder from the file's keys.
func readDecoder(k *keyReader) Decoder {
	arch := k.architecture()
	d := Decoder{
		Architecture: k.name,
		Hidden:       k.size("embedding_length"),
		Heads:        k.size("attention.head_count"),
		Context:      k.size("context_length"),
		Epsilon:      float32(k.float("attention.layer_norm_rms_epsilon", 0)),
		Activation:   arch.activation,
		EmbedScale:   1,
	}
	layers := k.size("block_count")
	if k.err == nil && layers > len(k.file.tensors) {
		k.fail("block_count", "%d layers, but the file has only %d tensors", layers, len(k.file.tensors))
	}
	k.attention(&d, layers)
	if arch.scaleEmbed {
		d.EmbedScale = float32(math.Sqrt(float64(d.Hidden)))
	}
	k.forward(&d, arch)
	d.LogitCap = k.softCap("final_logit_softcapping", arch, 30)
	if k.err == nil {
		d.Layers = k.layers(arch, &d, layers)
	}
	return d
}

// softCap reads a bound; fallback is llama.cpp's for files that leave it out.
func (k *keyReader) softCap(name string, arch architecture, fallback float64) float32 {
	if !arch.softCaps {
		fallback = 0
	}
	limit := k.float(name, fallback)
	if limit < 0 || limit > math.MaxFloat32 || limit > 0 && !arch.softCaps {
		k.fail(name, "a soft cap of %g is not supported in a %s model", limit, k.name)
	}
	return float32(limit)
}

// attention reads the sizes of heads, and the query scale.
func (k *keyReader) attention(d *Decoder, layers int) {
	d.KVHeads = k.sizeOr("attention.head_count_kv", d.Heads)
	if k.err != nil {
		return
	}
	d.HeadDim = k.sizeOr("attention.key_length", d.Hidden/d.Heads)
	if v := k.sizeOr("attention.value_length", d.HeadDim); v != d.HeadDim {
		k.fail("attention.value_length", "value heads of %d beside key heads of %d are not supported", v, d.HeadDim)
	}
	if n := k.sizeOr("rope.dimension_count", d.HeadDim); n != d.HeadDim {
		k.fail("rope.dimension_count", "rope of %d of the %d elements of a head is not supported", n, d.HeadDim)
	}
	if d.HeadDim%2 != 0 {
		k.fail("attention.key_length", "heads of %d elements are not pairs", d.HeadDim)
	}
	if d.Heads%d.KVHeads != 0 {
		k.fail("attention.head_count_kv", "%d query heads are no multiple of %d key heads", d.Heads, d.KVHeads)
	}
	scale := 1 / math.Sqrt(float64(d.HeadDim))
	if layers == largeGemma[d.Architecture] {
		scale = 1 / math.Sqrt(float64(d.Hidden)/float64(d.Heads))
	}
	d.QueryScale = float32(k.float("attention.scale", scale))
	if !(d.Epsilon > 0 && d.Epsilon < 1) {
		k.fail("attention.layer_norm_rms_epsilon", "norm epsilon %g is not between 0 and 1", d.Epsilon)
	}
}

// layers decides kind and rope of each layer.
func (k *keyReader) layers(arch architecture, d *Decoder, n int) []Layer {
	base := k.float("rope.freq_base", 10000)
	baseSWA := base
	if arch.ropeSWA > 0 {
		baseSWA = k.float("rope.freq_base_swa", arch.ropeSWA)
	}
	if !(base > 0 && baseSWA > 0) {
		k.fail("rope.freq_base", "rope bases %g and %g must be positive", base, baseSWA)
	}
	full := Layer{Kind: kvpool.Full, RopeBase: base, RopeScale: 1, RopeGain: 1}
	k.ropeScaling(&full, arch, d)
	sliding := full
	if arch.ropeSWA > 0 { // a rope of their own, without scaling
		sliding = Layer{RopeBase: baseSWA, RopeScale: 1, RopeGain: 1}
	}
	sliding.Kind, sliding.Window = kvpool.Sliding, k.window(arch)
	full.ScoreCap = k.softCap("attn_logit_softcapping", arch, 50)
	sliding.ScoreCap = full.ScoreCap
	list := make([]Layer, n)
	for i, slides := range k.pattern(arch, n, sliding.Window > 0) {
		list[i] = full
		if slides {
			list[i] = sliding
		}
	}
	return list
}

// pattern says which layers slide: the file's key (a period, or a flag for each layer), else the architecture's period.
func (k *keyReader) pattern(arch architecture, n int, windowed bool) []bool {
	slides := make([]bool, n)
	if !windowed {
		return slides
	}
	key := "attention.sliding_window_pattern"
	if flags, ok := k.file.Bools(k.key(key)); ok {
		if len(flags) != n {
			k.fail(key, "%d flags for %d layers", len(flags), n)
			return slides
		}
		return flags
	}
	period := k.sizeOr(key, arch.fullEvery)
	for i := range slides {
		slides[i] = period == 0 || (i+1)%period != 0
	}
	return slides
}

// window is the width of sliding layers, 0 if none slides.
func (k *keyReader) window(arch architecture) int {
	const key = "attention.sliding_window"
	if n, ok := k.file.Uint(k.key(key)); !k.has(key) || arch.window && arch.fullEvery == 0 && ok && n == 0 {
		return 0 // where all layers slide or none, 0 is no window
	}
	if !arch.window {
		k.fail(key, "sliding layers of a %s model are not supported", k.name)
	}
	return k.size(key)
}

// forward reads the sizes of the feed-forward part. Where all layers have experts, the width of a dense part says
// nothing.
func (k *keyReader) forward(d *Decoder, arch architecture) {
	if d.Activation == ClampedSwiGLU {
		limit := k.float("swiglu_limit", 7)
		if !(limit > 0 && limit <= math.MaxFloat32) {
			k.fail("swiglu_limit", "a limit of %g is not supported", limit)
		}
		d.GateLimit = float32(limit)
	}
	if !arch.experts {
		d.FeedForward = k.size("feed_forward_length")
		if n, ok := k.file.Uint(k.key("expert_count")); k.has("expert_count") && (!ok || n != 0) {
			k.fail("expert_count", "experts of a %s model are not supported", k.name)
		}
		return
	}
	d.FeedForward = k.size("expert_feed_forward_length")
	d.Experts, d.ExpertsUsed = k.size("expert_count"), k.size("expert_used_count")
	if d.ExpertsUsed > d.Experts || d.Experts > MaxExperts {
		k.fail("expert_used_count", "%d of %d experts: want at most all of them, and at most %d", d.ExpertsUsed, d.Experts,
			MaxExperts)
	}
	if n, ok := k.file.Uint(k.key("expert_shared_count")); ok && n > 0 {
		k.fail("expert_shared_count", "experts that every token uses are not supported")
	}
}

// MaxExperts is more than any layer has.
const MaxExperts = 1 << 12
