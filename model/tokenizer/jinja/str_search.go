package jinja

import (
	"strings"
	"unicode/utf8"
)

// window is the part of a text between two places; from is the first as a character's place, ok is false if it lies
// beyond the text.
func (r *run) window(self Value, start, end Value) (s string, from int, ok bool, err error) {
	s, _ = text(self)
	if err := r.step(len(s) >> 4); err != nil {
		return "", 0, false, err
	}
	if start == nil && end == nil {
		return s, 0, true, nil
	}
	chars := utf8.RuneCountInString(s)
	lo, n, _, err := places3([3]Value{start, end, nil}, chars)
	if err != nil {
		return "", 0, false, err
	}
	ok = true
	if start != nil && start != (None{}) {
		if first, _ := index(start); first > chars {
			ok = false
		}
	}
	at := offset(s, chars, lo)
	return s[at : at+offset(s[at:], chars-lo, n)], lo, ok, nil
}

// search finds a part of a text; −1 if it is not there.
func (r *run) search(self Value, a []Value, find func(s, part string) int) (int, error) {
	part, err := wantText(a[0], "")
	if err != nil {
		return 0, err
	}
	s, from, ok, err := r.window(self, a[1], a[2])
	if err != nil || !ok {
		return -1, err
	}
	at := find(s, part)
	if at < 0 {
		return -1, nil
	}
	return from + utf8.RuneCountInString(s[:at]), nil
}

func strFind(r *run, self Value, a []Value) (Value, error) {
	n, err := r.search(self, a, strings.Index)
	return int64(n), err
}

func strRfind(r *run, self Value, a []Value) (Value, error) {
	n, err := r.search(self, a, strings.LastIndex)
	return int64(n), err
}

func strIndex(r *run, self Value, a []Value) (Value, error) {
	n, err := r.search(self, a, strings.Index)
	if err == nil && n < 0 {
		err = valueError("substring not found")
	}
	return int64(n), err
}

func strRindex(r *run, self Value, a []Value) (Value, error) {
	n, err := r.search(self, a, strings.LastIndex)
	if err == nil && n < 0 {
		err = valueError("substring not found")
	}
	return int64(n), err
}

func strCount(r *run, self Value, a []Value) (Value, error) {
	part, err := wantText(a[0], "")
	if err != nil {
		return nil, err
	}
	s, _, ok, err := r.window(self, a[1], a[2])
	if err != nil || !ok {
		return int64(0), err
	}
	return int64(strings.Count(s, part)), nil
}

func strStartsWith(r *run, self Value, a []Value) (Value, error) {
	return r.affix(self, a, strings.HasPrefix)
}

func strEndsWith(r *run, self Value, a []Value) (Value, error) {
	return r.affix(self, a, strings.HasSuffix)
}

func (r *run) affix(self Value, a []Value, has func(s, part string) bool) (Value, error) {
	s, _, ok, err := r.window(self, a[1], a[2])
	if err != nil {
		return nil, err
	}
	parts := []Value{a[0]}
	if t, is := a[0].(*Tuple); is {
		parts = t.items
	}
	for _, p := range parts {
		part, isText := text(p)
		if u, is := p.(*undefined); is {
			return nil, u.notAffix()
		}
		if !isText {
			return nil, typeError("first arg must be str or a tuple of str, not %s", typeName(p))
		}
		if err := r.step(1); err != nil {
			return nil, err
		}
		if ok && has(s, part) {
			return true, nil
		}
	}
	return false, nil
}

func (u *undefined) notAffix() error {
	return typeError("first arg must be str or a tuple of str, not Undefined")
}

// splitting are the arguments of split and rsplit; blank says that they split at white space.
func splitting(a []Value) (sep string, blank bool, most int, err error) {
	most = -1
	if a[1] != nil {
		if most, err = index(a[1]); err != nil {
			return "", false, 0, err
		}
	}
	if a[0] == nil || a[0] == (None{}) {
		return "", true, most, nil
	}
	if sep, err = wantText(a[0], ""); err == nil && sep == "" {
		err = valueError("empty separator")
	}
	return sep, false, most, err
}

// texts is a list of texts, which were paid for, escaped if the one that they come from is.
func (r *run) texts(self Value, parts []string) (Value, error) {
	items := make([]Value, len(parts))
	for i, p := range parts {
		items[i] = like(self, p)
	}
	return &List{items}, nil
}

// runs counts the characters of a text that are such, and come after one that is not.
func runs(s string, is func(rune) bool) int {
	n, inside := 0, false
	for _, c := range s {
		now := is(c)
		if now && !inside {
			n++
		}
		inside = now
	}
	return n
}

// pieces pays for the parts into which a text will be cut, before it is.
func (r *run) pieces(s, sep string) error {
	var n int
	if sep == "" {
		n = runs(s, isSpace) + 1
	} else {
		n = strings.Count(s, sep) + 1
	}
	if err := r.step(len(s) >> 3); err != nil {
		return err
	}
	return r.elements(2 * n)
}

func strSplit(r *run, self Value, a []Value) (Value, error) {
	sep, blank, most, err := splitting(a)
	s, _ := text(self)
	if err == nil {
		err = r.pieces(s, sep)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case !blank && most < 0:
		return r.texts(self, strings.Split(s, sep))
	case !blank:
		return r.texts(self, strings.SplitN(s, sep, most+1))
	}
	var parts []string
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; s = strings.TrimLeftFunc(s, isSpace) {
		n := strings.IndexFunc(s, isSpace)
		if n < 0 || most == 0 {
			n = len(s)
		}
		most--
		parts = append(parts, s[:n])
		s = s[n:]
	}
	return r.texts(self, parts)
}

func strRsplit(r *run, self Value, a []Value) (Value, error) {
	sep, blank, most, err := splitting(a)
	s, _ := text(self)
	if err == nil {
		err = r.pieces(s, sep)
	}
	if err != nil {
		return nil, err
	}
	var parts []string
	if blank {
		for s = strings.TrimRightFunc(s, isSpace); s != ""; s = strings.TrimRightFunc(s, isSpace) {
			n := strings.LastIndexFunc(s, isSpace)
			if n >= 0 {
				_, w := utf8.DecodeRuneInString(s[n:])
				n += w
			}
			if n < 0 || most == 0 {
				n = 0
			}
			most--
			parts = append(parts, s[n:])
			s = s[:n]
		}
	} else {
		for ; most != 0; most-- {
			n := strings.LastIndex(s, sep)
			if n < 0 {
				break
			}
			parts = append(parts, s[n+len(sep):])
			s = s[:n]
		}
		parts = append(parts, s)
	}
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return r.texts(self, parts)
}

// lines are those of a text; with ends if keep says so.
func (r *run) lines(s string, keep bool) (parts []string, err error) {
	n := 1
	for _, c := range s {
		if endsLine(c) {
			n++
		}
	}
	if err := r.step(len(s) >> 3); err != nil {
		return nil, err
	}
	if err := r.elements(2 * n); err != nil {
		return nil, err
	}
	return cutLines(s, keep), nil
}

func cutLines(s string, keep bool) (parts []string) {
	for s != "" {
		n := strings.IndexFunc(s, endsLine)
		if n < 0 {
			return append(parts, s)
		}
		_, w := utf8.DecodeRuneInString(s[n:])
		if strings.HasPrefix(s[n:], "\r\n") {
			w = 2
		}
		if keep {
			parts = append(parts, s[:n+w])
		} else {
			parts = append(parts, s[:n])
		}
		s = s[n+w:]
	}
	return parts
}

func endsLine(c rune) bool {
	return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
}

func strSplitLines(r *run, self Value, a []Value) (Value, error) {
	s, _ := text(self)
	parts, err := r.lines(s, a[0] != nil && truth(a[0]))
	if err != nil {
		return nil, err
	}
	return r.texts(self, parts)
}

func strPartition(r *run, self Value, a []Value) (Value, error) {
	return r.partition(self, a, strings.Index, func(s string) [3]string { return [3]string{s, "", ""} })
}

func strRpartition(r *run, self Value, a []Value) (Value, error) {
	return r.partition(self, a, strings.LastIndex, func(s string) [3]string { return [3]string{"", "", s} })
}

func (r *run) partition(self Value, a []Value, find func(s, sep string) int, whole func(string) [3]string) (Value, error) {
	s, _ := text(self)
	sep, err := wantText(a[0], "")
	if err == nil && sep == "" {
		err = valueError("empty separator")
	}
	if err == nil {
		err = r.step(len(s)>>4 + 3)
	}
	if err != nil {
		return nil, err
	}
	parts := whole(s)
	if n := find(s, sep); n >= 0 {
		parts = [3]string{s[:n], sep, s[n+len(sep):]}
	}
	return &Tuple{items: []Value{like(self, parts[0]), like(self, parts[1]), like(self, parts[2])}}, nil
}

func strJoin(r *run, self Value, a []Value) (Value, error) {
	sep, _ := text(self)
	it, err := r.iterate(a[0])
	if err != nil {
		return nil, typeError("can only join an iterable")
	}
	_, safe := self.(Markup)
	p := &printer{r: r}
	for i := 0; ; i++ {
		v, ok, err := it.next(r)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		part, isText := text(v)
		switch {
		case safe:
			if part, err = r.escaped(v); err != nil {
				return nil, err
			}
		case !isText:
			return nil, typeError("sequence item %d: expected str instance, %s found", i, typeName(v))
		}
		if i > 0 {
			p.add(sep)
		}
		p.add(part)
	}
	out, err := p.done()
	return like(self, out), err
}

// strTranslate replaces characters by what a table has for their numbers: a text, another number, or nothing.
func strTranslate(r *run, self Value, a []Value) (Value, error) {
	s, _ := text(self)
	p := &printer{r: r}
	for _, c := range s {
		v, err := r.element(a[0], int64(c))
		if err != nil {
			return nil, err
		}
		n, isNumber := whole(v)
		by, isText := text(v)
		switch {
		case v == nil:
			p.add(string(c))
		case isText:
			p.add(by)
		case isNumber && n >= 0 && n <= utf8.MaxRune:
			p.add(string(rune(n)))
		case v != Value(None{}):
			return nil, typeError("character mapping must return integer, None or str")
		}
		if p.err != nil {
			return nil, p.err
		}
	}
	out, err := p.done()
	return like(self, out), err
}
