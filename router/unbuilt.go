package router

import (
	"bytes"
	"encoding/json"
	"slices"
)

// neutral says whether a value asks for nothing.
type neutral func(json.RawMessage) bool

func oneOf(values ...string) neutral {
	return func(raw json.RawMessage) bool {
		var compact bytes.Buffer
		return json.Compact(&compact, raw) == nil && slices.Contains(values, compact.String())
	}
}

// never is for members that ask for something whatever they say.
func never(json.RawMessage) bool { return false }

// Which requests a member is of.
const (
	bothKinds = iota
	chatsOnly
	completionsOnly
)

// unbuilt is a member that this version does not carry out.
type unbuilt struct {
	name    string
	neutral neutral
	of      int
}

// unbuiltMembers are refused by name unless they are neutral (R7). They are those of OpenAI's reference, vLLM, SGLang and
// llama.cpp that change an answer; testdata/members.txt has all.
var unbuiltMembers = slices.Concat([]unbuilt{
	// OpenAI
	{"best_of", oneOf("0", "1"), chatsOnly},
	{"top_logprobs", oneOf("0"), completionsOnly},
	{"echo", oneOf("false"), chatsOnly},
	{"suffix", oneOf(`""`), completionsOnly},
	{"tools", oneOf("[]"), bothKinds},
	{"tool_choice", oneOf(`"none"`, `"auto"`), bothKinds},
	{"functions", oneOf("[]"), bothKinds},
	{"function_call", oneOf(`"none"`, `"auto"`), bothKinds},
	{"response_format", oneOf(`{"type":"text"}`), bothKinds},
	{"audio", never, bothKinds},
	{"modalities", oneOf(`["text"]`), bothKinds},
	{"prediction", never, bothKinds},
	{"web_search_options", never, bothKinds},
	{"reasoning_effort", never, bothKinds},
	{"verbosity", oneOf(`"medium"`), bothKinds},
	// vLLM
	{"chat_template", never, chatsOnly},
	{"documents", oneOf("[]"), bothKinds},
	{"prompt_embeds", never, bothKinds},
	{"use_beam_search", oneOf("false"), bothKinds},
	{"length_penalty", oneOf("1", "1.0"), bothKinds},
	{"structured_outputs", never, bothKinds},
	{"include_reasoning", oneOf("true"), bothKinds},
	{"spaces_between_special_tokens", oneOf("true"), bothKinds},
	{"repetition_detection", never, bothKinds},
	{"thinking_token_budget", oneOf("-1"), bothKinds},
	{"watermarking", oneOf("false"), bothKinds},
	{"return_prompt_text", oneOf("false"), bothKinds},
	{"mm_processor_kwargs", oneOf("{}"), bothKinds},
	{"media_io_kwargs", oneOf("{}"), bothKinds},
	{"allowed_token_ids", never, bothKinds},
	{"bad_words", oneOf("[]"), bothKinds},
	{"logprob_token_ids", never, bothKinds},
	// SGLang
	{"stop_regex", never, bothKinds},
	{"no_stop_trim", oneOf("false"), bothKinds},
	{"lora_path", never, bothKinds},
	{"session_params", never, bothKinds},
	{"separate_reasoning", oneOf("true"), bothKinds},
	{"return_hidden_states", oneOf("false"), bothKinds},
	{"return_routed_experts", oneOf("false"), bothKinds},
	{"input_ids", never, chatsOnly},
}, refusedAlways(
	"guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding_backend", "guided_whitespace_pattern",
	"logits_processors", "kv_transfer_params", "ec_transfer_params", "vllm_xargs", // vLLM, of all versions
	"regex", "ebnf", "custom_logit_processor", "custom_params", "extra_key", // SGLang
	"json_schema", "grammar", "samplers", "n_predict", "typical_p", "mirostat", "mirostat_tau", "mirostat_eta",
	"dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "xtc_probability",
	"xtc_threshold", "dynatemp_range", "dynatemp_exponent", "top_n_sigma", "repeat_penalty", "repeat_last_n", "n_keep",
	"n_indent", "t_max_predict_ms", "n_probs", "min_keep", "lora", "id_slot", "grammar_lazy", "input_prefix",
	"input_suffix", "input_extra", "reasoning_format", // llama.cpp
))

func refusedAlways(names ...string) (out []unbuilt) {
	for _, name := range names {
		out = append(out, unbuilt{name, never, bothKinds})
	}
	return out
}

// harmlessMembers are known and change no answer here, whatever they say.
var harmlessMembers = []string{
	"user", "safety_identifier", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention", // of OpenAI's accounts
	"parallel_tool_calls",             // without tools there is nothing to call
	"request_id", "rid", "session_id", // the header X-Request-Id names a request
	"stream_interval", "stream_reasoning", // how pieces are grouped
	"return_mm_kwargs", "return_token_offsets", "routed_experts_prompt_start", // of other endpoints
	"bootstrap_host", "bootstrap_port", "bootstrap_room", "data_parallel_rank", // of routers in front
	"cache_prompt", "timings_per_token", "return_progress", "response_fields", "return_tokens", "post_sampling_probs",
	"parse_tool_calls", "return_cached_tokens_details",
}

func refuseUnbuilt(f *fields, chat bool) {
	for _, u := range unbuiltMembers {
		if u.of == chatsOnly && !chat || u.of == completionsOnly && chat {
			continue
		}
		if raw, ok := f.get(u.name); ok && !u.neutral(raw) {
			f.fail(unsupported(u.name))
		}
	}
}
