package router

import (
	"encoding/json"
	"maps"
	"slices"
)

// own are what a request asks for in its member berth, which no other API has.
type own struct {
	// controlTokens: control tokens that messages name are control tokens, as in other servers; else they are text.
	controlTokens bool
}

// readOwn refuses what is not built, by name (R7).
func readOwn(f *fields) (o own) {
	raw, ok := f.get("berth")
	if !ok {
		return o
	}
	var members map[string]json.RawMessage
	if crowded(raw, maxMembers) || json.Unmarshal(raw, &members) != nil {
		f.fail(invalid("berth", "berth must be an object"))
		return o
	}
	inner := &fields{raw: members}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if name != "guaranteed" && name != "control_tokens_in_messages" {
			inner.fail(unsupported(name))
		}
	}
	o.controlTokens = inner.boolean("control_tokens_in_messages", false)
	if inner.boolean("guaranteed", false) {
		inner.fail(unsupported("guaranteed"))
	}
	if inner.fault != nil {
		e := asError(inner.fault)
		e.Param = "berth." + e.Param
		e.Message = "berth." + e.Message
		f.fail(e)
	}
	return o
}
