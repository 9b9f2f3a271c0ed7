#!/usr/bin/env python3
"""Compares bench/tokenizer_speed with the PyPI `tokenizers` library on the same text in the same run, one thread each.

usage: tokenizer_peer.py BENCH tokenizer.json...   (BENCH: the built bench/tokenizer_speed; needs `pip install tokenizers`)

Five alternating pairs per text; prints the median MB/s of both and their ratio (above 1: ours is faster).
"""
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402  (the variables must be set first)

WORDS = (
    "the of tokenizer running int32_t for(i=0;i<n;i++){ return x; Überraschung straße español mañana naïve быстрая лиса "
    "日本語のテキスト 东京是日本的首都。 모든 사람은 العربية עברית हिन्दी ภาษาไทย 👩‍👩‍👧 🚀 1234567 3.14159 don't I'll "
    "https://example.org/a?b=c considerable measurement memory bandwidth NASA CamelCaseName snake_case_name -- ... !?"
).split()


def texts():
    seed, parts, size = 7, [], 0
    while size < 1_000_000:
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        word = WORDS[(seed >> 33) % len(WORDS)] + ("\n" if seed >> 60 == 0 else " ")
        parts.append(word)
        size += len(word.encode())
    yield "mixed", "".join(parts)
    yield "letter", "a" * 1_000_000
    yield "spaces", " " * 1_000_000
    yield "emoji", "😀" * 250_000


def ours(bench, path, text_file):
    out = subprocess.run([bench, path, "--text", text_file], check=True, capture_output=True, text=True).stdout
    match = re.search(r"([0-9.]+) MB/s (\d+) tokens", out)
    return float(match.group(1)), int(match.group(2))


def theirs(tokenizer, text):
    start = time.perf_counter()
    n = len(tokenizer.encode(text, add_special_tokens=False).ids)
    return len(text.encode()) / 1e6 / (time.perf_counter() - start), n


def main():
    bench, paths = sys.argv[1], sys.argv[2:]
    for path in paths:
        tokenizer = Tokenizer.from_file(path)
        for name, text in texts():
            with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as f:
                f.write(text)
                f.flush()
                pairs = [(ours(bench, path, f.name), theirs(tokenizer, text)) for _ in range(5)]
            a = statistics.median(p[0][0] for p in pairs)
            b = statistics.median(p[1][0] for p in pairs)
            same = "same" if pairs[0][0][1] == pairs[0][1][1] else "DIFFERENT"
            print(f"{path} {name}: {a:.1f} MB/s, tokenizers {b:.1f} MB/s, ratio {a / b:.2f}, {same} number of tokens", flush=True)


main()
