package router

import (
	"bytes"
	"encoding/json"
)

// What follows reads valid JSON in place: nothing is allocated for what a limit refuses.

// eachElement walks the elements of a JSON array until show says no. False: raw is no array.
func eachElement(raw []byte, show func(element []byte) bool) bool {
	if len(raw) == 0 || raw[0] != '[' {
		return false
	}
	for at := space(raw, 1); raw[at] != ']'; {
		end := valueEnd(raw, at)
		if !show(raw[at:end]) {
			return true
		}
		if at = space(raw, end); raw[at] == ',' {
			at = space(raw, at+1)
		}
	}
	return true
}

// eachMember walks the members of a JSON object until show says no; name is a literal with its quotes. False: raw is no
// object.
func eachMember(raw []byte, show func(name, value []byte) bool) bool {
	if len(raw) == 0 || raw[0] != '{' {
		return false
	}
	for at := space(raw, 1); raw[at] != '}'; {
		end := stringEnd(raw, at)
		from := space(raw, space(raw, end)+1) // after the colon
		to := valueEnd(raw, from)
		if !show(raw[at:end], raw[from:to]) {
			return true
		}
		if at = space(raw, to); raw[at] == ',' {
			at = space(raw, at+1)
		}
	}
	return true
}

// eachString shows every string literal in valid JSON.
func eachString(raw []byte, show func(literal []byte)) {
	for at := 0; ; {
		quote := bytes.IndexByte(raw[at:], '"')
		if quote < 0 {
			return
		}
		at += quote
		end := stringEnd(raw, at)
		show(raw[at:end])
		at = end
	}
}

// space is the first place from at that is not white.
func space(raw []byte, at int) int {
	for raw[at] == ' ' || raw[at] == '\n' || raw[at] == '\t' || raw[at] == '\r' {
		at++
	}
	return at
}

// valueEnd is the end of the value that begins at from.
func valueEnd(raw []byte, from int) int {
	switch raw[from] {
	case '"':
		return stringEnd(raw, from)
	case '{', '[':
		depth := 0
		for at := from; at < len(raw); at++ {
			switch raw[at] {
			case '"':
				at = stringEnd(raw, at) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return at + 1
				}
			}
		}
		return len(raw)
	}
	for at := from; at < len(raw); at++ {
		switch raw[at] {
		case ',', ']', '}', ' ', '\n', '\t', '\r':
			return at
		}
	}
	return len(raw)
}

// crowded says whether a value is made of more than limit others, however they are nested.
func crowded(raw []byte, limit int) bool {
	n := 0
	for at := 0; at < len(raw) && n <= limit; at++ {
		switch raw[at] {
		case '"':
			at = stringEnd(raw, at) - 1
		case '{', '[', ',':
			n++
		}
	}
	return n > limit
}

// small is a whole number of at most nine digits, the form that nearly every id has.
func small(raw []byte) (v int64, ok bool) {
	if len(raw) == 0 || len(raw) > 9 {
		return 0, false
	}
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	return v, true
}

// ids are token ids of a vocabulary. isList: raw is a list of whole numbers, as far as it was read; of more than limit
// none are returned, and many is how many there are.
func ids(raw json.RawMessage, param string, vocab, limit int) (out []int32, isList bool, many int, err error) {
	if len(raw) == 0 || raw[0] != '[' {
		return nil, false, 0, nil
	}
	count := bytes.Count(raw, []byte{','}) + 1 // exact if it is what it should be
	out = make([]int32, 0, min(count, limit))
	isList = true
	eachElement(raw, func(element []byte) bool {
		if len(out) == limit {
			many = count
			return false
		}
		v, ok := small(element)
		if !ok {
			v, ok = whole(json.RawMessage(element))
		}
		switch {
		case !ok:
			isList = false
		case v < 0 || v >= int64(vocab):
			err = invalid(param, "%s: id %d is outside the vocabulary, which has %d", param, v, vocab)
		default:
			out = append(out, int32(v))
		}
		return isList && err == nil
	})
	if !isList || err != nil || many > 0 {
		out = nil
	}
	return out, isList, many, err
}
