#!/usr/bin/env python3
"""Times a Llama's training step in PyTorch on one GPU, in turns with whoever writes `round` to its standard input.

A stopwatch, not an oracle: same shapes and the same arithmetic per step as the project's trainer, no shared code, no shared random numbers.
Recipes: bf16; fp8 (native, E4M3 and E5M2, one scale a tensor, taken from the tensor itself); mxfp4 (all three products of every linear layer
fake-quantised in blocks of 32 and multiplied in BF16), mxfp4-h16 (both operands rotated first) and mxfp4-sr (stochastic rounding).

It prints JSON lines (schema `mxfp4-peer/1`, described in README.md): the environment, what cannot run here, then the mark `ready`; for each
line `round` one timing a recipe and the mark `round`; it ends with its input. `--tiny` does two rounds of a small model on the CPU.

Example: echo round | python3 gpu_peers.py --size "$(cat size.json)" --device 0
"""

import argparse
import json
import math
import platform
import signal
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError as error:
    print(json.dumps({"schema": "mxfp4-peer/1", "kind": "missing", "peer": "pytorch", "name": "steps on a GPU", "reason": str(error),
                      "install": "pip install torch"}), flush=True)
    sys.exit(0)

SCHEMA = "mxfp4-peer/1"
SEED = 1
BLOCK = 32
TINY = {"name": "tiny", "sequences": 2, "recipes": ["bf16", "mxfp4", "mxfp4-h16", "mxfp4-sr"], "vocabulary": 128, "width": 64, "layers": 2,
        "heads": 4, "kv_heads": 2, "head": 16, "ffn": 96, "sequence": 32, "rope_theta": 10000.0, "epsilon": 1e-5}


def say(kind, **fields):
    """One line of the schema."""
    print(json.dumps({"schema": SCHEMA, "kind": kind, **fields}), flush=True)


def say_environment(gpu, **fields):
    say("environment", torch=torch.__version__, python=platform.python_version(), cuda=torch.version.cuda, hip=torch.version.hip, gpu=gpu,
        **fields)


def say_timing(peer, name, size, samples, made, **fields):
    """`made`: whether the step is compiled, and why it is not."""
    compiled, reason = made
    note = ("compiled" if compiled else "eager") + (f"; {reason}" if reason else "")
    say("timing", peer=peer, name=name, threads=1, operations=size["sequences"] * size["sequence"], unit="tokens", samples=samples, note=note,
        **fields)


def hadamard(size, like):
    """The orthonormal Sylvester matrix [size, size] in the type of `like`."""
    matrix = torch.ones(1, 1)
    while matrix.shape[0] < size:
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), matrix)
    return (matrix / math.sqrt(size)).to(like)


def mxfp4(x, stochastic):
    """E2M1 values times powers of two in BF16, blocks of 32 along the last axis: exponent floor(log2(largest)) - 2, saturating at 6."""
    blocks = x.float().reshape(-1, BLOCK)
    largest = blocks.abs().amax(-1, keepdim=True)
    exponent = torch.frexp(largest).exponent - 3
    scale = torch.where(largest > 0, torch.exp2(exponent.float()), torch.ones_like(largest))
    scaled = blocks / scale
    magnitude = scaled.abs()
    step = torch.where(magnitude < 2, 0.5, torch.where(magnitude < 4, 1.0, 2.0))
    count = magnitude / step
    count = torch.floor(count + torch.rand_like(count)) if stochastic else torch.round(count)
    value = torch.copysign((count * step).clamp(max=6.0), scaled)
    return (value * scale).to(torch.bfloat16).reshape(x.shape)


def fp8(x, kind):
    """Codes of `x` under one scale taken from it, and the factor that undoes the scale."""
    scale = torch.finfo(kind).max / x.abs().amax().float().clamp(min=1e-12)
    return (x.float() * scale).to(kind), scale.reciprocal()


def multiply(a, b, turn, recipe, is_gradient):
    """a [m, k] times b [n, k] transposed, as a recipe has it, each operand prepared along k; `is_gradient`: a is one."""
    if recipe == "bf16":
        return a @ b.t()
    if recipe == "fp8":
        (a, undo_a), (b, undo_b) = fp8(a, torch.float8_e5m2 if is_gradient else torch.float8_e4m3fn), fp8(b, torch.float8_e4m3fn)
        return torch._scaled_mm(a.contiguous(), b.contiguous().t(), scale_a=undo_a, scale_b=undo_b, out_dtype=torch.bfloat16)
    if recipe.endswith("-h16"):
        a, b = ((x.reshape(-1, turn.shape[0]) @ turn).reshape(x.shape) for x in (a, b))
    stochastic = recipe.endswith("-sr")
    return mxfp4(a, stochastic) @ mxfp4(b, stochastic).t()


class Linear(torch.autograd.Function):
    """y = x wᵀ whose three products follow a recipe. A class of the module, and the recipe an argument: torch.compile then takes the whole
    model as one graph (a closure would break it at every layer)."""

    @staticmethod
    def forward(ctx, x, weight, turn, recipe):
        ctx.save_for_backward(x, weight, turn)
        ctx.recipe = recipe
        return multiply(x, weight, turn, recipe, False)

    @staticmethod
    def backward(ctx, gradient):
        x, weight, turn = ctx.saved_tensors
        gradient = gradient.contiguous()
        d_x = multiply(gradient, weight.t(), turn, ctx.recipe, True)
        return d_x, multiply(gradient.t(), x.t(), turn, ctx.recipe, True), None, None


def turned(x, cosine, sine):
    """Halves of each head rotated by their positions; x [batch, heads, sequence, head]."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


class Block(nn.Module):
    """Pre-norm grouped-query attention and SwiGLU on [batch, sequence, width] in BF16; masters in F32."""

    def __init__(self, size, recipe):
        super().__init__()
        self.size, self.recipe = size, recipe
        width, head, ffn = size["width"], size["head"], size["ffn"]
        queries, keys = size["heads"] * head, size["kv_heads"] * head
        small = 0.02 / math.sqrt(2 * size["layers"])
        matrix = lambda rows, columns, deviation: nn.Parameter(torch.randn(rows, columns) * deviation)  # noqa: E731
        self.norm1, self.norm2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.qkv, self.output = matrix(queries + 2 * keys, width, 0.02), matrix(width, queries, small)
        self.gate_up, self.down = matrix(2 * ffn, width, 0.02), matrix(width, ffn, small)
        self.split = [queries, keys, keys]

    def project(self, x, weight, turn):
        """x [batch, sequence, in] times the BF16 copy of a master [out, in]."""
        return Linear.apply(x.flatten(0, 1), weight.to(torch.bfloat16), turn, self.recipe).unflatten(0, x.shape[:2])

    def normed(self, x, gain):
        return F.rms_norm(x, (x.shape[-1],), gain.to(x.dtype), self.size["epsilon"])

    def forward(self, x, cosine, sine, turn):
        parts = self.project(self.normed(x, self.norm1), self.qkv, turn).split(self.split, -1)
        query, key, value = (part.unflatten(-1, (-1, self.size["head"])).transpose(1, 2) for part in parts)
        query, key = turned(query, cosine, sine), turned(key, cosine, sine)
        groups = self.size["heads"] // self.size["kv_heads"]
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=groups > 1)
        x = x + self.project(mixed.transpose(1, 2).flatten(2), self.output, turn)
        gate, up = self.project(self.normed(x, self.norm2), self.gate_up, turn).chunk(2, -1)
        return x + self.project(F.silu(gate) * up, self.down, turn)


def tables(size, device=None):
    """Cosines and sines of positions, and the matrix that rotates operands."""
    frequencies = size["rope_theta"] ** (-torch.arange(0, size["head"], 2, device=device) / size["head"])
    angles = torch.outer(torch.arange(size["sequence"], device=device).float(), frequencies)
    turn = hadamard(16, torch.empty(0, dtype=torch.bfloat16)).to(device)
    return angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16), turn


def head_and_loss(x, gain, head, targets, epsilon):
    """Mean cross-entropy in nats of the last block's output."""
    x = F.rms_norm(x, (x.shape[-1],), gain.to(x.dtype), epsilon)
    logits = x @ head.to(x.dtype).t()
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Llama(nn.Module):
    """tokens, targets [batch, sequence] -> mean cross-entropy in nats; embedding and head are never quantised."""

    def __init__(self, size, recipe):
        super().__init__()
        self.epsilon = size["epsilon"]
        self.embedding = nn.Parameter(torch.randn(size["vocabulary"], size["width"]) * 0.02)
        self.head = nn.Parameter(torch.randn(size["vocabulary"], size["width"]) * 0.02)
        self.blocks = nn.ModuleList(Block(size, recipe) for _ in range(size["layers"]))
        self.norm = nn.Parameter(torch.ones(size["width"]))
        for name, table in zip(["cosine", "sine", "turn"], tables(size)):
            self.register_buffer(name, table)

    def forward(self, tokens, targets):
        x = F.embedding(tokens, self.embedding).to(torch.bfloat16)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine, self.turn)
        return head_and_loss(x, self.norm, self.head, targets, self.epsilon)


class TooLong(Exception):
    """Compiling took more than its time."""


def too_long(_signal, _frame):
    raise TooLong


class Step:
    """One recipe's model with its optimiser: `run` makes one whole training step on one fixed random batch."""

    def __init__(self, size, recipe, device, compiled):
        torch.manual_seed(SEED)
        self.model = Llama(size, recipe).to(device)
        # One graph or none: a break would leave most of a step to the eager kernels and still call itself compiled.
        self.forward = torch.compile(self.model, dynamic=False, fullgraph=True) if compiled else self.model
        fused = {"fused": True} if device.type == "cuda" else {}
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-5, weight_decay=0.1, **fused)
        text = torch.randint(size["vocabulary"], (size["sequences"], size["sequence"] + 1), device=device)
        self.tokens, self.targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def run(self):
        loss = self.forward(self.tokens, self.targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return loss


def prepared(size, recipe, device, options):
    """A warm step, and whether it is compiled; None when it cannot run, after a line that says why."""
    name = f"step/{size['name']}/{recipe}"
    reason = ""
    for compiled in ([False] if options.eager_only else [True, False]):
        alarmed = compiled and hasattr(signal, "SIGALRM")
        try:
            if alarmed:
                signal.signal(signal.SIGALRM, too_long)
                signal.alarm(options.compile_seconds)
            step = Step(size, recipe, device, compiled)
            for _ in range(3):
                step.run()
            wait(device)
            return step, compiled, reason
        except (TooLong, RuntimeError, AttributeError, NotImplementedError, TypeError) as error:
            said = f"{type(error).__name__}: {error}"
            # The compiler wraps what the alarm raises in an error of its own.
            is_late = compiled and "TooLong" in said
            reason = f"compiling took more than {options.compile_seconds} s" if is_late else said.splitlines()[0]
        finally:
            if alarmed:
                signal.alarm(0)
    say("missing", peer=f"pytorch {torch.__version__}", name=name, reason=reason, install="")
    return None


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed_round(size, recipe, made, device, repeats):
    """Seconds of each of `repeats` steps, and the most memory that was allocated."""
    step, *made = made
    on_gpu = device.type == "cuda"
    samples = []
    for index in range(repeats + 1):
        if on_gpu and index == 1:
            torch.cuda.reset_peak_memory_stats(device)
        wait(device)
        started = time.perf_counter()
        step.run()
        wait(device)
        if index > 0:
            samples.append(time.perf_counter() - started)
    fields = {}
    if on_gpu:
        # What other recipes hold while this one runs is not its own.
        others = sum(other.held for other in HELD if other.recipe != recipe)
        fields["peak_bytes"] = max(0, torch.cuda.max_memory_allocated(device) - others)
    say_timing(f"pytorch {torch.__version__}", f"step/{size['name']}/{recipe}", size, samples, made, **fields)


class Held:
    """What one recipe keeps between its steps: parameters, moments, its batch."""

    def __init__(self, recipe, held):
        self.recipe, self.held = recipe, held


HELD = []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", help="one line of JSON: name, sequences, recipes, vocabulary, width, layers, heads, kv_heads, head, ffn, "
                        "sequence, rope_theta, epsilon")
    parser.add_argument("--device", type=int, default=0, help="number of the GPU")
    parser.add_argument("--repeats", type=int, default=5, help="steps of each recipe in a round")
    parser.add_argument("--compile-seconds", type=int, default=300, help="longest time to compile one recipe; then it runs eagerly")
    parser.add_argument("--eager-only", action="store_true", help="compile nothing")
    parser.add_argument("--tiny", action="store_true", help="two rounds of a small model on the CPU, to test this script")
    options = parser.parse_args()
    if not options.tiny and not options.size:
        parser.error("--size is needed (or --tiny)")
    try:
        size = TINY if options.tiny else json.loads(options.size)
    except json.JSONDecodeError as error:
        parser.error(f"--size: {error}")
    if not options.tiny and not torch.cuda.is_available():
        say("missing", peer="pytorch", name="steps on a GPU", reason="this PyTorch finds no GPU",
            install="install the PyTorch that is built for this GPU's driver")
        return
    device = torch.device("cpu") if options.tiny else torch.device("cuda", options.device)
    torch.backends.cuda.matmul.allow_tf32 = True
    say_environment(None if options.tiny else torch.cuda.get_device_name(device))
    made = {}
    for recipe in size["recipes"]:
        before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
        step = prepared(size, recipe, device, options)
        if step is not None:
            made[recipe] = step
            after = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
            HELD.append(Held(recipe, after - before))
    if not made:
        return
    say("mark", mark="ready")
    for line in ["round", "round"] if options.tiny else sys.stdin:
        if line.strip() != "round":
            continue
        for recipe, step in made.items():
            timed_round(size, recipe, step, device, options.repeats)
        say("mark", mark="round")


if __name__ == "__main__":
    main()
