"""The OpenAI surface, through the official client and as raw JSON."""
import json
import os
import re

import openai
import pytest


@pytest.fixture(scope="session")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="session")
def model(client):
    return client.models.list().data[0].id


def say(text):
    return [{"role": "user", "content": text}]


def events(reply):
    """The JSON objects of a stream; checks the framing."""
    assert reply.status == 200 and reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    parts = reply.body.decode().split("\n\n")
    assert parts[-1] == "" and parts[-2] == "data: [DONE]"
    out = []
    for p in parts[:-2]:
        if p.startswith(":"):
            continue
        assert p.startswith("data: ") and len(p.splitlines()) == 1
        out.append(json.loads(p[6:]))
    return out


def test_models(client, model, server):
    assert client.models.retrieve(model).id == model
    entry = server.get("/v1/models").json()["data"][0]
    assert entry["object"] == "model" and entry["max_model_len"] > 0 and isinstance(entry["created"], int)
    assert server.get("/v1//models/").status == 200
    with pytest.raises(openai.NotFoundError) as e:
        client.models.retrieve("some/other")
    assert e.value.code == "model_not_found"


def test_chat(client, model):
    r = client.chat.completions.create(model=model, messages=say("Say something."), max_tokens=8, temperature=0)
    assert r.object == "chat.completion" and r.id.startswith("chatcmpl-") and r.model == model
    assert r.choices[0].message.role == "assistant" and isinstance(r.choices[0].message.content, str)
    assert r.choices[0].finish_reason in ("stop", "length") and r.choices[0].logprobs is None
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens
    assert r.usage.completion_tokens <= 8 and r.usage.prompt_tokens_details.cached_tokens >= 0
    assert r._request_id and r.system_fingerprint


@pytest.mark.parametrize("chat", [True, False])
def test_stream_equals_whole(client, model, chat):
    kw = dict(model=model, max_tokens=40, temperature=0)
    if chat:
        whole = client.chat.completions.create(messages=say("Tell me a story."), **kw)
        parts = list(client.chat.completions.create(messages=say("Tell me a story."), stream=True, **kw))
        assert parts[0].choices[0].delta.role == "assistant"
        assert all(p.choices[0].delta.role is None for p in parts[1:])
        joined, text = "".join(p.choices[0].delta.content or "" for p in parts), whole.choices[0].message.content
    else:
        whole = client.completions.create(prompt="Once upon a time", **kw)
        parts = list(client.completions.create(prompt="Once upon a time", stream=True, **kw))
        joined, text = "".join(p.choices[0].text for p in parts), whole.choices[0].text
    assert joined == text
    assert [p.choices[0].finish_reason for p in parts[:-1]] == [None] * (len(parts) - 1)
    assert parts[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert len({p.id for p in parts}) == 1 and all(p.usage is None for p in parts)


@pytest.mark.parametrize("max_tokens", range(1, 13))
def test_cut_anywhere_is_utf8(server, max_tokens):
    body = {"messages": say("Reply only with: \U0001f469‍\U0001f469 é 漢字 \U0001f60a"), "max_tokens": max_tokens, "temperature": 0}
    whole = server.post("/v1/chat/completions", body).json()["choices"][0]
    chunks = events(server.post("/v1/chat/completions", {**body, "stream": True}))
    joined = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
    assert joined == whole["message"]["content"]
    if not os.environ.get("XENON_BIN"):  # a model may write broken characters of its own
        assert "\ufffd" not in joined[:-1]


def test_line_separators_are_escaped(server):
    r = server.complete("x", max_tokens=80, ignore_eos=True, temperature=0, stream=True)
    assert not any(c in r.body.decode() for c in "\u0085\u2028\u2029")


@pytest.mark.parametrize("kind", ["chat/completions", "completions"])
def test_usage_chunk(server, kind):
    body = {"messages": say("hi"), "prompt": "hi", "max_tokens": 4, "stream": True}
    plain = events(server.post("/v1/" + kind, body))
    assert all(len(c["choices"]) == 1 and "usage" not in c for c in plain)
    chunks = events(server.post("/v1/" + kind, {**body, "stream_options": {"include_usage": True}}))
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] <= 4
    assert all(len(c["choices"]) == 1 and c["usage"] is None for c in chunks[:-1])
    each = events(server.post("/v1/" + kind, {**body, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}))
    counts = [c["usage"]["completion_tokens"] for c in each]
    assert counts == sorted(counts) and each[0]["usage"]["prompt_tokens"] > 0


def test_one_field_per_delta(server):
    for c in events(server.chat(stream=True, max_tokens=5)):
        delta = c["choices"][0]["delta"]
        assert set(delta) in (set(), {"content"}, {"role", "content"})
        assert "role" not in delta or delta["content"] == ""


def test_stop(client, model):
    base = dict(model=model, prompt="Alice: hi\nBob:", max_tokens=60, temperature=0)
    text = client.completions.create(**base).choices[0].text
    stop = text[5:9]
    cut = client.completions.create(**base, stop=[stop, "zzzz"])
    assert cut.choices[0].text == text[:text.index(stop)] and cut.choices[0].finish_reason == "stop"
    parts = list(client.completions.create(**base, stop=stop, stream=True))
    assert "".join(p.choices[0].text for p in parts) == cut.choices[0].text
    kept = client.completions.create(**base, stop=stop, extra_body={"include_stop_str_in_output": True})
    assert kept.choices[0].text == text[:text.index(stop)] + stop
    assert cut.choices[0].model_dump()["stop_reason"] == stop


def test_n_and_batches(client, model):
    r = client.completions.create(model=model, prompt=["one", "two", "three"], n=2, max_tokens=5, seed=7, temperature=1)
    assert [c.index for c in r.choices] == list(range(6))
    ids = client.completions.create(model=model, prompt=[[65, 66], [67, 68]], max_tokens=2)
    assert len(ids.choices) == 2 and ids.usage.prompt_tokens == 4
    parts = list(client.chat.completions.create(model=model, messages=say("hi"), n=3, max_tokens=4, stream=True))
    for i in range(3):
        mine = [p.choices[0] for p in parts if p.choices[0].index == i]
        assert mine[0].delta.role == "assistant" and mine[-1].finish_reason


def test_batch_equals_alone(client, model):
    kw = dict(model=model, max_tokens=12, temperature=0)
    prompts = ["The sky is", "Water is made of", "Two plus two is"]
    together = client.completions.create(prompt=prompts, **kw)
    for c, p in zip(together.choices, prompts):
        assert client.completions.create(prompt=p, **kw).choices[0].text == c.text


def test_seed(client, model):
    kw = dict(model=model, prompt="Once", max_tokens=16, temperature=1)
    a, b = (client.completions.create(seed=5, **kw).choices[0].text for _ in range(2))
    assert a == b
    assert client.completions.create(seed=-(2**63), **kw).choices[0].text is not None


def test_chat_logprobs(client, model):
    kw = dict(model=model, messages=say("hi"), max_tokens=6, temperature=0, logprobs=True, top_logprobs=3)
    r = client.chat.completions.create(**kw)
    content = r.choices[0].logprobs.content
    assert len(content) == r.usage.completion_tokens
    for t in content:
        assert t.logprob <= 0 and len(t.top_logprobs) == 3 and isinstance(t.bytes, list)
        assert t.top_logprobs == sorted(t.top_logprobs, key=lambda x: -x.logprob)
    streamed = [t for p in client.chat.completions.create(stream=True, **kw) if p.choices[0].logprobs
                for t in p.choices[0].logprobs.content]
    assert streamed == content


def test_completion_logprobs(client, model):
    r = client.completions.create(model=model, prompt="Hello", max_tokens=6, temperature=0, logprobs=2)
    lp = r.choices[0].logprobs
    n = r.usage.completion_tokens
    assert len(lp.tokens) == len(lp.token_logprobs) == len(lp.top_logprobs) == len(lp.text_offset) == n
    for token, value, top in zip(lp.tokens, lp.token_logprobs, lp.top_logprobs):
        assert top[token] == value == max(top.values())
    zero = client.completions.create(model=model, prompt="Hello", max_tokens=2, logprobs=0).choices[0].logprobs
    assert all(len(t) == 1 for t in zero.top_logprobs)


def test_echo_as_lm_eval_uses_it(client, model, server):
    ids = server.post("/tokenize", {"prompt": "The capital of France is Paris"}).json()["tokens"]
    r = client.completions.create(model=model, prompt=[ids, ids[:4]], max_tokens=1, temperature=0, logprobs=1, echo=True, seed=1234)
    for c, n in zip(sorted(r.choices, key=lambda c: c.index), (len(ids), 4)):
        lp = c.logprobs
        assert len(lp.tokens) == n + 1 and lp.token_logprobs[0] is None and lp.top_logprobs[0] is None
        assert all(isinstance(v, float) and v <= 0 for v in lp.token_logprobs[1:])
        assert all(lp.token_logprobs[i] == lp.top_logprobs[i][lp.tokens[i]] for i in range(1, n))
    scored = client.completions.create(model=model, prompt="abc", max_tokens=0, echo=True, logprobs=1)
    assert scored.choices[0].text == "abc" and scored.usage.completion_tokens == 0
    streamed = list(client.completions.create(model=model, prompt="abc", max_tokens=3, echo=True, temperature=0, stream=True))
    whole = client.completions.create(model=model, prompt="abc", max_tokens=3, echo=True, temperature=0)
    assert "".join(p.choices[0].text for p in streamed) == whole.choices[0].text


def test_null_means_absent(server):
    nulls = {k: None for k in ("temperature", "top_p", "stop", "seed", "max_tokens", "tools", "n", "stream_options", "logit_bias",
                               "response_format", "logprobs", "top_logprobs", "tool_choice", "user", "stream", "top_k", "min_p")}
    plain = server.chat(temperature=0, max_tokens=4)
    assert server.chat(**{**nulls, "max_tokens": 4, "temperature": 0}).json()["choices"] == plain.json()["choices"]
    assert server.chat(**{**nulls, "stop": ["e", "a"]}).status == 200  # soon there: without max_tokens an answer may be long


def test_harmless_fields(server):
    r = server.chat(max_tokens=2, user="someone", metadata={"a": "b"}, store=False, service_tier="auto", parallel_tool_calls=True,
                    prompt_cache_key="k", reasoning_effort="low", chat_template_kwargs={"enable_thinking": False}, stop=[],
                    response_format={"type": "text"}, modalities=["text"], tools=[], suffix=None, unknown_field=[1], logit_bias={},
                    cache_salt="tenant", priority=-1, top_p=0, stop_token_ids=[], best_of=1)
    assert r.status == 200, r.body


def test_content_parts_and_roles(server):
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts},
                {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Again."}]
    r = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 2})
    assert r.status == 200, r.body
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    r = server.post("/v1/chat/completions", {"messages": say(image)})
    assert r.status == 400 and r.error["param"] == "messages[0].content[0]"


def test_tool_history(server):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    calls = [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]
    messages = say("hi") + [{"role": "assistant", "content": None, "tool_calls": calls},
                            {"role": "tool", "tool_call_id": "call_1", "content": "42"}]
    tokenized = server.post("/tokenize", {"messages": messages, "tools": tools})
    r = server.post("/v1/chat/completions", {"messages": messages, "tools": tools, "tool_choice": "auto", "max_tokens": 2})
    # A real template may refuse tools; it must say so as a 400.
    assert (tokenized.status, r.status) in ((200, 200), (400, 400))


def test_tokenize_round_trip(server):
    text = "Hello wörld 漢字 \U0001f60a"
    t = server.post("/tokenize", {"prompt": text, "add_special_tokens": False, "return_token_strs": True}).json()
    assert t["count"] == len(t["tokens"]) == len(t["token_strs"]) and t["max_model_len"] > 0
    assert server.post("/detokenize", {"tokens": t["tokens"]}).json()["prompt"] == text
    info = server.get("/tokenizer_info").json()
    assert {"bos_token", "eos_token", "pad_token", "chat_template"} <= set(info)
    for body in ({}, {"prompt": 5}, {"messages": 5}):
        assert server.post("/tokenize", body).status == 400
    for body in ({}, {"tokens": "x"}, {"tokens": [-1]}, {"tokens": [10**9]}, {"tokens": [1.5]}):
        assert server.post("/detokenize", body).status == 400


def test_version_and_health(server):
    assert re.match(r"\d+\.\d+", server.get("/version").json()["version"])
    assert server.get("/health").json() == {"status": "ok"}
    head = server.request("HEAD", "/health")
    assert head.status == 200 and head.body == b"" and int(head.headers["content-length"]) > 0
    page = server.get("/")
    assert page.status == 200 and page.headers["content-type"].startswith("text/html") and b"http://" not in page.body


def parse_metrics(text):
    types, helps, seen = {}, set(), set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            types[line.split()[2]] = line.split()[3]
        elif line.startswith("# HELP "):
            helps.add(line.split()[2])
        else:
            m = re.match(r'([a-zA-Z_:][\w:]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[\d.e+-]+)$', line)
            assert m, line
            name = re.sub(r"_(bucket|sum|count)$", "", m[1]) if m[1] not in types else m[1]
            assert name in types and name in helps, line
            assert (m[1], m[2]) not in seen
            seen.add((m[1], m[2]))
    return types


def test_metrics(server):
    r = server.get("/metrics")
    assert r.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    types = parse_metrics(r.body.decode())
    for name in ("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds", "request_prompt_tokens"):
        assert types["xenon:" + name] == "histogram"
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert types["xenon:" + name] == "gauge"
    before = server.metrics()
    n = server.complete("count me", max_tokens=5, ignore_eos=True).json()["usage"]["completion_tokens"]
    after = server.metrics()
    assert n == 5 and after["generation_tokens_total"] - before["generation_tokens_total"] >= 5
    assert after["request_success_total:length"] == before["request_success_total:length"] + 1
    assert after["time_to_first_token_seconds_count"] == before["time_to_first_token_seconds_count"] + 1


def test_metrics_of_a_strange_name(start):
    s = start("--served-model-name", 'a"b\\c\nd', "other")
    parse_metrics(s.get("/metrics").body.decode())
    assert [m["id"] for m in s.get("/v1/models").json()["data"]] == ['a"b\\c\nd', "other"]
    assert s.complete(model="other", max_tokens=1).json()["model"] == "other"


def test_min_tokens_and_ignore_eos(server):
    r = server.complete("x", max_tokens=150, ignore_eos=True).json()
    assert r["usage"]["completion_tokens"] == 150 and r["choices"][0]["finish_reason"] == "length"


@pytest.mark.fake
def test_template_and_engine_errors(server):
    r = server.chat("FAKE-RAISE")
    assert r.status == 400 and "template says no" in r.error["message"]
    r = server.complete("FAKE-ERROR", max_tokens=20)
    assert r.status == 500 and "non-finite" in r.error["message"]
    r = server.complete("FAKE-ERROR", max_tokens=20, stream=True)
    last = r.body.decode().strip().split("\n\n")[-1]
    assert r.status == 200 and "error" in json.loads(last[6:])
    assert server.alive()


def test_api_keys(start):
    s = start("--api-key", "secret-one", "--api-key", "secret-two")
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret-one"}, {"Authorization": "Bearer secret-on"}):
        r = s.request("GET", "/v1/models", headers=headers)
        assert r.status == 401 and r.error["code"] == "invalid_api_key" and r.headers["www-authenticate"] == "Bearer"
        assert s.request("POST", "/tokenize", "{}", headers=headers).status == 401
    for key in ("secret-one", "secret-two"):
        c = openai.OpenAI(base_url=s.url + "/v1", api_key=key, max_retries=0)
        assert c.completions.create(model=c.models.list().data[0].id, prompt="hi", max_tokens=2).choices
    assert s.get("/health").status == s.get("/metrics").status == s.get("/version").status == 200


def test_tls(start, certificate):
    cert, key, context = certificate
    s = start("--ssl-certfile", cert, "--ssl-keyfile", key)
    s.tls = context
    assert s.get("/health").status == 200
    chunks = events(s.chat(stream=True, max_tokens=20))
    assert chunks[-1]["choices"][0]["finish_reason"]
    with s.connect() as c:
        for _ in range(3):
            c.send("GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
            assert c.reply().status == 200
