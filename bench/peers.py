#!/usr/bin/env python3
"""Our speed against llama.cpp's on the same GGUF file, in alternating pairs: min, median and max of the ratio.

    bench/peers.py --model M.gguf --llama-bench PATH [--llama-batched-bench PATH]

One sequence and prompts are measured with llama-bench, several sequences with llama-batched-bench; without that binary only
--batch 1 is done. A pair is one process of each, ours first in every other pair. docs/PERF.md says how to build the peers."""

import argparse
import datetime
import json
import os
import shlex
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def output_of(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("failed: %s\n%s" % (shlex.join(command), done.stderr[-2000:]))
    return done.stdout, done.stderr


# ---- One measurement each: (tokens/s, share of the read bandwidth or None) ----

def ours(args, work):
    command = [args.xenon, "bench", "step", "--json", "--quiet", "--model", args.model, "--threads", str(args.threads),
               "--pairs", "1", "--decode", str(args.decode), "--context", str(args.context)]
    command += ["--batch", "0", "--prompt", str(args.prompt)] if work == 0 else ["--batch", str(work), "--prompt", "0"]
    case = json.loads(output_of(command + args.xenon_flags)[0])["cases"][0]
    ratio = case.get("bandwidth_ratio")
    return case["tokens_per_s"]["median"], ratio and ratio["median"]


def llama_bench(args, work):
    command = [args.llama_bench, "-m", args.model, "-t", str(args.threads), "-r", "1", "-o", "json"]
    command += ["-p", str(args.prompt), "-n", "0"] if work == 0 else ["-p", "0", "-n", str(args.decode), "-d", str(args.context)]
    return json.loads(output_of(command + args.llama_flags)[0])[0]["avg_ts"]


def llama_batched(args, work):
    n = work * (args.context + args.decode)
    command = [args.llama_batched_bench, "-m", args.model, "-t", str(args.threads), "-c", str((n + 255) // 256 * 256 + 256),
               "-npp", str(args.context), "-ntg", str(args.decode), "-npl", str(work), "--output-format", "jsonl"]
    # Its log goes to one stream or the other, by version.
    lines = [line for line in "\n".join(output_of(command + args.llama_flags)).splitlines() if line.startswith("{")]
    if not lines:
        sys.exit("%s printed no result" % args.llama_batched_bench)
    return json.loads(lines[-1])["speed_tg"]


def theirs(args, work):
    return llama_bench(args, work) if work <= 1 else llama_batched(args, work)


# ---- Pairs ----

def measure(args, work):
    pairs = []
    for i in range(args.pairs):
        if i % 2 == 0:
            (a, share), b = ours(args, work), theirs(args, work)
        else:
            b = theirs(args, work)
            a, share = ours(args, work)
        pairs.append({"ours": a, "theirs": b, "ratio": a / b, "bandwidth_ratio": share})
        print("  pair %d: %.2f and %.2f tokens/s, %.3f" % (i + 1, a, b, a / b), file=sys.stderr, flush=True)
    return pairs


def show(name, pairs):
    ratio = [p["ratio"] for p in pairs]
    share = [p["bandwidth_ratio"] for p in pairs if p["bandwidth_ratio"]]
    print("| %s | %.2f | %.2f | %.2f | %.2f | %.2f | %s |" % (
        name, statistics.median(p["ours"] for p in pairs), statistics.median(p["theirs"] for p in pairs), min(ratio),
        statistics.median(ratio), max(ratio), "%.1f" % (100 * statistics.median(share)) if share else ""))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--llama-bench", required=True, metavar="PATH")
    p.add_argument("--llama-batched-bench", metavar="PATH")
    p.add_argument("--llama-flags", default=[], type=shlex.split, help="more flags for the peer, as one word: '-fa 1'")
    p.add_argument("--xenon", default=os.path.join(ROOT, "build", "xenon"))
    p.add_argument("--xenon-flags", default=[], type=shlex.split)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--batch", default="1,8,32", help="sequences decoded together; 0: none")
    p.add_argument("--prompt", type=int, default=512, help="tokens of a prompt; 0: none")
    p.add_argument("--decode", type=int, default=32)
    p.add_argument("--context", type=int, default=16)
    p.add_argument("--out", help="keeps every pair as JSON in this file")
    args = p.parse_args()

    works = [("decode x%d" % b, b) for b in map(int, args.batch.split(",")) if b > 0]
    if not args.llama_batched_bench:
        works = [w for w in works if w[1] == 1]
    if args.prompt > 0:
        works.append(("prompt %d" % args.prompt, 0))
    results = []
    for name, work in works:
        print(name, file=sys.stderr, flush=True)
        results.append((name, measure(args, work)))
    print("%s, %s, %d threads, %d pairs\n" % (datetime.date.today().isoformat(), os.path.basename(args.model), args.threads, args.pairs))
    print("| work | ours, tokens/s | llama.cpp | ratio min | median | max | ours, % of read |")
    print("|---|---|---|---|---|---|---|")
    for name, pairs in results:
        show(name, pairs)
    if args.out:
        with open(args.out, "w") as f:
            json.dump({"model": args.model, "threads": args.threads, "works": dict(results)}, f, indent=1)


if __name__ == "__main__":
    main()
