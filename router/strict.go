package router

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxMembers is how many members a body may have: a multiple of those that there are.
const maxMembers = 1024

// unread is a value of which only the syntax is checked.
type unread struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*unread) UnmarshalJSON([]byte) error { return nil }

// parseObject reads a body that must be one JSON object, as strictly as a model's input deserves: what encoding/json
// would mend in silence (invalid UTF-8, lone surrogates, a name given twice) is refused. The members are parts of data.
func parseObject(data []byte) (map[string]json.RawMessage, error) {
	if !jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true)) { // which is many times faster than what can say why
		return nil, whyInvalid(data)
	}
	members := map[string]json.RawMessage{}
	var fault error
	isObject := eachMember(bytes.TrimLeft(data, " \n\t\r"), func(literal, value []byte) bool {
		var name string
		if err := json.Unmarshal(literal, &name); err != nil {
			fault = badJSON(data, err)
		} else if _, twice := members[name]; twice {
			fault = invalid(name, "%s is given twice", name)
		} else if len(members) == maxMembers {
			fault = invalid("", "the body has more than %d members", maxMembers)
		} else {
			members[name] = value
		}
		return fault == nil
	})
	if !isObject {
		return nil, invalid("", "the body must be a JSON object")
	}
	return members, fault
}

// whyInvalid says what is wrong with a body.
func whyInvalid(data []byte) (fault error) {
	if !utf8.Valid(data) {
		return invalid("", "the body is not valid UTF-8")
	}
	if err := json.Unmarshal(data, new(unread)); err != nil {
		return badJSON(data, err)
	}
	scan(data, func(at, end int, member string, _ bool) {
		if fault == nil && loneSurrogate(data[at:end]) {
			fault = invalid(member, "a lone surrogate at byte %d of the body stands for no character", at)
		}
	})
	return cmp.Or(fault, error(invalid("", "the body is not JSON")))
}

func badJSON(data []byte, err error) error {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return invalid("", "the body must be a JSON object: %v", err)
	}
	at := int(min(syntax.Offset, int64(len(data))))
	return invalid(memberAt(data[:max(0, at-1)]), "the body is not JSON: %v, at byte %d", err, at)
}

// memberAt is the member of the outer object in which a body breaks off.
func memberAt(data []byte) (member string) {
	scan(data, func(_, _ int, in string, _ bool) { member = in })
	return member
}

// stringEnd is the end of the string literal that begins at from, in valid JSON.
func stringEnd(data []byte, from int) int {
	for at := from + 1; ; {
		quote := bytes.IndexByte(data[at:], '"')
		if quote < 0 {
			return len(data)
		}
		quote += at
		escapes := 0 // an odd number of backslashes before a quote escapes it
		for quote-escapes > at && data[quote-escapes-1] == '\\' {
			escapes++
		}
		if at = quote + 1; escapes%2 == 0 {
			return at
		}
	}
}

// loneSurrogate looks for \u escapes of surrogates that are not pairs, in a valid literal.
func loneSurrogate(s []byte) bool {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		if i++; s[i] != 'u' {
			continue
		}
		switch hi := unhex(s[i+1:]); {
		case hi >= 0xDC00 && hi < 0xE000:
			return true
		case hi >= 0xD800 && hi < 0xDC00:
			rest := s[i+5:]
			if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' || unhex(rest[2:])&^0x3FF != 0xDC00 {
				return true
			}
			i += 6
		}
		i += 4
	}
	return false
}

func unhex(s []byte) (v int) {
	for _, c := range s[:4] {
		switch {
		case c >= 'a':
			v = v<<4 | int(c-'a'+10)
		case c >= 'A':
			v = v<<4 | int(c-'A'+10)
		default:
			v = v<<4 | int(c-'0')
		}
	}
	return v
}

// scan shows every string literal of a body, with the member of the outer object that it is in or, if isName is set,
// names.
func scan(data []byte, show func(at, end int, member string, isName bool)) {
	depth, member, awaited := 0, "", false
	for at := 0; at < len(data); at++ {
		switch data[at] {
		case '{', '[':
			depth++
			awaited = depth == 1
		case '}', ']':
			depth--
		case ',':
			awaited = awaited || depth == 1
		case '"':
			end := stringEnd(data, at)
			isName := awaited && json.Unmarshal(data[at:end], &member) == nil
			show(at, end, member, isName)
			awaited = false
			at = end - 1
		}
	}
}
