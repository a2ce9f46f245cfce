package model

import (
	"encoding/json"
	"math"
	"reflect"
)

// maxHead bounds what a configuration, or a file's keys, can make factors of rope allocate.
const maxHead = 1 << 16

// ropeFields are the parameters of rope in config.json: rope_scaling, rope_parameters, or one of the latter's parts.
type ropeFields struct {
	Theta   *float64  `json:"rope_theta"`
	Kind    string    `json:"rope_type"`
	OldKind string    `json:"type"`
	Factor  float64   `json:"factor"`
	Low     float64   `json:"low_freq_factor"`
	High    float64   `json:"high_freq_factor"`
	Context float64   `json:"original_max_position_embeddings"`
	Fast    *float64  `json:"beta_fast"`
	Slow    *float64  `json:"beta_slow"`
	Whole   *bool     `json:"truncate"`
	Gain    *float64  `json:"attention_factor"`
	MScale  *float64  `json:"mscale"`
	Short   []float32 `json:"short_factor"`
	Long    []float32 `json:"long_factor"`
	Partial *float64  `json:"partial_rotary_factor"`

	Full    json.RawMessage `json:"full_attention"`
	Sliding json.RawMessage `json:"sliding_attention"`
}

// rope sets the bases and the scaling of full and sliding layers.
func (c *configReader) rope(kind checkpoint) {
	full, sliding := ropeFields{}, ropeFields{}
	c.ropeConflicts(kind)
	if c.get("rope_parameters", &full) {
		if full.Full != nil || full.Sliding != nil {
			parts := full
			full = ropeFields{}
			c.part(parts.Full, &full)
			c.part(parts.Sliding, &sliding)
		}
	} else {
		c.get("rope_scaling", &full)
	}
	var base, local float64
	if full.Theta == nil && c.get("rope_theta", &base) { // what stands inside is first, in transformers too
		full.Theta = &base
	}
	if sliding.Theta == nil && c.get("rope_local_base_freq", &local) {
		sliding.Theta = &local
	}
	if full.Theta == nil {
		full.Theta = &kind.ropeTheta
	}
	c.set("rope.freq_base", floatValue("config.json: rope_theta", *full.Theta))
	if sliding.Theta != nil {
		c.set("rope.freq_base_swa", floatValue("config.json: rope_local_base_freq", *sliding.Theta))
	}
	if k := sliding.kind(); k != "default" {
		c.fail("rope_parameters", "sliding layers with rope of type %.32q are not supported", k)
	}
	if full.Partial != nil && *full.Partial != 1 {
		c.fail("rope_parameters", "partial_rotary_factor %g is not supported", *full.Partial)
	}
	c.scaling(&full)
}

// ropeConflicts refuses what transformers resolves by its releases' own rules, and what only its full layers would get.
func (c *configReader) ropeConflicts(kind checkpoint) {
	var scaling, parameters map[string]any
	scaled, given := c.get("rope_scaling", &scaling), c.get("rope_parameters", &parameters)
	if scaled && given && !reflect.DeepEqual(scaling, parameters) {
		c.fail("rope_scaling", "differs from rope_parameters: leave one of them out")
	}
	if !scaled && !given && kind.arch == "gpt-oss" {
		c.fail("rope_scaling", "is absent, which means this class's own yarn: say it")
	}
	flat := scaling
	if given {
		flat = parameters
	}
	_, full := flat["full_attention"]
	_, local := flat["sliding_attention"]
	if kind.arch == "gemma3" && len(flat) > 0 && !full && !local {
		c.fail("rope_parameters", "scales full layers alone in this class: say it for full_attention and sliding_attention")
	}
}

func (c *configReader) part(raw json.RawMessage, into *ropeFields) {
	if raw == nil {
		return
	}
	if err := json.Unmarshal(raw, into); err != nil {
		c.fail("rope_parameters", "%v", err)
	}
}

func (r *ropeFields) kind() string {
	switch {
	case r.Kind != "":
		return r.Kind
	case r.OldKind != "":
		return r.OldKind
	}
	return "default"
}

// scaling sets what the type of scaling stands for.
func (c *configReader) scaling(r *ropeFields) {
	switch r.kind() {
	case "default":
	case "linear":
		c.set("rope.scaling.type", stringValue("config.json: rope_scaling", "linear"))
		c.set("rope.scaling.factor", floatValue("config.json: rope_scaling", r.Factor))
	case "llama3":
		c.ropeFactors(r)
	case "yarn":
		c.yarn(r)
	case "longrope", "su":
		c.longrope(r)
	default:
		c.fail("rope_scaling", "type %.32q is not supported", r.kind())
	}
}

// yarn sets GGUF's keys, and one of Berth's own for what GGUF has no key for.
func (c *configReader) yarn(r *ropeFields) {
	const from = "config.json: rope_scaling"
	if r.MScale != nil {
		c.fail("rope_scaling", "yarn with mscale is not supported")
	}
	c.set("rope.scaling.type", stringValue(from, "yarn"))
	c.set("rope.scaling.factor", floatValue(from, r.Factor))
	if r.Context > 0 {
		c.set("rope.scaling.original_context_length", integerValue(from, int64(r.Context)))
	}
	for key, x := range map[string]*float64{"yarn_beta_fast": r.Fast, "yarn_beta_slow": r.Slow} {
		if x != nil {
			c.set("rope.scaling."+key, floatValue(from, *x))
		}
	}
	if r.Whole != nil {
		c.set("rope.scaling.yarn_truncate", boolValue(from, *r.Whole))
	}
	if r.Gain != nil { // all of it; GGUF's is a factor on what yarn has by itself
		c.set("rope.scaling.attn_factor", doubleValue(from, *r.Gain/(1+0.1*math.Log(r.Factor))))
	}
}

// longrope sets GGUF's keys, and adds its tensors of factors.
func (c *configReader) longrope(r *ropeFields) {
	const from = "config.json: rope_scaling"
	if r.Context == 0 { // beside rope_scaling in older files
		c.get("original_max_position_embeddings", &r.Context)
	}
	if len(r.Short) == 0 || len(r.Long) == 0 || r.Context < 1 {
		c.fail("rope_scaling", "longrope with %d short and %d long factors and original_max_position_embeddings %g",
			len(r.Short), len(r.Long), r.Context)
		return
	}
	c.set("rope.scaling.original_context_length", integerValue(from, int64(r.Context)))
	if r.Gain != nil {
		c.set("rope.scaling.attn_factor", doubleValue(from, *r.Gain))
	}
	c.file.tensors = append(c.file.tensors, floatTensor(shortFactors, r.Short, len(r.Short)),
		floatTensor(longFactors, r.Long, len(r.Long)))
	c.order()
}

// ropeFactors adds the tensor that GGUF has for Llama 3's scaling: frequencies whose wavelength is long beside the
// context of the first training are divided by factor, short ones are left, and those between go over smoothly. They
// are formed in f64 and rounded once; converters that work in f32 throughout are off by a few units of the last place.
// Source: the function _compute_llama3_parameters of transformers.
func (c *configReader) ropeFactors(r *ropeFields) {
	var heads, hidden, dim int
	c.get("num_attention_heads", &heads)
	c.get("hidden_size", &hidden)
	if !c.get("head_dim", &dim) && heads > 0 {
		dim = hidden / heads
	}
	if !(r.Factor > 0 && r.Low > 0 && r.High > r.Low && r.Context > 0) {
		c.fail("rope_scaling", "llama3 with factor %g, low_freq_factor %g, high_freq_factor %g and "+
			"original_max_position_embeddings %g", r.Factor, r.Low, r.High, r.Context)
	}
	if dim < 2 || dim > maxHead {
		c.fail("head_dim", "is %d, want 2 to %d", dim, maxHead)
	}
	if c.err != nil {
		return
	}
	factors := make([]float32, dim/2)
	for i := range factors {
		wavelength := 2 * math.Pi * math.Pow(*r.Theta, float64(2*i)/float64(dim))
		switch {
		case wavelength < r.Context/r.High:
			factors[i] = 1
		case wavelength > r.Context/r.Low:
			factors[i] = float32(r.Factor)
		default:
			smooth := (r.Context/wavelength - r.Low) / (r.High - r.Low)
			factors[i] = float32(1 / ((1-smooth)/r.Factor + smooth))
		}
	}
	c.file.tensors = append(c.file.tensors, floatTensor("rope_freqs.weight", factors, len(factors)))
	c.order()
}
