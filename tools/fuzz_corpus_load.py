#!/usr/bin/env python3
"""Writes the seed inputs of the fuzz targets gguf, safetensors and conf into fuzz/corpus/<target>/."""
import json
import struct
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "fuzz" / "corpus"


def save(target, name, data):
    folder = ROOT / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def string(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


# Value types of GGUF and how a scalar of each is packed.
PACK = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d"}


def value(kind, x):
    return string(x) if kind == 8 else struct.pack(PACK[kind], x)


def pair(key, kind, x):
    return string(key) + struct.pack("<I", kind) + value(kind, x)


def array(key, kind, xs):
    return string(key) + struct.pack("<IIQ", 9, kind, len(xs)) + b"".join(value(kind, x) for x in xs)


def info(name, dims, kind, offset):
    return string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) \
        + struct.pack("<IQ", kind, offset)


def gguf(pairs, infos, n_data, version=3, align=32):
    head = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(pairs)) + b"".join(pairs) + b"".join(infos)
    return head + bytes(-len(head) % align) + bytes(i & 255 for i in range(n_data))


def gguf_seeds():
    arch = pair("general.architecture", 8, "llama")
    save("gguf", "empty", gguf([], [], 0))
    save("gguf", "empty_key", gguf([pair("", 0, 1)], [], 0)[:37])
    save("gguf", "scalars", gguf([arch] + [pair("k%d" % k, k, 1) for k in PACK], [], 0))
    save("gguf", "arrays", gguf([array("a%d" % k, k, [1, 0, 1]) for k in PACK] + [array("t", 8, ["a", "", b"x\0y"])], [], 0))
    nested = string("n") + struct.pack("<IIQ", 9, 9, 2) + struct.pack("<IQ", 0, 2) + b"ab" + struct.pack("<IQ", 8, 1) + string("s")
    save("gguf", "nested", gguf([nested], [], 0))
    save("gguf", "tensors", gguf([arch, pair("llama.block_count", 4, 2)],
                                 [info("w", [32, 3], 2, 0), info("v", [5], 0, 64), info("b", [4, 1, 2, 1], 30, 96)], 112))
    save("gguf", "k_types", gguf([], [info("t%d" % k, [256], k, 224 * i) for i, k in enumerate([10, 11, 12, 13, 14, 23])], 1344, 2))
    save("gguf", "align", gguf([pair("general.alignment", 4, 64)], [info("w", [4], 0, 64)], 80, 3, 64))
    save("gguf", "overlap", gguf([], [info("w", [12], 0, 0), info("x", [4], 0, 32)], 64))
    save("gguf", "split", gguf([arch, pair("split.no", 2, 0), pair("split.count", 2, 2), pair("split.tensors.count", 5, 2)], [], 0))


def safetensors(header, n_data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(n_data)


def safetensors_seeds():
    def t(kind, shape, a, b):
        return {"dtype": kind, "shape": shape, "data_offsets": [a, b]}
    save("safetensors", "empty", safetensors({}, 0))
    save("safetensors", "two", safetensors({"__metadata__": {"format": "pt"}, "a": t("F32", [2, 3], 0, 24), "b": t("BF16", [], 24, 26)}, 26))
    kinds = ["F16", "F64", "I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"]
    save("safetensors", "kinds", safetensors({k: t(k, [0], 0, 0) for k in kinds}, 0))
    save("safetensors", "overlap", safetensors({"a": t("U8", [2], 0, 2), "b": t("U8", [2], 1, 3)}, 3))
    save("safetensors", "large", safetensors({"a": t("F32", [1 << 62, 4], 0, 0)}, 0))
    save("safetensors", "twice", safetensors(b'{"a":1,"a":2}', 0))


def conf_seeds():
    save("conf", "path", b"rope_scaling.factor\n" + json.dumps({"rope_scaling": {"factor": 8.0, "type": "yarn"}, "x.y": [1, None, "s"]}).encode())
    save("conf", "array", b"a.1.b\n" + json.dumps({"a": [0, {"b": [True, False, -1, 2.5, "\u00e9\u0000"]}]}).encode())
    save("conf", "long", b"n\n{\"n\":1000000000000000019884624838656,\"m\":[-99999999999999999999 ,9223372036854775807]}")
    save("conf", "deep", b"\n" + b"[" * 64 + b"]" * 64)
    save("conf", "scalar", b"\n\"text\\ud83d\\ude00\\n\"")


if __name__ == "__main__":
    gguf_seeds()
    safetensors_seeds()
    conf_seeds()
