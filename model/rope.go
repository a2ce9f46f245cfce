package model

import "math"

// ropeScaling reads how positions beyond those of the first training are reached.
func (k *keyReader) ropeScaling(l *Layer, arch architecture, d *Decoder) {
	if _, has := k.file.Tensor(shortFactors); has && arch.longrope {
		k.longrope(l, d)
		return
	}
	kind, ok := k.file.String(k.key("rope.scaling.type"))
	if !ok || kind == "none" {
		return
	}
	factor := k.float("rope.scaling.factor", 0)
	switch {
	case kind == "linear" && factor > 0:
		l.RopeScale = 1 / factor
	case kind == "yarn" && factor >= 1:
		k.yarn(l, d, factor)
	default:
		k.fail("rope.scaling.type", "rope scaling %.32q with factor %g is not supported", kind, factor)
	}
}

// yarn divides frequencies that turn few times in the first training's context by factor, leaves those that turn often,
// and goes over linearly between. Source: YaRN, arXiv 2309.00071, as the function _compute_yarn_parameters of
// transformers has it. GGUF's attn_factor multiplies the gain.
func (k *keyReader) yarn(l *Layer, d *Decoder, factor float64) {
	context := float64(k.sizeOr("rope.scaling.original_context_length", d.Context))
	fast, slow := k.float("rope.scaling.yarn_beta_fast", 32), k.float("rope.scaling.yarn_beta_slow", 1)
	if !(fast > 0 && slow > 0 && l.RopeBase > 1) {
		k.fail("rope.scaling.yarn_beta_fast", "yarn from %g to %g turns, with rope base %g", slow, fast, l.RopeBase)
	}
	if d.HeadDim > maxHead {
		k.fail("attention.key_length", "yarn of heads of %d elements", d.HeadDim)
	}
	if k.err != nil {
		return
	}
	// pair is the one that turns so many times, as a real number.
	pair := func(turns float64) float64 {
		return float64(d.HeadDim) * math.Log(context/(turns*2*math.Pi)) / (2 * math.Log(l.RopeBase))
	}
	lo, hi := pair(fast), pair(slow)
	if whole, ok := k.file.Bool(k.key("rope.scaling.yarn_truncate")); whole || !ok {
		lo, hi = math.Floor(lo), math.Ceil(hi)
	}
	lo, hi = max(lo, 0), min(hi, float64(d.HeadDim-1))
	if lo == hi {
		hi += 0.001
	}
	l.RopeFactors = make([]float32, d.HeadDim/2)
	for i := range l.RopeFactors {
		divided := min(max((float64(i)-lo)/(hi-lo), 0), 1)
		l.RopeFactors[i] = float32(1 / (divided/factor + 1 - divided))
	}
	l.RopeGain = (1 + 0.1*math.Log(factor)) * k.gain()
}

// The tensors of longrope's factors.
const (
	shortFactors = "rope_factors_short.weight"
	longFactors  = "rope_factors_long.weight"
)

// longrope has one list of factors for contexts up to the first training's, and one for longer ones: which of them
// holds is decided for a whole sequence, and keys of one are no keys of the other. Berth keeps to the first, and so to
// contexts of that length. Source: LongRoPE, arXiv 2402.13753; _compute_longrope_parameters of transformers.
func (k *keyReader) longrope(l *Layer, d *Decoder) {
	l.RopeGain = k.gain()
	if first := k.sizeOr("rope.scaling.original_context_length", d.Context); first < d.Context {
		if !k.has("rope.scaling.attn_factor") {
			l.RopeGain = math.Sqrt(1 + math.Log(float64(d.Context)/float64(first))/math.Log(float64(first)))
		}
		d.Context = first
	}
}

// gain is a factor on turned pairs that the file gives.
func (k *keyReader) gain() float64 {
	g := k.float("rope.scaling.attn_factor", 1)
	if !(g > 0 && g <= math.MaxFloat32) {
		k.fail("rope.scaling.attn_factor", "a factor of %g is not supported", g)
	}
	return g
}
