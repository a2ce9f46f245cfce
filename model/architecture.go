package model

// Activation is the function on the gate of a feed-forward layer.
type Activation uint8

const (
	// GELUTanh is x/2 · (1 + tanh(√(2/π)(x + 0.044715x³))), Gemma's.
	GELUTanh Activation = iota
	// SiLU is x / (1 + e^−x), Llama's.
	SiLU
	// ClampedSwiGLU bounds gate and up by Decoder.GateLimit, and is g / (1 + e^−αg) · (u + 1), α = GateAlpha: gpt-oss's.
	ClampedSwiGLU
)

// GateAlpha is ClampedSwiGLU's factor in the exponent.
const GateAlpha = 1.702

// architecture is what a general.architecture name stands for and a file's keys do not say. A decoder layer is always
//
//	x += postAttn( O·attention( rope(qNorm(Q·n + bQ)), rope(kNorm(K·n + bK)), V·n + bV ) + bO )   where n = attnNorm(x)
//	x += postFFN( Σ_e w_e · ( Down_e·act(Gate_e·m + bG_e, Up_e·m + bU_e) + bD_e ) )                where m = ffnNorm(x)
//
// with the parts that an architecture lacks left out. A dense feed-forward part is one expert with w = 1. Of several, the
// ones with the highest logits Router·m + bR are taken, and w is the softmax of those logits alone. A new architecture of
// this shape is a line of data here.
//
// GGUF stores the norms of the Gemma family with 1 already added, so that no norm is "+1" here: weights are used as
// they stand in the file.
type architecture struct {
	activation  Activation
	qkNorm      bool    // q and k of each head are normalised before rope
	qkvBias     bool    // biases are added to q, k and v
	biases      bool    // and to the outputs of attention, router and experts
	sinks       bool    // each head has a score that no position has: weight that goes nowhere
	experts     bool    // feed-forward parts are experts behind a router
	fused       bool    // GGUF has q, k and v in one matrix, and gate and up in another
	ffnNorm     string  // GGUF's name of the norm before the feed-forward part, where it is not ffn_norm
	postNorm    bool    // the outputs of attention and feed-forward are normalised before they are added
	scaleEmbed  bool    // embeddings are multiplied by √hidden
	softCaps    bool    // attention scores and logits are softly capped
	window      bool    // layers may slide
	fullEvery   int     // every n-th of them is full, 0 for none, unless the file says otherwise
	ropeSWA     float64 // rope base of sliding layers where the file has none; 0: the base of full layers
	ropeFactors bool    // frequencies may be divided, each by its own factor (rope_freqs.weight)
	longrope    bool    // rope may have factors for short and for long contexts
	interleaved bool    // GGUF has the rows of q and k in the order of interleaved rope: see Tensor.deinterleave
}

// architectures are the names that Berth runs. Sources: Gemma 2, arXiv 2408.00118; Gemma 3, arXiv 2503.19786; gpt-oss,
// arXiv 2508.10925; Llama 3, arXiv 2407.21783; Mistral 7B (GGUF calls it llama), arXiv 2310.06825; Phi 3, arXiv
// 2404.14219; Qwen 2, arXiv 2407.10671; Qwen 3, arXiv 2505.09388; and the classes of transformers in checkpoints.
var architectures = map[string]architecture{
	"gemma2": {activation: GELUTanh, postNorm: true, scaleEmbed: true, softCaps: true, window: true, fullEvery: 2},
	"gemma3": {
		activation: GELUTanh, qkNorm: true, postNorm: true, scaleEmbed: true, window: true, fullEvery: 6, ropeSWA: 10000,
	},
	"gpt-oss": {
		activation: ClampedSwiGLU, qkvBias: true, biases: true, sinks: true, experts: true, ffnNorm: "post_attention_norm",
		window: true, fullEvery: 2,
	},
	"llama":    {activation: SiLU, window: true, ropeFactors: true, interleaved: true},
	"phi3":     {activation: SiLU, fused: true, window: true, longrope: true},
	"qwen2":    {activation: SiLU, qkvBias: true},
	"qwen3":    {activation: SiLU, qkNorm: true},
	"qwen3moe": {activation: SiLU, qkNorm: true, experts: true},
}
