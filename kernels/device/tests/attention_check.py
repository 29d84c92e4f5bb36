#!/usr/bin/env python3
"""Checks and times kernels/device/attention.cu and attention_fused.cu on one NVIDIA GPU, against PyTorch.

Errors are ||ours - reference|| / ||reference||, the reference computed in F64 from the same BF16 inputs. Times are medians of
CUDA events, ours and scaled_dot_product_attention in turns. Needs torch, and libcuda and libnvrtc, which come with it.

  attention_check.py --compile-only [--arch sm_90a] [-D NAME=VALUE ...]   compiles every head size (no GPU); writes cubins to --save
  attention_check.py [--check] [--time] [--variants FILE] [--bare]        on the GPU
FILE is a JSON list like [{"dim": 64, "flags": ["KV_BLOCKS=2"]}]; the flag SPLIT takes attention.cu's own backward kernels where
attention_fused.cu would be taken. --bare is for compute-sanitizer. racecheck does not follow mbarriers (HEAD_DIM 128 with wgmma) and
reports what they order; the other builds must come out clean.
"""
import argparse
import ctypes
import glob
import json
import os
import statistics
import sys

DEVICE = os.environ.get("ATTENTION_SOURCES") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def load_nvrtc():
    for root in [os.environ.get("NVRTC_ROOT", "")] + sys.path:
        for path in sorted(glob.glob(os.path.join(root, "nvidia", "*", "lib", "libnvrtc.so.1[23]"))) if root else []:
            return ctypes.CDLL(path)
    return ctypes.CDLL("libnvrtc.so.13")


def compile_cubin(dim, flags=(), arch="sm_90a", file="attention.cu"):
    """The kernels' machine code, and the compiler's log."""
    nvrtc = load_nvrtc()
    program = ctypes.c_void_p()
    read = lambda name: open(os.path.join(DEVICE, name), "rb").read()
    text, name = (ctypes.c_char_p * 1)(read("attention.h")), (ctypes.c_char_p * 1)(b"attention.h")
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), read(file), file.encode(), 1, text, name) == 0
    options = [f"--gpu-architecture={arch}", "--std=c++17", "-fmad=false", "--ptxas-options=-v"]
    options += [f"-D{flag}" for flag in flags] + ([f"-DHEAD_DIM={dim}"] if file == "attention.cu" else [])
    array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    code = nvrtc.nvrtcCompileProgram(program, len(options), array)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    log = log.value.decode()
    if code != 0:
        raise SystemExit(f"NVRTC error {code} for HEAD_DIM={dim} {flags} {arch}:\n{log}")
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, cubin)
    return cubin.raw, log


NAMES = ("attention_forward", "attention_backward_q", "attention_backward_kv")
FUSED_NAMES = ("attention_delta", "attention_backward", "attention_backward_store")


class Kernels:
    """One compiled head size."""

    def __init__(self, dim, flags=(), arch="sm_90a"):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.fused = dim == 128 and arch == "sm_90a" and "ATTENTION_NO_WGMMA" not in flags and "SPLIT" not in flags
        self.dim, self.shapes, self.functions, self.registers = dim, {}, {}, {}
        cubin, self.log = compile_cubin(dim, flags, arch)
        numbers = self.load(cubin, b"attention_launch", 9, ("attention_forward",) if self.fused else NAMES)
        if self.fused:
            cubin, log = compile_cubin(dim, flags, arch, "attention_fused.cu")
            self.log += log
            self.load(cubin, b"attention_fused_shared", 1, FUSED_NAMES)

    def load(self, cubin, constant, count, names):
        module, table, size = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t()
        self.call("cuModuleLoadData", ctypes.byref(module), cubin)
        self.call("cuModuleGetGlobal_v2", ctypes.byref(table), ctypes.byref(size), module, constant)
        numbers = (ctypes.c_int * count)()
        self.call("cuMemcpyDtoH_v2", numbers, table, ctypes.c_size_t(4 * count))
        for i, name in enumerate(names):
            function, value = ctypes.c_void_p(), ctypes.c_int()
            self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            fused = {"attention_delta": (0, 256, 0), "attention_backward": (0, 384, numbers[0]), "attention_backward_store": (0, 128, 0)}
            self.shapes[name] = fused[name] if count == 1 else tuple(numbers[3 * i:3 * i + 3])
            self.call("cuFuncSetAttribute", function, 8, self.shapes[name][2])
            info = []
            for attribute in (4, 3):
                self.call("cuFuncGetAttribute", ctypes.byref(value), attribute, function)
                info.append(value.value)
            self.registers[name], self.functions[name] = info, function

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            raise SystemExit(f"{name} failed with CUDA error {code}")

    def launch(self, name, grid, *arguments):
        import torch

        _, threads, shared = self.shapes[name]
        values = [ctypes.c_int(a) if isinstance(a, int) else ctypes.c_void_p(a.data_ptr()) for a in arguments]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.cast(ctypes.pointer(v), ctypes.c_void_p) for v in values])
        self.call("cuLaunchKernel", self.functions[name], *grid, threads, 1, 1, shared,
                  ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), pointers, None)

    def rows(self, name, sequence):
        return -(-sequence // self.shapes[name][0])

    def forward(self, b, batch, sequence, heads, kv_heads):
        grid = (self.rows("attention_forward", sequence), heads, batch)
        self.launch("attention_forward", grid, b["qkv"], b["out"], b["logsumexp"], sequence, heads, kv_heads)

    def backward_q(self, b, batch, sequence, heads, kv_heads):
        grid = (self.rows("attention_backward_q", sequence), heads, batch)
        self.launch("attention_backward_q", grid, b["qkv"], b["out"], b["d_out"], b["logsumexp"], b["delta"], b["d_qkv"], sequence, heads,
                    kv_heads)

    def backward_kv(self, b, batch, sequence, heads, kv_heads):
        grid = (self.rows("attention_backward_kv", sequence), kv_heads, batch)
        self.launch("attention_backward_kv", grid, b["qkv"], b["d_out"], b["logsumexp"], b["delta"], b["d_qkv"], sequence, heads, kv_heads)

    def delta(self, b, batch, sequence, heads, kv_heads):
        grid = (-(-batch * sequence * heads // 16), 1, 1)
        self.launch("attention_delta", grid, b["out"], b["d_out"], b["delta"], b["turns"], batch, sequence, heads)

    def all_products(self, b, batch, sequence, heads, kv_heads):
        grid = (-(-sequence // 128) * kv_heads * batch, 1, 1)
        self.launch("attention_backward", grid, b["qkv"], b["d_out"], b["logsumexp"], b["delta"], b["d_queries"], b["turns"], b["d_qkv"],
                    batch, sequence, heads, kv_heads)

    def store(self, b, batch, sequence, heads, kv_heads):
        grid = (2 * -(-sequence // 64), heads, batch)
        self.launch("attention_backward_store", grid, b["d_queries"], b["d_qkv"], sequence, heads, kv_heads)

    def parts(self):
        """The backward pass, kernel by kernel, with how many products each makes."""
        if self.fused:
            return [("delta", self.delta, 0), ("all", self.all_products, 5), ("store", self.store, 0)]
        return [("q", self.backward_q, 3), ("kv", self.backward_kv, 4)]


def buffers(batch, sequence, heads, kv_heads, dim, seed=1, guard=4096):
    """Random inputs, and outputs full of NaN, between guards that must survive."""
    import torch

    torch.manual_seed(seed)
    rows = batch * sequence
    sizes = {"qkv": (rows * (heads + 2 * kv_heads) * dim, torch.bfloat16), "d_out": (rows * heads * dim, torch.bfloat16),
             "out": (rows * heads * dim, torch.bfloat16), "d_qkv": (rows * (heads + 2 * kv_heads) * dim, torch.bfloat16),
             "logsumexp": (batch * heads * sequence, torch.float32), "delta": (batch * heads * sequence, torch.float32)}
    tiles = batch * heads * -(-sequence // 64)
    if dim == 128:
        sizes |= {"d_queries": (tiles * 64 * 128, torch.float32), "turns": (tiles + 1, torch.float32)}
    whole, inner = {}, {}
    for name, (size, kind) in sizes.items():
        whole[name] = torch.full((size + 2 * guard,), float("nan"), dtype=kind, device="cuda")
        inner[name] = whole[name][guard:guard + size]
        if name in ("qkv", "d_out"):
            inner[name].copy_(torch.randn(size, device="cuda"))
    return whole, inner, guard


def reference(qkv, d_out, batch, sequence, heads, kv_heads, dim, kind):
    import torch

    x = qkv.to(kind).view(batch, sequence, heads + 2 * kv_heads, dim).transpose(1, 2)
    x = x.detach().clone().requires_grad_()
    q, k, v = x[:, :heads], x[:, heads:heads + kv_heads], x[:, heads + kv_heads:]
    k, v = (y.repeat_interleave(heads // kv_heads, 1) for y in (k, v))
    scores = q @ k.transpose(2, 3) / dim ** 0.5
    hidden = torch.ones(sequence, sequence, dtype=torch.bool, device="cuda").triu(1)
    scores = scores.masked_fill(hidden, float("-inf"))
    out = torch.softmax(scores, -1) @ v
    out.backward(d_out.to(kind).view(batch, sequence, heads, dim).transpose(1, 2))
    flat = lambda y: y.transpose(1, 2).reshape(batch * sequence, -1)
    return flat(out.detach()), torch.logsumexp(scores, -1).detach(), flat(x.grad)


def error(ours, theirs):
    return ((ours.double() - theirs.double()).norm() / theirs.double().norm()).item()


def run_all(kernels, b, shape):
    kernels.forward(b, *shape)
    for _, part, _ in kernels.parts():
        part(b, *shape)


def check(kernels, batch, sequence, heads, kv_heads, label=""):
    import torch

    dim, shape = kernels.dim, (batch, sequence, heads, kv_heads)
    whole, b, guard = buffers(*shape, dim)
    run_all(kernels, b, shape)
    torch.cuda.synchronize()
    first = {name: b[name].clone() for name in ("out", "d_qkv", "logsumexp")}
    same = True
    for _ in range(3):
        for name in b.keys() - {"qkv", "d_out"}:
            b[name].fill_(float("nan"))
        run_all(kernels, b, shape)
        same = same and all(torch.equal(first[name], b[name]) for name in first)
    guards = all(torch.isnan(w[:guard]).all() and torch.isnan(w[-guard:]).all() for w in whole.values())
    kind = torch.float64 if batch * heads * sequence * sequence < 3e8 else torch.float32
    out, logsumexp, d_qkv = reference(b["qkv"], b["d_out"], *shape, dim, kind)
    theirs, ours = d_qkv, b["d_qkv"].view(batch * sequence, -1)
    q, k = heads * dim, (heads + kv_heads) * dim
    errors = {"out": error(b["out"].view(batch * sequence, -1), out),
              "lse": ((b["logsumexp"].view(logsumexp.shape).double() - logsumexp).abs().max()).item(),
              "dq": error(ours[:, :q], theirs[:, :q]) if sequence > 1 else ours[:, :q].abs().max().item(),
              "dk": error(ours[:, q:k], theirs[:, q:k]) if sequence > 1 else ours[:, q:k].abs().max().item(),
              "dv": error(ours[:, k:], theirs[:, k:])}
    # At sequence 1 dQ and dK are exactly zero; ours is the difference of two roundings of the same sum.
    good = same and guards and all(e < 1e-2 for n, e in errors.items()) and errors["lse"] < 1e-4
    print(f"{'ok  ' if good else 'FAIL'} D={dim} {label} batch={batch} seq={sequence} heads={heads}/{kv_heads} "
          + " ".join(f"{n}={e:.2e}" for n, e in errors.items()) + f" deterministic={same} guards={bool(guards)}", flush=True)
    return good


def check_nan(kernels):
    """A NaN key reaches that query and later ones of its sequence, and no other sequence."""
    import torch

    shape = (2, 100, 2, 1)
    _, b, _ = buffers(*shape, kernels.dim)
    rows = b["qkv"].view(200, -1)
    rows[90, 2 * kernels.dim] = float("nan")
    run_all(kernels, b, shape)
    bad = torch.isnan(b["out"].view(2, 100, -1)).any(-1)
    d_bad = torch.isnan(b["d_qkv"].view(2, 100, -1)).any(-1)
    good = bool(bad[0, 90:].all()) and not bad[1].any() and not bad[0, :64].any() and not d_bad[1].any() and bool(d_bad[0, 90:].all())
    print(f"{'ok  ' if good else 'FAIL'} D={kernels.dim} NaN stays in its sequence", flush=True)
    return good


def median_ms(call, repeats=20):
    import torch

    for _ in range(3):
        call(0)
    times = []
    for i in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call(i)
        end.record()
        times.append((start, end))
    torch.cuda.synchronize()
    return statistics.median(s.elapsed_time(e) for s, e in times)


SIZES = {"s": (64, 512, 8, 8, 64), "m": (16, 1024, 12, 12, 64), "8B": (1, 8192, 32, 8, 128)}


def time_ours(kernels, size, sets=3):
    """Medians in ms over several input sets: forward, each kernel of the backward pass, the backward pass."""
    *shape, dim = SIZES[size]
    every = [buffers(*shape, dim, seed)[1] for seed in range(sets)]
    for b in every:
        run_all(kernels, b, shape)

    def backward(i):
        for _, part, _ in kernels.parts():
            part(every[i % sets], *shape)

    forward = median_ms(lambda i: kernels.forward(every[i % sets], *shape))
    # One alone would find its turns taken: the sums of dQ begin with attention_delta.
    alone = [] if kernels.fused else [median_ms(lambda i: part(every[i % sets], *shape)) for _, part, _ in kernels.parts()]
    return forward, alone, median_ms(backward)


def time_torch(size, backend, sets=3):
    import torch
    from torch.nn.attention import sdpa_kernel

    batch, sequence, heads, kv_heads, dim = SIZES[size]
    every = []
    for _ in range(sets):
        x = [torch.randn(batch, sequence, h, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
             for h in (heads, kv_heads, kv_heads)]
        d = torch.randn(batch, sequence, heads, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
        every.append((x, d))
    with sdpa_kernel(backend):
        attend = lambda x: torch.nn.functional.scaled_dot_product_attention(*x, is_causal=True, enable_gqa=heads != kv_heads)
        with torch.no_grad():
            f = median_ms(lambda i: attend(every[i % sets][0]))
        outs = [attend(x) for x, _ in every]
        g = median_ms(lambda i: torch.autograd.grad(outs[i % sets], every[i % sets][0], every[i % sets][1], retain_graph=True))
    return f, g


def tflops(size, ms, products):
    batch, sequence, heads, _, dim = SIZES[size]
    return products * batch * heads * sequence * sequence * dim / ms / 1e9  # one causal product: half of 2 S S D


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--variants")
    parser.add_argument("--bare", action="store_true", help="small odd shapes without guards, for compute-sanitizer")
    parser.add_argument("--profile", help="run each kernel once at this size, for a profiler")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--dims", default="64,128,16,80")
    parser.add_argument("--save")
    parser.add_argument("-D", action="append", default=[])
    options = parser.parse_args()
    dims = [int(d) for d in options.dims.split(",")]
    if options.compile_only:
        for dim in dims:
            cubin, log = compile_cubin(dim, options.D, options.arch)
            print(f"HEAD_DIM={dim} {options.arch}: {len(cubin)} bytes\n{log}")
            if options.save:
                open(os.path.join(options.save, f"attention_{dim}_{options.arch}.cubin"), "wb").write(cubin)
        return
    import torch

    torch.zeros(1, device="cuda")
    print(torch.cuda.get_device_name(), torch.__version__)
    good = True
    if options.check:
        for dim, flags in ((64, []), (128, []), (16, []), (80, []), (64, ["ATTENTION_NO_WGMMA"]), (128, ["ATTENTION_NO_WGMMA"])):
            kernels, label = Kernels(dim, flags), " ".join(flags)
            print(f"D={dim} {flags} [registers, local bytes]: {kernels.registers} {kernels.shapes}")
            for sequence in (1, 17, 63, 65, 100, 129, 191, 300):
                good &= check(kernels, 3, sequence, 4, 2, label)
            good &= check(kernels, 2, 512, 3, 3, label)
            good &= check(kernels, 1, 1000, 8, 1, label)
            good &= check_nan(kernels)
            if not flags and dim in (64, 128):
                good &= check(kernels, 2, 2048, 8, 2, label)
    if options.bare:
        for dim, flags in ((64, []), (128, []), (48, []), (128, ["ATTENTION_NO_WGMMA"])):
            kernels = Kernels(dim, flags)
            for shape in ((1, 1, 2, 1), (2, 65, 2, 1), (2, 100, 2, 2), (1, 321, 4, 2)):
                b = buffers(*shape, dim, guard=0)[1]
                run_all(kernels, b, shape)
                torch.cuda.synchronize()
        print("bare runs done")
        return
    if options.profile:
        *shape, dim = SIZES[options.profile]
        kernels, b = Kernels(dim), buffers(*shape, dim)[1]
        run_all(kernels, b, shape)
        torch.cuda.synchronize()
        return
    if options.variants:
        for variant in json.load(open(options.variants)):
            kernels = Kernels(variant["dim"], variant["flags"])
            good &= check(kernels, 2, 321, 4, 2, " ".join(variant["flags"]))
            for size in SIZES:
                if SIZES[size][4] == variant["dim"]:
                    f, alone, g = time_ours(kernels, size)
                    print(f"VARIANT {size} {variant['flags']} {[v[0] for v in kernels.registers.values()]}: forward {f * 1e3:.0f} us, "
                          f"backward {g * 1e3:.0f}, of which {[round(part * 1e3) for part in alone]}", flush=True)
    if options.time:
        from torch.nn.attention import SDPBackend

        for size in SIZES:
            kernels = Kernels(SIZES[size][4])
            rows = []
            for _ in range(2):
                f, alone, g = time_ours(kernels, size)
                executed = ", ".join(f"{name} {part * 1e3:.0f} us {tflops(size, part, products):.0f} TFLOP/s executed"
                                     for part, (name, _, products) in zip(alone, kernels.parts()))
                rows.append(("ours", f, g, executed))
                for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
                    try:
                        f, g = time_torch(size, backend)
                        rows.append((backend.name, f, g, ""))
                    except RuntimeError as problem:
                        rows.append((backend.name, float("nan"), float("nan"), str(problem).split("\n")[0][:60]))
            for name, f, g, note in rows:
                print(f"TIME {size:3} {name:16} forward {f * 1e3:7.1f} us {tflops(size, f, 2):5.0f} TFLOP/s   backward {g * 1e3:7.1f} us "
                      f"{tflops(size, g, 5):5.0f} TFLOP/s   {note}", flush=True)
    print("ALL OK" if good else "SOME FAILED")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
