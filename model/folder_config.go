package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// checkpoint is how a class of transformers names and stores what an architecture describes.
type checkpoint struct {
	arch        string // key of architectures
	activation  string
	ropeTheta   float64 // where the configuration has none
	normPlusOne bool    // norms are stored as their distance from 1
	sandwich    bool    // GGUF too calls post_attention_layernorm by its place, not as the norm before feed-forward
	window      bool    // sliding_window counts; the classes without it have one only with use_sliding_window
	biases      bool    // attention_bias is true; else false
	queryScalar float64 // query_pre_attn_scalar where the configuration has none; 0: the class does not know it
	period      int64   // every how many layers one is full, where the class reads sliding_window_pattern; 0: it does not
}

// checkpoints are the classes that Berth reads, by config.json's architectures.
var checkpoints = map[string]checkpoint{
	"LlamaForCausalLM":    {arch: "llama", activation: "silu", ropeTheta: 1e4},
	"MistralForCausalLM":  {arch: "llama", activation: "silu", ropeTheta: 1e4, window: true},
	"GptOssForCausalLM":   {arch: "gpt-oss", activation: "silu", ropeTheta: 150000, sandwich: true, window: true, biases: true},
	"Phi3ForCausalLM":     {arch: "phi3", activation: "silu", ropeTheta: 1e4, window: true},
	"Qwen3MoeForCausalLM": {arch: "qwen3moe", activation: "silu", ropeTheta: 1e4},
	"Qwen2ForCausalLM":    {arch: "qwen2", activation: "silu", ropeTheta: 1e4},
	"Qwen3ForCausalLM":    {arch: "qwen3", activation: "silu", ropeTheta: 1e4},
	"Gemma2ForCausalLM": {arch: "gemma2", activation: "gelu_pytorch_tanh", ropeTheta: 1e4, normPlusOne: true,
		sandwich: true, window: true, queryScalar: 256},
	"Gemma3ForCausalLM": {arch: "gemma3", activation: "gelu_pytorch_tanh", ropeTheta: 1e6, normPlusOne: true,
		sandwich: true, window: true, queryScalar: 256, period: 6},
}

// sizes are the configuration's integers and the keys that they become.
var sizes = []struct {
	field, key string
	required   bool
}{
	{"hidden_size", "embedding_length", true},
	{"intermediate_size", "feed_forward_length", true},
	{"moe_intermediate_size", "expert_feed_forward_length", false},
	{"num_experts", "expert_count", false},
	{"num_local_experts", "expert_count", false}, // transformers 5 and gpt-oss
	{"num_experts_per_tok", "expert_used_count", false},
	{"num_hidden_layers", "block_count", true},
	{"num_attention_heads", "attention.head_count", true},
	{"num_key_value_heads", "attention.head_count_kv", false},
	{"head_dim", "attention.key_length", false},
	{"max_position_embeddings", "context_length", true},
}

// undescribed are fields that change the model in ways that no architecture here describes, unless they are absent,
// null or this.
var undescribed = map[string]string{
	"mlp_bias": "false", "use_bidirectional_attention": "false",
	"use_sliding_window":    "false",
	"partial_rotary_factor": "1.0", "quantization_config": "null",
	"decoder_sparse_step": "1", "mlp_only_layers": "[]", "norm_topk_prob": "true",
	"swiglu_alpha": "1.702",
}

// configReader turns the fields of config.json into keys. Both styles are read: that of released checkpoints
// (rope_theta, rope_scaling, sliding_window_pattern), and that of transformers 5 (rope_parameters, layer_types).
type configReader struct {
	*folder
	fields map[string]json.RawMessage
	prefix string
}

func (c *configReader) fail(field, format string, args ...any) {
	c.folder.fail("config.json", "%s: %s", field, fmt.Sprintf(format, args...))
}

// get reads a field; false if it is absent or null.
func (c *configReader) get(field string, into any) bool {
	raw, ok := c.fields[field]
	if !ok || string(raw) == "null" {
		return false
	}
	if err := json.Unmarshal(raw, into); err != nil {
		c.fail(field, "%v", err)
		return false
	}
	return c.err == nil
}

func (c *configReader) set(key string, v value) { c.file.keys[c.prefix+key] = v }

// checkpoint finds the class of the folder's model.
func (c *configReader) checkpoint() checkpoint {
	var classes []string
	if !c.get("architectures", &classes) || len(classes) == 0 {
		c.fail("architectures", "is absent")
		return checkpoint{}
	}
	kind, ok := checkpoints[classes[0]]
	if !ok {
		c.fail("architectures", "%.64q is not supported", classes[0])
	}
	c.prefix = kind.arch + "."
	return kind
}

// translate sets every key that the architecture's reader asks for.
func (c *configReader) translate(kind checkpoint) {
	c.file.keys["general.architecture"] = stringValue("config.json: architectures", kind.arch)
	for field, plain := range undescribed {
		c.only(field, plain)
	}
	c.only("attention_bias", fmt.Sprint(kind.biases))
	for _, s := range sizes {
		var n int64
		if c.get(s.field, &n) {
			c.set(s.key, integerValue("config.json: "+s.field, n))
		} else if s.required {
			c.fail(s.field, "is absent")
		}
	}
	var x float64
	if c.get("rms_norm_eps", &x) {
		c.set("attention.layer_norm_rms_epsilon", floatValue("config.json: rms_norm_eps", x))
	}
	if c.get("swiglu_limit", &x) {
		c.set("swiglu_limit", floatValue("config.json: swiglu_limit", x))
	}
	c.experts(kind)
	if x = kind.queryScalar; x > 0 { // other classes do not know the field
		c.get("query_pre_attn_scalar", &x)
		if !(x > 0) {
			c.fail("query_pre_attn_scalar", "is %g, want more than 0", x)
		}
		c.set("attention.scale", doubleValue("config.json: query_pre_attn_scalar", 1/math.Sqrt(x)))
	}
	for _, limit := range []string{"attn_logit_softcapping", "final_logit_softcapping"} {
		if kind.queryScalar == 0 {
			break
		}
		if c.get(limit, &x) {
			if !(x > 0) { // transformers divides by it; null is none
				c.fail(limit, "is %g, want more than 0, or null for none", x)
			}
			c.set(limit, floatValue("config.json: "+limit, x))
		} else if _, has := c.fields[limit]; has {
			c.set(limit, floatValue("config.json: "+limit, 0)) // null: none, not the default of files
		}
	}
	c.activation(kind)
	c.rope(kind)
	c.windows(kind)
	tied := false
	if !c.get("tie_word_embeddings", &tied) {
		_, has := c.file.Tensor("output.weight")
		tied = !has
	}
	c.untie(tied)
}

// only refuses a field that says anything but plain.
func (c *configReader) only(field, plain string) {
	raw, has := c.fields[field]
	same := !has || string(raw) == "null" || string(raw) == plain || plain == "1.0" && string(raw) == "1"
	if !same {
		c.fail(field, "%.32s is not supported", bytes.TrimSpace(raw))
	}
}

// experts sets what the configuration says in other ways than GGUF.
func (c *configReader) experts(kind checkpoint) {
	if !architectures[kind.arch].experts {
		return
	}
	if _, has := c.fields["norm_topk_prob"]; !has && kind.arch == "qwen3moe" {
		c.fail("norm_topk_prob", "is absent, which is false: only true is supported")
	}
	width := c.prefix + "expert_feed_forward_length"
	if _, has := c.file.keys[width]; !has {
		c.file.keys[width] = c.file.keys[c.prefix+"feed_forward_length"]
	}
}

// activation checks the field of either name: Gemma's older configurations have a hidden_act that nothing reads.
func (c *configReader) activation(kind checkpoint) {
	name := ""
	if !c.get("hidden_activation", &name) {
		c.get("hidden_act", &name)
	}
	if name != kind.activation {
		c.fail("hidden_act", "%.32q is not supported with this class, only %q is", name, kind.activation)
	}
}

// windows sets the width of sliding layers and which layers those are.
func (c *configReader) windows(kind checkpoint) {
	var kinds []string
	sliding := make([]bool, 0)
	if c.get("layer_types", &kinds) {
		for _, k := range kinds {
			if k != "full_attention" && (k != "sliding_attention" || !kind.window) {
				c.fail("layer_types", "%.32q is not supported", k)
			}
			sliding = append(sliding, k == "sliding_attention")
		}
	}
	var window int64
	if _, has := c.fields["sliding_window"]; kind.window && !has {
		c.fail("sliding_window", "is absent") // transformers has a default, which differs between its releases
	}
	if !kind.window || !c.get("sliding_window", &window) {
		return
	}
	if window < 1 {
		c.fail("sliding_window", "is %d, want 1 or more, or null for none", window)
	}
	if kind.arch == "phi3" && slices.Contains(sliding, false) {
		c.fail("layer_types", "this class has a window in all layers or in none")
	}
	c.patterns(kind, len(sliding) > 0)
	c.set("attention.sliding_window", integerValue("config.json: sliding_window", window))
	var period int64
	if len(sliding) > 0 {
		v := boolValue("config.json: layer_types", sliding...)
		v.array = true
		c.set("attention.sliding_window_pattern", v)
	} else if kind.period > 0 && c.get("sliding_window_pattern", &period) {
		c.set("attention.sliding_window_pattern", integerValue("config.json: sliding_window_pattern", period))
	}
}

// patterns refuses periods of sliding layers that a class reads otherwise than they say; where it has layer_types, or does
// not know the field, they mean nothing.
func (c *configReader) patterns(kind checkpoint, typed bool) {
	usual := map[string]int64{"gemma2": 2, "gemma3": 6}[kind.arch]
	for _, field := range []string{"_sliding_window_pattern", "sliding_window_pattern"} {
		var period int64
		known := field == "sliding_window_pattern" && kind.period > 0
		if usual > 0 && !typed && !known && c.get(field, &period) && period != usual {
			c.fail(field, "%d is not read by this class: say layer_types", period)
		}
	}
}
