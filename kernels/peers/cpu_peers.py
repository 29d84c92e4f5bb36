#!/usr/bin/env python3
"""Times what a researcher would otherwise use on a CPU: PyTorch, torchao, ml_dtypes, ggml and microxcaling.

A stopwatch, not an oracle: its numerics are not the project's reference, and no verdict is drawn from them. It prints JSON lines (schema
`mxfp4-peer/1`, described in README.md): one for the environment, one per measurement, and one for whatever cannot run here, with the reason.
A peer that is absent never makes it fail. `--check` tests that what is timed computes what its name says.

With `--turns` it says the mark `ready`, and then times every product or quantisation of a group, or some steps of a size, once for each
line with the group's name (`gemm/2048x1024x1024`, `step/A`) that it reads, until its input ends.

Example: python3 cpu_peers.py --threads 1 --only gemm/ > peers.jsonl
"""

import argparse
import contextlib
import json
import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from peer_machine import compiler, environment, peak_memory_mib, restart_peak_memory, version_of

SCHEMA = "mxfp4-peer/1"
GEMM_SHAPES = [(2048, 1024, 1024), (512, 512, 512), (1024, 768, 128), (4096, 384, 128)]
QUANTISE_SHAPE = (4096, 1024)
DEFAULT_SECONDS = 330.0
WANTED_SAMPLES, FEWEST_SAMPLES, MOST_SAMPLES = 7, 3, 101
TURN_SECONDS = 8e-3  # a turn lasts at least so long: short calls are repeated within it
LONGEST_GEMM = 2.0  # seconds a call: slower paths are reported as missing, with the rate that was seen
REQUIREMENTS = "pip install -r requirements.txt"
MICROXCALING = "clone github.com/microsoft/microxcaling and put it on PYTHONPATH (it is not on PyPI)"
STEPS_IN_TURNS = ("f32-eager", "f32-compiled", "fp8-emulated-compiled")  # that bars compare with, and that are fast
OUT_OF_TIME = "the time budget was used up before its turn"


class Missing(Exception):
    """A peer that cannot run here. `install` says what would change that; empty if nothing simple would."""

    def __init__(self, reason, install=""):
        super().__init__(reason)
        self.install = install


@dataclass
class Case:
    """A prepared measurement: `run` performs `operations` of `unit`; `describe`, called before another is prepared, returns its note."""

    run: Callable[[], object]
    operations: int
    unit: str
    describe: Callable[[], str] = lambda: ""


@dataclass
class Measurement:
    """A name, the package behind it, the seconds it may take when the whole budget is the default, and how to prepare it."""

    name: str
    package: str
    seconds: float
    prepare: Callable[[], Case]


# --- matrix products: C = A Bᵀ, A [m, k], B [n, k] -------------------------------------------------------------------------------------


def gemm_operands(m, n, k):
    """Standard normal A [m, k] and B [n, k], the same in every run."""
    import torch

    generator = torch.Generator().manual_seed(m * 1_000_003 + n * 1009 + k)
    return torch.randn(m, k, generator=generator), torch.randn(n, k, generator=generator)


def dense_gemm(kind, m, n, k):
    """PyTorch's product in `kind`. Operands are in their format before the clock starts, except where the note says otherwise."""
    import torch

    a, b = gemm_operands(m, n, k)
    if kind == "bf16":
        a, b = a.bfloat16(), b.bfloat16()
        return Case(lambda: a @ b.t(), 2 * m * n * k, "operations", lambda: "BF16 result")
    if kind == "int8":
        a, b = (torch.clamp(x * 32, -127, 127).to(torch.int8) for x in (a, b))
        return Case(lambda: torch._int_mm(a, b.t()), 2 * m * n * k, "operations", lambda: "INT32 result, no scales")
    if kind == "fp8-dequantise":
        a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
        return Case(lambda: a.float() @ b.float().t(), 2 * m * n * k, "operations", lambda: "E4M3 to F32 in the time, then the F32 product")
    return Case(lambda: a @ b.t(), 2 * m * n * k, "operations")


def scaled_gemm(m, n, k):
    """PyTorch's FP8 product. Some builds fall back on a scalar reference, a thousand times slower: probe before promising."""
    import torch

    one = torch.ones(())

    def product(m, n, k):
        a, b = (x.to(torch.float8_e4m3fn) for x in gemm_operands(m, n, k))
        return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.float32)

    side = 128
    probe = product(side, side, side)
    probe()
    seconds = clock(probe)
    expected = seconds * (m * n * k) / side**3
    if expected > LONGEST_GEMM:
        rate = 2e-9 * side**3 / seconds
        seen = f"{rate:.3f} Gop/s at {side}x{side}x{side}, {expected:.0f} s for this shape"
        raise Missing(f"torch._scaled_mm takes a reference path in this build: {seen}")
    return Case(product(m, n, k), 2 * m * n * k, "operations", lambda: "torch._scaled_mm, E4M3, one scale a tensor")


def ggml_gemm(options, repacked, m, n, k):
    """ggml's product with B in MXFP4; A is F32 and is quantised to Q8_0 within the time."""
    import peer_ggml

    try:
        library = peer_ggml.Ggml(options.cache, options.threads)
        a, b = (x.numpy() for x in gemm_operands(m, n, k))
        run, _ = library.product(a, b, repacked)
    except peer_ggml.NotBuilt as error:
        raise Missing(str(error), "pip install cmake ninja; python3 cpu_peers.py --prepare") from error
    note = f"ggml {library.version}: MXFP4 x Q8_0, activations quantised to Q8_0 in the time; 8-bit activations, so more accurate than MXFP4 x MXFP4"
    return Case(run, 2 * m * n * k, "operations", lambda: note)


def gemm_measurements(options):
    """The groups gemm/*."""
    for m, n, k in GEMM_SHAPES:
        shape = f"{m}x{n}x{k}"
        for kind in ("f32", "bf16", "int8", "fp8-dequantise"):
            yield Measurement(f"gemm/{kind}/{shape}", "torch", 0.6, lambda kind=kind, s=(m, n, k): dense_gemm(kind, *s))
        yield Measurement(f"gemm/fp8/{shape}", "torch", 0.6, lambda s=(m, n, k): scaled_gemm(*s))
        for name, repacked in (("mxfp4", True), ("mxfp4-plain", False)):
            yield Measurement(f"gemm/{name}/{shape}", "ggml", 0.8, lambda r=repacked, s=(m, n, k): ggml_gemm(options, r, *s))


# --- quantisation ----------------------------------------------------------------------------------------------------------------------


def quantise_case(kind):
    """F32 to MXFP4, floor scale, nearest even, one block per 32 along the last axis."""
    import torch

    x = torch.randn(QUANTISE_SHAPE, generator=torch.Generator().manual_seed(32))
    if kind.endswith("compiled"):
        need_compiler()
    if kind.startswith("torchao"):
        from torchao.prototype.mx_formats.mx_tensor import to_mx

        function = torch.compile(to_mx, fullgraph=True, dynamic=False) if kind == "torchao-compiled" else to_mx
        run = lambda: function(x, torch.float4_e2m1fn_x2, 32)  # noqa: E731
        note = "scale bytes and packed codes"
    elif kind == "emulated-compiled":
        import peer_mxfp4

        function = torch.compile(peer_mxfp4.mxfp4_dequantised, fullgraph=True, dynamic=False)
        run = lambda: function(x)  # noqa: E731
        note = "this folder's PyTorch emulation; gives the values back in F32, packs nothing"
    elif kind == "ml_dtypes-cast":
        import ml_dtypes

        array = x.numpy()
        run = lambda: array.astype(ml_dtypes.float4_e2m1fn)  # noqa: E731
        note = "element cast only: no block scale is found or applied; one thread"
    else:
        import peer_mxfp4

        run = lambda: peer_mxfp4.microxcaling_dequantised(x)  # noqa: E731
        note = "gives the values back in F32, packs nothing"
    return Case(run, x.numel(), "elements", lambda: note)


def quantise_measurements():
    """The group quantise/mxfp4-nearest-even."""
    rows, columns = QUANTISE_SHAPE
    kinds = [("torchao-eager", "torchao", 2), ("torchao-compiled", "torchao", 10), ("emulated-compiled", "torch", 6)]
    kinds += [("ml_dtypes-cast", "ml_dtypes", 2), ("microxcaling", "mx", 2)]
    for kind, package, seconds in kinds:
        yield Measurement(f"quantise/mxfp4-nearest-even/{kind}/{rows}x{columns}", package, seconds, lambda kind=kind: quantise_case(kind))


# --- training steps --------------------------------------------------------------------------------------------------------------------


def step_case(size_name, precision, compiled):
    """One training step of a Llama: forward, backward, AdamW."""
    import peer_llama

    if compiled:
        need_compiler()
    size = peer_llama.SIZES[size_name]
    if precision == "microxcaling-mxfp4":
        import mx  # noqa: F401  (an absent package is found before the model is built)
    before = restart_peak_memory()
    step = peer_llama.training_step(size, precision, compiled)

    def note():
        if not precision.startswith("f32"):
            return ""
        peak = peak_memory_mib()
        return "" if peak is None else f"peak resident memory of the process {peak:.0f} MiB, {before:.0f} MiB before the model was made"

    return Case(step, size.tokens, "tokens", note)


def step_measurements():
    """The groups step/A and step/B."""
    plan = [("f32", 1.0, True), ("bf16-autocast", 1.0, True), ("fp8-emulated", 1.3, True), ("mxfp4-emulated", 2.0, True)]
    plan += [("torchao-mxfp4", 4.0, False), ("microxcaling-mxfp4", 4.0, False), ("mxfp4-h16-emulated", 2.0, True)]
    packages = {"torchao-mxfp4": "torchao", "microxcaling-mxfp4": "mx"}
    for size, seconds in (("A", 5), ("B", 11)):
        for precision, cost, compilable in plan:
            for compiled in (False, True) if compilable else (False,):
                name = f"step/{size}/{precision}" + ("-compiled" if compiled else "-eager" if compilable else "")
                package = packages.get(precision, "torch")
                prepare = lambda s=size, p=precision, c=compiled: step_case(s, p, c)  # noqa: E731
                yield Measurement(name, package, seconds * cost, prepare)


# --- the stopwatch ---------------------------------------------------------------------------------------------------------------------


def clock(run):
    """Seconds one call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def samples(case, seconds):
    """Warm up, then time single calls for about `seconds`: seven or more, fewer (but at least three) only when they are slow."""
    first = clock(case.run)
    deadline = time.perf_counter() + seconds - min(first, seconds / 2)
    second = clock(case.run)  # the first call may have compiled, or found memory: the second is warm
    times = [] if first > 1.5 * second or second < 0.2 else [second]
    while len(times) < MOST_SAMPLES:
        late = time.perf_counter() + (times[-1] if times else second) > deadline
        if late and len(times) >= (FEWEST_SAMPLES if second > 0.2 else WANTED_SAMPLES):
            break
        times.append(clock(case.run))
    return times, first


def measure(measurement, seconds):
    """One measurement as a record: a timing, or what is missing."""

    def timed():
        import torch

        torch._dynamo.reset()  # or PyTorch counts the next model as one more recompilation of this one, and stops at eight
        case = measurement.prepare()
        times, first = samples(case, seconds)
        return timing(measurement, case, times, note_of(measurement, case, first))

    return attempt(measurement, timed)


def note_of(measurement, case, first):
    """What a case says of its calls until now; `first` is how long the first of them took."""
    note = case.describe()
    if "compiled" in measurement.name:
        note = "; ".join(filter(None, [note, f"first call, with compilation, {first:.1f} s"]))
    return note


def timing(measurement, case, times, note):
    """The record of a timing."""
    import torch

    record = {"schema": SCHEMA, "kind": "timing", "peer": peer_name(measurement.package), "name": measurement.name}
    return record | {"threads": torch.get_num_threads(), "operations": case.operations, "unit": case.unit, "samples": times, "note": note}


def attempt(measurement, action):
    """What `action` returns, or the record of what is missing."""
    try:
        return action()
    except Missing as error:
        return missing(measurement, str(error), error.install)
    except ImportError as error:
        install = MICROXCALING if measurement.package == "mx" else REQUIREMENTS
        return missing(measurement, f"{error.name or measurement.package} cannot be imported: {error}", install)
    except Exception as error:  # whatever a peer throws is a row, never the end of the run
        lines = str(error).strip().splitlines() or [""]
        return missing(measurement, f"{type(error).__name__}: {lines[0]}", "")


def missing(measurement, reason, install=""):
    """The record of what could not run."""
    record = {"schema": SCHEMA, "kind": "missing", "peer": peer_name(measurement.package), "name": measurement.name}
    return record | {"reason": reason, "install": install}


def peer_name(package):
    """The package as it is known, with its version where Python knows one."""
    known = {"torch": "pytorch", "mx": "microxcaling"}.get(package, package)
    version = version_of(package)
    return f"{known} {version}" if version else known


def need_compiler():
    """Raises Missing where torch.compile cannot work."""
    if compiler() is None:
        raise Missing("torch.compile needs a C++ compiler", "install g++ or clang++, or set CXX")


def emit(record):
    """One JSON line on standard output, at once."""
    print(json.dumps(record, ensure_ascii=False), flush=True)


def progress(text):
    """A line for the person watching."""
    print(text, file=sys.stderr, flush=True)


def run_all(measurements, seconds):
    """Measure in order, each within its share of what is left of `seconds`; what its turn comes too late for is reported as missing."""
    deadline = time.perf_counter() + seconds
    left = sum(m.seconds for m in measurements)
    for measurement in measurements:
        remaining = deadline - time.perf_counter()
        share = remaining * measurement.seconds / left
        left -= measurement.seconds
        if remaining <= 0:
            emit(missing(measurement, OUT_OF_TIME, f"python3 cpu_peers.py --only {measurement.name}"))
            progress(f"{measurement.name:<52} missing: {OUT_OF_TIME}")
            continue
        began = time.perf_counter()
        record = measure(measurement, min(share, measurement.seconds * max(1.0, seconds / DEFAULT_SECONDS)))
        emit(record)
        progress(f"{measurement.name:<52} {summary(record)}  [{time.perf_counter() - began:.1f} s]")


class Turn:
    """A prepared measurement that is called as often as a turn takes."""

    def __init__(self, measurement):
        self.measurement, self.case = measurement, measurement.prepare()
        first = clock(self.case.run)
        self.calls = max(1, math.ceil(TURN_SECONDS / clock(self.case.run)))
        # Now: the most memory of the process would later be that of those prepared next, too.
        self.note = note_of(measurement, self.case, first)

    def run(self):
        """A turn's calls; each result is let go of before the next."""
        for _ in range(self.calls):
            self.case.run()

    def take(self):
        """One sample: the mean of a turn's calls."""
        return timing(self.measurement, self.case, [clock(self.run) / self.calls], self.note)


def members(measurements, group):
    """Those of a group, in the order of their turns."""
    kind, _, rest = group.partition("/")
    if kind == "step":
        return [m for m in measurements if m.name in {f"{group}/{name}" for name in STEPS_IN_TURNS}]
    return [m for m in measurements if m.name.startswith(f"{kind}/") and m.name.endswith(f"/{rest}")]


def prepared(measurements):
    """The turns of a group. What cannot run is a row."""
    turns = []
    with contextlib.suppress(ImportError):
        import torch

        torch._dynamo.reset()  # as in `measure`; once, since the members keep their compiled code: too few for PyTorch's limit of eight
    for measurement in measurements:
        turn = attempt(measurement, lambda m=measurement: Turn(m))
        if isinstance(turn, Turn):
            turns.append(turn)
        else:
            emit(turn)
            progress(f"{measurement.name:<52} {summary(turn)}")
    return turns


def take_round(turns):
    """One sample of each member. One that fails is a row, and takes no more turns."""
    if turns and turns[-1].case.unit != "tokens":
        # The first follows on the last, as in any other round: others' turns leave caches that are not ours. A step is too long to tell.
        attempt(turns[-1].measurement, turns[-1].run)
    for turn in list(turns):
        record = attempt(turn.measurement, turn.take)
        emit(record)
        if record["kind"] == "missing":
            turns.remove(turn)
    emit({"schema": SCHEMA, "kind": "mark", "mark": "round"})


def take_turns(measurements):
    """A round of a group for each line with its name. Its members are prepared when it is named, and let go of when another is."""
    current, turns = None, []
    emit({"schema": SCHEMA, "kind": "mark", "mark": "ready"})
    for line in sys.stdin:
        group = line.strip()
        if group != current:
            turns.clear()  # before the next are prepared: no two groups are in memory
            current, turns = group, prepared(members(measurements, group))
        take_round(turns)


def summary(record):
    """The median rate of a timing, or why there is none."""
    if record["kind"] == "missing":
        return "missing: " + record["reason"]
    rate = record["operations"] / sorted(record["samples"])[len(record["samples"]) // 2]
    factor, unit = {"operations": (1e9, "Gop/s"), "elements": (1e9, "G elements/s"), "tokens": (1, "tokens/s")}[record["unit"]]
    return f"{rate / factor:.4g} {unit} (median of {len(record['samples'])})"


def warm(measurements):
    """Compile every compiled case once, so that a later run finds it in the cache."""
    for measurement in measurements:
        if "compiled" in measurement.name:
            progress(f"compiling {measurement.name}")
            try:
                import torch

                torch._dynamo.reset()
                case = measurement.prepare()
                case.run()
            except Exception as error:  # the timed run reports it as a row
                progress(f"  {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads each peer may use (default 1)")
    parser.add_argument("--only", default="", metavar="PREFIX", help="only measurements whose name begins so, such as gemm/ or step/A/f32")
    parser.add_argument("--skip", default="", metavar="NAME,NAME", help="leave these out, as those that took turns")
    parser.add_argument("--seconds", type=float, default=DEFAULT_SECONDS, metavar="S", help=f"time budget (default {DEFAULT_SECONDS:.0f})")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "mxfp4-peers", metavar="DIR", help="builds (default %(default)s)")
    parser.add_argument("--no-amx", action="store_true", help="keep oneDNN to AVX-512, to compare with kernels that use no matrix tiles")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--list", action="store_true", help="print the names and end")
    action.add_argument("--turns", action="store_true", help="time a group for each line with its name on standard input")
    action.add_argument("--check", action="store_true", help="test the numerics of what is timed; exit 1 if one is wrong")
    action.add_argument("--prepare", action="store_true", help="download and build ggml, fill the compile cache, and end")
    options = parser.parse_args()
    if options.threads < 1 or not options.seconds > 0:
        parser.error("--threads and --seconds must be positive")
    options.cache = options.cache.expanduser().resolve()
    return options


def set_up(options):
    """Settings PyTorch reads when it is imported, then its thread count. Without PyTorch, the rows will say so."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(options.cache / f"inductor-{options.threads}-threads"))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(options.threads))
    if options.no_amx:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
    try:
        import torch

        torch.set_num_threads(options.threads)
    except ImportError as error:
        progress(f"PyTorch cannot be imported ({error}); {REQUIREMENTS}")


def main():
    """Returns the exit status."""
    options = arguments()
    measurements = [*gemm_measurements(options), *quantise_measurements(), *step_measurements()]
    measurements = [m for m in measurements if m.name.startswith(options.only)]
    if not measurements:
        progress(f"no measurement begins with {options.only!r}; --list prints them all")
        return 2
    if options.list:
        print(*(m.name for m in measurements), sep="\n")
        return 0
    set_up(options)
    if options.check:
        try:
            import peer_check
        except ImportError as error:
            progress(f"nothing can be checked: {error}; {REQUIREMENTS}")
            return 1
        return peer_check.run(options)
    if options.prepare:
        import peer_ggml

        try:
            peer_ggml.prepare(options.cache)
        except peer_ggml.NotBuilt as error:
            progress(str(error))
        warm(measurements)
        return 0
    emit({"schema": SCHEMA, "kind": "environment"} | environment(options.threads))
    if options.turns:
        take_turns(measurements)
        return 0
    run_all([m for m in measurements if m.name not in options.skip.split(",")], options.seconds)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        progress("interrupted; the lines printed so far are complete")
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
