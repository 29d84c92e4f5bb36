"""A small Llama and its training step in PyTorch, in the precisions a researcher could choose on a CPU.

A stopwatch's cargo, not the project's trainer: same shapes and same arithmetic per step, no shared code, no shared random numbers.
Quantised are the linear layers of every block; embedding, head, norms, attention core, loss and optimiser state stay F32.
"""

from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

import peer_mxfp4 as formats


@dataclass(frozen=True)
class Size:
    """Shape of a model and of its batch."""

    width: int
    layers: int
    heads: int
    swiglu: int
    vocabulary: int
    sequence: int
    batch: int

    @property
    def tokens(self):
        """Tokens in one training step."""
        return self.sequence * self.batch


SIZES = {
    "A": Size(width=128, layers=4, heads=4, swiglu=384, vocabulary=512, sequence=128, batch=32),
    "B": Size(width=256, layers=6, heads=8, swiglu=768, vocabulary=4096, sequence=256, batch=16),
}
SEED = 1
CHECK_SIZE = Size(width=64, layers=2, heads=2, swiglu=128, vocabulary=128, sequence=32, batch=4)


def block_scaled_linear(quantise):
    """A linear layer y = x wᵀ whose three GEMMs take operands quantised along their contraction axis by `quantise`, [m, k] -> [m, k]."""

    class BlockScaledLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return quantise(x) @ quantise(weight).t()

        @staticmethod
        def backward(ctx, gradient):
            x, weight = ctx.saved_tensors
            to_x = quantise(gradient) @ quantise(weight.t().contiguous()).t()
            to_weight = quantise(gradient.t().contiguous()) @ quantise(x.t().contiguous()).t()
            return to_x, to_weight

    # PyTorch 2.11 compiles a call of `apply`, but not the method itself as a module's attribute.
    return lambda x, weight: BlockScaledLinear.apply(x, weight)


class Fp8Linear(torch.autograd.Function):
    """A linear layer in FP8, one scale a tensor: E4M3 for activations and weights, E5M2 for gradients, products in F32.

    One scale holds for either axis, so the backward pass reuses the forward's quantised operands.
    """

    @staticmethod
    def forward(ctx, x, weight):
        x, weight = formats.e4m3_dequantised(x), formats.e4m3_dequantised(weight)
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        gradient = formats.e5m2_dequantised(gradient)
        return gradient @ weight, gradient.t() @ x


def product(precision):
    """The function (x [tokens, in], weight [out, in]) -> [tokens, out] of a precision's linear layers."""
    if precision in ("f32", "bf16-autocast"):
        return F.linear
    if precision == "fp8-emulated":
        return lambda x, weight: Fp8Linear.apply(x, weight)  # as above
    if precision == "mxfp4-h16-emulated":
        matrix = formats.hadamard(16)
        return block_scaled_linear(lambda x: formats.mxfp4_dequantised(formats.rotated(x, matrix)))
    quantisers = {
        "mxfp4-emulated": formats.mxfp4_dequantised,
        "torchao-mxfp4": formats.torchao_dequantised,
        "microxcaling-mxfp4": formats.microxcaling_dequantised,
    }
    return block_scaled_linear(quantisers[precision])


class Linear(nn.Module):
    """A bias-free linear layer, initialised from N(0, 0.02²)."""

    def __init__(self, inputs, outputs, multiply):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * 0.02)
        self.multiply = multiply

    def forward(self, x):
        return self.multiply(x, self.weight)


def rope_tables(sequence, head_width):
    """Cosines and sines of rotary position embedding, base 10000: F32 [sequence, head_width / 2] each."""
    frequencies = 10000.0 ** (-torch.arange(0, head_width, 2) / head_width)
    angles = torch.outer(torch.arange(sequence).float(), frequencies)
    return angles.cos(), angles.sin()


def rope(x, cosine, sine):
    """Rotate the halves of each head of `x` [batch, heads, sequence, head_width] by its position."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1).to(x.dtype)


class Block(nn.Module):
    """Pre-norm causal attention and SwiGLU, each with its residual. Works on [tokens, width], tokens = batch * sequence."""

    def __init__(self, size, multiply):
        super().__init__()
        self.size = size
        width, swiglu = size.width, size.swiglu
        self.attention_norm = nn.RMSNorm(width, eps=1e-5)
        self.query, self.key, self.value, self.output = (Linear(width, width, multiply) for _ in range(4))
        self.mlp_norm = nn.RMSNorm(width, eps=1e-5)
        self.gate, self.up = Linear(width, swiglu, multiply), Linear(width, swiglu, multiply)
        self.down = Linear(swiglu, width, multiply)

    def heads(self, x):
        """[tokens, width] -> [batch, heads, sequence, head width]."""
        return x.view(self.size.batch, self.size.sequence, self.size.heads, -1).transpose(1, 2)

    def forward(self, x, cosine, sine):
        normed = self.attention_norm(x)
        query, key = (rope(self.heads(p(normed)), cosine, sine) for p in (self.query, self.key))
        mixed = F.scaled_dot_product_attention(query, key, self.heads(self.value(normed)), is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(x.shape))
        normed = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    """tokens, targets [batch, sequence] -> mean cross-entropy in nats. The head is not tied to the embedding and is never quantised."""

    def __init__(self, size, multiply):
        super().__init__()
        self.embedding = nn.Embedding(size.vocabulary, size.width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(size, multiply) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.width, eps=1e-5)
        self.head = Linear(size.width, size.vocabulary, F.linear)
        cosine, sine = rope_tables(size.sequence, size.width // size.heads)
        self.register_buffer("cosine", cosine)
        self.register_buffer("sine", sine)

    def forward(self, tokens, targets):
        x = self.embedding(tokens).flatten(0, 1)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return F.cross_entropy(self.head(self.norm(x)).float(), targets.flatten())


def training_step(size, precision, compiled, learning_rate=3e-3):
    """A function without arguments that makes one full step (forward, backward, AdamW) on one fixed random batch and returns its loss."""
    torch.manual_seed(SEED)
    model = Llama(size, product(precision))
    optimiser = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    text = torch.randint(size.vocabulary, (size.batch, size.sequence + 1))
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    forward = torch.compile(model, fullgraph=True, dynamic=False) if compiled else model

    def step():
        with torch.autocast("cpu", torch.bfloat16) if precision == "bf16-autocast" else nullcontext():
            loss = forward(tokens, targets)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.item()

    return step
