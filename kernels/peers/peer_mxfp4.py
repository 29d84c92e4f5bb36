"""MXFP4 and FP8 emulated with PyTorch operations, as a researcher without native hardware would write them.

A stopwatch's cargo, not an oracle: the project's reference is `kernels/src/format`. Only normal, finite data is treated with care here.
`cpu_peers.py --check` compares the MXFP4 quantiser with torchao and ml_dtypes, bit for bit.

MXFP4 follows the OCP Microscaling specification v1.0: blocks of 32 along the last axis share one power of two (E8M0), elements are E2M1.
The scale rule is `floor`: scale = 2^(floor(log2(largest magnitude)) - 2). Rounding is to nearest, ties to even.
"""

import torch

BLOCK = 32
E2M1_LARGEST = 6.0
E2M1_LARGEST_EXPONENT = 2  # 4 = 2^2 is the largest power of two E2M1 holds
F32_MANTISSA_BITS = 23
F32_EXPONENT_MASK = 0x7F800000
TWO_TO_MINUS_127 = 0x00400000  # as F32 bits: the value of scale byte 0, a subnormal
E4M3_LARGEST = 448.0
E5M2_LARGEST = 57344.0


def mxfp4_blocks(x):
    """Quantise F32 `x` [..., n], n a multiple of 32. Returns (scale byte int32 [..., n/32, 1], scale F32, elements F32 [..., n/32, 32]).

    Each element is one of 0, 0.5, 1, 1.5, 2, 3, 4, 6 with a sign. A block with a NaN or an infinity is not handled.
    """
    blocks = x.unflatten(-1, (-1, BLOCK))
    largest = blocks.abs().amax(-1, keepdim=True)
    byte = ((largest.view(torch.int32) >> F32_MANTISSA_BITS) - E2M1_LARGEST_EXPONENT).clamp(min=0)
    scale = torch.where(byte == 0, TWO_TO_MINUS_127, byte << F32_MANTISSA_BITS).view(torch.float32)
    scaled = blocks / scale
    # E2M1 is a fixed-point grid of step 1/2 below 2, 1 below 4, 2 above: half the power of two under the magnitude, at least 1/2.
    step = (scaled.view(torch.int32) & F32_EXPONENT_MASK).view(torch.float32).clamp(min=1.0) * 0.5
    elements = ((scaled / step).round() * step).clamp(-E2M1_LARGEST, E2M1_LARGEST)
    return byte, scale, elements


def mxfp4_dequantised(x):
    """What MXFP4 keeps of `x` [..., n]: quantised along the last axis, given back as F32 of the same shape."""
    _, scale, elements = mxfp4_blocks(x)
    return (elements * scale).flatten(-2)


def mxfp4_codes(x):
    """(scale bytes uint8 [..., n/32], element codes uint8 [..., n], sign in bit 3), for comparison with other implementations."""
    byte, _, elements = mxfp4_blocks(x)
    grid = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    magnitude = torch.bucketize(elements.abs(), grid)
    return byte.squeeze(-1).to(torch.uint8), (magnitude + 8 * elements.signbit()).to(torch.uint8).flatten(-2)


def hadamard(n):
    """The orthonormal Sylvester-Hadamard matrix of size n, a power of two: F32 [n, n]."""
    matrix = torch.ones(1, 1)
    while matrix.shape[0] < n:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / n**0.5


def rotated(x, matrix):
    """Rotate each group of n values along the last axis of `x` by `matrix` [n, n]. Rotating both operands leaves their product unchanged."""
    return (x.unflatten(-1, (-1, matrix.shape[0])) @ matrix).flatten(-2)


def fp8_dequantised(x, dtype, largest):
    """What FP8 keeps of `x` under one scale for the whole tensor, set from its present largest magnitude: F32 of the same shape."""
    scale = largest / x.abs().amax().clamp(min=1e-12)
    return (x * scale).to(dtype).to(torch.float32) / scale


def e4m3_dequantised(x):
    """FP8 for activations and weights."""
    return fp8_dequantised(x, torch.float8_e4m3fn, E4M3_LARGEST)


def e5m2_dequantised(x):
    """FP8 for gradients."""
    return fp8_dequantised(x, torch.float8_e5m2, E5M2_LARGEST)


def torchao_dequantised(x):
    """What torchao's MXFP4 (floor scale) keeps of `x` [..., n]: its `to_mx`, then its `to_dtype`, F32 of the same shape."""
    from torchao.prototype.mx_formats.mx_tensor import to_dtype, to_mx

    scale, packed = to_mx(x.contiguous(), torch.float4_e2m1fn_x2, BLOCK)
    return to_dtype(packed, scale, torch.float4_e2m1fn_x2, BLOCK, torch.float32)


def microxcaling_dequantised(x):
    """What microxcaling's MXFP4 keeps of `x` [..., n], rounding to nearest even, F32 of the same shape."""
    from mx.mx_ops import _quantize_mx

    return _quantize_mx(x.contiguous(), 8, "fp4_e2m1", shared_exp_method="max", axes=[-1], block_size=BLOCK, round="even")
