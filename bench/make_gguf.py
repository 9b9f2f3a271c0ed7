#!/usr/bin/env python3
"""Writes a GGUF file of a Llama with random weights, for speed alone: any engine can read it, and its size, shapes and formats are real.

    bench/make_gguf.py --format q4_0 /tmp/llama-1b.Q4_0.gguf

The codes of a block are random and its scales constant, chosen so that a layer keeps the spread of its input. "q4_k_m" mixes Q4_K and
Q6_K as such files do; in files of 4-bit formats the embedding, which is also the head, is Q6_K. The tokenizer is synthetic: byte-level
pieces with merges that lead to each of them. Needs numpy."""

import argparse
import struct

import numpy as np

ALIGN = 32
U32, F32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9

# name: (GGML type, elements of a block, bytes of a block, general.file_type)
FORMATS = {
    "f32": (0, 1, 4, 0),
    "f16": (1, 1, 2, 1),
    "q4_0": (2, 32, 18, 2),
    "q4_1": (3, 32, 20, 3),
    "q5_0": (6, 32, 22, 8),
    "q5_1": (7, 32, 24, 9),
    "q8_0": (8, 32, 34, 7),
    "q2_k": (10, 256, 84, 10),
    "q3_k": (11, 256, 110, 12),
    "q4_k": (12, 256, 144, 15),
    "q5_k": (13, 256, 176, 17),
    "q6_k": (14, 256, 210, 18),
    "iq4_nl": (20, 32, 18, 25),
    "iq4_xs": (23, 256, 136, 30),
    "bf16": (30, 1, 2, 32),
    "mxfp4": (39, 32, 17, 38),
}


# ---- Blocks ----

def half(x):
    return np.array([x], dtype="<f2").view(np.uint8)


# name: (mean and deviation of its codes, where d is, where the minimum's scale is, [(first, end, constant byte)], sub-scale)
BLOCKS = {
    "q8_0": (0, 73.9, 0, None, [], 1),
    "q4_0": (0, 4.61, 0, None, [], 1),
    "q4_1": (7.5, 4.61, 0, 2, [], -1),
    "q5_0": (0, 9.23, 0, None, [], 1),
    "q5_1": (15.5, 9.23, 0, 2, [], -1),
    "q2_k": (1.5, 1.118, 80, 82, [(0, 16, 0x88)], 8),
    "q3_k": (0, 2.29, 108, None, [(96, 104, 0), (104, 108, 0xFF)], 16),  # 6-bit scales of 48, less 32
    # 6-bit scales and minima of 32: the top two bits of the last four lie in the first eight bytes.
    "q4_k": (7.5, 4.61, 0, 2, [(4, 12, 0x20 | 0x80), (12, 16, 0)], 32),
    "q5_k": (15.5, 9.23, 0, 2, [(4, 12, 0x20 | 0x80), (12, 16, 0)], 32),
    "q6_k": (0, 18.5, 208, None, [(192, 208, 16)], 16),
    "iq4_nl": (0, 71.0, 0, None, [], 1),
    "iq4_xs": (0, 71.0, 0, None, [(2, 4, 0xFF), (4, 8, 0)], 16),
}


def random_blocks(rng, fmt, n_blocks, sigma):
    """[n_blocks, bytes of a block]; the values have mean about 0 and standard deviation about sigma."""
    size = FORMATS[fmt][2]
    if fmt in ("f32", "f16", "bf16"):
        x = (rng.random(n_blocks, dtype=np.float32) - 0.5) * (sigma * 12**0.5)
        if fmt == "bf16":
            return (x.view("<u4") >> 16).astype("<u2").view(np.uint8).reshape(n_blocks, size)
        return x.astype("<f4" if fmt == "f32" else "<f2").view(np.uint8).reshape(n_blocks, size)
    b = np.frombuffer(rng.bytes(n_blocks * size), dtype=np.uint8).reshape(n_blocks, size).copy()
    if fmt == "mxfp4":  # one exponent; values of e2m1 deviate by 2.93
        b[:, 0] = 127 + round(np.log2(sigma / 2.93))
        return b
    mean, deviation, d_at, min_at, constant, scale = BLOCKS[fmt]
    for first, end, value in constant:
        b[:, first:end] = value
    b[:, d_at:d_at + 2] = half(sigma / deviation / abs(scale))
    if min_at is not None:  # subtracted by the K-quants, added by Q4_1 and Q5_1
        b[:, min_at:min_at + 2] = half(mean * sigma / deviation / scale)
    return b


# ---- The file ----

def text(s):
    raw = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(raw)) + raw


def pair(key, kind, value):
    head = text(key) + struct.pack("<I", kind)
    if kind == STRING:
        return head + text(value)
    return head + struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], value)


def array(key, kind, values):
    head = text(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
    if kind == STRING:
        return head + b"".join(text(v) for v in values)
    return head + np.array(values, dtype="<i4").tobytes()


def byte_letters():
    """The printable letters that stand for the 256 bytes in byte-level pieces."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters, extra = {}, 0
    for b in range(256):
        if b in keep:
            letters[b] = chr(b)
        else:
            letters[b] = chr(256 + extra)
            extra += 1
    return [letters[b] for b in range(256)]


def tokenizer(n_vocab):
    """Pieces, types and merges: all bytes, pairs of bytes, then pairs and a byte; two control tokens at the end."""
    one = byte_letters()
    pieces, merges = list(one), []
    for i in range(n_vocab - 2 - 256):
        if i < 65536:
            left, right = one[i >> 8], one[i & 255]
        else:
            left, right = pieces[256 + (i - 65536) // 256 * 7], one[i & 255]
        pieces.append(left + right)
        merges.append(left + " " + right)
    pieces += ["<|begin|>", "<|end|>"]
    assert len(set(pieces)) == n_vocab, "the pieces are not distinct"
    return pieces, [1] * (n_vocab - 2) + [3, 3], merges


def metadata(a, file_type):
    pieces, types, merges = tokenizer(a.vocab)
    kv = [
        pair("general.architecture", STRING, "llama"),
        pair("general.name", STRING, "random llama"),
        pair("general.alignment", U32, ALIGN),
        pair("general.file_type", U32, file_type),
        pair("general.quantization_version", U32, 2),
        pair("llama.block_count", U32, a.layers),
        pair("llama.context_length", U32, a.context),
        pair("llama.embedding_length", U32, a.hidden),
        pair("llama.feed_forward_length", U32, a.ffn),
        pair("llama.attention.head_count", U32, a.heads),
        pair("llama.attention.head_count_kv", U32, a.kv_heads),
        pair("llama.attention.key_length", U32, a.head_dim),
        pair("llama.attention.value_length", U32, a.head_dim),
        pair("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        pair("llama.rope.freq_base", F32, 500000.0),
        pair("llama.rope.dimension_count", U32, a.head_dim),
        pair("llama.vocab_size", U32, a.vocab),
        pair("tokenizer.ggml.model", STRING, "gpt2"),
        pair("tokenizer.ggml.pre", STRING, "llama-bpe"),
        array("tokenizer.ggml.tokens", STRING, pieces),
        array("tokenizer.ggml.token_type", 5, types),
        array("tokenizer.ggml.merges", STRING, merges),
        pair("tokenizer.ggml.bos_token_id", U32, a.vocab - 2),
        pair("tokenizer.ggml.eos_token_id", U32, a.vocab - 1),
        pair("tokenizer.ggml.add_bos_token", BOOL, True),
    ]
    return len(kv), b"".join(kv)


def tensors(a):
    """(name, format, rows, columns); rows 0: a vector"""
    fmt, head = a.format, a.format
    if a.format in ("q4_0", "q4_1", "q4_k_m"):
        fmt, head = a.format.removesuffix("_m"), "q6_k"
    if a.head:
        head = a.head
    q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    yield "token_embd.weight", head, a.vocab, a.hidden
    for i in range(a.layers):
        # "M" files spend more on the values and the second half of the MLP in some layers.
        more = a.format == "q4_k_m" and (i < a.layers // 8 or i >= 7 * a.layers // 8 or (i - a.layers // 8) % 3 == 2)
        rich = "q6_k" if more else fmt
        blk = "blk.%d." % i
        yield blk + "attn_norm.weight", "f32", 0, a.hidden
        yield blk + "attn_q.weight", fmt, q, a.hidden
        yield blk + "attn_k.weight", fmt, kv, a.hidden
        yield blk + "attn_v.weight", rich, kv, a.hidden
        yield blk + "attn_output.weight", fmt, a.hidden, q
        yield blk + "ffn_norm.weight", "f32", 0, a.hidden
        yield blk + "ffn_gate.weight", fmt, a.ffn, a.hidden
        yield blk + "ffn_up.weight", fmt, a.ffn, a.hidden
        yield blk + "ffn_down.weight", rich, a.hidden, a.ffn
    yield "output_norm.weight", "f32", 0, a.hidden


def n_bytes(fmt, rows, cols):
    _, elems, size, _ = FORMATS[fmt]
    assert cols % elems == 0, "rows of %d do not fit blocks of %d" % (cols, elems)
    return max(rows, 1) * cols // elems * size


def infos(listed):
    out, at = [], 0
    for name, fmt, rows, cols in listed:
        dims = [cols, rows] if rows else [cols]
        out.append(text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, FORMATS[fmt][0], at))
        at += (n_bytes(fmt, rows, cols) + ALIGN - 1) // ALIGN * ALIGN
    return b"".join(out)


def write_data(f, rng, fmt, rows, cols):
    _, elems, size, _ = FORMATS[fmt]
    left = max(rows, 1) * cols // elems
    if not rows:
        f.write(np.ones(cols, dtype="<f4").tobytes())
        left = 0
    while left > 0:  # in pieces, so that memory stays small
        n = min(left, (64 << 20) // size)
        f.write(random_blocks(rng, fmt, n, cols**-0.5).tobytes())
        left -= n
    f.write(b"\0" * (-f.tell() % ALIGN))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--format", default="q8_0", choices=list(FORMATS) + ["q4_k_m"])
    p.add_argument("--head", choices=list(FORMATS), help="format of the embedding, which is also the head")
    for name, value in (("layers", 16), ("hidden", 2048), ("heads", 32), ("kv-heads", 8), ("head-dim", 64), ("ffn", 8192),
                        ("vocab", 128256), ("context", 131072), ("seed", 1)):
        p.add_argument("--" + name, type=int, default=value)
    a = p.parse_args()
    rng = np.random.Generator(np.random.SFC64(a.seed))
    listed = list(tensors(a))
    n_kv, kv = metadata(a, 15 if a.format == "q4_k_m" else FORMATS[a.format][3])
    with open(a.out, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, len(listed), n_kv) + kv + infos(listed))
        f.write(b"\0" * (-f.tell() % ALIGN))
        for _, fmt, rows, cols in listed:
            write_data(f, rng, fmt, rows, cols)
        print("%s: %.1f MB" % (a.out, f.tell() / 1e6))


if __name__ == "__main__":
    main()
