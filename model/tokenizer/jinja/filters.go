package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// filters are those of jinja2 and of chat templates; their first argument is what stands before them.
var filters = map[string]*method{
	"abs":            takes("", 0, filterAbs),
	"attr":           takes("name", 1, filterAttr),
	"batch":          takes("linecount fill_with", 1, filterBatch),
	"capitalize":     softly(capitalize),
	"center":         takes("width", 0, filterCenter),
	"count":          takes("", 0, filterLength),
	"d":              takes("default_value boolean", 0, filterDefault),
	"default":        takes("default_value boolean", 0, filterDefault),
	"dictsort":       takes("case_sensitive by reverse", 0, filterDictSort),
	"e":              takes("", 0, filterEscape),
	"escape":         takes("", 0, filterEscape),
	"filesizeformat": takes("binary", 0, filterFileSize),
	"first":          takes("", 0, filterFirst),
	"float":          takes("default", 0, filterFloat),
	"forceescape":    takes("", 0, filterForceEscape),
	"format":         {raw: filterFormat},
	"groupby":        takes("attribute default case_sensitive", 1, filterGroupBy),
	"indent":         takes("width first blank", 0, filterIndent),
	"int":            takes("default base", 0, filterInt),
	"items":          takes("", 0, filterItems),
	"join":           takes("d attribute", 0, filterJoin),
	"last":           takes("", 0, filterLast),
	"length":         takes("", 0, filterLength),
	"list":           takes("", 0, filterList),
	"lower":          softly(lower),
	"map":            {raw: filterMap},
	"max":            takes("case_sensitive attribute", 0, filterMax),
	"min":            takes("case_sensitive attribute", 0, filterMin),
	"reject":         {raw: picking(false, false)},
	"rejectattr":     {raw: picking(false, true)},
	"replace":        takes("old new count", 2, filterReplace),
	"reverse":        takes("", 0, filterReverse),
	"round":          takes("precision method", 0, filterRound),
	"safe":           takes("", 0, filterSafe),
	"select":         {raw: picking(true, false)},
	"selectattr":     {raw: picking(true, true)},
	"slice":          takes("slices fill_with", 1, filterSlice),
	"sort":           takes("reverse case_sensitive attribute", 0, filterSort),
	"string":         takes("", 0, filterString),
	"striptags":      takes("", 0, filterStripTags),
	"sum":            takes("attribute start", 0, filterSum),
	"title":          softly(words),
	"tojson":         takes("ensure_ascii indent separators sort_keys", 0, toJSON),
	"trim":           takes("chars", 0, filterTrim),
	"truncate":       takes("length killwords end leeway", 0, filterTruncate),
	"unique":         takes("case_sensitive attribute", 0, filterUnique),
	"upper":          softly(upper),
	"urlencode":      takes("", 0, filterURLEncode),
	"wordcount":      takes("", 0, filterWordCount),
	"xmlattr":        takes("autospace", 0, filterXMLAttr),
}

// unsupported are filters that jinja2 has and this package does not, and why.
var unsupported = map[string]string{
	"random":   "the same chat must give the same text",
	"pprint":   "its layout is Python's own",
	"urlize":   "chats are no HTML",
	"wordwrap": "its rules are those of a Python library",
}

// softly is a filter over a value's text.
func softly(change func(string) string) *method {
	return takes("", 0, func(r *run, v Value, _ []Value) (Value, error) {
		s, err := r.str(v)
		if err == nil {
			err = r.mapped(s)
		}
		if err != nil {
			return nil, err
		}
		return like(v, change(s)), nil
	})
}

func filterString(r *run, v Value, _ []Value) (Value, error) {
	if _, ok := v.(Markup); ok {
		return v, nil
	}
	s, err := r.str(v)
	return s, err
}

func filterTrim(r *run, v Value, a []Value) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	s, err = stripBoth(r, s, a)
	return like(v, s), err
}

func filterCenter(r *run, v Value, a []Value) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	width := a[0]
	if width == nil {
		width = int64(80)
	}
	s, err = center(r, s, []Value{width, nil})
	return like(v, s), err
}

func filterReplace(r *run, v Value, a []Value) (Value, error) {
	var s [3]string
	for i, v := range []Value{v, a[0], a[1]} {
		var err error
		if s[i], err = r.str(v); err != nil {
			return nil, err
		}
	}
	n := -1
	if a[2] != nil && a[2] != (None{}) {
		var err error
		if n, err = index(a[2]); err != nil {
			return nil, err
		}
	}
	out, err := r.replace(s[0], s[1], s[2], n)
	return out, err
}

func filterEscape(r *run, v Value, _ []Value) (Value, error) {
	s, err := r.escaped(v)
	return Markup(s), err
}

func filterForceEscape(r *run, v Value, _ []Value) (Value, error) {
	s, err := r.str(v)
	if err == nil {
		s, err = r.escaped(s)
	}
	return Markup(s), err
}

func filterSafe(r *run, v Value, _ []Value) (Value, error) {
	s, err := r.str(v)
	return Markup(s), err
}

func filterFormat(r *run, v Value, a *args) (Value, error) {
	if len(a.pos) > 0 && len(a.names) > 0 {
		return nil, failure("FilterArgumentError", "can't handle positional and keyword arguments at the same time")
	}
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	if len(a.names) > 0 {
		d := NewDict()
		for i, name := range a.names {
			d.Set(name, a.named[i])
		}
		return r.formatted(v, s, d)
	}
	return r.formatted(v, s, &Tuple{items: a.pos})
}

// filterIndent puts blanks before the lines of a text, its first and empty ones aside unless they are asked for.
func filterIndent(r *run, v Value, a []Value) (Value, error) {
	s, ok := text(v)
	if !ok {
		if u, is := v.(*undefined); is {
			return nil, u.fail()
		}
		return nil, unfit("+=", v, "")
	}
	by, err := r.indentation(a[0])
	if err != nil {
		return nil, err
	}
	lines, err := r.lines(s+"\n", false)
	if err != nil {
		return nil, err
	}
	first, blank := a[1] != nil && truth(a[1]), a[2] != nil && truth(a[2])
	p := &printer{r: r}
	for i, line := range lines {
		if i > 0 {
			p.add("\n")
		}
		if i == 0 && first || i > 0 && (blank || line != "") {
			p.add(by)
		}
		p.add(line)
	}
	out, err := p.done()
	return like(v, out), err
}

func (r *run) indentation(v Value) (string, error) {
	if v == nil {
		v = int64(4)
	}
	if s, ok := text(v); ok {
		return s, nil
	}
	n, err := index(v)
	if err != nil {
		return "", err
	}
	return r.repeatText(" ", max(n, 0))
}

// filterTruncate cuts a text at a space, or anywhere if words may be cut.
func filterTruncate(r *run, v Value, a []Value) (Value, error) {
	n, err := filterLength(r, v, nil)
	if err != nil {
		return nil, err
	}
	length, leeway := 255, 5
	if a[0] != nil {
		if length, err = index(a[0]); err != nil {
			return nil, err
		}
	}
	if a[3] != nil && a[3] != (None{}) {
		if leeway, err = index(a[3]); err != nil {
			return nil, err
		}
	}
	end, err := wantText(a[2], "...")
	if err != nil {
		return nil, err
	}
	room := length - utf8.RuneCountInString(end)
	if room < 0 || leeway < 0 {
		return nil, failure("AssertionError", "expected length >= %d, got %d", utf8.RuneCountInString(end), length)
	}
	if n.(int64) <= int64(length)+int64(leeway) {
		return v, nil
	}
	s, ok := text(v)
	if !ok {
		return nil, typeError("'%s' object cannot be truncated", typeName(v))
	}
	short := cut(s, room)
	if a[1] == nil || !truth(a[1]) {
		if i := strings.LastIndexByte(short, ' '); i >= 0 {
			short = short[:i]
		}
	}
	return like(v, short+end), r.build(len(short) + len(end))
}

func filterWordCount(r *run, v Value, _ []Value) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	if err := r.step(len(s) >> 2); err != nil {
		return nil, err
	}
	inWord := func(c rune) bool { return c == '_' || unicode.IsLetter(c) || unicode.IsNumber(c) }
	return int64(runs(s, inWord)), nil
}
