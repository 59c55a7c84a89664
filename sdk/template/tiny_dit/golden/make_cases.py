#!/usr/bin/env python3
"""The model a second time, in plain Python and float64: makes the golden cases beside this file.

    python3 make_cases.py && golden_runner --plugin-dir ../../build/lib/lora-host */

A case is case.json (what weights and inputs are generated as, docs/golden-cases.md) and expected.safetensors (the
answers). Nothing but the standard library is needed. Tensors are nested lists; images are [C][H][W].
"""
import json
import math
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
EPS = 1e-6


# Generated numbers, the same in every language.
def generated(name, count, offset, scale):
    mask = (1 << 64) - 1
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) & mask
    out = []
    for i in range(count):
        h = (seed + i * 0x9E3779B97F4A7C15) & mask
        h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & mask
        h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & mask
        h ^= h >> 31
        out.append(single(offset + scale * (((h >> 40) - (1 << 23)) / (1 << 23))))
    return out


def single(value):  # rounded to float32
    return struct.unpack("<f", struct.pack("<f", value))[0]


def nested(flat, shape):
    if len(shape) == 1:
        return list(flat)
    each = len(flat) // shape[0]
    return [nested(flat[i * each:(i + 1) * each], shape[1:]) for i in range(shape[0])]


def flattened(x):
    return [v for part in x for v in flattened(part)] if isinstance(x, list) else [x]


def shape_of(x):
    return [len(x)] + shape_of(x[0]) if isinstance(x, list) else []


class Case:
    def __init__(self, name, role, weights, inputs, **facts):
        self.name = name
        self.json = {"case": name, "seed": name, "plugin": "tiny_dit", "role": role, **facts,
                     "weights": {}, "inputs": {}}
        self.w, self.x, self.expected = {}, {}, {}
        for key, shape in weights.items():
            norm = "norm" in key and key.endswith(".weight") or key.endswith("_scale")
            scale = 0.1 if norm or len(shape) == 1 else math.sqrt(3 / math.prod(shape[1:]))
            spec = {"shape": shape, "offset": 1.0 if norm else 0.0, "scale": round(scale, 6)}
            self.json["weights"][key] = spec
            self.w[key] = self.tensor(key, spec)
        for key, spec in inputs.items():
            self.json["inputs"][key] = spec
            self.x[key] = self.tensor(key, spec)

    def tensor(self, key, spec):
        if "values" in spec:
            return nested(spec["values"], spec["shape"])
        flat = generated(self.name + "/" + key, math.prod(spec["shape"]), spec["offset"], spec["scale"])
        return nested(flat, spec["shape"])

    def write(self):
        folder = HERE / self.name
        folder.mkdir(exist_ok=True)
        self.json["fp32_error"] = {}  # by tensor, what float32 may cost where 2e-6 is not enough
        (folder / "case.json").write_text(json.dumps(self.json, indent=1) + "\n")
        header, data = {}, b""
        for key, value in sorted(self.expected.items()):
            numbers = struct.pack(f"<{len(flattened(value))}f", *flattened(value))
            header[key] = {"dtype": "F32", "shape": shape_of(value),
                           "data_offsets": [len(data), len(data) + len(numbers)]}
            data += numbers
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        (folder / "expected.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


# Layers over rows of numbers.
def linear(rows, w, name):
    weight, bias = w[name + ".weight"], w[name + ".bias"]
    return [[sum(a * b for a, b in zip(row, line)) + add for line, add in zip(weight, bias)] for row in rows]


def rms_norm(row, weight):
    factor = 1 / math.sqrt(sum(v * v for v in row) / len(row) + EPS)
    return [v * factor * g for v, g in zip(row, weight)]


def layer_norm(row):
    mean = sum(row) / len(row)
    factor = 1 / math.sqrt(sum((v - mean) ** 2 for v in row) / len(row) + EPS)
    return [(v - mean) * factor for v in row]


def silu(v):
    return v / (1 + math.exp(-v))


def gelu(v):
    return v * 0.5 * (1 + math.erf(v / math.sqrt(2)))


def gelu_tanh(v):
    return 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3)))


def each(function, rows):
    return [[function(v) for v in row] for row in rows]


def plus(a, b):
    return [[x + y for x, y in zip(r, s)] for r, s in zip(a, b)]


# One head after the other; prepare: norms and places of a query's or key's head.
def attention(q, k, v, head, prepare_q=lambda i, x: x, prepare_k=lambda i, x: x):
    out = [[] for _ in q]
    for first in range(0, len(q[0]), head):
        part = slice(first, first + head)
        keys = [prepare_k(j, row[part]) for j, row in enumerate(k)]
        for i, row in enumerate(q):
            query = prepare_q(i, row[part])
            scores = [math.exp(sum(a * b for a, b in zip(query, key)) / math.sqrt(head)) for key in keys]
            total = sum(scores)
            out[i] += [sum(s * value[c] for s, value in zip(scores, v)) / total for c in range(first, first + head)]
    return out


# The text encoder. Tokens that are not there are left out, not masked.
def words_case():
    width, tokens, places, length = 32, 40, 16, 12
    weights = {"words:tokens.weight": [tokens, width], "words:places.weight": [places, width]}
    for name, out, inner in [("attention.qkv", 3 * width, width), ("attention.out", width, width),
                             ("mlp.0", 2 * width, width), ("mlp.2", width, 2 * width)]:
        weights.update({f"words:{name}.weight": [out, inner], f"words:{name}.bias": [out]})
    weights.update({f"words:{name}.weight": [width] for name in ("attention.norm", "mlp.norm", "norm")})
    counts = [7, 12]
    ids = [(5 * i + 3) % tokens if i % length < counts[i // length] else 0 for i in range(2 * length)]
    there = [int(i % length < counts[i // length]) for i in range(2 * length)]
    case = Case("tiny_words", "conditioner", weights, {
        "words.input_ids": {"shape": [2, length], "values": ids},
        "words.attention_mask": {"shape": [2, length], "values": there}}, prefixes={"words": "words:"})
    w = {key.split(":")[1]: value for key, value in case.w.items()}
    case.expected["text_mask"] = [[float(v) for v in row] for row in case.x["words.attention_mask"]]
    text = []
    for row, count in zip(case.x["words.input_ids"], counts):
        # The graph gives rows for pads too, which nobody may see: here they are as the graph makes them.
        x = plus([w["tokens.weight"][i] for i in row], w["places.weight"])
        all_three = linear([rms_norm(r, w["attention.norm.weight"]) for r in x], w, "attention.qkv")
        q, k, v = ([r[part * width:(part + 1) * width] for r in all_three] for part in range(3))
        x = plus(x, linear(attention(q, k[:count], v[:count], 16), w, "attention.out"))
        h = linear([rms_norm(r, w["mlp.norm.weight"]) for r in x], w, "mlp.0")
        x = plus(x, linear(each(gelu, h), w, "mlp.2"))
        text.append([rms_norm(r, w["norm.weight"]) for r in x])
    case.expected["text"] = text
    case.write()


# The denoiser, one sample at a time.
def rotated(x, place, head):
    out = list(x)
    angles = [axis * 100.0 ** (-2 * i / (head // 2)) for axis in place for i in range(head // 4)]
    for i, angle in enumerate(angles):
        a, b = x[2 * i], x[2 * i + 1]
        cos, sin = math.cos(angle), math.sin(angle)
        out[2 * i], out[2 * i + 1] = a * cos - b * sin, a * sin + b * cos
    return out


def denoised(w, latents, text, time, hidden, head, blocks):
    channels, height, width = shape_of(latents)
    cells = [(r, c) for r in range(height // 2) for c in range(width // 2)]
    x = linear([[latents[ch][2 * r + p][2 * c + q] for p in range(2) for q in range(2) for ch in range(channels)]
                for r, c in cells], w, "patch")
    half = len(w["time.0.weight"][0]) // 2
    angles = [1000 * time * 10000.0 ** (-i / half) for i in range(half)]
    sinusoid = [math.cos(a) for a in angles] + [math.sin(a) for a in angles]
    activated = each(silu, linear(each(silu, linear([sinusoid], w, "time.0")), w, "time.2"))
    text = linear(text, w, "text")

    def modulated(x, shift, scale):
        return [[(1 + s) * v + add for v, s, add in zip(layer_norm(row), scale, shift)] for row in x]

    def pieces(name, count):
        row = linear(activated, w, name)[0]
        return [row[i * hidden:(i + 1) * hidden] for i in range(count)]

    def gated(x, gate, y):
        return [[v + g * u for v, g, u in zip(r, gate, s)] for r, s in zip(x, y)]

    for b in range(blocks):
        block = f"blocks.{b}"
        mod = pieces(block + ".modulation", 6)
        qkv = linear(modulated(x, mod[0], mod[1]), w, block + ".self.qkv")
        q, k, v = ([row[part * hidden:(part + 1) * hidden] for row in qkv] for part in range(3))
        norm = lambda kind: w[f"{block}.{kind}_norm.weight"]
        y = attention(q, k, v, head, lambda i, r: rotated(rms_norm(r, norm("self.q")), cells[i], head),
                      lambda i, r: rotated(rms_norm(r, norm("self.k")), cells[i], head))
        x = gated(x, mod[2], linear(y, w, block + ".self.out"))
        kv = linear(text, w, block + ".cross.kv")
        y = attention(linear([layer_norm(r) for r in x], w, block + ".cross.q"), [r[:hidden] for r in kv],
                      [r[hidden:] for r in kv], head, lambda i, r: rms_norm(r, norm("cross.q")),
                      lambda i, r: rms_norm(r, norm("cross.k")))
        x = plus(x, linear(y, w, block + ".cross.out"))
        y = each(gelu_tanh, linear(modulated(x, mod[3], mod[4]), w, block + ".mlp.0"))
        x = gated(x, mod[5], linear(y, w, block + ".mlp.2"))
    mod = pieces("last.modulation", 2)
    x = linear(modulated(x, mod[0], mod[1]), w, "last.linear")
    out = [[[0.0] * width for _ in range(height)] for _ in range(channels)]
    for (r, c), row in zip(cells, x):
        for i, value in enumerate(row):
            out[i % channels][2 * r + i // (2 * channels)][2 * c + i // channels % 2] = value
    return out


def denoiser_case():
    channels, hidden, head, text, time, blocks, length = 8, 32, 16, 24, 16, 2, 8
    weights = {}

    def add(name, out, inner):
        weights.update({name + ".weight": [out, inner], name + ".bias": [out]})

    add("patch", hidden, 4 * channels), add("text", hidden, text)
    add("time.0", hidden, time), add("time.2", hidden, hidden)
    for b in range(blocks):
        for name, out, inner in [("modulation", 6, 1), ("self.qkv", 3, 1), ("self.out", 1, 1), ("cross.q", 1, 1),
                                 ("cross.kv", 2, 1), ("cross.out", 1, 1), ("mlp.0", 4, 1), ("mlp.2", 1, 4)]:
            add(f"blocks.{b}.{name}", out * hidden, inner * hidden)
        for name in ("self.q", "self.k", "cross.q", "cross.k"):
            weights[f"blocks.{b}.{name}_norm.weight"] = [head]
    add("last.modulation", 2 * hidden, hidden), add("last.linear", 4 * channels, hidden)
    latents = {"shape": [2, channels, 6, 8], "offset": 0.0, "scale": 1.7}
    lengths, times = [5, 8], [0.25, 0.875]
    case = Case("tiny_denoiser", "denoiser", weights, {
        "latents": latents, "text": {"shape": [2, length, text], "offset": 0.0, "scale": 1.7},
        "text_lengths": {"shape": [2], "values": lengths}, "time": {"shape": [2], "values": times},
        "target": latents})
    case.expected["output"] = [denoised(case.w, *sample, hidden, head, blocks) for sample in zip(
        case.x["latents"], [rows[:n] for rows, n in zip(case.x["text"], lengths)], times)]
    case.write()


# The autoencoder.
def convolved(x, w, name, stride=1):
    weight, bias = w[name + ".weight"], w[name + ".bias"]
    height, width = len(x[0]), len(x[0][0])
    taps = [(c, i, j) for c in range(len(x)) for i in range(3) for j in range(3)]

    def at(line, r, c):
        return sum(line[k][i][j] * x[k][r + i - 1][c + j - 1] for k, i, j in taps
                   if 0 <= r + i - 1 < height and 0 <= c + j - 1 < width)

    return [[[at(line, r, c) + add for c in range(0, width, stride)] for r in range(0, height, stride)]
            for line, add in zip(weight, bias)]


def activated(x, w, name, groups=4):
    out, size = [], len(x) // groups
    for g in range(groups):
        numbers = flattened(x[g * size:(g + 1) * size])
        mean = sum(numbers) / len(numbers)
        factor = 1 / math.sqrt(sum((v - mean) ** 2 for v in numbers) / len(numbers) + EPS)
        for c in range(g * size, (g + 1) * size):
            gain, add = w[name + ".weight"][c], w[name + ".bias"][c]
            out.append(each(lambda v: silu((v - mean) * factor * gain + add), x[c]))
    return out


def autoencoder_cases():
    channels, wide = 8, 8
    weights = {"latent_mean": [channels], "latent_scale": [channels]}
    for side, parts in [("encoder", [("in", wide, 3), ("down.0.conv", 2 * wide, wide), ("down.1.conv", wide, 2 * wide),
                                     ("out", 2 * channels, wide)]),
                        ("decoder", [("in", wide, channels), ("up.0.conv", 2 * wide, wide), ("up.1.conv", wide, 2 * wide),
                                     ("out", 3, wide)])]:
        for name, out, inner in parts:
            norm = name.replace("conv", "norm") if "conv" in name else "norm"
            weights.update({f"{side}.{name}.weight": [out, inner, 3, 3], f"{side}.{name}.bias": [out]})
            if name != "in":
                weights.update({f"{side}.{norm}.{kind}": [inner] for kind in ("weight", "bias")})
    case = Case("tiny_vae_encode", "vae.encode", weights,
                {"image": {"shape": [2, 3, 8, 12], "offset": 0.0, "scale": 1.0}})
    mean_of, scale_of = case.w["latent_mean"], case.w["latent_scale"]
    case.expected = {"moments": [], "latent_mean": [], "posterior": []}
    for x in case.x["image"]:
        x = convolved(x, case.w, "encoder.in")
        for level in ("encoder.down.0", "encoder.down.1"):
            x = convolved(activated(x, case.w, level + ".norm"), case.w, level + ".conv", 2)
        x = convolved(activated(x, case.w, "encoder.norm"), case.w, "encoder.out")
        mean = [each(lambda v: (v - m) / s, plane) for plane, m, s in zip(x, mean_of, scale_of)]
        deviation = [each(lambda v: math.exp(v / 2) / s, plane) for plane, s in zip(x[channels:], scale_of)]
        for name, value in [("moments", x), ("latent_mean", mean), ("posterior", mean + deviation)]:
            case.expected[name].append(value)
    case.write()

    case = Case("tiny_vae_decode", "vae.decode", weights,
                {"latents": {"shape": [1, channels, 2, 3], "offset": 0.0, "scale": 1.7}})
    case.expected["image"] = []
    for x in case.x["latents"]:
        x = [each(lambda v: v * s + m, plane) for plane, m, s in zip(x, case.w["latent_mean"], case.w["latent_scale"])]
        x = convolved(x, case.w, "decoder.in")
        for level in ("decoder.up.0", "decoder.up.1"):
            x = activated(x, case.w, level + ".norm")
            x = [[[v for v in row for _ in range(2)] for row in plane for _ in range(2)] for plane in x]
            x = convolved(x, case.w, level + ".conv")
        case.expected["image"].append(convolved(activated(x, case.w, "decoder.norm"), case.w, "decoder.out"))
    case.write()


words_case()
denoiser_case()
autoencoder_cases()
