package router

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	workerv1 "github.com/berthd/berth/api/worker/v1"
)

const (
	maxStops   = 16   // stop strings, as vLLM has it
	maxStop    = 1024 // bytes of one
	maxSalt    = 1024 // bytes of cache_salt, as vLLM has it
	maxStopIDs = 1024 // stop_token_ids
	maxBiases  = 4096 // entries of logit_bias
)

// params are what a request asks for besides its prompt.
type params struct {
	maxTokens    int // −1: as many as there is room for
	minTokens    int
	sampling     *workerv1.Sampling
	seeded       bool // by the client
	stops        []string
	stopIDs      []int32 // the client's
	ignoreEOS    bool
	includeStop  bool // the text ends after the stop string
	keepSpecial  bool // control tokens give their text
	stream       bool
	includeUsage bool
	usageSoFar   bool // every piece of a stream says what its choice has used
	namesAsIDs   bool // tokens of log-probabilities are called token_id:ID
	returnIDs    bool
	salt         string
	priority     int64
	truncation
	choices
}

// readParams reads all members that completions and chats share.
func readParams(f *fields, chat bool, vocab int) params {
	refuseUnbuilt(f, chat)
	readOwn(f)
	stream := f.boolean("stream", false)
	wanted := readChoices(f, chat, stream)
	least := int64(1)
	if wanted.onlyPrompt(chat) {
		least = 0
	}
	p := params{
		choices:     wanted,
		maxTokens:   int(f.integer("max_tokens", -1, least, math.MaxInt32)),
		minTokens:   int(f.integer("min_tokens", 0, 0, math.MaxInt32)),
		ignoreEOS:   f.boolean("ignore_eos", false),
		includeStop: f.boolean("include_stop_str_in_output", false),
		keepSpecial: !f.boolean("skip_special_tokens", true),
		stream:      stream,
		returnIDs:   f.boolean("return_token_ids", false),
		stops:       readStops(f),
		priority:    f.integer("priority", 0, math.MinInt32, math.MaxInt32),
		namesAsIDs:  f.boolean("return_tokens_as_token_ids", false),
		truncation:  readTruncation(f),
	}
	if p.salt, _ = f.text("cache_salt"); len(p.salt) > maxSalt {
		f.fail(invalid("cache_salt", "cache_salt must have at most %d bytes", maxSalt))
	}
	if v := f.integer("max_completion_tokens", -1, 1, math.MaxInt32); v > 0 {
		p.maxTokens = int(v)
	}
	if p.maxTokens >= 0 && p.minTokens > p.maxTokens {
		f.fail(invalid("min_tokens", "min_tokens %d must not be above max_tokens %d", p.minTokens, p.maxTokens))
	}
	p.includeUsage, p.usageSoFar = readStreamOptions(f, p.stream)
	p.sampling = readSampling(f, vocab)
	_, p.seeded = f.get("seed")
	if raw, ok := f.get("stop_token_ids"); ok {
		list, isList, many, err := ids(raw, "stop_token_ids", vocab, maxStopIDs)
		switch {
		case err != nil:
			f.fail(err)
		case !isList || many > 0:
			f.fail(invalid("stop_token_ids", "stop_token_ids must be a list of at most %d token ids", maxStopIDs))
		}
		p.stopIDs = list
	}
	return p
}

// leastPenalty keeps the penalty that logits are divided by from making them infinite; what is below it is as strong.
const leastPenalty = 0.01

// readSampling has OpenAI's ranges where OpenAI has the parameter, and vLLM's elsewhere.
func readSampling(f *fields, vocab int) *workerv1.Sampling {
	s := &workerv1.Sampling{
		Temperature:       f.number("temperature", 1, 0, 2, false),
		TopP:              f.number("top_p", 1, 0, 1, true),
		MinP:              f.number("min_p", 0, 0, 1, false),
		RepetitionPenalty: max(leastPenalty, f.number("repetition_penalty", 1, 0, 100, true)),
		PresencePenalty:   f.number("presence_penalty", 0, -2, 2, false),
		FrequencyPenalty:  f.number("frequency_penalty", 0, -2, 2, false),
		LogitBias:         readBias(f, vocab),
	}
	if k := f.integer("top_k", 0, -1, math.MaxInt64); k > 0 && k < int64(vocab) {
		s.TopK = int32(k)
	}
	if _, ok := f.get("seed"); ok {
		s.Seed = uint64(f.integer("seed", 0, math.MinInt64, math.MaxInt64))
	} else {
		s.Seed = rand.Uint64()
	}
	return s
}

func readBias(f *fields, vocab int) map[int32]float32 {
	raw, ok := f.get("logit_bias")
	if !ok {
		return nil
	}
	out := map[int32]float32{}
	n := 0
	isObject := eachMember(raw, func(literal, value []byte) bool {
		if n++; n > maxBiases {
			return false
		}
		id, v, err := oneBias(literal, value, vocab)
		if err != nil {
			f.fail(err)
			return false
		}
		out[id] = v
		return true
	})
	if !isObject || n > maxBiases {
		f.fail(invalid("logit_bias", "logit_bias must be an object of at most %d numbers by token id", maxBiases))
		return nil
	}
	return out
}

func oneBias(literal, value []byte, vocab int) (int32, float32, error) {
	var key string
	if len(literal) > maxDigits || json.Unmarshal(literal, &key) != nil {
		key = "a long name"
	}
	id, err := strconv.ParseInt(key, 10, 64)
	if err != nil || id < 0 || id >= int64(vocab) || strconv.FormatInt(id, 10) != key {
		return 0, 0, invalid("logit_bias", "logit_bias: %q is no id of the vocabulary, which has %d", key, vocab)
	}
	v, err := strconv.ParseFloat(string(value), 64)
	if err != nil || !(v >= -100 && v <= 100) {
		return 0, 0, invalid("logit_bias", "logit_bias: the value of id %d must be a number from -100 to 100", id)
	}
	return int32(id), float32(v), nil
}

func readStops(f *fields) []string {
	raw, ok := f.get("stop")
	if !ok {
		return nil
	}
	var one string
	var list []*string
	switch {
	case json.Unmarshal(raw, &one) == nil:
		list = []*string{&one}
	case crowded(raw, maxStops+1), json.Unmarshal(raw, &list) != nil, len(list) > maxStops:
		f.fail(invalid("stop", "stop must be a string or a list of at most %d strings", maxStops))
	}
	var out []string
	for _, s := range list {
		if s == nil || *s == "" {
			f.fail(invalid("stop", "stop must not have an empty string"))
			return nil
		}
		if len(*s) > maxStop {
			f.fail(invalid("stop", "a stop string must have at most %d bytes", maxStop))
			return nil
		}
		if !slices.Contains(out, *s) {
			out = append(out, *s)
		}
	}
	return out
}

func readStreamOptions(f *fields, stream bool) (includeUsage, soFar bool) {
	raw, ok := f.get("stream_options")
	if !ok {
		return false, false
	}
	var members map[string]json.RawMessage
	if crowded(raw, maxMembers) || json.Unmarshal(raw, &members) != nil {
		f.fail(invalid("stream_options", "stream_options must be an object"))
		return false, false
	}
	if !stream {
		f.fail(invalid("stream_options", "stream_options is only for requests with \"stream\": true"))
	}
	inner := fields{raw: members}
	includeUsage, soFar = inner.boolean("include_usage", false), inner.boolean("continuous_usage_stats", false)
	if inner.fault != nil {
		e := asError(inner.fault)
		f.fail(invalid("stream_options."+e.Param, "stream_options.%s", e.Message))
	}
	return includeUsage, includeUsage && soFar
}
