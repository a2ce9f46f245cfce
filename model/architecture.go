package model

// Activation is the function on the gate of a feed-forward layer.
type Activation uint8

const (
	// GELUTanh is x/2 · (1 + tanh(√(2/π)(x + 0.044715x³))), Gemma's.
	GELUTanh Activation = iota
	// SiLU is x / (1 + e^−x), Llama's.
	SiLU
)

// architecture is what a general.architecture name stands for and a file's keys do not say. A decoder layer is always
//
//	x += postAttn( O·attention( rope(qNorm(Q·n + bQ)), rope(kNorm(K·n + bK)), V·n + bV ) )   where n = attnNorm(x)
//	x += postFFN( Down·( act(Gate·m) ⊙ Up·m ) )                                              where m = ffnNorm(x)
//
// with the parts that an architecture lacks left out. A new architecture of this shape is a line of data here.
//
// GGUF stores the norms of the Gemma family with 1 already added, so that no norm is "+1" here: weights are used as
// they stand in the file.
type architecture struct {
	activation  Activation
	qkNorm      bool    // q and k of each head are normalised before rope
	qkvBias     bool    // biases are added to q, k and v
	postNorm    bool    // the outputs of attention and feed-forward are normalised before they are added
	scaleEmbed  bool    // embeddings are multiplied by √hidden
	softCaps    bool    // attention scores and logits are softly capped
	window      bool    // layers may slide
	fullEvery   int     // every n-th of them is full, 0 for none, unless the file says otherwise
	ropeSWA     float64 // rope base of sliding layers where the file has none; 0: the base of full layers
	ropeFactors bool    // frequencies may be divided, each by its own factor (rope_freqs.weight)
	interleaved bool    // GGUF has the rows of q and k in the order of interleaved rope: see Tensor.deinterleave
}

// architectures are the names that Berth runs. Sources: Gemma 2, arXiv 2408.00118; Gemma 3, arXiv 2503.19786; Llama 3, arXiv 2407.21783; Mistral
// 7B (GGUF calls it llama), arXiv 2310.06825; Qwen 2, arXiv 2407.10671; Qwen 3, arXiv 2505.09388; and the classes
// Gemma2ForCausalLM, Gemma3ForCausalLM, LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM of transformers.
var architectures = map[string]architecture{
	"gemma2": {activation: GELUTanh, postNorm: true, scaleEmbed: true, softCaps: true, window: true, fullEvery: 2},
	"gemma3": {
		activation: GELUTanh, qkNorm: true, postNorm: true, scaleEmbed: true, window: true, fullEvery: 6, ropeSWA: 10000,
	},
	"llama": {activation: SiLU, window: true, ropeFactors: true, interleaved: true},
	"qwen2": {activation: SiLU, qkvBias: true},
	"qwen3": {activation: SiLU, qkNorm: true},
}
