package jinja_test

import (
	"testing"

	"github.com/berthd/berth/model/tokenizer/jinja"
)

// chat is a template of the usual kind: roles, tools as JSON, calls, trimming.
const chat = `{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {%- for tool in tools %}
        {{- tool | tojson + "\n" }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content | trim + '<|im_end|>' + '\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' + message.content.split('</think>')[-1].lstrip('\n') }}
        {%- for call in message.tool_calls or [] %}
            {{- '<call>' ~ call.name ~ (call.arguments | tojson) ~ '</call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`

const chatVars = `{"add_generation_prompt": true,
"tools": [{"type": "function", "function": {"name": "weather", "description": "The weather of a place", "parameters":
{"type": "object", "properties": {"place": {"type": "string"}, "unit": {"type": "string", "enum": ["c", "f"]}}, "required": ["place"]}}}],
"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the weather in Paris?"},
{"role": "assistant", "content": "<think>a tool</think>\nI'll look.", "tool_calls": [{"name": "weather", "arguments": {"place": "Paris", "unit": "c"}}]},
{"role": "user", "content": "And in Rome?  "}]}`

func BenchmarkRender(b *testing.B) {
	vars := jinja.NewDict()
	if err := vars.UnmarshalJSON([]byte(chatVars)); err != nil {
		b.Fatal(err)
	}
	tmpl, err := jinja.Compile(chat)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.Render(vars, moment, jinja.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := jinja.Compile(chat); err != nil {
			b.Fatal(err)
		}
	}
}
