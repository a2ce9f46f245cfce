"""Asks a Berth cluster for all of the sampling API by the official OpenAI client: python sampling.py BASE_URL MODEL."""

import math
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
model = sys.argv[2]
prompt = "The capital of France is"
messages = [{"role": "user", "content": "Say hello"}]


def complete(**kw):
    return client.completions.create(**{"model": model, "prompt": prompt, "max_tokens": 8, "temperature": 0, **kw})


def chat(**kw):
    return client.chat.completions.create(**{"model": model, "messages": messages, "max_tokens": 8, "temperature": 0, **kw})


def texts(answer):
    assert [c.index for c in answer.choices] == list(range(len(answer.choices))), answer
    return [c.text if hasattr(c, "text") else c.message.content for c in answer.choices]


def streamed(stream, n):
    out, ends, usage = [""] * n, [None] * n, None
    for part in stream:
        for c in part.choices:
            assert ends[c.index] is None, part
            out[c.index] += (c.text if hasattr(c, "text") else c.delta.content) or ""
            ends[c.index] = c.finish_reason
        usage = part.usage or usage
    assert all(ends), ends
    return out, usage


def choices():
    one = texts(complete())
    assert texts(complete(n=2)) == one * 2
    seeded = complete(n=4, temperature=1, seed=7)
    assert texts(seeded) == texts(complete(n=4, temperature=1, seed=7)) and len(set(texts(seeded))) > 1, seeded
    assert texts(seeded)[:1] == texts(complete(temperature=1, seed=7))
    assert seeded.usage.completion_tokens == 32 and seeded.usage.prompt_tokens == complete().usage.prompt_tokens, seeded
    text, usage = streamed(complete(n=4, temperature=1, seed=7, stream=True, stream_options={"include_usage": True}), 4)
    assert text == texts(seeded) and usage.completion_tokens == 32, text
    talk = chat(n=3, temperature=1, seed=7)
    assert streamed(chat(n=3, temperature=1, seed=7, stream=True), 3)[0] == texts(talk)
    best = complete(n=2, best_of=5, temperature=1, seed=7, logprobs=0)
    mean = [sum(c.logprobs.token_logprobs) / len(c.logprobs.token_logprobs) for c in best.choices]
    assert mean == sorted(mean, reverse=True) and best.usage.completion_tokens == 40, best
    assert set(texts(best)) <= set(texts(complete(n=5, temperature=1, seed=7)))


def prompts():
    other = "One, two, three,"
    both = complete(prompt=[prompt, other])
    assert texts(both) == texts(complete()) + texts(complete(prompt=other)), both
    assert both.usage.completion_tokens == 16, both
    assert texts(complete(prompt=[prompt, other], n=2))[2:] == texts(complete(prompt=other)) * 2
    assert streamed(complete(prompt=[prompt, other], stream=True), 2)[0] == texts(both)
    ids = complete(extra_body={"return_token_ids": True}).choices[0].prompt_token_ids
    assert texts(complete(prompt=[ids, ids])) == texts(complete()) * 2


def logprobs():
    c = complete(logprobs=3).choices[0]
    p = c.logprobs
    assert "".join(p.tokens) == c.text and len(p.token_logprobs) == 8, c
    for token, offset, logprob, top in zip(p.tokens, p.text_offset, p.token_logprobs, p.top_logprobs):
        assert c.text[offset:].startswith(token) and math.isclose(top[token], max(top.values())) and len(top) == 3, c
        assert math.isclose(top[token], logprob)
    parts = [part.choices[0] for part in complete(logprobs=3, stream=True)]
    assert sum((c.logprobs.tokens for c in parts if c.logprobs), []) == p.tokens
    assert sum((c.logprobs.token_logprobs for c in parts if c.logprobs), []) == p.token_logprobs
    shaped = complete(logprobs=1, temperature=1, seed=1, top_p=0.1, frequency_penalty=1, logit_bias={"5": 3}).choices[0].logprobs
    assert all(math.exp(v) < 1 for v in shaped.token_logprobs), shaped
    c = chat(logprobs=True, top_logprobs=4).choices[0]
    assert b"".join(bytes(t.bytes) for t in c.logprobs.content).decode() == c.message.content, c
    for t in c.logprobs.content:
        assert len(t.top_logprobs) == 4 and t.top_logprobs[0].logprob == t.logprob, t
    content = [t for part in chat(logprobs=True, top_logprobs=4, stream=True) for t in getattr(part.choices[0].logprobs, "content", None) or []]
    assert content == c.logprobs.content
    assert chat().choices[0].logprobs is None and chat(logprobs=True).choices[0].logprobs.content[0].top_logprobs == []


def echo():
    plain = complete().choices[0]
    assert complete(echo=True).choices[0].text == prompt + plain.text
    c = complete(echo=True, logprobs=0).choices[0]
    p = c.logprobs
    assert c.text == prompt + plain.text and p.token_logprobs[0] is None and p.top_logprobs[0] is None, c
    assert all(c.text[at:].startswith(t) for t, at in list(zip(p.tokens, p.text_offset))[1:]), c
    scored = complete(echo=True, logprobs=0, max_tokens=0)
    q = scored.choices[0].logprobs
    assert scored.choices[0].text == prompt and scored.usage.completion_tokens == 0, scored
    assert q.token_logprobs[1:] == p.token_logprobs[1 : len(q.tokens)], (q, p)
    # What was generated, scored as a prompt, is as likely as it was.
    again = complete(prompt=c.text, echo=True, logprobs=0, max_tokens=0).choices[0].logprobs
    assert again.tokens == p.tokens and all(math.isclose(a, b, abs_tol=1e-3) for a, b in zip(again.token_logprobs[1:], p.token_logprobs[1:]))
    assert streamed(complete(echo=True, n=2, stream=True), 2)[0] == [prompt + plain.text] * 2
    v = complete(extra_body={"prompt_logprobs": 2}).choices[0].prompt_logprobs
    assert v[0] is None and len(v) == len(p.tokens) - 8, v
    ranked = [sorted(at.values(), key=lambda e: e["rank"]) for at in v[1:]]
    assert all(2 <= len(at) <= 3 and at[0]["rank"] == 1 and at[0]["logprob"] >= at[1]["logprob"] for at in ranked), v


def shaping():
    free = complete(extra_body={"return_token_ids": True}).choices[0]
    banned = complete(logit_bias={str(free.token_ids[0]): -100}, extra_body={"return_token_ids": True}).choices[0]
    assert free.token_ids[0] not in banned.token_ids, banned
    stop = complete(extra_body={"stop_token_ids": [free.token_ids[3]], "return_token_ids": True}).choices[0]
    first = free.token_ids.index(free.token_ids[3])
    assert stop.finish_reason == "stop" and stop.stop_reason == free.token_ids[3] and len(stop.token_ids) == first + 1, stop
    late = complete(extra_body={"stop_token_ids": [free.token_ids[3]], "min_tokens": 6, "return_token_ids": True}).choices[0]
    assert len(late.token_ids) >= 6, late
    word = free.text.split()[2]
    cut = complete(stop=[word], logprobs=0).choices[0]
    assert word not in cut.text and "".join(cut.logprobs.tokens).startswith(cut.text), cut
    assert complete(stop=[word], extra_body={"include_stop_str_in_output": True}).choices[0].text.endswith(word)
    assert len(set(complete(max_tokens=32, frequency_penalty=2, extra_body={"return_token_ids": True}).choices[0].token_ids)) > len(
        set(complete(max_tokens=32, extra_body={"return_token_ids": True}).choices[0].token_ids)
    )
    assert complete(extra_body={"ignore_eos": True}, max_tokens=300, temperature=1, seed=3).usage.completion_tokens == 300
    assert chat(max_completion_tokens=3, max_tokens=None).usage.completion_tokens <= 3
    assert complete(user="someone").choices and chat(store=False, metadata={"a": "b"}).choices


def refusals():
    for ask, bad, field in [
        (complete, {"n": 0}, "n"),
        (complete, {"n": 129}, "n"),
        (complete, {"n": 3, "best_of": 2}, "best_of"),
        (complete, {"suffix": "x"}, "suffix"),
        (complete, {"logprobs": 21}, "logprobs"),
        (complete, {"max_tokens": 0}, "max_tokens"),
        (complete, {"prompt": ["a", ""]}, "prompt"),
        (chat, {"top_logprobs": 2}, "top_logprobs"),
        (chat, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (chat, {"messages": [{"role": "robot", "content": "hi"}]}, "messages[0].role"),
    ]:
        try:
            ask(**bad)
        except openai.BadRequestError as e:
            assert e.param == field, (bad, e.body)
        else:
            raise SystemExit(f"{bad} was taken")


for part in (choices, prompts, logprobs, echo, shaping, refusals):
    part()
    print(part.__name__, "well")
print("ok")
