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

// unbuilt is a member that this version does not carry out.
type unbuilt struct {
	name    string
	neutral neutral
	chat    int // 0: both, 1: chats only, 2: completions only
}

const (
	bothKinds = iota
	chatsOnly
	completionsOnly
)

// unbuiltMembers are refused by name unless they are neutral (R7).
var unbuiltMembers = []unbuilt{
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
	{"prediction", never, chatsOnly},
	{"web_search_options", never, chatsOnly},
	{"chat_template", never, chatsOnly},
	{"continue_final_message", oneOf("false"), chatsOnly},
	{"prompt_embeds", never, completionsOnly},
	{"use_beam_search", oneOf("false"), bothKinds},
	{"structured_outputs", never, bothKinds},
	{"guided_json", never, bothKinds},
	{"guided_regex", never, bothKinds},
	{"guided_choice", never, bothKinds},
	{"guided_grammar", never, bothKinds},
	{"allowed_token_ids", never, bothKinds},
	{"bad_words", oneOf("[]"), bothKinds},
}

func refuseUnbuilt(f *fields, chat bool) {
	for _, u := range unbuiltMembers {
		if u.chat == chatsOnly && !chat || u.chat == completionsOnly && chat {
			continue
		}
		if raw, ok := f.get(u.name); ok && !u.neutral(raw) {
			f.fail(unsupported(u.name))
		}
	}
}
