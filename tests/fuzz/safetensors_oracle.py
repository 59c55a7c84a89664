"""Safetensors files that are mutated, read by the host and by the library `safetensors` of Python.

    python3 tests/fuzz/safetensors_oracle.py build/bin/read_safetensors [FILES] [SEED]

Both take the same files and find the same tensors in them. The host may refuse more, by the rules listed in STRICTER; what
the library refuses the host never takes. The last line is "N passed, N failed".
"""
import hashlib
import json
import random
import struct
import subprocess
import sys

import safetensors

# What the host refuses beyond the library: words of its message.
STRICTER = (
    "unsupported dtype", "unknown dtype",  # types that no model here has
    "numbers in shape",                    # more than 8 dimensions
    "is above 2^63 - 1",                   # a dimension beside one of 0
    "the header starts with byte 0x20",     # a blank before the brace
    "overflows 64 bits",                   # likewise their product
    "twice",                               # keys, fields or metadata that stand twice
    "unknown field",                       # beside dtype, shape and data_offsets
    "found null",                          # __metadata__: null
    "a name of",                           # more than 1024 bytes
    "too short for a safetensors file",    # fewer than 10 bytes
)
EDGES = [0, 1, 2, 3, 7, 2**16, 2**31, 2**32, 2**32 + 1, 4194305, 211106198978564, 2**61, 2**63 - 1, 2**63, 2**64 - 1, -1]
WIDTHS = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I32": 4, "I64": 8, "U8": 1, "F64": 8, "BOOL": 1}
BYTES = b' "\\{}[]:,0123456789eE.-+nulltruefalse\x00\x7f\xc3\xff'


def a_file(rng):
    header, at = {}, 0
    if rng.random() < 0.3:
        header["__metadata__"] = {"k": rng.choice(["v", "", "\u00e9"])}
    entries = []
    for _ in range(rng.randrange(4)):
        name = rng.choice(["a", "b", "c.weight", "", "\u00e9", "__metadata"])
        dtype = rng.choice(list(WIDTHS))
        shape = [rng.randrange(4) for _ in range(rng.randrange(4))]
        size = WIDTHS[dtype]
        for dim in shape:
            size *= dim
        begin, end = at, at + size
        at = end
        if rng.random() < 0.15 and shape:
            shape[rng.randrange(len(shape))] = rng.choice(EDGES)
        if rng.random() < 0.1:
            shape += [rng.choice(EDGES) for _ in range(rng.randrange(8))]
        if rng.random() < 0.1:
            begin += rng.choice(EDGES[:5] + [-1])
        if rng.random() < 0.1:
            end += rng.choice(EDGES[:5] + [-1])
        entries.append((name, {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}))
    rng.shuffle(entries)
    pairs = [f"{json.dumps(k)}:{json.dumps(v)}" for k, v in list(header.items()) + entries]  # names may stand twice
    text = bytearray(("{" + ",".join(pairs) + "}" + " " * rng.randrange(3)).encode())
    if rng.random() < 0.3:
        for _ in range(1 + rng.randrange(3)):
            place = rng.randrange(len(text))
            kind = rng.randrange(4)
            if kind == 0:
                text[place] ^= 1 << rng.randrange(8)
            elif kind == 1:
                text[place] = rng.choice(BYTES)
            elif kind == 2:
                text.insert(place, rng.choice(BYTES))
            elif len(text) > 1:
                del text[place]
    length = len(text)
    if rng.random() < 0.05:
        length = rng.choice(EDGES[:-1] + [length - 1, length + 1]) % 2**64
    data = bytes(rng.randrange(256) for _ in range(at))
    if rng.random() < 0.05:
        data = data[: rng.randrange(len(data) + 1)] + b"\0" * rng.randrange(3)
    return struct.pack("<Q", length) + bytes(text) + data


def by_library(file):
    try:
        tensors = safetensors.deserialize(file)
    except Exception as error:  # a SafetensorError, or what its binding makes of a text that is no UTF-8
        return None, str(error)
    return sorted([n, t["dtype"], list(t["shape"]), hashlib.sha256(bytes(t["data"])).hexdigest()] for n, t in tensors), ""


def main():
    program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 12)
    files = [a_file(rng) for _ in range(count)]
    stdin = b"".join(struct.pack("<I", len(f)) + f for f in files)
    answers = subprocess.run([program], input=stdin, stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
    taken = stricter = failed = 0
    for file, line in zip(files, answers, strict=True):
        answer = json.loads(line)
        theirs, why = by_library(file)
        if answer[0] == "ok":
            agrees = theirs is not None and sorted(answer[1:]) == theirs
            taken += agrees
        else:
            allowed = any(words in answer[1] for words in STRICTER)
            agrees = theirs is None or allowed
            stricter += theirs is not None and allowed
        if not agrees:
            failed += 1
            print(f"differs: {file!r}\n  host: {answer}\n  library: {theirs if theirs is not None else why}")
    print(f"{taken} taken by both, {stricter} refused by the host alone, {count - taken - stricter - failed} by both; "
          f"safetensors {safetensors.__version__}")
    print(f"{count - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
