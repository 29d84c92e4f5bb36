#!/usr/bin/env python3
"""Times a Llama's training step in PyTorch's FSDP2 over several processes, in turns with whoever writes to its standard input.

A stopwatch, not an oracle: blocks and recipes are those of gpu_peers.py. Parameters, gradients and moments are sharded, masters and sums of
gradients are F32, each block is one compiled graph, head and loss are another. One process alone is not sharded.

It starts itself once a rank, through torch.distributed's own launcher. Rank 0 prints JSON lines (schema `mxfp4-peer/1`, described in
README.md): the environment, then the mark `ready`; for each line `round SIZE RECIPE` one timing, or why there is none, and the mark `round`; all
end with its input. Between rounds no rank holds parameters or moments, so that another program finds the memory of the same GPUs.

Example: echo round llama31-8b fp8 | python3 fsdp_peers.py --ranks 2 --sizes "$(cat sizes.json)"
"""

import argparse
import ctypes
import datetime
import gc
import json
import os
import signal
import sys
import time

import gpu_peers as peers  # where there is no PyTorch, this says so and ends
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

WARMUP = 3
LONGEST_EXCHANGE = datetime.timedelta(minutes=5)
# Ranks wait for rank 0 while the other program has its turn.
LONGEST_TURN = datetime.timedelta(hours=12)


class Llama(nn.Module):
    """tokens, targets [batch, sequence] -> loss. Made without memory: `fill` gives it values."""

    def __init__(self, size, recipe, head_and_loss):
        super().__init__()
        self.epsilon, self.head_and_loss = size["epsilon"], head_and_loss
        self.embedding = nn.Parameter(torch.empty(size["vocabulary"], size["width"]))
        self.head = nn.Parameter(torch.empty(size["vocabulary"], size["width"]))
        self.blocks = nn.ModuleList(peers.Block(size, recipe) for _ in range(size["layers"]))
        self.norm = nn.Parameter(torch.empty(size["width"]))

    def forward(self, tokens, targets, tables):
        x = F.embedding(tokens, self.embedding).to(torch.bfloat16)
        for block in self.blocks:
            x = block(x, *tables)
        return self.head_and_loss(x, self.norm, self.head, targets, self.epsilon)

    @torch.no_grad()
    def fill(self):
        for parameter in self.parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0)
            else:
                parameter.normal_(std=0.02)


class Step:
    """One recipe's model with its optimiser, sharded among all ranks: `run` makes one whole training step on a random batch of this rank."""

    def __init__(self, size, recipe, device, compiled):
        torch.manual_seed(peers.SEED + dist.get_rank())
        last = torch.compile(peers.head_and_loss, dynamic=False, fullgraph=True) if compiled else peers.head_and_loss
        with torch.device("meta"):
            self.model = Llama(size, recipe, last)
        if compiled:
            for block in self.model.blocks:
                block.compile(dynamic=False, fullgraph=True)
        if dist.get_world_size() > 1:
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            for module in [*self.model.blocks, self.model]:
                fully_shard(module, mp_policy=policy)
        self.model.to_empty(device=device)
        self.model.fill()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-5, weight_decay=0.1, fused=True)
        text = torch.randint(size["vocabulary"], (size["sequences"], size["sequence"] + 1), device=device)
        self.tokens, self.targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
        self.tables = peers.tables(size, device)

    def run(self):
        self.model(self.tokens, self.targets, self.tables).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)


def timed(size, recipe, device, repeats, compiled):
    """Seconds of each of `repeats` steps after some that are not counted."""
    step = Step(size, recipe, device, compiled)
    samples = []
    for index in range(WARMUP + repeats):
        if device.type == "cuda" and index == WARMUP:
            torch.cuda.reset_peak_memory_stats(device)
        peers.wait(device)
        started = time.perf_counter()
        step.run()
        peers.wait(device)
        if index >= WARMUP:
            samples.append(time.perf_counter() - started)
    return samples


def attempted(size, recipe, device, repeats, compiled, control):
    """What `timed` gives, and the first error of any rank: all go on alike."""
    samples, error = [], None
    try:
        samples = timed(size, recipe, device, repeats, compiled)
    except (RuntimeError, AttributeError, NotImplementedError, TypeError, ValueError) as raised:
        error = f"{type(raised).__name__}: {raised}".splitlines()[0]
    errors = [None] * dist.get_world_size()
    dist.all_gather_object(errors, error, group=control)
    return samples, next((error for error in errors if error is not None), None)


def timed_round(size, recipe, device, options, control):
    """One round of one recipe; compiled, or as it is where that does not work."""
    name = f"step/{size['name']}/{recipe}/{options.ranks}"
    reason = ""
    for compiled in [False] if options.eager_only else [True, False]:
        samples, error = attempted(size, recipe, device, options.repeats, compiled, control)
        fields = {"peak_bytes": torch.cuda.max_memory_allocated(device)} if device.type == "cuda" else {}
        release(device)
        if error is None:
            return of_rank_0(peers.say_timing, named(), name, size, samples, (compiled, reason), **fields)
        reason = error
    of_rank_0(peers.say, "missing", peer=named(), name=name, reason=reason, install="")


def release(device):
    """Gives back what the round took."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def named():
    return f"pytorch {torch.__version__} FSDP2" if dist.get_world_size() > 1 else f"pytorch {torch.__version__}"


def of_rank_0(say, *arguments, **fields):
    """One rank speaks for all."""
    if dist.get_rank() == 0:
        say(*arguments, **fields)


def asked(control):
    """The next line of rank 0's input on every rank; none at its end."""
    line = [sys.stdin.readline() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(line, src=0, group=control, device=torch.device("cpu"))
    return line[0].split() if line[0] else None


def rank(options):
    """One process of several."""
    if sys.platform == "linux":
        # PR_SET_PDEATHSIG: a launcher that is killed leaves nobody behind on the GPUs.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    on_gpu = options.device == "cuda"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = True
    else:
        # As the launcher has it where there are several.
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=LONGEST_EXCHANGE)
    control = dist.new_group(backend="gloo", timeout=LONGEST_TURN)
    sizes = {size["name"]: size for size in options.sizes}
    of_rank_0(peers.say_environment, torch.cuda.get_device_name(device) if on_gpu else None, ranks=options.ranks)
    of_rank_0(peers.say, "mark", mark="ready")
    before = None
    while (words := asked(control)) is not None:
        _, size, recipe = words
        if before not in (None, words):
            # Graphs of another recipe or size count towards the compiler's limit.
            torch._dynamo.reset()
        before = words
        timed_round(sizes[size], recipe, device, options, control)
        dist.barrier(group=control)
        of_rank_0(peers.say, "mark", mark="round")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=json.loads, required=True, help="a JSON list of objects: name, sequences (of one rank), vocabulary, width, "
                        "layers, heads, kv_heads, head, ffn, sequence, rope_theta, epsilon")
    parser.add_argument("--ranks", type=int, required=True, help="processes, each with a GPU of its own")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cuda is also what PyTorch for AMD calls its GPUs")
    parser.add_argument("--repeats", type=int, default=5, help="steps in a round")
    parser.add_argument("--eager-only", action="store_true", help="compile nothing")
    parser.add_argument("--rank", action="store_true", help="be one of the processes: the launcher's own call")
    options = parser.parse_args()
    if options.rank:
        return rank(options)
    here = torch.cuda.device_count() if options.device == "cuda" else options.ranks
    if here < options.ranks:
        return peers.say("missing", peer="pytorch", name=f"steps of {options.ranks} GPUs", reason=f"this PyTorch finds {here} GPUs",
                         install="install the PyTorch that is built for these GPUs' driver")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(options.ranks)]
    os.execv(sys.executable, [sys.executable, *launcher, os.path.abspath(__file__), "--rank", *sys.argv[1:]])


if __name__ == "__main__":
    main()
