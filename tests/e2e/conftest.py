"""Starts the server under test.

XENON_BIN    the binary (`$XENON_BIN serve ...`); without it a server around the fake engine of fake_xenon.c is built here
XENON_MODEL  the model for XENON_BIN (a folder or a GGUF file); "tiny" for TINY below
XENON_ARGS   further flags for XENON_BIN
XENON_SMALL  set for slow builds (sanitizers): fewer clients, and no statement about memory
FAKE_CC, FAKE_CFLAGS  compiler and flags of the fake server, "-O1 -g -fsanitize=address,undefined" for instance
"""
import hashlib
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REAL = os.environ.get("XENON_BIN")
SMALL = bool(os.environ.get("XENON_SMALL"))
GOLDEN = pathlib.Path(os.environ.get("XENON_GOLDEN", ROOT.parent / "shared/golden"))


def tiny_model():
    """The golden model that computes fastest, for positions without end; None without the golden data."""
    source, copy = GOLDEN / "models/smollm2", ROOT / "build/e2e-tiny"
    if not (source / "config.json").exists():
        return None
    copy.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.suffix not in (".gguf", ".md") and not file.name.startswith("expected"):
            data = file.read_bytes()
            if file.name == "config.json":
                data = json.dumps({**json.loads(data), "max_position_embeddings": 1 << 17}).encode()
            if not (copy / file.name).exists() or (copy / file.name).read_bytes() != data:
                (copy / file.name).write_bytes(data)
    return str(copy)


TINY = tiny_model() if REAL else None
MODEL = os.environ.get("XENON_MODEL", "some/where/fake-model")
if MODEL == "tiny":
    MODEL = TINY
ARGS = shlex.split(os.environ.get("XENON_ARGS", "")) if REAL else []
PACKAGES = ["libevent", "libevent_openssl", "openssl", "jansson", "libxxhash"]


def pytest_configure(config):
    config.addinivalue_line("markers", "fake: needs the fake engine (delays, troubles on demand)")
    config.addinivalue_line("markers", "tiny: needs the real engine and the tiny golden model")


def pytest_collection_modifyitems(items):
    for item in items:
        if REAL and "fake" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs the fake engine"))
        if not REAL and "tiny" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs the real engine"))
        if REAL and not TINY and "tiny" in item.keywords:
            item.add_marker(pytest.mark.skip(reason=f"no golden models in {GOLDEN}"))


def build_fake():
    cc = os.environ.get("FAKE_CC", "cc")
    flags = shlex.split(os.environ.get("FAKE_CFLAGS", "-O1 -g"))
    sources = sorted((ROOT / "src/serve").glob("*.c")) + sorted((ROOT / "src/base").glob("*.c"))
    sources += [ROOT / "src/cmd" / f for f in ("serve.c", "args.c", "engine_flags.c", "progress.c", "bench_serve.c",
                                         "bench_serve_load.c", "bench_serve_prompt.c", "bench_serve_report.c")]
    sources += [ROOT / "src/sys/thread.c", ROOT / "tests/e2e/fake_xenon.c"]
    headers = [p for d in ("src/serve", "src/base", "src/sys", "src/cmd", "include") for p in (ROOT / d).glob("*.h")]
    key = hashlib.sha256(" ".join([cc] + flags).encode()).hexdigest()[:8]
    out = ROOT / "build" / f"e2e-{key}"
    out.mkdir(parents=True, exist_ok=True)
    newest_header = max(p.stat().st_mtime for p in headers)
    common = [cc, "-std=gnu17", "-D_GNU_SOURCE", "-pthread", f"-I{ROOT}/src", f"-I{ROOT}/include", *flags]
    objects, jobs = [], []
    for src in sources:
        obj = out / (src.stem + ".o")
        objects.append(str(obj))
        if obj.exists() and obj.stat().st_mtime > max(src.stat().st_mtime, newest_header):
            continue
        jobs.append(subprocess.Popen([*common, "-c", str(src), "-o", str(obj)]))
        if len(jobs) >= 2:
            assert jobs.pop(0).wait() == 0
    assert all(j.wait() == 0 for j in jobs)
    libs = subprocess.check_output(["pkg-config", "--libs", *PACKAGES], text=True).split()
    subprocess.check_call([*common, *objects, "-o", str(out / "fake_xenon"), *libs, "-lm"])
    return str(out / "fake_xenon")


@pytest.fixture(scope="session")
def binary():
    return REAL or build_fake()


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        e = self.json()["error"]
        assert set(e) == {"message", "type", "param", "code"}
        assert isinstance(e["message"], str) and e["message"] and "\n" not in e["message"]
        assert e["code"] is None or isinstance(e["code"], str)
        return e


class Socket:
    """A raw connection with just enough HTTP to read replies."""

    def __init__(self, port, tls=None, timeout=20):
        timeout *= 6 if SMALL else 1
        self.s = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        if tls:
            self.s = tls.wrap_socket(self.s, server_hostname="localhost")
        self.buf = b""

    def send(self, data):
        self.s.sendall(data if isinstance(data, bytes) else data.encode())

    def more(self):
        data = self.s.recv(65536)
        self.buf += data
        return bool(data)

    def until(self, mark):
        while mark not in self.buf:
            if not self.more():
                raise EOFError(self.buf[-300:])
        i = self.buf.index(mark) + len(mark)
        out, self.buf = self.buf[:i], self.buf[i:]
        return out

    def exactly(self, n):
        while len(self.buf) < n:
            if not self.more():
                raise EOFError(self.buf[-300:])
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def head(self):
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, v in (l.split(": ", 1) for l in lines[1:] if l)}
        return int(lines[0].split()[1]), headers

    def chunk(self):
        n = int(self.until(b"\r\n"), 16)
        data = self.exactly(n)
        self.exactly(2)
        return data

    def reply(self, method="POST"):
        status, headers = self.head()
        if "transfer-encoding" in headers:
            body = b"".join(iter(self.chunk, b""))
        elif method == "HEAD" or status == 204:
            body = b""
        elif "content-length" in headers:
            body = self.exactly(int(headers["content-length"]))
        else:
            while self.more():
                pass
            body, self.buf = self.buf, b""
        return Reply(status, headers, body)

    def closed(self):
        """True when the server has closed; waits for it."""
        try:
            while self.more():
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
        return True

    def close(self):
        self.s.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Server:
    def __init__(self, binary, args=(), env=None, model=MODEL, wait=True):
        self.log, self.tls = [], None
        self.p = subprocess.Popen([binary, "serve", "--model", model, "--port", "0", *ARGS, *args], stderr=subprocess.PIPE,
                                  env={**os.environ, **(env or {})}, text=True, errors="replace")
        self.port, self.ready = None, threading.Event()
        self.port_known = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        if wait:
            assert self.ready.wait(300), self.log
            self.url = f"http://127.0.0.1:{self.port}"

    def _read(self):
        for line in self.p.stderr:
            self.log.append(line)
            m = re.search(r"port (\d+) answers", line)
            if m:
                self.port = int(m[1])
                self.port_known.set()
            if " ready: " in line:
                self.ready.set()
        self.port_known.set()
        self.ready.set()

    def connect(self, **kw):
        return Socket(self.port, tls=self.tls, **kw)

    def request(self, method, path, body=None, headers=None):
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        h = {"Host": "x", "Connection": "close", **(headers or {})}
        if body is not None or method == "POST":
            h.setdefault("Content-Type", "application/json")
            h.setdefault("Content-Length", str(len(body or b"")))
        with self.connect() as s:
            s.send(f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in h.items()) + "\r\n")
            s.send(body or b"")
            return s.reply(method)

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body, **kw):
        return self.request("POST", path, body, **kw)

    def chat(self, content="hi", **kw):
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **kw})

    def complete(self, prompt="hi", **kw):
        return self.post("/v1/completions", {"prompt": prompt, **kw})

    def max_len(self):
        return self.get("/v1/models").json()["data"][0]["max_model_len"]

    def long(self):
        """A max_tokens that keeps a short prompt running for long."""
        return min(1500, self.max_len() - 100)

    def metrics(self):
        out = {}
        for line in self.get("/metrics").body.decode().splitlines():
            m = re.match(r"xenon:(\w+)\{(.*)\} (\S+)$", line)
            if m and 'le="' not in m[2]:
                label = re.search(r',\w+="([^"]*)"$', m[2])
                out[m[1] + (":" + label[1] if label else "")] = float(m[3])
        return out

    def idle_within(self, seconds):
        """True when nothing runs or waits any more."""
        end = time.time() + seconds
        while time.time() < end:
            m = self.metrics()
            if m["num_requests_running"] == 0 and m["num_requests_waiting"] == 0:
                return True
            time.sleep(0.02)
        return False

    def alive(self):
        return self.p.poll() is None and self.get("/health").status == 200 and self.complete(max_tokens=1).status == 200

    def stop(self, sig=signal.SIGTERM, timeout=60):
        if self.p.poll() is None:
            self.p.send_signal(sig)
        try:
            return self.p.wait(timeout)
        except subprocess.TimeoutExpired:
            self.p.kill()
            raise


@pytest.fixture(scope="session")
def server(binary):
    s = Server(binary, args=() if REAL else ("--max-model-len", "2048"))
    yield s
    assert s.stop() == 0, s.log[-20:]
    assert not [l for l in s.log if "Sanitizer" in l or "runtime error" in l]


@pytest.fixture
def start(binary):
    """A factory of servers of one's own."""
    all_servers = []

    def make(*args, env=None, **kw):
        all_servers.append(Server(binary, args, env, **kw))
        return all_servers[-1]

    yield make
    for s in all_servers:
        assert s.stop() != 66, s.log[-40:]  # what TSAN_OPTIONS makes of a race
        assert not [l for l in s.log if "Sanitizer" in l or "runtime error" in l], s.log


@pytest.fixture
def certificate(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)],
                   check=True, capture_output=True)
    return str(cert), str(key), ssl.create_default_context(cafile=str(cert))
