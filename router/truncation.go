package router

import "encoding/json"

// truncation is how a prompt that is too long is cut, as vLLM has it.
type truncation struct {
	keep  int  // tokens; 0: the prompt is not cut; −1: as many as fit beside max_tokens
	right bool // the end is cut off, else the beginning
}

func readTruncation(f *fields) (t truncation) {
	t.keep = int(f.integer("truncate_prompt_tokens", 0, -1, maxTokenized))
	if raw, given := f.get("truncation_side"); given {
		var side string
		if json.Unmarshal(raw, &side) != nil || side != "left" && side != "right" {
			f.fail(invalid("truncation_side", `truncation_side must be "left" or "right"`))
		}
		t.right = side == "right"
	}
	return t
}

// cut is a prompt as it is after it, where limit tokens fit beside maxTokens.
func (t truncation) cut(p prompt, limit, maxTokens int) prompt {
	keep := t.keep
	if keep < 0 {
		keep = max(1, limit-max(1, maxTokens))
	}
	if keep == 0 || len(p.ids) <= keep {
		return p
	}
	if t.right {
		return prompt{ids: p.ids[:keep]}
	}
	return prompt{ids: p.ids[len(p.ids)-keep:]}
}
