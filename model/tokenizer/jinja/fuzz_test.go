package jinja_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/berthd/berth/model/tokenizer/jinja"
)

// FuzzRender compiles and renders any source over any JSON object: it ends, with a text below its limit or a typed error.
func FuzzRender(f *testing.F) {
	for _, c := range append(valueCases, tagCases...) {
		f.Add(c.source, `{"x": [1, "a", {"b": null}], "messages": [{"role": "user", "content": "hi"}]}`)
	}
	for _, h := range hostile {
		if len(h.source) < 500 {
			f.Add(h.source, `{}`)
		}
	}
	limits := jinja.Limits{Fuel: 200_000, Output: 1 << 16, Value: 1 << 18, Memory: 1 << 22, Depth: 500}
	f.Fuzz(func(t *testing.T, source, data string) {
		vars := jinja.NewDict()
		if vars.UnmarshalJSON([]byte(data)) != nil {
			vars = jinja.NewDict()
		}
		text, err := "", error(nil)
		tmpl, err := jinja.Compile(source)
		if err == nil {
			text, err = tmpl.Render(vars, moment, limits)
		}
		var own *jinja.Error
		var limit *jinja.LimitError
		switch {
		case err != nil && !errors.As(err, &own) && !errors.As(err, &limit):
			t.Errorf("an error of no type: %v", err)
		case len(text) > limits.Output:
			t.Errorf("%d bytes of output", len(text))
		case utf8.ValidString(source) && !utf8.ValidString(text):
			t.Errorf("the output is no text: %q", text)
		}
	})
}

// FuzzDecode reads any bytes: what reads can be written and read again to the same text.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a": [1, 2.5, -0.0, 1e400, "\ud83d\ude42\ud800"], "a": null}`, `[`, `"\u12"`, `1e`, "\"\xff\"", `123456789012345678901234567890`} {
		f.Add([]byte(s))
	}
	tmpl, err := jinja.Compile("{{ v|tojson }}")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := jinja.Decode(raw)
		if err != nil {
			return
		}
		write := func(v jinja.Value) string {
			vars := jinja.NewDict()
			vars.Set("v", v)
			text, err := tmpl.Render(vars, moment, jinja.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		text := write(v)
		again, err := jinja.Decode([]byte(text))
		if err != nil {
			if text != "NaN" && !containsInfinity(text) {
				t.Fatalf("%q does not read: %v", text, err)
			}
			return
		}
		if got := write(again); got != text {
			t.Errorf("%q, then %q", text, got)
		}
	})
}

// containsInfinity says that a text has what JSON cannot say.
func containsInfinity(s string) bool { return strings.Contains(s, "Infinity") }
