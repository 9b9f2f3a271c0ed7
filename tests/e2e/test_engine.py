"""The server on the real engine with a tiny golden model: a thousand streams at once, readers that stand still, priorities,
time limits, full queues, prompts that nobody waits for any more."""
import asyncio
import json
import os
import re
import signal
import socket
import threading
import time

import pytest

from conftest import SMALL, TINY
from test_fire import all_of, check_clean, connect, falls_to, many_files, n_fds
from test_hostile import post_text, rss_kib, wait_running

pytestmark = pytest.mark.tiny

N_STREAMS, N_TOKENS = (100, 40) if SMALL else (1000, 150)
KIB_PER_STREAM = 64
N_BODIES = 30
VERSION = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def tiny(start):
    return lambda *args, **kw: start("--max-model-len", "2048", "--max-num-seqs", "256", *args, model=TINY, **kw)


def choices_of(data):
    """[text, finish_reason, tokens with logprobs] of every choice of a raw stream."""
    found = {}
    for event in re.findall(rb"data: (\{.*?\})\n\n", data):
        for c in json.loads(event).get("choices", []):
            one = found.setdefault(c["index"], ["", None, 0])
            one[0] += c["text"]
            one[1] = c["finish_reason"] or one[1]
            one[2] += len((c.get("logprobs") or {"tokens": []})["tokens"])
    return found


def is_whole(data):
    return data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") and b'{"error"' not in data


def get(s, condition, seconds=200 if SMALL else 60):
    """Waits for metrics that meet the condition, and returns them."""
    end = time.time() + seconds
    while True:
        m = s.metrics()
        if condition(m) or time.time() > end:
            return m
        time.sleep(0.01)


def hold(s, **kw):
    """A connection with a stream that runs until it is closed, and is running."""
    c = s.connect(timeout=60)
    body = {"prompt": "hold", "stream": True, "ignore_eos": True, "max_tokens": s.max_len() - 100, **kw}
    c.send(post_text("/v1/completions", json.dumps(body)))
    c.until(b"data: {")
    return c


# ---- A thousand streams ------------------------------------------------------------------------

def body(i):
    """Prompts, lengths, seeds and temperatures of many kinds; every tenth answer has log probabilities."""
    i %= N_BODIES
    kw = {"logprobs": 5, "max_tokens": N_TOKENS} if i % 10 == 6 else {"max_tokens": N_TOKENS * (3 + i % 7) // 7}
    return {"prompt": f"stream {i} " + "word " * (i % 5 * 10), "ignore_eos": True, "temperature": i % 3 * 0.5, "seed": i, **kw}


async def slow_socket(port):
    """A connection with a small window."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    s.setblocking(False)
    await asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=s, limit=512)


async def one_client(s, i, all_sent):
    """Sends its request, and reads when all others have sent theirs. Of ten clients the seventh reads slowly, the eighth
    pipelines, in pieces; the ninth closes its side and the tenth vanishes in the middle."""
    kind = i % 10
    reader, writer = await (slow_socket(s.port) if kind == 6 else connect(s.port))
    text = json.dumps({**body(i), "stream": True, **({"max_tokens": 1500} if kind >= 8 else {})})
    data = (VERSION if kind == 7 else b"") + post_text("/v1/completions", text, "Connection: close\r\n")
    step = 37 if kind == 7 else len(data)
    for at in range(0, len(data), step):
        writer.write(data[at:at + step])
        await writer.drain()
        await asyncio.sleep(0)
    await all_sent()
    data = b""
    if kind >= 8:
        data = await reader.read(1 + i % 500)
        if kind == 8:
            writer.write_eof()
        elif i % 20 == 9:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    for _ in range(10 if kind == 6 else 0):
        data += await reader.read(100)
        await asyncio.sleep(0.05)
    if kind != 9:
        data += await all_of(reader, 300)
    writer.close()
    return data


async def many_clients(s, n):
    n_sent, go = 0, asyncio.Event()

    async def all_sent():
        nonlocal n_sent
        n_sent += 1
        if n_sent == n:
            os.kill(s.p.pid, signal.SIGCONT)
            go.set()
        await go.wait()

    return await asyncio.gather(*(one_client(s, i, all_sent) for i in range(n)))


def crowd(s, n):
    """All of them at once: the server is stopped until the last request is sent."""
    os.kill(s.p.pid, signal.SIGSTOP)
    try:
        return asyncio.run(many_clients(s, n))
    finally:
        os.kill(s.p.pid, signal.SIGCONT)


class Peak(threading.Thread):
    """The largest resident memory and number of connections while it runs."""

    def __init__(self, s):
        super().__init__(daemon=True)
        self.s, self.kib, self.n, self.end = s, 0, 0, threading.Event()
        self.start()

    def run(self):
        while not self.end.wait(0.02):
            self.kib = max(self.kib, rss_kib(self.s))
            self.n = max(self.n, n_fds(self.s))

    def stop(self):
        self.end.set()
        self.join()


def test_thousand_streams_on_the_engine(tiny, many_files):
    if many_files < 2 * N_STREAMS + 200:
        pytest.skip(f"{many_files} file descriptors are too few")
    s = tiny("--num-kv-blocks", "400")
    alone = [s.complete(**body(i)).json()["choices"][0]["text"] for i in range(N_BODIES)]
    assert len(set(alone)) == N_BODIES
    s.complete(["x " * 400] * 64, max_tokens=2)  # touches every page of the cache
    fds, first, peak = n_fds(s), rss_kib(s), Peak(s)
    for i, data in enumerate(crowd(s, N_STREAMS)):
        if i % 10 < 8:
            assert is_whole(data) and data.count(b"HTTP/1.1 200 OK") == (2 if i % 10 == 7 else 1), (i, data[:300], data[-300:])
            text, finish, n_tokens = choices_of(data)[0]
            assert (text, finish) == (alone[i % N_BODIES], "length"), i
            assert n_tokens == (N_TOKENS if i % 10 == 6 else 0)
    peak.stop()
    assert peak.n - fds > N_STREAMS * 3 // 4
    assert SMALL or peak.kib - first < N_STREAMS * KIB_PER_STREAM, f"{(peak.kib - first) / N_STREAMS} KiB per stream"
    check_clean(s, fds)
    m = s.metrics()
    assert m["request_success_total:error"] == 0 and m["request_success_total:abort"] == N_STREAMS // 5
    print("%d streams at once, %d KiB each at most" % (peak.n - fds, (peak.kib - first) / N_STREAMS))
    # The first crowd has filled the heap's free lists; a second one finds room there.
    before = rss_kib(s)
    crowd(s, N_STREAMS // 4)
    check_clean(s, fds)
    assert SMALL or rss_kib(s) - before < 16 * 1024, (before, rss_kib(s))
    assert s.alive()


# ---- Readers that stand still ------------------------------------------------------------------

def stalled(s, body):
    """A client with a small window that sends a request and does not read."""
    c = s.connect()
    c.s.close()
    c.s = socket.socket()
    c.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    c.s.connect(("127.0.0.1", s.port))
    c.s.settimeout(60)
    c.send(post_text("/v1/completions", json.dumps({**body, "stream": True}), "Connection: close\r\n"))
    return c


def test_stop_string_of_a_stalled_reader(tiny):
    """It ends its request when it is computed, not when it is read."""
    s, n = tiny("--num-kv-blocks", "6000", "--write-timeout", "600"), 300 if SMALL else 1200
    ask = {"prompt": ["once upon"] * 48, "temperature": 1, "seed": 5, "ignore_eos": True, "max_tokens": n}
    text = s.complete(**{**ask, "prompt": "once upon"}).json()["choices"][0]["text"]
    at = len(text) * 6 // 10
    while text.index(text[at:at + 12]) != at:
        at += 1
    before = s.metrics()
    with stalled(s, {**ask, "stop": text[at:at + 12]}) as c:
        get(s, lambda m: m["request_success_total:stop"] - before["request_success_total:stop"] == 48)
        assert s.idle_within(5)
        m = s.metrics()
        assert m["request_success_total:stop"] - before["request_success_total:stop"] == 48
        assert m["kv_cache_usage_perc"] == 0
        assert m["generation_tokens_total"] - before["generation_tokens_total"] < 48 * n * 0.95
        assert c.closed()
    assert is_whole(c.buf)
    assert choices_of(c.buf) == {i: [text[:at], "stop", 0] for i in range(48)}


def test_stalled_reader_is_bounded_and_gets_everything(tiny):
    """Beyond what is held for it, news wait in the engine's slot."""
    s, n = tiny("--num-kv-blocks", "3000", "--write-timeout", "600"), 200 if SMALL else 1500
    ask = {"prompt": ["once upon"] * 16, "temperature": 1, "seed": 6, "ignore_eos": True, "max_tokens": n, "logprobs": 20}
    text = s.complete(**{**ask, "prompt": "once upon", "logprobs": None}).json()["choices"][0]["text"]
    s.complete(**{**ask, "max_tokens": 10})
    before, start = rss_kib(s), s.metrics()["generation_tokens_total"]
    with stalled(s, ask) as c:
        assert get(s, lambda m: m["generation_tokens_total"] - start == 16 * n)["num_requests_running"] == 0
        # The whole answer has about 18 MiB; log probabilities wait as numbers, 160 bytes a token.
        assert SMALL or rss_kib(s) - before < 8 * 1024, rss_kib(s) - before
        c.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        assert c.closed()
    assert is_whole(c.buf) and choices_of(c.buf) == {i: [text, "length", n] for i in range(16)}
    assert s.idle_within(5) and s.alive()


# ---- The scheduler over HTTP -------------------------------------------------------------------

async def ask(s, order, name, **kw):
    reader, writer = await connect(s.port)
    text = json.dumps({"prompt": name, "ignore_eos": True, "max_tokens": 300, "stream": True, **kw})
    writer.write(post_text("/v1/completions", text, "Connection: close\r\n"))
    assert is_whole(await all_of(reader))
    writer.close()
    order.append(name)


async def waiting(s, n):
    while s.metrics()["num_requests_waiting"] != n:
        await asyncio.sleep(0.01)


def test_priorities(tiny):
    """One at a time: better priorities first, equal ones in the order of arrival."""
    s, order = tiny("--max-num-seqs", "1"), []

    async def everybody(held):
        tasks = []
        for name, priority in [("a", 0), ("b", 5), ("c", -1), ("d", 0), ("e", -7), ("f", 5)]:
            tasks.append(asyncio.create_task(ask(s, order, name, priority=priority)))
            await waiting(s, len(tasks))
        held.close()
        await asyncio.gather(*tasks)

    asyncio.run(everybody(hold(s)))
    assert order == ["e", "c", "a", "d", "b", "f"]


def test_aging_and_time_limits_while_stopped(tiny):
    """A step of priority is worth ten seconds of waiting; time passes for a process that is stopped, too."""
    s, order = tiny("--max-num-seqs", "1", "--max-model-len", "100000", "--num-kv-blocks", "7000"), []

    async def everybody(held):
        tasks = [asyncio.create_task(ask(s, order, "worse but old", priority=1))]
        await waiting(s, 1)
        tasks.append(asyncio.create_task(asyncio.to_thread(s.complete, "late", max_tokens=5, timeout=5)))
        await waiting(s, 2)
        os.kill(s.p.pid, signal.SIGSTOP)
        await asyncio.sleep(10.5)
        os.kill(s.p.pid, signal.SIGCONT)
        late = await tasks.pop()
        tasks.append(asyncio.create_task(ask(s, order, "better but young", priority=0)))
        await waiting(s, 2)
        held.close()
        await asyncio.gather(*tasks)
        return late

    late = asyncio.run(everybody(hold(s)))
    assert late.status == 504 and late.error["code"] == "timeout"
    assert order == ["worse but old", "better but young"]


@pytest.mark.parametrize("stream", [False, True])
def test_time_limit(tiny, stream):
    s = tiny("--max-model-len", "100000", "--num-kv-blocks", "7000")
    fds, t = n_fds(s), time.time()
    r = s.complete("x", max_tokens=90000, ignore_eos=True, timeout=0.5, stream=stream)
    assert time.time() - t >= 0.5
    if stream:
        assert r.status == 200 and r.body.count(b'data: {"error"') == 1 and b"[DONE]" not in r.body
        error = json.loads(re.search(rb'data: (\{"error".*?\})\n\n$', r.body)[1])["error"]
        assert len(choices_of(r.body)[0][0]) > 0
    else:
        assert r.status == 504
        error = r.error
    assert error["code"] == "timeout" and "0.5 s" in error["message"]
    assert s.metrics()["request_success_total:abort"] == 1
    check_clean(s, fds, 5)
    assert s.complete("x", max_tokens=3, timeout=600).status == 200
    assert s.complete("x", timeout=-1).error["param"] == s.complete("x", timeout="1").error["param"] == "timeout"


def test_full_queue(tiny):
    s = tiny("--max-num-seqs", "1", "--max-queue", "2", "--max-model-len", "100000", "--num-kv-blocks", "7000")
    fds = n_fds(s)
    held = [hold(s)]
    for n in (1, 2):
        held.append(s.connect())
        held[-1].send(post_text("/v1/completions", '{"prompt":"x","max_tokens":5}'))
        assert get(s, lambda m: m["num_requests_waiting"] == n)["num_requests_waiting"] == n
    for kw in ({}, {"stream": True}, {"n": 3}):
        r = s.complete("x", max_tokens=1, **kw)
        assert (r.status, r.error["code"]) == (429, "rate_limit_exceeded") and int(r.headers["retry-after"]) > 0
    assert s.metrics()["admission_rejections_total:queue_full"] == 3
    held[0].close()
    assert all(c.reply().status == 200 for c in held[1:])
    for c in held:
        c.close()
    check_clean(s, fds, 5)
    # A batch that fits only in part takes nothing with it.
    assert s.complete(["x"] * 50, max_tokens=1).status == 429
    check_clean(s, fds, 5)
    assert s.alive()


def test_full_queue_and_preemption(tiny):
    """Preempted requests wait as well: what was taken in is never turned away by them."""
    s = tiny("--max-num-seqs", "32", "--max-queue", "3", "--num-kv-blocks", "40", "--max-model-len", "512")
    fds, statuses = n_fds(s), []

    def client(i):
        status = 429
        while status == 429:
            status = s.complete(f"client {i}", max_tokens=150, ignore_eos=True, seed=i).status
            statuses.append(status)
            time.sleep(0.02)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(40)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert set(statuses) == {200, 429} and statuses.count(200) == 40, statuses
    assert s.metrics()["num_preemptions_total"] > 0
    check_clean(s, fds)


def test_prefill_of_a_client_that_left(start, tmp_path):
    """One long step of a deep model: it stops between layers."""
    with open(os.path.join(TINY, "config.json")) as f:
        config = json.load(f)
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 24}))
    s = start("--load-format", "dummy", "--max-model-len", "8192", "--max-num-batched-tokens", "8192", "--num-kv-blocks", "1100",
              "--no-enable-prefix-caching", model=str(tmp_path))
    n = 1500 if SMALL else 6000
    prompt = [7 + i % 300 for i in range(n)]
    assert s.complete(prompt, max_tokens=1).status == 200
    whole = s.metrics()
    assert (whole["engine_steps_total"], whole["prompt_tokens_total"]) == (1, n)
    seconds = whole["engine_step_seconds_total"]
    for stream in (False, True):
        before = s.metrics()
        with s.connect() as c:
            c.send(post_text("/v1/completions", json.dumps({"prompt": prompt, "max_tokens": 1, "stream": stream})))
            assert wait_running(s, 1)
            time.sleep(seconds / 8)  # so that the step has begun
        m = get(s, lambda m: m["engine_steps_total"] > before["engine_steps_total"])
        assert m["engine_steps_total"] == before["engine_steps_total"] + 1
        assert m["engine_step_seconds_total"] - before["engine_step_seconds_total"] < seconds * 0.7
        assert m["prompt_tokens_total"] == n and m["generation_tokens_total"] == 1
        assert s.idle_within(1) and s.metrics()["kv_cache_usage_perc"] == 0


def test_leaving_behind_much_input(tiny):
    """More pipelined bytes than are read ahead hide the end of a connection; it is found all the same."""
    s = tiny("--max-model-len", "100000", "--num-kv-blocks", "7000")
    for stream in (False, True):
        c = s.connect()
        ask = {"prompt": "x", "max_tokens": 90000, "ignore_eos": True, "stream": stream}
        c.send(post_text("/v1/completions", json.dumps(ask)) + VERSION * 2500)
        assert wait_running(s, 1)
        c.s.shutdown(socket.SHUT_WR)
        assert s.idle_within(3)
        c.close()
    assert falls_to(0, lambda: s.metrics()["kv_cache_usage_perc"]) and s.alive()


def test_sigterm_with_a_crowd(tiny):
    """Streams end whole, waiting requests too, an upload that is not complete is refused."""
    s = tiny("--max-num-seqs", "8", "--shutdown-timeout", "300")
    streams = [s.connect(timeout=60) for _ in range(40)]
    for i, c in enumerate(streams):
        c.send(post_text("/v1/completions", json.dumps({**body(i), "stream": True, "max_tokens": 300, "logprobs": None})))
    with s.connect() as upload:
        upload.send(post_text("/v1/completions", json.dumps(body(0)))[:-5])
        assert wait_running(s, 1)
        s.p.send_signal(signal.SIGTERM)
        r = upload.reply()
        assert r.status == 503 and "retry-after" in r.headers and r.error["code"] is None
    for c in streams:
        status, _ = c.head()
        if status == 503:  # it came after the signal
            continue
        data = c.until(b"0\r\n\r\n")
        assert status == 200 and is_whole(data) and choices_of(data)[0][1] == "length"
        assert c.closed()
        c.close()
    assert s.p.wait(60) == 0
