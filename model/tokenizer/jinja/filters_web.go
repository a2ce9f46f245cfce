package jinja

import (
	"html"
	"strings"
)

// filterStripTags takes HTML's tags and comments away, and makes all white space single blanks.
func filterStripTags(r *run, v Value, _ []Value) (Value, error) {
	s, err := r.str(v)
	if err == nil {
		err = r.build(3 * len(s))
	}
	if err != nil {
		return nil, err
	}
	s = between(s, "<!--", "-->")
	s = between(s, "<", ">")
	return html.UnescapeString(strings.Join(strings.FieldsFunc(s, isSpace), " ")), r.step(len(s) >> 2)
}

// between is a text without what stands from one mark to the next other.
func between(s, from, to string) string {
	var b strings.Builder
	for {
		at := strings.Index(s, from)
		if at < 0 {
			break
		}
		end := strings.Index(s[at+len(from):], to)
		if end < 0 {
			break
		}
		b.WriteString(s[:at])
		s = s[at+len(from)+end+len(to):]
	}
	return b.String() + s
}

func filterXMLAttr(r *run, v Value, a []Value) (Value, error) {
	if u, is := v.(*undefined); is {
		return nil, u.fail()
	}
	d, ok := v.(*Dict)
	if !ok {
		return nil, typeError("'%s' object has no attribute 'items'", typeName(v))
	}
	p := &printer{r: r}
	for i, k := range d.keys {
		_, missing := d.vals[i].(*undefined)
		if missing || d.vals[i] == (None{}) {
			continue
		}
		name, ok := text(k)
		if !ok {
			return nil, typeError("expected string or bytes-like object, got '%s'", typeName(k))
		}
		if strings.ContainsAny(name, " \t\n\r\f\v/>=") {
			return nil, valueError("Invalid character in attribute name: %s", quote(name))
		}
		name, err := r.escaped(k)
		if err != nil {
			return nil, err
		}
		val, err := r.escaped(d.vals[i])
		if err != nil {
			return nil, err
		}
		if len(p.b) > 0 || a[0] == nil || truth(a[0]) {
			p.add(" ")
		}
		p.add(name + `="` + val + `"`)
	}
	out, err := p.done()
	return out, err
}

// filterURLEncode quotes a text for a URL, or makes a query of pairs.
func filterURLEncode(r *run, v Value, _ []Value) (Value, error) {
	_, isText := text(v)
	it, err := r.iterate(v)
	if isText || err != nil {
		return r.urlQuoted(v, "/", false)
	}
	if d, ok := v.(*Dict); ok {
		it = &viewer{of: &view{d, "items"}}
	}
	p := &printer{r: r}
	for {
		item, ok, err := it.next(r)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		pair, err := r.list(item)
		if err != nil {
			return nil, err
		}
		if len(pair) != 2 {
			return nil, valueError("expected pairs of a key and a value")
		}
		if len(p.b) > 0 {
			p.add("&")
		}
		for i, part := range pair {
			if i > 0 {
				p.add("=")
			}
			text, err := r.urlQuoted(part, "", true)
			if err != nil {
				return nil, err
			}
			p.add(text.(string))
		}
	}
	out, err := p.done()
	return out, err
}

func (r *run) urlQuoted(v Value, safe string, plus bool) (Value, error) {
	s, err := r.str(v)
	if err == nil {
		err = r.build(3 * len(s))
	}
	if err != nil {
		return nil, err
	}
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		c := s[i]
		switch {
		case isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("_.-~"+safe, c) >= 0:
			b = append(b, c)
		case c == ' ' && plus:
			b = append(b, '+')
		default:
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b), nil
}
