package router

import (
	"encoding/json"
	"errors"
	"regexp"
	"unicode/utf8"
)

// lastKey finds the member that text breaks off in.
var lastKey = regexp.MustCompile(`"([A-Za-z_]+)"\s*:[^:"]*$`)

// parseObject reads a body that must be one JSON object, as strictly as a model's input deserves: what encoding/json
// would mend in silence (invalid UTF-8, lone surrogates, a name given twice) is refused.
func parseObject(data []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(data) {
		return nil, invalid("", "the body is not valid UTF-8")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, badJSON(data, err)
	}
	if fields == nil {
		return nil, invalid("", "the body must be a JSON object")
	}
	for at := 0; at < len(data); at++ {
		if data[at] == '"' {
			end := stringEnd(data, at)
			if loneSurrogate(data[at:end]) {
				return nil, invalid(nearestKey(data[:at]), "the body has a lone surrogate at byte %d: it stands for no character", at)
			}
			at = end - 1
		}
	}
	if name := doubledName(data); name != "" {
		return nil, invalid(name, "%s is given twice", name)
	}
	return fields, nil
}

func badJSON(data []byte, err error) error {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return invalid("", "the body must be a JSON object: %v", err)
	}
	at := int(min(syntax.Offset, int64(len(data))))
	return invalid(nearestKey(data[:max(0, at-1)]), "the body is not JSON: %v, at byte %d", err, at)
}

func nearestKey(before []byte) string {
	if m := lastKey.FindSubmatch(before[max(0, len(before)-256):]); m != nil {
		return string(m[1])
	}
	return ""
}

// stringEnd is the end of the string literal that begins at from, in valid JSON.
func stringEnd(data []byte, from int) int {
	for i := from + 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
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

// doubledName is a name that the outer object has twice, or "".
func doubledName(data []byte) string {
	seen := map[string]bool{}
	depth, key := 0, false
	for at := 0; at < len(data); at++ {
		switch data[at] {
		case '{', '[':
			depth++
			key = depth == 1
		case '}', ']':
			depth--
		case ',':
			key = depth == 1
		case '"':
			end := stringEnd(data, at)
			var name string
			if key && json.Unmarshal(data[at:end], &name) == nil {
				if seen[name] {
					return name
				}
				seen[name] = true
				key = false
			}
			at = end - 1
		}
	}
	return ""
}
