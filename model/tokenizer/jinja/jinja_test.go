package jinja_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/model/tokenizer/jinja"
)

// semantic is a template and what jinja2 gives for it: a text, or a kind of error.
type semantic struct {
	area, source, want string
	kind               jinja.Kind
}

// moment is the time of all tests: that of the golden data.
var moment = time.Date(2025, 7, 4, 9, 5, 7, 0, time.UTC)

// render compiles and renders.
func render(source string, vars *jinja.Dict) (string, error) {
	tmpl, err := jinja.Compile(source)
	if err != nil {
		return "", err
	}
	return tmpl.Render(vars, moment, jinja.Limits{})
}

func kindOf(err error) jinja.Kind {
	var e *jinja.Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return 0
}

func TestValues(t *testing.T) { checkSemantics(t, valueCases) }

func TestTags(t *testing.T) { checkSemantics(t, tagCases) }

func checkSemantics(t *testing.T, cases []semantic) {
	for _, c := range cases {
		t.Run(c.area, func(t *testing.T) {
			text, err := render(c.source, nil)
			if text != c.want || kindOf(err) != c.kind || (err != nil) != (c.kind != 0) {
				t.Errorf("%s\ngave %q, %v\nwant %q, kind %d", c.source, text, err, c.want, c.kind)
			}
		})
	}
}

// TestGoldenSnippets renders one-line templates as jinja2 does. Their folder is found as that of the golden chats is.
func TestGoldenSnippets(t *testing.T) {
	var raw []byte
	for _, dir := range []string{os.Getenv("BERTH_GOLDEN"), "../../../../shared/golden"} {
		if got, err := os.ReadFile(filepath.Join(dir, "chat", "snippets.json")); dir != "" && err == nil {
			raw = got
			break
		}
	}
	if raw == nil {
		t.Skip("golden snippets are not here; set BERTH_GOLDEN to their folder")
	}
	var file struct {
		Context  *jinja.Dict `json:"context"`
		Snippets []struct {
			Source  string  `json:"src"`
			Out     *string `json:"out"`
			Error   string  `json:"error"`
			Message string  `json:"message"`
		} `json:"snippets"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]jinja.Kind{
		"syntax": jinja.Syntax, "undefined": jinja.Undefined, "runtime": jinja.Runtime, "security": jinja.Security,
		"raise_exception": jinja.Raised,
	}
	for _, s := range file.Snippets {
		text, err := render(s.Source, file.Context)
		switch {
		case s.Out != nil && (err != nil || text != *s.Out):
			t.Errorf("%s\ngave %q, %v\nwant %q", s.Source, text, err, *s.Out)
		case s.Out == nil && (err == nil || kindOf(err) != kinds[s.Error]):
			t.Errorf("%s\ngave %q, %v\nwant %s", s.Source, text, err, s.Error)
		case s.Error == "raise_exception" && err.Error() != s.Message:
			t.Errorf("%s\nraised %q, want %q", s.Source, err, s.Message)
		}
	}
	t.Logf("%d snippets", len(file.Snippets))
}

// TestManyAtOnce renders one template from many goroutines over the same values: J4.
func TestManyAtOnce(t *testing.T) {
	vars := jinja.NewDict()
	if err := vars.UnmarshalJSON([]byte(`{"l": [{"a": 1}, {"a": 2}], "d": {"k": [1]}}`)); err != nil {
		t.Fatal(err)
	}
	tmpl, err := jinja.Compile("{% macro m(x) %}<{{ x }}>{% endmacro %}{% set n = namespace(t=d.k) %}" +
		"{% for x in l %}{% set n.t = n.t + [x.a] %}{{ m(x.a) }}{% endfor %}{{ n.t }}{{ l|map(attribute='a')|list }}{{ dict(d, q=1) }}")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				text, err := tmpl.Render(vars, moment, jinja.Limits{})
				if want := "<1><2>[1, 1, 2][1, 2]{'k': [1], 'q': 1}"; err != nil || text != want {
					t.Errorf("%q, %v", text, err)
				}
			}
		})
	}
	group.Wait()
}

func TestErrors(t *testing.T) {
	for source, want := range map[string]string{
		"a\nb\n{{ x.y }}":               "line 3: 'x' is undefined",
		"\n{% foo %}":                   "line 2: Encountered unknown tag 'foo'.",
		"{{ x|pprint }}":                "line 1: the filter 'pprint' is not supported: its layout is Python's own",
		"{% include 'a' %}":             "line 1: 'include' is not supported: a chat template stands alone",
		"{{ raise_exception('a: b') }}": "a: b",
		"{{ 1 + 'a' }}":                 "line 1: TypeError: unsupported operand type(s) for +: 'int' and 'str'",
		"{{ [].append(1) }}":            "line 1: access to attribute 'append' of 'list' object is unsafe.",
		"{{ 'x' * 10**9 }}":             "line 1: the template went over its limit of 33554432 of value",
	} {
		if _, err := render(source, nil); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
}

// TestLimits sets each limit low.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		source string
		limits jinja.Limits
		want   string
	}{
		{"{% for i in range(99) %}{% endfor %}", jinja.Limits{Fuel: 50}, "fuel"},
		{"{% for i in range(99) %}x{% endfor %}", jinja.Limits{Output: 50}, "output"},
		{"{{ 'x' * 60 }}", jinja.Limits{Value: 50}, "value"},
		{"{% for i in range(99) %}{% set a = 'x' * 9 %}{% endfor %}", jinja.Limits{Memory: 500}, "memory"},
		{"{{ [[[[1]]]] }}", jinja.Limits{Depth: 3}, "depth"},
	} {
		tmpl, err := jinja.Compile(c.source)
		if err != nil {
			t.Fatal(err)
		}
		var limit *jinja.LimitError
		if _, err = tmpl.Render(nil, moment, c.limits); !errors.As(err, &limit) || limit.Limit != c.want {
			t.Errorf("%s: %v, want the limit of %s", c.source, err, c.want)
		}
	}
}
