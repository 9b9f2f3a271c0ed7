"""Bad input, bad clients and bad moments: each gets the right status, and nobody else notices."""
import asyncio
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from conftest import MODEL


def post_text(path, body, extra=""):
    body = body if isinstance(body, bytes) else body.encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{extra}Content-Length: {len(body)}\r\n\r\n".encode() + body


def stream_body(max_tokens=1500, **kw):
    return json.dumps({"prompt": "hello", "stream": True, "ignore_eos": True, "max_tokens": max_tokens, **kw})


def rss_kib(s):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{s.p.pid}/status").read_text())[1])


# ---- Bodies ------------------------------------------------------------------------------------

INVALID = [b"", b"{", b"[]", b"null", b"5", b'"x"', b"{}x", b"{'prompt':1}", b'{"prompt":"\xff\xfe"}', b"[" * 200000, b'{"a":' * 5000,
           b'{"prompt":"x","prompt":"y"}', b'{"prompt":"\\ud800"}', b'{"prompt":"a\x01b"}', b'{"max_tokens":1e999}',
           b'{"seed":99999999999999999999}', b'{"prompt":NaN}', b"\x00", b"\xef\xbb\xbf{}", b'{"prompt":01}']


@pytest.mark.parametrize("body", INVALID, ids=range(len(INVALID)))
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"])
def test_invalid_json(server, path, body):
    r = server.post(path, body)
    assert r.status == 400 and r.headers["content-type"] == "application/json"
    assert r.error["type"] == "invalid_request_error"


BOTH = [("temperature", v) for v in ("0.5", -0.1, 2.1, True, [], {})]
BOTH += [("top_p", v) for v in ("1", -1, 1.5, False)] + [("min_p", v) for v in (-1, 2, "0")]
BOTH += [("top_k", v) for v in (1.5, "3", -2, True, 2**40)] + [("n", v) for v in (0, -1, 129, 1.5, "2", [1], True)]
BOTH += [("max_tokens", v) for v in ("5", -1, 1.5, True, [], 2**40, -(2**63))]
BOTH += [("stop", v) for v in (5, [5], [""], "", {"a": 1}, ["a"] * 17, "x" * 2000, "a\0b", [["a"]])]
BOTH += [("presence_penalty", v) for v in (-2.5, 3, "1")] + [("frequency_penalty", 2.01), ("repetition_penalty", 0), ("repetition_penalty", "1")]
BOTH += [("logit_bias", v) for v in ([1], 5, "x", {"a": 1}, {"-1": 1}, {"1": "x"}, {"1": 101}, {"1": None}, {"99999999": 1}, {"1.5": 1})]
BOTH += [("seed", v) for v in ("1", 1.5, True)] + [("stream", v) for v in ("true", 1, {})]
BOTH += [("stream_options", v) for v in (5, [], {"include_usage": True})]
BOTH += [("stop_token_ids", v) for v in (5, ["a"], [-1], [10**9], [1.5], {})] + [("ignore_eos", 1), ("ignore_eos", "x")]
BOTH += [("min_tokens", v) for v in (-1, "1", 1.5)] + [("priority", "x"), ("cache_salt", 5), ("cache_salt", "x" * 2000)]
BOTH += [("skip_special_tokens", 1), ("include_stop_str_in_output", "x"), ("model", 5), ("best_of", 3), ("best_of", "1")]
BOTH += [("response_format", v) for v in ({"type": "json_schema", "json_schema": {}}, {"type": "json_object"}, "text", {}, 5)]
BOTH += [("guided_json", {"a": 1}), ("guided_regex", "a+"), ("suffix", "x"), ("functions", [{}]), ("audio", {"voice": "x"})]
CHAT = [("messages", v) for v in (None, "hi", [], {}, [5], [None], [{}], [{"role": "user"}], [{"role": "king", "content": "x"}],
                                  [{"role": 5, "content": "x"}], [{"role": "user", "content": 5}], [{"role": "user", "content": None}],
                                  [{"role": "user", "content": [5]}], [{"role": "user", "content": [{"type": "text"}]}],
                                  [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
                                  [{"role": "assistant", "content": "x", "tool_calls": 5}],
                                  [{"role": "assistant", "tool_calls": [{"function": {}}]}])]
CHAT += [("top_logprobs", v) for v in (1.5, 21, -1, "2", 3)] + [("logprobs", v) for v in (1, "true")]
CHAT += [("tools", v) for v in (5, "x", [5], [{}], [{"type": "function"}], [{"type": "function", "function": {"name": 5}}])]
CHAT += [("tool_choice", v) for v in ("auto", "required", 5, {"type": "function", "function": {"name": "f"}})]
CHAT += [("chat_template_kwargs", v) for v in (5, "x", [])] + [("documents", 5), ("add_generation_prompt", 5), ("chat_template", 5)]
CHAT += [("max_completion_tokens", "5"), ("max_completion_tokens", 0), ("modalities", ["audio"]), ("reasoning_effort", 5), ("echo", True)]
COMPLETION = [("prompt", v) for v in (None, 5, {}, [], [[]], [1.5], ["a", 5], [1, "a"], [[1], "a"], [-1], [[999999999]], [[1, -1]], True, [None])]
COMPLETION += [("logprobs", v) for v in (-1, 21, "1", True)] + [("echo", 1), ("echo", "x"), ("add_special_tokens", 5)]


def check_wrong(server, path, base, field, value):
    r = server.post(path, {**base, field: value})
    assert r.status == 400, (field, value, r.status, r.body)
    assert r.error["param"].split("[")[0].split(".")[0] == field, r.body


@pytest.mark.parametrize("field,value", BOTH + CHAT)
def test_wrong_fields_chat(server, field, value):
    check_wrong(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}, field, value)


@pytest.mark.parametrize("field,value", BOTH + COMPLETION)
def test_wrong_fields_completions(server, field, value):
    check_wrong(server, "/v1/completions", {"prompt": "x", "max_tokens": 1}, field, value)


def test_wrong_combinations(server):
    assert server.chat(continue_final_message=True, add_generation_prompt=True).error["param"] == "continue_final_message"
    assert server.complete(min_tokens=5, max_tokens=4).error["param"] == "min_tokens"
    assert server.complete(["x"] * 100, n=100).error["param"] == "prompt"
    r = server.complete(model="no/such model")
    assert (r.status, r.error["code"], r.error["param"]) == (404, "model_not_found", "model")


def test_too_long(server):
    limit = server.max_len()
    for reply in (server.complete("a b " * limit), server.chat("a b " * limit), server.complete("a", max_tokens=limit),
                  server.complete([65] * (limit + 5)), server.complete("a b " * limit, stream=True), server.complete("a " * 3000000)):
        assert reply.status == 400 and reply.error["code"] == "context_length_exceeded"
        assert reply.error["message"].startswith(f"This model's maximum context length is {limit} tokens")
    assert server.alive()


# ---- HTTP --------------------------------------------------------------------------------------

MALFORMED = {
    "GET / HTTP/1.1\r\n\r\n": 400,  # no Host
    "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n": 400,
    "GET / HTTP/1.1\nHost: a\n\n": 400,
    "GET /\r\nHost: a\r\n\r\n": 400,
    "GET  / HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    "GET / HTTP/2.0\r\nHost: a\r\n\r\n": 505,
    "GET / FTP/1.1\r\nHost: a\r\n\r\n": 400,
    "G(T / HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    "GET x HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    "GET / HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n\r\n": 400,
    "GET / HTTP/1.1\r\nHost: a\r\nName : x\r\n\r\n": 400,
    "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n": 400,
    "GET / HTTP/1.1\r\nHost: a\r\nnocolon\r\n\r\n": 400,
    "GET / HTTP/1.1\r\nHost: a\r\nX: a\x01b\r\n\r\n": 400,
    "GET / HTTP/1.1\r\nHost: a\r\n" + "X: y\r\n" * 200 + "\r\n": 431,
    "GET /" + "a" * 9000 + " HTTP/1.1\r\nHost: a\r\n\r\n": 414,
    "POST /tokenize HTTP/1.1\r\nHost: a\r\n\r\n": 411,
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx": 400,
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\nx": 400,
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 1e3\r\n\r\nx": 400,
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\nx": 400,
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 400,
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n": 501,
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n": 501,
    "POST /tokenize HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 400,
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n": 400,
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n": 400,
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\nx": 400,
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n": 400,
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n": 400,
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;" + "a" * 1000: 400,
    "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n": 413,
    "GET / HTTP/1.1\r\nHost: a\r\nX: " + "a" * 100000 + "\r\n\r\n": 431,
}


@pytest.mark.parametrize("text,status", MALFORMED.items(), ids=range(len(MALFORMED)))
def test_malformed_http(server, text, status):
    with server.connect() as c:
        c.send(text.encode("latin-1"))
        r = c.reply()
        assert (r.status, r.headers["connection"]) == (status, "close") and r.error
        assert c.closed()
    assert server.get("/health").status == 200


@pytest.mark.parametrize("size", [2_000_000, 50_000_000])
def test_endless_head(server, size):
    with server.connect() as c:
        try:
            for _ in range(size // 100_000):
                c.send(b"a" * 100_000)
        except (ConnectionResetError, BrokenPipeError):
            pass
        try:
            assert c.reply().status == 431
        except (ConnectionResetError, EOFError):
            pass
    assert server.get("/health").status == 200


def test_body_over_limit(start):
    s = start("--max-body-size", "1MiB")
    big = b'{"prompt":"' + b"a" * 2_000_000 + b'"}'
    r = s.post("/tokenize", big)
    assert (r.status, r.error["code"]) == (413, "request_too_large")
    with s.connect() as c:
        c.send("POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(20):
            c.send(b"10000\r\n" + b"a" * 65536 + b"\r\n")
        assert c.reply().status == 413
    assert s.post("/tokenize", {"prompt": "a" * 500_000}).status == 200


def test_chunked_body_byte_by_byte(server):
    body = json.dumps({"prompt": "hello", "add_special_tokens": False}).encode()
    text = "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n".encode()
    text += b"".join(b"%x;ext=1\r\n%c\r\n" % (1, b) for b in body) + b"0\r\nTrailer: x\r\n\r\n"
    with server.connect() as c:
        for i in range(len(text)):
            c.send(text[i:i + 1])
        assert c.reply().json()["count"] >= 1
        c.send(text)
        assert c.reply().status == 200


def test_pipelining(server):
    one = post_text("/v1/completions", '{"prompt":"a","max_tokens":3}')
    streaming = post_text("/v1/completions", '{"prompt":"b","max_tokens":30,"stream":true}')
    version = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
    with server.connect() as c:
        c.send(one + version + streaming + version + one + b"\r\n" + version)
        kinds = [c.reply() for _ in range(6)]
    assert [r.status for r in kinds] == [200] * 6
    assert [("version" in r.body.decode()[:12], r.body.startswith(b"data: ")) for r in kinds] == [
        (False, False), (True, False), (False, True), (True, False), (False, False), (True, False)]


def test_hundreds_pipelined(server):
    with server.connect() as c:
        c.send(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n" * 500)
        assert all(c.reply().status == 200 for _ in range(500))


def test_unread_replies_do_not_pile_up(start):
    """Whoever pipelines requests for a long page and reads nothing waits; later it gets every reply."""
    s = start(env={"ASAN_OPTIONS": "quarantine_size_mb=1"})
    size, n = len(s.get("/").body), 20000
    assert size * n > 50e6
    before = rss_kib(s)
    with s.connect() as c:
        sender = threading.Thread(target=c.send, args=(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * n,))
        c.s.settimeout(60)
        sender.start()
        for _ in range(20):
            time.sleep(0.1)
            assert rss_kib(s) - before < 8 * 1024
        assert s.get("/health").status == 200
        for _ in range(n):
            r = c.reply()
            assert (r.status, len(r.body)) == (200, size)
        sender.join()


def test_slow_reader_of_a_long_reply(start):
    """The idle timeout begins when the reply is out; a reader that gets on is not cut off."""
    s = start("--idle-timeout", "2", "--write-timeout", "60")
    with s.connect(timeout=60) as one, s.connect(timeout=60) as two:
        lengths = []
        for c, extra in ((one, ""), (two, "Connection: close\r\n")):
            c.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            c.send(post_text("/tokenize", json.dumps({"prompt": "word " * 400_000, "return_token_strs": True}), extra))
        for c in (one, two):
            status, headers = c.head()
            lengths.append(int(headers["content-length"]))
            assert status == 200 and lengths[-1] > 3_000_000
        for _ in range(4):
            one.exactly(1000)
            two.exactly(1000)
            time.sleep(0.8)
        for c, length in ((one, lengths[0]), (two, lengths[1])):
            assert c.exactly(length - 4000).endswith(b"}")
            assert c.closed()


def test_end_and_reset_at_once(start):
    """A client that ends and resets its connection while a reply is on its way to it leaves no descriptor behind."""
    s = start()
    fds = len(os.listdir(f"/proc/{s.p.pid}/fd"))
    for _ in range(3):
        with s.connect() as c:
            c.send(post_text("/tokenize", json.dumps({"prompt": "word " * 400_000})))
            assert c.head()[0] == 200
            os.kill(s.p.pid, signal.SIGSTOP)
            c.s.shutdown(socket.SHUT_WR)
            c.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        os.kill(s.p.pid, signal.SIGCONT)
    end = time.time() + 10
    while len(os.listdir(f"/proc/{s.p.pid}/fd")) > fds and time.time() < end:
        time.sleep(0.05)
    assert len(os.listdir(f"/proc/{s.p.pid}/fd")) <= fds
    assert s.alive()


def test_keep_alive_and_versions(server):
    with server.connect() as c:
        c.send("GET /health HTTP/1.0\r\n\r\n")
        assert c.reply().headers["connection"] == "close" and c.closed()
    with server.connect() as c:
        c.send("GET /health HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
        assert c.reply().headers["connection"] == "keep-alive"
        c.send("GET http://host/health HTTP/1.1\r\nHost: x\r\nConnection: foo, close\r\n\r\n")
        assert c.reply().status == 200 and c.closed()
    with server.connect() as c:
        body = '{"prompt":"a","max_tokens":3,"stream":true}'
        c.send(f"POST /v1/completions HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}")
        r = c.reply()
        assert "transfer-encoding" not in r.headers and r.body.endswith(b"data: [DONE]\n\n")


def test_expect_continue(server):
    body = json.dumps({"prompt": "a", "max_tokens": 1, "metadata": "a" * 1900})
    with server.connect() as c:
        c.send(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n")
        t = time.time()
        assert c.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n" and time.time() - t < 0.5
        c.send(body)
        assert c.reply().status == 200


def test_methods_and_routes(server):
    for method, path, status in [("GET", "/v1/chat/completions", 405), ("POST", "/health", 405), ("DELETE", "/v1/models", 405),
                                 ("PUT", "/v1/completions", 405), ("GET", "/nothing", 404), ("POST", "/v1/nothing", 404),
                                 ("GET", "/v1/models/a/b/c", 404), ("GET", "/../../etc/passwd", 404), ("BREW", "/coffee", 404)]:
        r = server.request(method, path, body="{}" if method in ("POST", "PUT") else None)
        assert r.status == status and r.error, path
        assert ("allow" in r.headers) == (status == 405)


def test_cors(start):
    s = start("--api-key", "k")
    h = {"Origin": "http://page.example", "Access-Control-Request-Method": "POST",
         "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os"}
    r = s.request("OPTIONS", "/v1/chat/completions", headers=h)
    assert r.status == 204 and r.headers["access-control-allow-origin"] == "*"
    assert "authorization" in r.headers["access-control-allow-headers"] and "POST" in r.headers["access-control-allow-methods"]
    real = s.request("POST", "/v1/completions", '{"prompt":"a","max_tokens":1}', headers={"Origin": "http://page.example", "Authorization": "Bearer k"})
    assert real.status == 200 and real.headers["access-control-allow-origin"] == "*"
    denied = s.request("POST", "/v1/completions", "{}", headers={"Origin": "http://page.example"})
    assert denied.status == 401 and denied.headers["access-control-allow-origin"] == "*"


def test_request_id(server):
    assert server.request("GET", "/health", headers={"X-Request-Id": "abc-123"}).headers["x-request-id"] == "abc-123"
    for bad in ("a b", "x" * 300, "\x7f"):
        r = server.request("GET", "/version", headers={"X-Request-Id": bad})
        assert r.status in (200, 400) and r.headers.get("x-request-id") != bad


# ---- Slow, silent and leaving clients ----------------------------------------------------------

def test_slow_loris(start):
    s = start("--idle-timeout", "2")
    with s.connect() as silent, s.connect() as dripping:
        begin = time.time()
        dripping.s.settimeout(0.2)
        text = b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: "
        status = None
        while time.time() - begin < 20 and status is None:
            try:
                dripping.send(text[:1] or b"a")
                text = text[1:]
                status = dripping.reply().status
            except TimeoutError:
                pass
        assert status == 408 and 8 < time.time() - begin < 13
        assert silent.closed()
    assert s.alive()


def test_many_idle_connections(server):
    held = [server.connect() for _ in range(300)]
    for c in held[::2]:
        c.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    assert server.alive()
    for c in held:
        c.close()
    assert server.alive()


def wait_running(server, n, seconds=5):
    end = time.time() + seconds
    while time.time() < end:
        m = server.metrics()
        if m["num_requests_running"] + m["num_requests_waiting"] >= n:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
@pytest.mark.parametrize("streaming", [True, False])
def test_disconnect_cancels(server, how, streaming):
    assert server.idle_within(10)
    c = server.connect()
    c.send(post_text("/v1/completions", stream_body(server.long(), stream=streaming)))
    if streaming:
        c.until(b"data: ")
    else:
        assert wait_running(server, 1)
    if how == "half-close":
        c.s.shutdown(socket.SHUT_WR)
    else:
        if how == "reset":
            c.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        c.close()
    assert server.idle_within(1)
    c.close()
    assert server.alive()


@pytest.mark.fake
@pytest.mark.parametrize("streaming", [True, False])
def test_disconnect_in_prefill(start, streaming):
    s = start(env={"FAKE_PREFILL_US": "100000"})
    with s.connect() as c:
        c.send(post_text("/v1/completions", json.dumps({"prompt": "a" * 500, "stream": streaming})))
        assert wait_running(s, 1)
    assert s.idle_within(1)


def test_disconnect_while_uploading(server):
    for n in range(0, 60, 7):
        with server.connect() as c:
            c.send(post_text("/v1/completions", stream_body(server.long()))[:20 + n])
    assert server.alive()


def test_slow_reader_is_bounded_and_harmless(start):
    s = start("--write-timeout", "3", *([] if os.environ.get("XENON_BIN") else ["--max-model-len", "1000000"]), env={"FAKE_TOKEN_US": "1"})
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(("127.0.0.1", s.port))
    body = {"prompt": "a", "stream": True, "ignore_eos": True, "max_tokens": min(100000, s.max_len() - 100), "logprobs": 5}
    slow.sendall(post_text("/v1/completions", json.dumps(body)))
    assert wait_running(s, 1)
    for _ in range(10):
        assert s.complete("b", max_tokens=5).status == 200
        time.sleep(0.1)
    if not os.environ.get("XENON_BIN"):
        assert rss_kib(s) < 400_000
    assert s.idle_within(30)  # the write timeout ends it
    slow.close()
    assert s.alive()


@pytest.mark.fake
def test_slow_reader_gets_everything(start):
    s = start("--max-model-len", "100000", env={"FAKE_TOKEN_US": "1"})
    body = {"prompt": "a", "stream": True, "ignore_eos": True, "max_tokens": 20000, "temperature": 0}
    with s.connect() as c:
        c.send(post_text("/v1/completions", json.dumps(body)).replace(b"HTTP/1.1", b"HTTP/1.0"))
        time.sleep(2)
        r = c.reply()
    events = [json.loads(e[6:]) for e in r.body.decode().split("\n\n") if e.startswith("data: {")]
    text = "".join(e["choices"][0]["text"] for e in events)
    assert r.body.endswith(b"data: [DONE]\n\n")
    assert text == s.complete("a", ignore_eos=True, max_tokens=20000, temperature=0).json()["choices"][0]["text"]


@pytest.mark.fake
def test_keep_alive_comments(start):
    s = start("--keepalive-interval", "1", env={"FAKE_PREFILL_US": "5000"})
    r = s.complete("a" * 500, stream=True, max_tokens=3)
    assert r.status == 200 and r.body.startswith(b": keep-alive\n\n") and r.body.endswith(b"data: [DONE]\n\n")
    assert r.body.count(b": keep-alive") in (1, 2, 3)


# ---- Load --------------------------------------------------------------------------------------

async def one_stream(port, body):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(post_text("/v1/completions", body, "Connection: close\r\n"))
    data = await reader.read()
    writer.close()
    return data


def test_200_concurrent_streams(server):
    alone = {i: server.complete(f"prompt {i % 10}", max_tokens=20, temperature=0).json()["choices"][0]["text"] for i in range(10)}

    async def everything():
        bodies = [json.dumps({"prompt": f"prompt {i % 10}", "stream": True, "max_tokens": 20, "temperature": 0}) for i in range(200)]
        return await asyncio.gather(*(one_stream(server.port, b) for b in bodies))

    for i, data in enumerate(asyncio.run(everything())):
        assert b" 200 OK\r\n" in data and b"data: [DONE]\n\n" in data
        texts = re.findall(rb'data: (\{.*?\})\n\n', data)
        assert "".join(json.loads(t)["choices"][0]["text"] for t in texts) == alone[i % 10]
    assert server.idle_within(5)


def test_random_disconnects_leave_nothing(server):
    assert server.idle_within(10)
    body = stream_body(server.long())
    fds = len(os.listdir(f"/proc/{server.p.pid}/fd"))

    async def rude(i):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        data = post_text("/v1/completions", body)
        writer.write(data[:len(data) - (i * 7 % 40 if i % 3 == 0 else 0)])
        await writer.drain()
        if i % 3 == 1:
            await reader.read(100 + i)
        writer.close()

    async def everything():
        for k in range(6):
            await asyncio.gather(*(rude(50 * k + i) for i in range(50)))

    asyncio.run(everything())
    assert server.idle_within(5) and server.alive()
    end = time.time() + 5
    while len(os.listdir(f"/proc/{server.p.pid}/fd")) > fds + 2 and time.time() < end:
        time.sleep(0.1)
    assert len(os.listdir(f"/proc/{server.p.pid}/fd")) <= fds + 2


@pytest.mark.fake
def test_queue_full(start):
    s = start(env={"FAKE_QUEUE": "2", "FAKE_TOKEN_US": "2000"})
    held = [s.connect() for _ in range(2)]
    for c in held:
        c.send(post_text("/v1/completions", stream_body(max_tokens=200)))
        c.until(b"data: ")
    r = s.complete(max_tokens=1)
    assert r.status == 429 and r.error["code"] == "rate_limit_exceeded" and int(r.headers["retry-after"]) > 0
    assert s.complete(["a", "b", "c"], stream=True).status == 429
    assert s.metrics()["admission_rejections_total:queue_full"] == 2
    for c in held:
        assert b"[DONE]" in c.until(b"0\r\n\r\n")
        c.close()
    assert s.complete(max_tokens=1).status == 200


def test_connection_limit(start):
    s = start("--max-connections", "20")
    held = [s.connect() for _ in range(20)]
    time.sleep(0.2)
    with s.connect() as c:
        c.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            assert c.reply().status == 503
        except ConnectionResetError:
            pass
    for c in held:
        c.close()
    time.sleep(0.2)
    assert s.alive()


# ---- Beginning and end -------------------------------------------------------------------------

@pytest.mark.fake
def test_while_loading(start):
    s = start(env={"FAKE_LOAD_MS": "1500"}, wait=False)
    assert s.port_known.wait(20)
    h = s.get("/health")
    assert h.status == 503 and "loading" in h.error["message"] and "retry-after" in h.headers
    assert s.complete().status == 503 and s.get("/metrics").status == 200 and s.get("/v1/models").status == 200
    assert s.ready.wait(20)
    time.sleep(0.1)
    s.url = ""
    assert s.alive()


@pytest.mark.fake
@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_loading(start, sig):
    s = start(env={"FAKE_LOAD_MS": "30000"}, wait=False)
    assert s.port_known.wait(20)
    t = time.time()
    assert s.stop(sig) == 0 and time.time() - t < 1


@pytest.mark.fake
def test_engine_dies(start):
    s = start()
    with s.connect() as other:
        other.send(post_text("/v1/completions", stream_body()))
        other.until(b"data: ")
        r = s.complete("FAKE-DIE", max_tokens=50)
        assert r.status == 503 and r.error["type"] == "service_unavailable_error"
        data = other.until(b"0\r\n\r\n")
        assert b'data: {"error"' in data and b"[DONE]" not in data
    h = s.get("/health")
    assert h.status == 503 and "stopped" in h.error["message"]
    assert s.complete().status == 503 and s.get("/metrics").status == 200


@pytest.mark.fake
def test_sigterm_drains(start):
    s = start(env={"FAKE_TOKEN_US": "10000"})
    with s.connect() as c, s.connect() as idle, s.connect() as busy:
        c.send(post_text("/v1/completions", stream_body(max_tokens=100)))
        busy.send(post_text("/v1/completions", '{"prompt":"x","max_tokens":20}') + post_text("/v1/completions", '{"prompt":"x"}'))
        c.until(b"data: ")
        s.p.send_signal(signal.SIGTERM)
        assert idle.closed()
        with pytest.raises(OSError):
            s.connect()
        first = busy.reply()
        assert first.status == 200 and first.headers["connection"] == "close"
        assert b"[DONE]" in c.until(b"0\r\n\r\n")
        assert c.closed()
    assert s.p.wait(5) == 0


@pytest.mark.fake
def test_drain_has_an_end(start):
    s = start("--shutdown-timeout", "1", env={"FAKE_TOKEN_US": "10000"})
    with s.connect() as c:
        c.send(post_text("/v1/completions", stream_body(max_tokens=3000)))
        c.until(b"data: ")
        t = time.time()
        s.p.send_signal(signal.SIGTERM)
        data = c.until(b"0\r\n\r\n")
        assert b'data: {"error"' in data and b"[DONE]" not in data
    assert s.p.wait(10) == 0 and time.time() - t < 8


@pytest.mark.fake
def test_second_signal_ends_at_once(start):
    s = start(env={"FAKE_TOKEN_US": "10000"})
    with s.connect() as c:
        c.send(post_text("/v1/completions", stream_body(max_tokens=3000)))
        c.until(b"data: ")
        s.p.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        s.p.send_signal(signal.SIGTERM)
        assert s.p.wait(1) == 128 + signal.SIGTERM


def test_port_in_use(binary):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        t = time.time()
        r = subprocess.run([binary, "serve", "--model", MODEL, "--port", str(port)], capture_output=True, text=True, timeout=60)
        assert r.returncode == 1 and "in use" in r.stderr and str(port) in r.stderr and len(r.stderr.splitlines()) == 1
        assert time.time() - t < 5 and r.stdout == ""


FLAGS = [["--nonsense"], ["--port"], ["--port", "x"], ["--port", "70000"], ["--port=-1"], ["--max-num-seqs", "0"], ["--max-model-len", "1.5q"],
         ["--kv-cache-dtype", "int3"], ["--kv-cache-memory", "4XB"], ["--scheduler-policy", "random"], ["--level", "9"], ["--api-key", ""],
         ["--enable-prefix-caching=1"], ["one", "two"], ["--ssl-keyfile", "x"], ["--seed", "-1"], ["--temperature", "1"]]


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_wrong_flags(binary, flags):
    r = subprocess.run([binary, "serve", "--model", "missing", *flags], capture_output=True, text=True, timeout=20)
    assert r.returncode == 2 and len(r.stderr.splitlines()) == 1 and r.stdout == ""


def test_no_model_and_missing_files(binary):
    r = subprocess.run([binary, "serve"], capture_output=True, text=True, timeout=20)
    assert r.returncode == 2 and "--model" in r.stderr and len(r.stderr.splitlines()) == 1
    r = subprocess.run([binary, "serve", "missing", "--port", "0", "--log_level=error"], capture_output=True, text=True, timeout=20)
    assert r.returncode == 1 and "missing" in r.stderr and len(r.stderr.splitlines()) == 1
    r = subprocess.run([binary, "serve", "missing", "--port", "0", "--ssl_certfile=/none"], capture_output=True, text=True, timeout=20)
    assert r.returncode == 1 and "/none" in r.stderr and len(r.stderr.splitlines()) == 1
    r = subprocess.run([binary, "serve", "missing", "--host", "not.a.host.invalid"], capture_output=True, text=True, timeout=20)
    assert r.returncode == 1 and "not.a.host" in r.stderr and len(r.stderr.splitlines()) == 1


def test_help(binary):
    r = subprocess.run([binary, "serve", "--help"], capture_output=True, text=True, timeout=20)
    lines = r.stdout.splitlines()
    assert r.returncode == 0 and r.stderr == "" and len(lines) <= 24 and max(map(len, lines)) <= 80
    r = subprocess.run([binary, "serve", "--help-all"], capture_output=True, text=True, timeout=20)
    assert "--fake-nodes" in r.stdout and "--kv-cache-memory" in r.stdout


@pytest.mark.fake
def test_all_flags(start):
    s = start("--served_model_name", "m1", "m2", "--host=localhost", "--max_model_len=2k", "--max-num-seqs", "4", "--max-num-batched-tokens", "64",
              "--block-size", "16", "--num-kv-blocks", "100", "--kv-cache-memory", "1.5GiB", "--kv_cache_dtype", "bf16",
              "--no-enable-prefix-caching", "--scheduler-policy", "prefill_first", "--threads", "2", "--dtype", "float32", "--level", "0",
              "--load-format", "dummy", "--quantize", "q8_0", "--chat-template", "x.jinja", "--seed", "18446744073709551615",
              "--max-queue", "7", "--fake-nodes", "2", "--no-pin", "--no-progress")
    data = s.get("/v1/models").json()["data"]
    assert [m["id"] for m in data] == ["m1", "m2"] and data[0]["max_model_len"] == 2048
    assert 'enable_prefix_caching="False"' in s.get("/metrics").body.decode()
