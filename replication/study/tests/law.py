"""Fits the law again from a ladder's validation.csv, with nothing but Python's standard library and by Nelder and Mead's method.

    python3 law.py FITTED DIRECTORY...

FITTED is what the Rust code found: arm,first,second,overhead; constants stand in `first`. Ends with 1 and the differences when a number is another
one. Both methods stop where a parameter moves by less than about 1e-7; the curve of the sum of losses along its flattest direction (E against a and
beta) makes of that less than 1e-3 in any number.
"""

import csv
import json
import lzma
import math
import pathlib
import sys

BINS, FROM, HUBER, ALPHA, WITHIN = 16, 0.10, 1e-3, 0.348, 2e-3
PAPER = (8_030_261_248, 1.4e9)


def huber(residuals):
    return sum(r * r / 2 if abs(r) <= HUBER else HUBER * (abs(r) - HUBER / 2) for r in residuals)


def nelder_mead(cost, start, size):
    """Lowest point and its cost, begun again until that changes nothing."""
    best, lowest = list(start), cost(start)
    for _ in range(40):
        corners = [list(best)] + [[x + (size if i == j else 0) for j, x in enumerate(best)] for i in range(len(best))]
        ranked = sorted((cost(corner), corner) for corner in corners)
        for _ in range(4000):
            if max(abs(a - b) for a, b in zip(ranked[0][1], ranked[-1][1])) < 1e-9:
                break
            middle = [sum(corner[i] for _, corner in ranked[:-1]) / len(best) for i in range(len(best))]
            away = lambda by: [m + by * (m - w) for m, w in zip(middle, ranked[-1][1])]
            tried = (cost(away(1)), away(1))
            if tried[0] < ranked[0][0]:
                tried = min(tried, (cost(away(2)), away(2)))
            elif tried[0] >= ranked[-2][0]:
                tried = (cost(away(-0.5)), away(-0.5)) if tried[0] >= ranked[-1][0] else (cost(away(0.5)), away(0.5))
            if tried[0] < ranked[-1][0]:
                ranked[-1] = tried
            else:
                ranked = [ranked[0]] + [(cost(c), c) for c in ([(x + y) / 2 for x, y in zip(ranked[0][1], corner)] for _, corner in ranked[1:])]
            ranked.sort()
        gained, moved = lowest - ranked[0][0], max(abs(a - b) for a, b in zip(best, ranked[0][1]))
        lowest, best, size = ranked[0][0], ranked[0][1], size / 2 if size > 1e-3 else size
        if gained <= 1e-15 * lowest and moved < 1e-7:
            break
    return best, lowest


def rung(directory):
    """Parameters, ln-tokens of the points, the baseline's mean ln-losses and each recipe's mean difference from them."""
    directory = pathlib.Path(directory)
    header = next(directory.glob("runs/fp8/*/metrics.jsonl*"))
    parameters = json.loads((lzma.open if header.suffix == ".xz" else open)(header, "rt").readline())["parameters"]
    runs = {}
    for line in csv.DictReader((directory / "data/validation.csv").open()):
        if line["loss"] and int(line["tokens"]) > 0:
            runs.setdefault((line["arm"], int(line["seed"])), {})[int(line["tokens"])] = math.log(float(line["loss"]))
    budget = max(max(run) for run in runs.values())
    tokens = sorted(t for t in next(iter(runs.values())) if t >= FROM * budget)
    low, high = math.log(tokens[0]), math.log(tokens[-1])
    bins = {}
    for t in tokens:
        bins.setdefault(min(int((math.log(t) - low) / (high - low) * BINS), BINS - 1), []).append(t)
    mean = lambda values: sum(values) / len(values)
    of = lambda run: [mean([run[t] for t in bins[b]]) for b in sorted(bins)]
    average = lambda curves: [mean(column) for column in zip(*curves)]
    cells = {}
    for (arm, seed), run in runs.items():
        cells.setdefault((arm.split("-again-")[0], seed), []).append(of(run))
    cells = {key: average(curves) for key, curves in cells.items()}
    base = average([curve for (arm, _), curve in cells.items() if arm == "fp8"])
    gaps = {}
    for (arm, seed), curve in cells.items():
        if arm != "fp8":
            gaps.setdefault(arm, []).append([a - b for a, b in zip(curve, cells["fp8", seed])])
    places = [mean([math.log(t / 1e8) for t in bins[b]]) for b in sorted(bins)]
    return math.log(parameters / 1e7), places, base, {arm: average(curves) for arm, curves in gaps.items()}


def loss(constants, n, d):
    floor, a, b, beta, alpha = constants
    return floor + a * math.exp(-alpha * n) + b * math.exp(-beta * d)


def main():
    lines = {line["arm"]: [float(line[key]) for key in ("first", "second", "overhead")] for line in csv.DictReader(open(sys.argv[1]))}
    rungs = [rung(directory) for directory in sys.argv[2:]]
    points = [(n, d, y) for n, places, base, _ in rungs for d, y in zip(places, base)]

    # The exponent of size is held where two sizes cannot tell it.
    held = [math.log(ALPHA)] if len(rungs) < 3 else []

    def law(logs):
        constants = [math.exp(min(max(x, -40), 40)) for x in logs + held]
        return huber(y - math.log(loss(constants, n, d)) for n, d, y in points)

    starts = [[math.log(x) for x in (floor, 0.5, 0.5, beta, ALPHA)[: 5 - len(held)]] for floor in (1.5, 2.5) for beta in (0.4, 0.8)]
    logs, _ = min((nelder_mead(law, start, 0.1) for start in starts), key=lambda found: found[1])
    constants = [math.exp(x) for x in logs + held]
    wrong = []

    def compare(name, found, wanted):
        if not abs(found - wanted) <= WITHIN * max(abs(found), 1.0):
            wrong.append(f"{name}: {wanted} in Rust, {found} here")

    for name, value in zip(("E", "a", "b", "beta", "alpha"), constants):
        compare(name, value, lines.pop(name)[0])
    for arm, (eff_n, eff_d, overhead) in lines.items():
        pairs = [(n, d, gap) for n, places, _, gaps in rungs for d, gap in zip(places, gaps.get(arm, ()))]

        def misses(logs):
            return (math.log(loss(constants, n, d)) + gap - math.log(loss(constants, n + logs[0], d + logs[1])) for n, d, gap in pairs)

        (log_n, log_d), _ = nelder_mead(lambda logs: huber(misses(logs)), [-0.1, -0.1], 0.1)
        compare(f"{arm}, eff_N", math.exp(log_n), eff_n)
        compare(f"{arm}, eff_D", math.exp(log_d), eff_d)
        # Extra tokens by bisection: where the recipe's loss is the baseline's at the paper's size and tokens.
        n, d = math.log(PAPER[0] / 1e7), math.log(PAPER[1] / 1e8)
        goal, low, high = loss(constants, n, d), -5.0, 60.0
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if loss(constants, n + log_n, d + middle + log_d) > goal else (low, middle)
        if math.isfinite(overhead):
            # The share depends on beta and on eff_N through the small rest of a large term: ten times as sensitive.
            if not abs(math.expm1(low) - overhead) <= 10 * WITHIN * max(1.0, math.exp(low)):
                wrong.append(f"{arm}, extra tokens: {overhead} in Rust, {math.expm1(low)} here")
    print(f"{len(lines)} recipes and 5 constants compared", *wrong, sep="\n")
    sys.exit(bool(wrong) or not lines)


if __name__ == "__main__":
    main()
