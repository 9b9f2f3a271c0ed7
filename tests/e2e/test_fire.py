"""The server under fire: a thousand streams with rude clients among them, signals, closed logs; and `xenon bench serve`."""
import asyncio
import json
import os
import re
import resource
import signal
import socket
import statistics
import struct
import subprocess
import threading
import time

import pytest

from conftest import ARGS, MODEL, REAL, Server
from test_hostile import post_text, rss_kib, stream_body, wait_running

N_STREAMS = 256 if REAL else 1000
N_TOKENS = 8 if REAL else 60


def texts(data):
    """Text of all events in raw reply bytes, chunk sizes and all."""
    found = re.findall(rb"data: (\{.*?\})\n\n", data)
    return "".join(c["text"] for e in found for c in json.loads(e)["choices"])


def n_fds(s):
    return len(os.listdir(f"/proc/{s.p.pid}/fd"))


def falls_to(bound, read, seconds=10):
    end = time.time() + seconds
    while read() > bound and time.time() < end:
        time.sleep(0.05)
    return read() <= bound


# ---- A thousand streams ------------------------------------------------------------------------

async def connect(port):
    return await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)


async def all_of(reader, seconds=120):
    return await asyncio.wait_for(reader.read(-1), seconds)


async def honest(port, body):
    reader, writer = await connect(port)
    writer.write(post_text("/v1/completions", body, "Connection: close\r\n"))
    data = await all_of(reader)
    writer.close()
    return data


async def slow_reader(port, body):
    """Takes a few bytes at a time through a small window, later everything."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    s.setblocking(False)
    await asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=s, limit=512)
    writer.write(post_text("/v1/completions", body, "Connection: close\r\n"))
    data = b""
    for _ in range(10):
        data += await reader.read(100)
        await asyncio.sleep(0.05)
    data += await all_of(reader)
    writer.close()
    return data


async def in_pieces(port, body):
    """Two pipelined requests, a few bytes at a time."""
    reader, writer = await connect(port)
    text = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n" + post_text("/v1/completions", body, "Connection: close\r\n")
    for i in range(0, len(text), 37):
        writer.write(text[i:i + 37])
        await writer.drain()
        await asyncio.sleep(0.001)
    data = await all_of(reader)
    writer.close()
    return data


async def half_closed(port, body):
    reader, writer = await connect(port)
    writer.write(post_text("/v1/completions", body))
    writer.write_eof()
    await all_of(reader)
    writer.close()


async def vanishing(port, body, i):
    reader, writer = await connect(port)
    writer.write(post_text("/v1/completions", body))
    await writer.drain()
    if i % 2:
        await reader.read(1 + i % 500)
    if i % 3 == 0:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


def body_of(i, n_tokens=N_TOKENS):
    return json.dumps({"prompt": f"prompt {i % 7}", "stream": True, "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True})


async def one_client(s, i):
    kind = i % 10
    if kind == 6:
        return await slow_reader(s.port, body_of(i))
    if kind == 7:
        return await in_pieces(s.port, body_of(i))
    if kind == 8:
        return await half_closed(s.port, body_of(i, s.max_tokens_long))
    if kind == 9:
        return await vanishing(s.port, body_of(i, s.max_tokens_long), i)
    return await honest(s.port, body_of(i))


def crowd(s, n):
    async def everybody():
        return await asyncio.gather(*(one_client(s, i) for i in range(n)))

    return asyncio.run(everybody())


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def check_clean(s, fds, seconds=20):
    assert s.idle_within(seconds)
    m = s.metrics()
    assert m["num_requests_running"] == m["num_requests_waiting"] == m["kv_cache_usage_perc"] == 0
    assert falls_to(fds, lambda: n_fds(s)), (fds, n_fds(s))


def test_crowd_of_streams(start, many_files):
    if many_files < 2 * N_STREAMS + 200:
        pytest.skip(f"{many_files} file descriptors are too few")
    # A small quarantine, or freed memory would count as grown under ASan.
    s = start("--max-num-seqs", "256", "--max-model-len", "2048", *(["--num-kv-blocks", "256"] if REAL else []),
              env={"FAKE_TOKEN_US": "10000", "ASAN_OPTIONS": "quarantine_size_mb=4"})
    s.max_tokens_long = s.long()
    alone = [s.complete(f"prompt {i}", max_tokens=N_TOKENS, temperature=0, ignore_eos=True).json()["choices"][0]["text"]
             for i in range(7)]
    fds = n_fds(s)
    for i, data in enumerate(crowd(s, N_STREAMS)):
        if i % 10 >= 8:
            continue
        assert data.count(b"HTTP/1.1 200 OK") == (2 if i % 10 == 7 else 1)
        assert data.count(b"data: [DONE]\n\n") == 1 and data.endswith(b"0\r\n\r\n")
        assert texts(data) == alone[i % 7], i
    check_clean(s, fds)
    # The first crowd has filled the cache and the heap's free lists; the second one is to find room there.
    before = rss_kib(s)
    crowd(s, N_STREAMS)
    check_clean(s, fds)
    assert rss_kib(s) - before < 16 * 1024, (before, rss_kib(s))
    assert s.alive()


# ---- Signals -----------------------------------------------------------------------------------

def test_stop_and_continue(start):
    s = start(env={"FAKE_TOKEN_US": "3000"})
    n = 60 if REAL else 200
    body = {"prompt": "hello", "ignore_eos": True, "max_tokens": n, "temperature": 0}
    whole = s.complete(**body).json()["choices"][0]["text"]
    with s.connect() as c, s.connect() as waiting:
        c.send(post_text("/v1/completions", json.dumps({**body, "stream": True}), "Connection: close\r\n"))
        data = c.until(b"data: ")
        for _ in range(3):
            os.kill(s.p.pid, signal.SIGSTOP)
            time.sleep(0.5)
            if not waiting.buf:
                waiting.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n")  # arrives while nobody is at home
            os.kill(s.p.pid, signal.SIGCONT)
            assert waiting.reply().status == 200
        assert c.closed()
        data += c.buf
    assert texts(data) == whole and b"data: [DONE]" in data
    assert s.idle_within(5) and s.alive()


def refused(s):
    try:
        with s.connect() as c:
            c.send(post_text("/v1/completions", '{"prompt":"x","max_tokens":1}'))
            return c.reply().status == 503
    except (OSError, EOFError):
        return True


@pytest.mark.parametrize("n_signals", [1, 2])
def test_sigterm_with_streams(start, n_signals):
    s = start(env={"FAKE_TOKEN_US": "10000"})
    n = 100 if n_signals == 1 else s.long()
    streams = [s.connect() for _ in range(5)]
    for c in streams:
        c.send(post_text("/v1/completions", stream_body(n)))
    for c in streams:
        c.until(b"data: ")
    s.p.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    assert refused(s)
    if n_signals == 1:
        for c in streams:
            assert b"data: [DONE]\n\n" in c.until(b"0\r\n\r\n")
            assert c.closed()
        assert s.p.wait(20) == 0
    else:
        t = time.time()
        s.p.send_signal(signal.SIGTERM)
        assert s.p.wait(10) == 128 + signal.SIGTERM and time.time() - t < 3
    for c in streams:
        c.close()


# ---- Logs that go nowhere ----------------------------------------------------------------------

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Quiet(Server):
    """A server whose log nobody can read; `redirect` is shell syntax."""

    def __init__(self, binary, redirect):
        self.log, self.tls, self.port = [], None, free_port()
        self.p = subprocess.Popen(["sh", "-c", f'exec "$@" {redirect}', "sh", binary, "serve", "--model", MODEL, "--port",
                                   str(self.port), "--log-level", "debug", *ARGS], stderr=subprocess.DEVNULL)
        end = time.time() + 300
        while not self.healthy() and time.time() < end:
            assert self.p.poll() is None
            time.sleep(0.1)

    def healthy(self):
        try:
            return self.get("/health").status == 200
        except OSError:
            return False


@pytest.mark.parametrize("redirect", ["<&- >&- 2>&-", ">/dev/full 2>&1"])
def test_log_goes_nowhere(binary, redirect):
    s = Quiet(binary, redirect)
    try:
        fds = n_fds(s)
        for i in range(20):
            with s.connect() as c:
                c.send(post_text("/v1/completions", stream_body(5), "Connection: close\r\n"))
                assert c.closed()
                assert c.buf.startswith(b"HTTP/1.1 200 OK\r\n") and c.buf.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
                assert b" debug " not in c.buf and b" info " not in c.buf
            assert s.complete(5, max_tokens=1).status == 400
        assert falls_to(fds, lambda: n_fds(s))
        assert s.alive()
    finally:
        assert s.stop() == 0


# ---- A long prefill ----------------------------------------------------------------------------

def test_comments_while_a_long_prompt_is_read(start):
    s = start("--keepalive-interval", "1", *(["--max-num-batched-tokens", "16"] if REAL else []), env={"FAKE_PREFILL_US": "1000"})
    n = 2000 if REAL else 3900
    t = time.time()
    with s.connect(timeout=120) as c:
        c.send(post_text("/v1/completions", json.dumps({"prompt": [40 + i % 50 for i in range(n)], "stream": True, "max_tokens": 2})))
        data = c.until(b'data: {"')
        seconds = time.time() - t
        data += c.until(b"0\r\n\r\n")
    assert data.count(b": keep-alive\n\n") <= seconds + 1
    if seconds > 3:
        assert data.count(b": keep-alive\n\n") >= 1
        assert data.index(b": keep-alive\n\n") < data.index(b"data: ")
    assert b"data: [DONE]" in data and s.idle_within(5)


# ---- xenon bench serve -------------------------------------------------------------------------

def bench(binary, s, *args, env=None, scheme="http"):
    r = subprocess.run([binary, "bench", "serve", "--url", f"{scheme}://127.0.0.1:{s.port}", "--json", "-", *args],
                       capture_output=True, text=True, timeout=120, env={**os.environ, **(env or {})})
    assert "Sanitizer" not in r.stderr and "runtime error" not in r.stderr, r.stderr
    return r.returncode, json.loads(r.stdout) if r.stdout else None, r.stderr


def test_bench_serve_small(server, binary):
    before = server.metrics()
    rc, j, err = bench(binary, server, "-n", "10", "-c", "4", "--input-len", "20", "--output-len", "8", "--ignore-eos",
                       "--shared-prefix-len", "12", "--goodput", "ttft:100000", "e2el:100000", "--save-detailed")
    after = server.metrics()
    assert rc == 0 and "100% of 10" in err
    assert (j["completed"], j["failed"], j["num_prompts"], j["max_concurrency"]) == (10, 0, 10, 4)
    assert (j["total_input_tokens"], j["total_output_tokens"]) == (320, 80)
    assert after["generation_tokens_total"] - before["generation_tokens_total"] == 80
    assert j["request_goodput"] == j["request_throughput"] == pytest.approx(10 / j["duration"], rel=1e-4)
    assert j["output_throughput"] == pytest.approx(80 / j["duration"], rel=1e-4)
    for t in ("ttft", "tpot", "itl", "e2el"):
        assert 0 <= j[f"median_{t}_ms"] <= j[f"p90_{t}_ms"] <= j[f"p99_{t}_ms"] <= j[f"max_{t}_ms"]
    ttfts = [(r["first"] - r["start"]) * 1000 for r in j["requests"]]
    assert j["mean_ttft_ms"] == pytest.approx(statistics.mean(ttfts), abs=0.02)
    assert j["median_ttft_ms"] == pytest.approx(statistics.median(ttfts), abs=0.02)
    # Never more than four at a time.
    marks = sorted([(r["start"], 1) for r in j["requests"]] + [(r["end"], -1) for r in j["requests"]])
    level, highest = 0, 0
    for _, d in marks:
        level += d
        highest = max(highest, level)
    assert highest == 4


def test_bench_serve_prompts_by_seed(server, binary, tmp_path):
    def prompts(seed, *more):
        out = tmp_path / "prompts"
        rc, _, _ = bench(binary, server, "-n", "6", "--input-len", "30", "--output-len", "2", "--dataset-seed", str(seed),
                         "--prompts-out", str(out), *more)
        assert rc == 0
        return [json.loads(line) for line in out.read_text().splitlines()]

    a = prompts(5)
    assert a == prompts(5) and len({tuple(p["prompt"]) for p in a}) == 6 and prompts(6) != a
    assert all(len(p["prompt"]) == 30 and p["max_tokens"] == 2 for p in a)
    b = prompts(5, "--range-ratio", "0.5", "--shared-prefix-len", "7")
    assert len({tuple(p["prompt"][:7]) for p in b}) == 1
    assert all(22 <= len(p["prompt"]) <= 52 for p in b) and len({len(p["prompt"]) for p in b}) > 1


def test_bench_serve_counts_failures(start, binary):
    s = start("--api-key", "secret")
    rc, j, err = bench(binary, s, "-n", "3", "--api-key", "secret", "--output-len", "100000")
    assert rc == 1 and (j["completed"], j["failed"]) == (0, 3) and "3 failed: HTTP 400: This model's maximum" in err
    rc, j, err = bench(binary, s, "-n", "3", "--output-len", "2", env={"XENON_API_KEY": "secret"})
    assert rc == 0 and j["completed"] == 3
    rc, j, err = bench(binary, s, "-n", "3", "--api-key", "wrong")
    assert rc == 1 and j is None and "HTTP 401" in err and len(err.splitlines()) == 1
    for flags in (["--goodput", "ttft:x"], ["--goodput", "itl:3"], ["--url", "nonsense"], ["--num-prompts", "0"], ["--burstiness", "0"]):
        r = subprocess.run([binary, "bench", "serve", *flags], capture_output=True, text=True)
        assert r.returncode in (1, 2) and len(r.stderr.splitlines()) == 1, flags


def test_bench_serve_when_the_server_dies(start, binary):
    s = start(env={"FAKE_TOKEN_US": "20000"})
    p = subprocess.Popen([binary, "bench", "serve", "--url", f"http://localhost:{s.port}/v1/", "-n", "8", "-q", "--ignore-eos",
                          "--output-len", str(s.long()), "--input-len", "8"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert wait_running(s, 4)
    s.p.kill()
    out, err = p.communicate(timeout=20)
    assert p.returncode == 1 and "0 requests ok, 8 failed" in out and " failed: " in err and "Sanitizer" not in err


class Strange:
    """A server that answers every completion with the same bytes, and closes the connection or not."""

    def __init__(self, reply, close):
        self.reply, self.close, self.n_connections = reply, close, 0
        self.s = socket.create_server(("127.0.0.1", 0))
        self.port = self.s.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                c, _ = self.s.accept()
            except OSError:
                return
            self.n_connections += 1
            threading.Thread(target=self.serve_quietly, args=(c,), daemon=True).start()

    def serve_quietly(self, c):
        try:
            self.serve(c)
        except OSError:
            pass  # the client has left, as it should after nonsense

    def serve(self, c):
        with c, c.makefile("rb") as f:
            while head := b"".join(iter(f.readline, b"\r\n")):
                length = re.search(rb"content-length: (\d+)", head, re.I)
                f.read(int(length[1]) if length else 0)
                if b"/v1/models" in head:
                    body = b'{"data":[{"id":"strange"}]}'
                    c.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                elif b"/tokenize" in head:
                    c.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")
                else:
                    c.sendall(self.reply)
                    if self.close:
                        return


EVENTS = b'data: {"choices":[{"text":"a"}]}\n\ndata: {"choices":[{"text":"b"}]}\n\ndata: [DONE]\n\n'
STRANGE = [  # reply, whether the connection is closed behind it, why it failed (None: it did not)
    (b"HTTP/1.1 200 OK\r\n\r\n" + EVENTS, True, None),
    (b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + EVENTS.replace(b"\n", b"\r\n"), True, None),
    (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(EVENTS) + EVENTS, False, None),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(EVENTS) + EVENTS, True, None),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(EVENTS) + EVENTS + b"\r\n0\r\n\r\n", False, None),
    (b"HTTP/1.1 200 OK\r\n\r\n" + EVENTS[:40], True, "without [DONE]"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + EVENTS, True, "closed before the end"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + EVENTS, False, "malformed chunk"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", False, "no HTTP/1.1"),
    (b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 5\r\n\r\nohno!", False, "HTTP 500: ohno!"),
    (b"HTTP/1.1 204 No Content\r\n\r\n", False, "HTTP 204"),
    (b"220 smtp ready\r\n\r\n", False, "no HTTP/1.1"),
    (b"\0" * 100000, False, "no HTTP/1.1"),
    (b"", True, "closed before the end"),
]


@pytest.mark.parametrize("reply,close,why", STRANGE, ids=range(len(STRANGE)))
def test_bench_serve_with_a_strange_server(binary, reply, close, why):
    s = Strange(reply, close)
    rc, j, err = bench(binary, s, "-n", "5", "-c", "1", "-q", "--silence-timeout", "10")
    s.s.close()
    assert rc == (1 if why else 0) and j["completed"] == (0 if why else 5), err
    if why:
        assert why in err
    else:
        assert j["total_output_tokens"] == 10  # pieces of text, where no usage comes
        assert s.n_connections == (6 if close else 2)  # the first one only asks whether anybody listens


@pytest.mark.fake
def test_bench_serve_rate_and_silence(start, binary):
    s = start(env={"FAKE_PREFILL_US": "2000", "FAKE_TOKEN_US": "1000"})
    rc, j, _ = bench(binary, s, "-n", "40", "--request-rate", "20", "--burstiness", "100", "--input-len", "2", "--output-len", "2",
                     "--save-detailed")
    starts = [r["start"] for r in j["requests"]]
    gaps = [b - a for a, b in zip(starts, starts[1:])]
    assert rc == 0 and starts == sorted(starts)
    assert statistics.mean(gaps) == pytest.approx(0.05, rel=0.2)
    rc, j, err = bench(binary, s, "-n", "2", "--input-len", "2000", "--silence-timeout", "1")
    assert rc == 1 and j["failed"] == 2 and "2 failed: the server was silent for too long" in err
    assert s.idle_within(2)


def test_bench_serve_over_tls(start, binary, certificate):
    cert, key, context = certificate
    s = start("--ssl-certfile", cert, "--ssl-keyfile", key, wait=False)
    assert s.ready.wait(300)
    s.tls = context
    args = [binary, "bench", "serve", "--url", f"https://localhost:{s.port}", "-n", "6", "--input-len", "8", "--output-len", "4", "-q"]
    r = subprocess.run(args, capture_output=True, text=True, env={**os.environ, "SSL_CERT_FILE": cert}, timeout=60)
    assert r.returncode == 0 and "6 requests ok" in r.stdout, r.stderr
    r = subprocess.run(args, capture_output=True, text=True, timeout=60)
    assert r.returncode == 1 and "certificate" in r.stderr


@pytest.mark.fake
def test_bench_serve_arrivals_are_gamma(start, binary):
    """Mean and spread of the gaps as the burstiness says: the coefficient of variation is 1 / sqrt(burstiness)."""
    s = start(env={"FAKE_TOKEN_US": "200"})
    for burstiness in (0.25, 9):
        rc, j, _ = bench(binary, s, "-n", "100", "--request-rate", "50", "--burstiness", str(burstiness), "--input-len", "1",
                         "--output-len", "1", "--save-detailed", "-q", "--dataset-seed", "3")
        starts = [r["start"] for r in j["requests"]]
        gaps = [b - a for a, b in zip(starts, starts[1:])]
        assert rc == 0 and statistics.mean(gaps) == pytest.approx(1 / 50, rel=0.35)
        assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(burstiness ** -0.5, rel=0.5)
