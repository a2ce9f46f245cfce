"""Asks a Berth cluster by the official OpenAI client: python sdk.py BASE_URL MODEL. Exits 0 if all is as it should be."""

import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
model = sys.argv[2]
prompt = "The capital of France is"

names = [m.id for m in client.models.list()]
assert model in names, names

whole = client.completions.create(model=model, prompt=prompt, max_tokens=16, temperature=0)
assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 16, whole
print("completion:", repr(whole.choices[0].text))

text, usage = "", None
for part in client.completions.create(
    model=model, prompt=prompt, max_tokens=16, temperature=0, stream=True, stream_options={"include_usage": True}
):
    text += "".join(c.text for c in part.choices)
    usage = part.usage or usage
assert text == whole.choices[0].text, (text, whole.choices[0].text)
assert usage.prompt_tokens == whole.usage.prompt_tokens and usage.completion_tokens == 16, usage
assert usage.prompt_tokens_details.cached_tokens >= 0, usage

messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello"}]
chat = client.chat.completions.create(model=model, messages=messages, max_tokens=12, temperature=0)
assert chat.choices[0].message.role == "assistant" and chat.usage.completion_tokens <= 12, chat
print("chat:", repr(chat.choices[0].message.content))

text, usage = "", None
for part in client.chat.completions.create(
    model=model, messages=messages, max_tokens=12, temperature=0, stream=True, stream_options={"include_usage": True}
):
    text += "".join(c.delta.content or "" for c in part.choices)
    usage = part.usage or usage
assert text == chat.choices[0].message.content, (text, chat)
assert usage.completion_tokens == chat.usage.completion_tokens, usage

stopped = client.completions.create(model=model, prompt=prompt, max_tokens=40, temperature=0, stop=["France"])
assert stopped.choices[0].finish_reason == "stop" and "France" not in stopped.choices[0].text, stopped

seeded = [
    client.completions.create(model=model, prompt=prompt, max_tokens=12, temperature=1.0, seed=7).choices[0].text
    for _ in range(2)
]
assert seeded[0] == seeded[1], seeded

for bad, field in [({"temperature": -1}, "temperature"), ({"n": 0}, "n"), ({"max_tokens": 0}, "max_tokens")]:
    try:
        client.completions.create(**{"model": model, "prompt": prompt, **bad})
        raise SystemExit(f"{bad} was taken")
    except openai.BadRequestError as e:
        assert e.param == field, (bad, e.body)
try:
    client.completions.create(model="nobody", prompt=prompt)
    raise SystemExit("an unknown model was taken")
except openai.NotFoundError as e:
    assert e.code == "model_not_found", e.body
print("ok")
