package jinja_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/model/tokenizer/jinja"
)

// hostile are templates that want more than there is, each with the limit that stops it.
var hostile = []struct{ name, source, limit string }{
	{"a macro that calls itself", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "depth"},
	{"two macros that call each other", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{{ a() }}{% endmacro %}{{ a() }}", "depth"},
	{"a call block inside itself", "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}", "depth"},
	{"a default that calls its macro", "{% macro m(a=m()) %}{% endmacro %}{{ m() }}", "depth"},
	{"a loop that goes into itself", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "depth"},
	{"brackets", "{{ " + strings.Repeat("(", 100_000) + "1" + strings.Repeat(")", 100_000) + " }}", "nesting"},
	{"brackets that do not close", "{{ " + strings.Repeat("[", 400_000), "nesting"},
	{"dictionaries", "{{ " + strings.Repeat("{1:", 100_000), "nesting"},
	{"signs", "{{ " + strings.Repeat("-", 400_000) + "1 }}", "nesting"},
	{"nots", "{{ " + strings.Repeat("not ", 100_000) + "1 }}", "nesting"},
	{"sums", "{{ 1" + strings.Repeat("+1", 200_000) + " }}", "nesting"},
	{"filters", "{{ 1" + strings.Repeat("|abs", 100_000) + " }}", "nesting"},
	{"attributes", "{{ a" + strings.Repeat(".a", 200_000) + " }}", "nesting"},
	{"calls", "{{ a" + strings.Repeat("()", 200_000) + " }}", "nesting"},
	{"conditions", "{{ 1" + strings.Repeat(" if 1 else 1", 40_000) + " }}", "nesting"},
	{"ifs", strings.Repeat("{% if 1 %}", 50_000), "nesting"},
	{"fors", strings.Repeat("{% for x in y %}", 30_000), "nesting"},
	{"a long source", strings.Repeat("x", 1<<20), "source"},
	{"loops in loops", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "fuel"},
	{"loops with nothing in them", strings.Repeat("{% for a in range(99999) %}", 9) + strings.Repeat("{% endfor %}", 9), "fuel"},
	{"a text times much", "{{ 'x' * 10**12 }}", "value"},
	{"a text times more", "{{ 'ab' * 99999999999999999999 }}", "value"},
	{"a list times much", "{{ [1, 2, 3] * 10**9 }}", "value"},
	{"a tuple times much", "{{ (10**9) * (1,) }}", "value"},
	{"a text that doubles", "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}", "value"},
	{"a text that doubles by joining", "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = [n.s, n.s]|join %}{% endfor %}", "value"},
	{"a text that doubles by replacing", "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s|replace('x', 'xx') %}{% endfor %}", ""},
	{"a text that doubles in a block", "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set q %}{{ n.s }}{{ n.s }}{% endset %}{% set n.s = q %}{% endfor %}", "value"},
	{"a list that doubles", "{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}", "value"},
	{"a list that is many in print", "{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}", ""},
	{"a list that is many as JSON", "{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s|tojson }}", ""},
	{"lists that are many to compare", "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a == n.b }}", "fuel"},
	{"lists that are many to order", "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a < n.b }}", "fuel"},
	{"a tuple that is many to hash", "{% set n = namespace(a=(1,)) %}{% for i in range(60) %}{% set n.a = (n.a, n.a) %}{% endfor %}{{ {n.a: 1} }}", ""},
	{"a list in itself, deep", "{% set n = namespace(a=[1]) %}{% for i in range(90000) %}{% set n.a = [n.a] %}{% endfor %}{{ n.a }}", "depth"},
	{"iterators on iterators", "{% set n = namespace(a=[1]) %}{% for i in range(90000) %}{% set n.a = n.a|map('abs') %}{% endfor %}{{ n.a|list }}", "depth"},
	{"reversed on reversed", "{% set n = namespace(a=[1]) %}{% for i in range(90000) %}{% set n.a = n.a|batch(1)|map('first') %}{% endfor %}{{ n.a|list }}", "depth"},
	{"macros held by macros", "{% macro m(f, n) %}{% if n %}{{ m(f, n - 1) }}{% else %}{{ f }}{% endif %}{% endmacro %}{{ m(1, 100000) }}", "depth"},
	{"a tower of powers", "{{ 9**(9**(9**9)) }}", "value"},
	{"a great power", "{{ 2 ** (10**18) }}", "value"},
	{"a number that squares itself", "{% set n = namespace(x=3) %}{% for i in range(200) %}{% set n.x = n.x * n.x %}{% endfor %}{{ n.x }}", "value"},
	{"centred wide", "{{ 'x'|center(3000000000) }}", "value"},
	{"filled wide", "{{ 'x'.ljust(10**15) }}{{ 'x'.rjust(10**15) }}{{ 'x'.zfill(10**15) }}", "value"},
	{"indented wide", "{{ ('x\n' * 9)|indent(10**9) }}", "value"},
	{"indented with much", "{{ ('x\n' * 100000)|indent('y' * 100000) }}", "value"},
	{"formatted wide", "{{ '%1000000000d' % 1 }}", "value"},
	{"formatted finely", "{{ '%.1000000000f' % 1 }}", "value"},
	{"formatted wide by a star", "{{ '%*d' % (2000000000, 1) }}", "value"},
	{"formatted wide by fields", "{{ '{:>2000000000}'.format('x') }}", "value"},
	{"formatted finely by fields", "{{ '{:.2000000000f}'.format(1.5) }}", "value"},
	{"formatted again and again", "{{ ('{0}' * 1000000).format('x' * 1000) }}", "value"},
	{"tabs", "{{ ('\t' * 1000000).expandtabs(1000000000) }}", "value"},
	{"joined with much", "{{ ('x' * 1000000).join('y' * 1000000) }}", "value"},
	{"joined by a filter", "{{ (range(100000)|list * 9)|join('y' * 100000) }}", "value"},
	{"replaced by much", "{{ ('x' * 1000000)|replace('x', 'y' * 1000000) }}", "value"},
	{"replaced between all", "{{ ('x' * 1000000).replace('', 'y' * 1000000) }}", "value"},
	{"split to pieces", "{{ ('x,' * 15000000).split(',')|length }}", "value"},
	{"split at blanks", "{{ ('x ' * 15000000).split()|length }}", "value"},
	{"split to lines", "{{ ('\n' * 30000000).splitlines()|length }}", "value"},
	{"a list of characters", "{{ ('x' * 30000000)|list|length }}", "value"},
	{"batches filled up", "{{ [1]|batch(10**12, 'x')|list }}", "value"},
	{"slices without end", "{{ [1]|slice(10**15)|list }}", ""},
	{"laid out wide", "{{ [[[1]]]|tojson(indent=10**9) }}", "value"},
	{"laid out with much", "{{ [1, 2, 3]|tojson(indent='x' * 30000000) }}", ""},
	{"quoted", "{{ ['\\x01' * 30000000] }}", ""},
	{"a dictionary of much", "{{ dict.fromkeys }}{% set n = namespace(d={}) %}{% for i in range(99999) %}{% set n.d = dict(n.d, **{'k' ~ i: i}) %}{% endfor %}", ""},
	{"copies of dictionaries", "{% set d = dict(range(90000)|batch(2)) %}{% for i in range(90000) %}{% set q = d.copy() %}{% endfor %}", ""},
	{"sorted again and again", "{% set l = range(99999)|list %}{% for i in range(99999) %}{% set q = l|sort(reverse=true) %}{% endfor %}", ""},
	{"looked for again and again", "{% set l = range(99999)|list %}{% for i in l %}{% if -1 in l %}{% endif %}{% endfor %}", "fuel"},
	{"text looked for again and again", "{% set l = 'a' * 30000000 %}{% for i in range(99999) %}{% if 'b' in l %}{% endif %}{% endfor %}", "fuel"},
	{"text compared again and again", "{% set l = 'a' * 9000000 %}{% set m = 'a' * 9000000 %}{% for i in range(99999) %}{% if l == m %}{% endif %}{% endfor %}", ""},
	{"text stripped again and again", "{% set l = ' ' * 9000000 %}{% for i in range(99999) %}{% if l.strip() %}{% endif %}{% endfor %}", "fuel"},
	{"text counted again and again", "{% set l = 'é' * 9000000 %}{% for i in range(99999) %}{% if l|length %}{% endif %}{% endfor %}", "fuel"},
	{"characters of a long text", "{% set l = 'é' * 9000000 %}{% for i in range(99999) %}{% if l[i] %}{% endif %}{% endfor %}", "fuel"},
	{"much output", "{% set s = 'x' * 1000000 %}{% for i in range(99999) %}{{ s }}{% endfor %}", "output"},
	{"many captures", "{% set s = 'x' * 1000000 %}{% for i in range(99999) %}{% set q %}{{ s }}{% endset %}{% endfor %}", "memory"},
	{"many concatenations", "{% set s = 'x' * 1000000 %}{% for i in range(99999) %}{% set q = s ~ i %}{% endfor %}", "memory"},
	{"many macros' places", "{% macro m(" + names(2000) + ") %}{% endmacro %}{% for i in range(99999) %}{{ m() }}{% endfor %}", ""},
	{"arguments spread", "{% set l = range(99999)|list %}{% for i in l %}{{ cycler(*l).next() }}{% endfor %}", ""},
	{"names spread", "{% set d = dict(range(99999)|map('string')|batch(2)) %}{{ dict(**d)|length }}", ""},
	{"a time written wide", "{{ strftime_now('%999d' * 1000000) }}", ""},
	{"percent signs", "{{ ('%s' * 1000000) % 1 }}", "*"},
	{"tags not closed", "{{ ('<' * 9000000)|striptags }}", ""},
	{"many brackets to a key", "{{ ('(' * 9000000) % {} }}{{ ('%' ~ '(' * 9000000) % {} }}", "*"},
	{"fields not closed", "{{ ('{' * 9000001).format() }}", "*"},
}

func names(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("a%d", i)
	}
	return strings.Join(list, ",")
}

// TestHostile runs each within a second or so, in bounded memory, to a typed error. A star stands for an error of the
// template's own, nothing for whichever limit comes first, or none.
func TestHostile(t *testing.T) {
	for _, h := range hostile {
		t.Run(h.name, func(t *testing.T) {
			began := time.Now()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := try(h.source)
			runtime.ReadMemStats(&after)
			took := time.Since(began)
			t.Logf("%v, %d MB, %.90v", took.Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>20, err)
			var limit *jinja.LimitError
			var own *jinja.Error
			switch {
			case h.limit == "*" && !errors.As(err, &own):
				t.Errorf("%v, want an error", err)
			case h.limit != "" && h.limit != "*" && (!errors.As(err, &limit) || limit.Limit != h.limit):
				t.Errorf("%v, want the limit of %s", err, h.limit)
			case took > 10*time.Second: // many times what it takes, for a busy machine
				t.Errorf("took %v", took)
			}
		})
	}
}

func try(source string) error {
	tmpl, err := jinja.Compile(source)
	if err != nil {
		return err
	}
	_, err = tmpl.Render(nil, time.Time{}, jinja.Limits{})
	return err
}
