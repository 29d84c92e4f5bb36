"""`cpu_peers.py --check`: does what is timed compute what its name says? Not a test of the project's own kernels.

Each check yields (name, holds, note). A check whose package is absent is reported and skipped.
"""

import json

import torch

import peer_ggml
import peer_llama
import peer_mxfp4

STEPS = 20
PRECISIONS = "f32 bf16-autocast fp8-emulated mxfp4-emulated mxfp4-h16-emulated torchao-mxfp4 microxcaling-mxfp4".split()
TIES = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0]
TIES_TO_EVEN = [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 6.0]


def random_blocks():
    """Values whose blocks span 2^-80 to 2^80, with zeros of both signs, F32 [8192, 256]."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(8192, 8, 32, generator=generator)
    x = torch.ldexp(x, torch.randint(-80, 80, (8192, 8, 1), generator=generator))
    x[::7, ::3, ::5], x[::11, ::2, 1::5] = 0.0, -0.0
    return x.flatten(1)


def check_ties(_):
    """Ties go to the even code; 4 sets the block's scale to one."""
    values = torch.tensor(TIES + [4.0] + [0.0] * 23)
    got = peer_mxfp4.mxfp4_dequantised(values)[: len(TIES)].tolist()
    yield "mxfp4 ties", got == TIES_TO_EVEN, f"{TIES} -> {got}"


def check_torchao(_):
    """Scale bytes, codes and dequantised values of torchao, bit for bit."""
    from torchao.prototype.mx_formats.mx_tensor import to_mx

    x = random_blocks()
    scale, packed = to_mx(x, torch.float4_e2m1fn_x2, 32)
    packed = packed.view(torch.uint8)
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2)
    byte, code = peer_mxfp4.mxfp4_codes(x)
    yield "mxfp4 scale bytes = torchao", torch.equal(byte, scale.view(torch.uint8)), f"{byte.numel()} blocks"
    yield "mxfp4 codes = torchao", torch.equal(code, codes), f"{code.numel()} elements"
    theirs, ours = peer_mxfp4.torchao_dequantised(x), peer_mxfp4.mxfp4_dequantised(x)
    yield "mxfp4 values = torchao", torch.equal(ours.view(torch.int32), theirs.view(torch.int32)), f"{x.numel()} elements"


def check_ml_dtypes(_):
    """Element codes of ml_dtypes, bit for bit, on values divided by our scale and kept within 6."""
    import ml_dtypes
    import numpy

    x = random_blocks()
    _, scale, _ = peer_mxfp4.mxfp4_blocks(x)
    scaled = (x.unflatten(-1, (-1, 32)) / scale).clamp(-6, 6).flatten(-2).numpy()
    theirs = scaled.astype(ml_dtypes.float4_e2m1fn).view(numpy.uint8)
    same = bool((peer_mxfp4.mxfp4_codes(x)[1].numpy() == theirs).all())
    yield "mxfp4 codes = ml_dtypes cast", same, f"{x.numel()} elements"


def check_compiled(_):
    """The compiled emulation gives the eager one's bits."""
    x = random_blocks()
    compiled = torch.compile(peer_mxfp4.mxfp4_dequantised, fullgraph=True, dynamic=False)(x)
    same = torch.equal(compiled.view(torch.int32), peer_mxfp4.mxfp4_dequantised(x).view(torch.int32))
    yield "mxfp4 compiled = eager", same, f"{x.numel()} elements"


def check_gradients(_):
    """With nothing quantised, or only rotated, the three GEMMs are those of an F32 linear layer."""
    generator = torch.Generator().manual_seed(11)
    x, weight, gradient = (torch.randn(shape, generator=generator) for shape in ((64, 96), (32, 96), (64, 32)))
    want = linear_with_gradients(torch.nn.functional.linear, x, weight, gradient)
    matrix = peer_mxfp4.hadamard(16)
    for name, quantise in (("nothing quantised", lambda x: x), ("only rotated by H16", lambda x: peer_mxfp4.rotated(x, matrix))):
        got = linear_with_gradients(peer_llama.block_scaled_linear(quantise), x, weight, gradient)
        worst = max(((g - w).norm() / w.norm()).item() for g, w in zip(got, want))
        yield f"three GEMMs, {name}", worst < 1e-5, f"relative error {worst:.1e}"


def linear_with_gradients(multiply, x, weight, gradient):
    """(y, dx, dw) of `multiply`."""
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    y = multiply(x, weight)
    y.backward(gradient)
    return y.detach(), x.grad, weight.grad


def check_ggml(options):
    """ggml's product against its own blocks dequantised: what is left is the activations' 8-bit rounding."""
    library = peer_ggml.Ggml(options.cache, options.threads)
    generator = torch.Generator().manual_seed(13)
    a, b = torch.randn(64, 256, generator=generator), torch.randn(128, 256, generator=generator)
    want = a @ torch.from_numpy(peer_ggml.dequantised(library.quantised(b.numpy()))).t()
    for repacked in (True, False):
        run, result = library.product(a.numpy(), b.numpy(), repacked)
        run()
        error = ((torch.from_numpy(result()) - want).norm() / want.norm()).item()
        yield f"ggml product, {'repacked' if repacked else 'plain'}", error < 0.02, f"relative error {error:.4f}"


def check_microxcaling(_):
    """microxcaling's values, which are ours where no block's maximum is within a few ulp of a power of two; it loses the sign of zero."""
    x = random_blocks()
    theirs = peer_mxfp4.microxcaling_dequantised(x)
    yield "mxfp4 values = microxcaling", torch.equal(peer_mxfp4.mxfp4_dequantised(x), theirs), f"{x.numel()} elements"


def check_training(_):
    """On one fixed batch the loss of every precision falls, and those that compute the same thing give the same losses."""
    curves = {}
    for precision in PRECISIONS:
        for compiled in (False, True) if "emulated" in precision or precision in ("f32", "bf16-autocast") else (False,):
            name = f"{precision} {'compiled' if compiled else 'eager'}"
            try:
                torch._dynamo.reset()
                step = peer_llama.training_step(peer_llama.CHECK_SIZE, precision, compiled)
                curve = curves[name] = [step() for _ in range(STEPS)]
                yield f"loss falls, {name}", curve[-1] < 0.9 * curve[0], f"{curve[0]:.3f} -> {curve[-1]:.3f} in {STEPS} steps"
            except ImportError as error:
                yield f"loss falls, {name}", None, str(error)
    if "torchao-mxfp4 eager" in curves:
        same = curves["mxfp4-emulated eager"] == curves["torchao-mxfp4 eager"]
        yield "losses of the MXFP4 emulation = torchao's", same, f"{STEPS} steps"


CHECKS = [check_ties, check_torchao, check_ml_dtypes, check_compiled, check_gradients, check_ggml, check_microxcaling, check_training]


def run(options):
    """Print one JSON line per check. Returns 1 if one does not hold, else 0."""
    failed = 0
    for check in CHECKS:
        try:
            for name, holds, note in check(options):
                failed += holds is False
                print(json.dumps({"schema": "mxfp4-peer/1", "kind": "check", "name": name, "holds": holds, "note": note}), flush=True)
        except (ImportError, peer_ggml.NotBuilt) as error:
            name = check.__name__.removeprefix("check_")
            print(json.dumps({"schema": "mxfp4-peer/1", "kind": "check", "name": name, "holds": None, "note": f"skipped: {error}"}), flush=True)
    return 1 if failed else 0
