"""Writes the conformance vectors under vectors/ from independent implementations. README.md says how to run it.

Each expected value is asked of every implementation that defines it, and the script stops if two of them differ,
except where `torchao_differs` or `hand_checked.json` says how they do. Nothing here imports or imitates the Rust code:
scales are worked out from rational numbers, not from bit patterns.
"""

import hashlib
import json
import math
import sys
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import torch
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.kernels import f32_to_f4_unpacked, f4_unpacked_to_f32
from torchao.prototype.mx_formats.mx_tensor import to_mx

HERE = Path(__file__).parent
OUT = HERE / "vectors"
PACKAGES = ["gfloat", "ml_dtypes", "numpy", "torch", "torchao"]

# name: (gfloat, ml_dtypes, torch, mantissa bits, largest, digits of a code)
FORMATS = {
    "e2m1": (gfloat.formats.format_info_ocp_e2m1, ml_dtypes.float4_e2m1fn, torch.float4_e2m1fn_x2, 1, 6.0, 2),
    "e4m3": (gfloat.formats.format_info_ocp_e4m3, ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn, 3, 448.0, 2),
    "e5m2": (gfloat.formats.format_info_ocp_e5m2, ml_dtypes.float8_e5m2, torch.float8_e5m2, 2, 57344.0, 2),
    "bf16": (gfloat.formats.format_info_bfloat16, ml_dtypes.bfloat16, torch.bfloat16, 7, None, 4),
}
RULES = {"floor": ScaleCalculationMode.FLOOR, "even": ScaleCalculationMode.EVEN, "ceil": ScaleCalculationMode.RCEIL}


def f32(bits):
    return np.asarray(bits, dtype=np.uint32).view(np.float32)


def bits(values):
    return np.asarray(values, dtype=np.float32).view(np.uint32)


def hexes(values, digits):
    return "".join(f"{int(v):0{digits}x}" for v in values)


def same(what, *arrays):
    """The first array, once all are equal."""
    for other in arrays[1:]:
        wrong = np.nonzero(np.asarray(arrays[0]) != np.asarray(other))[0]
        if len(wrong):
            sys.exit(f"{what}: implementations differ at {wrong[:8]}: {[np.asarray(a)[wrong[:8]].tolist() for a in arrays]}")
    return np.asarray(arrays[0])


# ---- codes -----------------------------------------------------------------------------------------------------------


def decode(name):
    """F32 patterns of all codes; NaN as 7fc00000."""
    info, ml_type, torch_type, _, _, digits = FORMATS[name]
    count = 16 if name == "e2m1" else 65536 if name == "bf16" else 256
    codes = np.arange(count, dtype=np.uint16 if name == "bf16" else np.uint8)
    by_ml = codes.view(ml_type).astype(np.float32)
    by_gfloat = np.array([gfloat.decode_float(info, int(c)).fval for c in codes], dtype=np.float32)
    by_torch = f4_unpacked_to_f32(torch.from_numpy(codes)) if name == "e2m1" else torch.from_numpy(codes).view(torch_type).float()
    patterns = [np.where(np.isnan(v), 0x7FC00000, bits(v)) for v in (by_ml, by_gfloat, by_torch.numpy())]
    return same(f"decode {name}", *patterns)


def decode_e8m0():
    codes = np.arange(256, dtype=np.uint8)
    by_ml = codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    by_gfloat = np.array([gfloat.decode_float(gfloat.formats.format_info_ocp_e8m0, int(c)).fval for c in codes], dtype=np.float32)
    by_torch = torch.from_numpy(codes).view(torch.float8_e8m0fnu).float().numpy()
    return same("decode e8m0", *[np.where(np.isnan(v), 0x7FC00000, bits(v)) for v in (by_ml, by_gfloat, by_torch)])


def encode(name, values):
    """Codes of finite F32 values, nearest-even, saturating (BF16: overflowing to infinity)."""
    info, ml_type, torch_type, _, largest, _ = FORMATS[name]
    values = np.asarray(values, dtype=np.float32)
    # The casts of ml_dtypes and torch do not saturate FP8: every user of them clamps first.
    clamped = values if largest is None else np.clip(values, np.float32(-largest), np.float32(largest))
    storage = np.uint16 if name == "bf16" else np.uint8
    with np.errstate(over="ignore"):
        by_ml = clamped.astype(ml_type).view(storage)
    if name == "e2m1":
        by_torch = f32_to_f4_unpacked(torch.from_numpy(values.copy())).numpy()
    elif name == "bf16":
        by_torch = torch.from_numpy(values.copy()).bfloat16().view(torch.uint16).numpy()
    else:
        by_torch = torch.from_numpy(clamped.copy()).to(torch_type).view(torch.uint8).numpy()
    rounded = [gfloat.round_float(info, float(v), gfloat.RoundMode.TiesToEven, largest is not None) for v in values]
    by_gfloat = [gfloat.encode_float(info, v) for v in rounded]
    return same(f"encode {name}", by_ml, by_torch, by_gfloat)


def encode_stochastic(name, values, words):
    """Codes of finite F32 values, stochastic: gfloat alone defines which word rounds which way."""
    info, _, _, mantissa, largest, _ = FORMATS[name]
    dropped = 23 - mantissa
    return [
        gfloat.encode_float(
            info,
            gfloat.round_float(info, float(v), gfloat.RoundMode.Stochastic, largest is not None, int(w) % 2**dropped, dropped),
        )
        for v, w in zip(values, words)
    ]


def interesting(name, chance):
    """Finite F32 patterns: values of codes, their midpoints, one step to either side, extremes, random ones; both signs."""
    decoded = f32(decode(name))
    grid = np.unique(np.abs(decoded[np.isfinite(decoded)]))
    if name == "bf16":
        grid = np.unique(np.concatenate([grid[:4], grid[126:131], chance.choice(grid, 300), grid[-3:]]))
        pairs = [(g, f32((int(bits(g)) + 0x10000) % 2**32)) for g in grid]
        middles = [f32(int(bits(a)) + 0x8000) for a, _ in pairs]
    else:
        middles = [np.float32((float(a) + float(b)) / 2) for a, b in zip(grid, grid[1:])]
    centres = {int(bits(v)) for v in [*grid, *middles]}
    near = {c + d for c in centres for d in (-1, 0, 1) if 0 <= c + d < 0x7F800000}
    edges = {0, 1, 2, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F7F8000, 0x7F7F7FFF}
    low, high = (110, 145) if name != "bf16" else (0, 254)
    drawn = {int(chance.integers(low, high + 1)) << 23 | int(chance.integers(2**23)) for _ in range(400)}
    positive = sorted(near | edges | drawn)
    return np.array([p | sign << 31 for p in positive for sign in (0, 1)], dtype=np.uint32)


# ---- scales ----------------------------------------------------------------------------------------------------------


def floor_log2(x):
    """Of a positive Fraction, exactly."""
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    return exponent if x >= Fraction(2) ** exponent else exponent - 1


def scale_byte(amax, rule, name):
    """The definition, in rational numbers."""
    _, _, _, mantissa, largest, _ = FORMATS[name]
    if amax == 0:
        return 0
    amax = Fraction(float(amax))
    largest = Fraction(largest)
    if rule == "ceil":
        exponent = floor_log2(amax / largest)
        if amax > largest * Fraction(2) ** exponent:
            exponent += 1
    else:
        if rule == "even":  # the magnitude rounded to the format's mantissa, ties up
            unit = Fraction(2) ** (floor_log2(amax) - mantissa)
            amax = ((amax / unit + Fraction(1, 2)).__floor__()) * unit
        exponent = floor_log2(amax) - floor_log2(largest)
    return min(max(exponent + 127, 0), 254)


def torchao(blocks, rule, name):
    """Scale bytes and unpacked codes of an array of shape [n, 32]."""
    scales, data = to_mx(torch.from_numpy(np.ascontiguousarray(blocks)), FORMATS[name][2], 32, RULES[rule])
    data = data.view(torch.uint8).numpy().reshape(len(blocks), -1)
    if name == "e2m1":
        data = np.stack([data & 15, data >> 4], axis=-1).reshape(len(blocks), 32)
    return scales.view(torch.uint8).numpy().reshape(-1), data


def torchao_differs(amax, rule, name):
    """Whether torchao 0.18 is known to give other scale bytes than the definition for this finite magnitude."""
    if rule != "ceil" or amax == 0:
        return False
    # It divides amax by the largest value in F32, takes log2 in F32 and rounds that up: just above a power of two the
    # logarithm rounds to an integer. (A subnormal quotient only loses bits, within the same bound.)
    ratio = Fraction(float(amax)) / Fraction(FORMATS[name][4])
    above = ratio / Fraction(2) ** floor_log2(ratio) - 1
    return 0 < above < Fraction(1, 2**15)


def scales():
    thresholds = {0, 1, 2, 3, 16, 0x300000, 0x3FFFFF, 0x400000, 0x400001, 0x5FFFFF, 0x600000, 0x600001, 0x6FFFFF, 0x700000, 0x77FFFF, 0x780000, 0x7FFFF0, 0x7FFFFE, 0x7FFFFF}
    amax = np.array([e << 23 | m for e in range(255) for m in sorted(thresholds)], dtype=np.uint32)
    blocks = np.zeros((len(amax), 32), dtype=np.float32)
    blocks[:, 7] = -f32(amax)
    result = {"amax": hexes(amax, 8)}
    for rule in RULES:
        for name in ("e2m1", "e4m3", "e5m2"):
            expected = np.array([scale_byte(a, rule, name) for a in f32(amax)])
            by_torchao, _ = torchao(blocks, rule, name)
            usable = np.array([not torchao_differs(a, rule, name) for a in f32(amax)])
            same(f"scale {rule} {name}", expected[usable], by_torchao[usable])
            if rule == "floor":
                emax = FORMATS[name][0].emax
                by_gfloat = [127 + int(math.log2(gfloat.compute_scale_amax(emax, np.array([float(a)])))) for a in f32(amax)]
                same(f"scale floor {name}, gfloat", expected, by_gfloat)
            result[f"{rule} {name}"] = hexes(expected, 2)
            print(f"scale {rule} {name}: {len(amax)} magnitudes, torchao agrees on the {usable.sum()} it is asked for")
    return result


# ---- blocks ----------------------------------------------------------------------------------------------------------


def bf16(values):
    return np.asarray(values, dtype=np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)


def sample_blocks(chance):
    """[n, 32] F32 arrays that hold BF16 values, all finite."""
    with np.errstate(over="ignore", under="ignore"):
        spread = [chance.standard_normal(32) * 2.0**e for e in [*range(-12, 13), *range(-130, 121, 10)] for _ in range(3)]
        outlier = [np.where(np.arange(32) == i, 2.0 ** (i % 7), 1) * chance.standard_normal(32) for i in range(32)]
        # Magnitudes at, one BF16 step below and above the mantissas where a rule changes its mind.
        mantissas = [m / 128 for t in (128, 192, 224, 240, 248) for m in (t - 1, t, t + 1)]
        edges = [m * 2.0**e * np.linspace(-1, 1, 32) for e in (-126, -125, -124, -123, -120, -111, -1, 0, 1, 2, 31, 119, 126) for m in mantissas]
        wide = [2.0 ** chance.uniform(-126, 127, 32) * chance.choice([-1.0, 1.0], 32) for _ in range(12)]
        top = [np.full(32, 3.38e38), np.where(np.arange(32) % 2, -3.38e38, 1e30), np.full(32, 2.0**-133), np.linspace(-1, 1, 32) * 2.0**-128]
        zero = [np.zeros(32), np.full(32, -0.0), np.where(np.arange(32) % 2, -0.0, 0.0), np.where(np.arange(32) % 2, -0.0, 1.0)]
        blocks = bf16(np.array([*spread, *outlier, *edges, *wide, *top, *zero]))
    return blocks[np.isfinite(blocks).all(axis=1)]


def blocks(chance):
    source = sample_blocks(chance)
    result = {"blocks": len(source), "source": hexes((bits(source) >> 16).reshape(-1), 4)}
    for rule in RULES:
        for name in ("e2m1", "e4m3", "e5m2"):
            bytes_ = np.array([scale_byte(np.abs(b).max(), rule, name) for b in source])
            exact = [np.ldexp(b.astype(np.float64), 127 - int(s)) for b, s in zip(source, bytes_)]
            # A quotient below F32's range rounds to zero in every format either way.
            codes = encode(name, np.array(exact).reshape(-1).astype(np.float32)).reshape(-1, 32)
            ao_bytes, ao_codes = torchao(source, rule, name)
            usable = np.array([not torchao_differs(np.abs(b).max(), rule, name) for b in source])
            same(f"block scales {rule} {name}", bytes_[usable], ao_bytes[usable])
            usable &= bytes_ != 0  # torchao divides by 2^-126 there, or (ceil) by 1: hand_checked.json
            same(f"block codes {rule} {name}", codes[usable].reshape(-1), ao_codes[usable].reshape(-1))
            result[f"{rule} {name}"] = {"scales": hexes(bytes_, 2), "codes": hexes(codes.reshape(-1), 1 if name == "e2m1" else 2)}
            print(f"blocks {rule} {name}: {len(source)}, of which torchao agrees on {usable.sum()} in full")
    return result


def tensors(chance):
    """FP8 with one F32 scale: F32 division, product and cast, as torch and numpy do them."""
    cases = []
    for exponent in (-100, -40, -9, -1, 0, 1, 3, 20, 90):
        source = bf16(chance.standard_normal(64) * 2.0**exponent)
        for name in ("e4m3", "e5m2"):
            largest = np.float32(FORMATS[name][4])
            scale = largest / np.abs(source).max()
            by_torch = torch.tensor(float(largest)) / torch.from_numpy(source).abs().max()
            same("tensor scale", bits([scale]), bits([by_torch.item()]))
            codes = encode(name, source * scale)
            inverse = np.float32(1) / scale
            cases.append({"format": name, "source": hexes(bits(source) >> 16, 4), "inverse": hexes(bits([inverse]), 8), "codes": hexes(codes, 2)})
    return cases


# ---- random words ----------------------------------------------------------------------------------------------------


def stream(seed, step, layer, linear, part, operand):
    def mix(value):
        z = (value + 0x9E3779B97F4A7C15) % 2**64
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        return z ^ (z >> 31)

    state = 0x6A09E667F3BCC909
    for word in (seed, step, layer * 2**32 + linear, part * 2**32 + operand):
        state = mix(state ^ word)
    return divmod(state, 2**32)


def word(key, index):
    high, low = divmod(index, 2**32)
    x = (low * 0x9E3779B1 + high * 0x85EBCA6B + key[0]) % 2**32
    x = ((x ^ (x >> 16)) * 0x7FEB352D) % 2**32
    x = ((((x ^ (x >> 15)) + key[1]) % 2**32) * 0x846CA68B) % 2**32
    return x ^ (x >> 16)


def random_words():
    """The definition again in Python's integers: it can only catch an implementation slip, not a poor hash."""
    indices = [0, 1, 2, 31, 32, 65535, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**40 + 7, 2**64 - 1]
    keys = [(0, 0, 0, 0, 0, 0), (1, 0, 0, 0, 0, 0), (0, 1, 0, 0, 0, 0), (7, 11, 3, 2, 1, 1), (2**64 - 1, 2**63, 2**32 - 1, 5, 2, 9)]
    cases = []
    for key in keys:
        words = stream(*key)
        cases.append({"key": list(map(str, key)), "stream": hexes(words, 8), "words": hexes([word(words, i) for i in indices], 8)})
    return {"indices": list(map(str, indices)), "cases": cases}


# ---- where implementations differ ------------------------------------------------------------------------------------


def observed():
    """What each implementation says to the blocks of hand_checked.json; the Rust test holds the crate to that file's own answers."""
    answers = []
    for case in json.loads((HERE / "hand_checked.json").read_text())["cases"]:
        block = np.zeros((1, 32), dtype=np.float32)
        given = [int(x, 16) for x in case["elements"]]
        block[0, : len(given)] = f32(given)
        name, rule = case["format"], case["rule"]
        ao_byte, ao_codes = torchao(block, rule, name)
        answer = {"case": case["case"], "torchao": {"scale": int(ao_byte[0]), "codes": ao_codes[0, : len(given)].tolist()}}
        with np.errstate(all="ignore"):
            ml_codes = f32(given).astype(FORMATS[name][1]).view(np.uint8).tolist()
        answer["ml_dtypes cast of the unscaled elements"] = {"codes": ml_codes}
        if rule == "floor":
            for kind, values in (("gfloat, F64", block[0].astype(np.float64)), ("gfloat, F32", block[0])):
                try:
                    with np.errstate(all="ignore"):
                        scale = gfloat.compute_scale_amax(FORMATS[name][0].emax, values)
                        encoded = list(gfloat.encode_block(gfloat.formats.BlockFormatInfo(name, FORMATS[name][0], 32, gfloat.formats.format_info_ocp_e8m0), float(scale), [float(v) for v in values.astype(np.float64) / scale]))
                    answer[kind] = {"scale": int(encoded[0]), "codes": [int(c) for c in encoded[1 : len(given) + 1]]}
                except (ValueError, OverflowError) as error:
                    answer[kind] = {"refuses": str(error)}
        answers.append(answer)
    return answers


def main():
    chance = np.random.default_rng(20502605)
    OUT.mkdir(exist_ok=True)
    files = {"decode.json": {name: hexes(decode(name), 8) for name in ("e2m1", "e4m3", "e5m2")} | {"e8m0": hexes(decode_e8m0(), 8)}}
    decode("bf16")  # only that the three agree: a BF16 is the upper half of an F32
    codes = {}
    for name in FORMATS:
        patterns = interesting(name, chance)
        words = chance.integers(0, 2**32, len(patterns), dtype=np.uint64)
        words[::5] = 0
        words[1::5] = 2**32 - 1
        digits = FORMATS[name][5]
        nearest = encode(name, f32(patterns))
        stochastic = encode_stochastic(name, f32(patterns), words)
        codes[name] = {"values": hexes(patterns, 8), "words": hexes(words, 8), "nearest": hexes(nearest, digits), "stochastic": hexes(stochastic, digits)}
        print(f"encode {name}: {len(patterns)} values")
    files["encode.json"] = codes
    files["scale.json"] = scales()
    files["blocks.json"] = blocks(chance)
    files["tensor.json"] = tensors(chance)
    files["random.json"] = random_words()
    files["observed.json"] = observed()
    sums = []
    for name, content in files.items():
        text = json.dumps({"versions": {p: version(p) for p in PACKAGES}, "data": content}, indent=1) + "\n"
        (OUT / name).write_text(text)
        sums.append(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n")
    (OUT / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    main()
