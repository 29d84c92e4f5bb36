"""Computes again, from losses alone and with nothing but Python's standard library, what the second version of the rules says.

    python3 judging.py DIRECTORY TABLES [CAMPAIGNS]

DIRECTORY is a result directory (its data/validation.csv and its manifests are read); TABLES holds what the Rust code gave for it: claim_lines.csv,
stretches.csv, verdicts.json, and papers/. Prints what was compared; ends with 1 and the differences when a number is another one. Chances are compared
with CAMPAIGNS simulated tables (2,000), within five standard errors.
"""

import csv
import json
import math
import operator
import pathlib
import random
import re
import sys

SLOPE_REACH, MATCHED = 0.2, (0.30, 0.40)


# Distributions: the incomplete beta function by its continued fraction (Lentz's method).
def beta_fraction(a, b, x):
    tiny, c, d = 1e-300, 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    result = d
    for m in range(1, 10_000):
        for numerator in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d, c = 1 + numerator * d, 1 + numerator / c
            d, c = (1 / (d if abs(d) > tiny else tiny)), (c if abs(c) > tiny else tiny)
            result *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return result


def incomplete_beta(a, b, x):
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front * beta_fraction(a, b, x) / a if x < (a + 1) / (a + b + 2) else 1 - front * beta_fraction(b, a, 1 - x) / b


def t_above(t, freedom):
    half = incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2 if math.isfinite(t) else 0.0
    return half if t > 0 else 1 - half


def f_above(f, one, two):
    return incomplete_beta(two / 2, one / 2, two / (two + one * f))


def t_point(freedom, confidence):
    low, high = 0.0, 1e6
    while high - low > 1e-13 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if t_above(middle, freedom) > (1 - confidence) / 2 else (low, middle)
    return (low + high) / 2


def mean(values):
    values = list(values)
    return math.fsum(values) / len(values)


# The curve that turns losses into tokens.
def least_squares_slope(points):
    x0, y0 = mean(x for x, _ in points), mean(y for _, y in points)
    return math.fsum((x - x0) * (y - y0) for x, y in points) / math.fsum((x - x0) ** 2 for x, _ in points)


class Ruler:
    def __init__(self, curves, runs, budget):
        self.tokens = sorted(set.intersection(*(set(curves[run]) for run in runs)) - {0})
        self.mean = [mean(curves[run][tokens] for run in runs) for tokens in self.tokens]
        # Isotonic regression by its min-max formula, not by pooling neighbours.
        sums = [0.0]
        for value in self.mean:
            sums.append(sums[-1] + value)
        self.falling, count = [], len(self.mean)
        for at in range(count):
            around = range(max(0, at - 60), at + 1), range(at, min(count, at + 61))
            self.falling.append(min(max((sums[right + 1] - sums[left]) / (right + 1 - left) for right in around[1]) for left in around[0]))
        points = [(math.log(tokens), loss) for tokens, loss in zip(self.tokens, self.mean)]
        self.late = [at for at, tokens in enumerate(self.tokens) if tokens > 0.75 * budget]
        self.late_slope = -least_squares_slope([points[at] for at in self.late]) if len(self.late) > 1 else None
        self.slope = []
        for x, _ in points:
            near = [point for point in points if abs(point[0] - x) <= SLOPE_REACH]
            whole = points[0][0] <= x - SLOPE_REACH and x + SLOPE_REACH <= points[-1][0]
            self.slope.append(-least_squares_slope(near) if whole and len(near) > 2 else None)
        known = [at for at, slope in enumerate(self.slope) if slope is not None]
        steepest = max(known, key=lambda at: self.slope[at], default=0)
        # All of the stretch has to be there, to a hundredth.
        trained = known and self.slope[known[-1]] <= MATCHED[0] + 0.01
        self.matched = [at for at in known if at > steepest and MATCHED[0] <= self.slope[at] <= MATCHED[1]] if trained else []

    def tokens_at(self, loss):
        if loss > self.falling[0]:
            return None
        if loss < self.falling[-1]:
            return self.tokens[-1] * math.exp((self.falling[-1] - loss) / self.late_slope)
        for at, level in enumerate(self.falling):
            if level <= loss:
                if at == 0:
                    return self.tokens[0]
                share = (self.falling[at - 1] - loss) / (self.falling[at - 1] - level)
                return self.tokens[at - 1] + share * (self.tokens[at] - self.tokens[at - 1])

    def tables(self, curves, evaluations, again):
        """{arm: {seed: [value]}} of logarithms of ratios and of losses; an arm's own run first."""
        ratios, losses = {}, {}
        for (arm, seed), curve in sorted(curves.items(), key=lambda item: item[0][0] in again):
            found = [(tokens, curve.get(tokens)) for tokens in (self.tokens[at] for at in evaluations)]
            if any(loss is None or self.tokens_at(loss) is None for _, loss in found):
                continue
            name = again.get(arm, arm)
            ratios.setdefault(name, {}).setdefault(seed, []).append(math.log(mean(tokens / self.tokens_at(loss) for tokens, loss in found)))
            losses.setdefault(name, {}).setdefault(seed, []).append(mean(loss for _, loss in found))
        return ratios, losses


def regression(columns, y):
    """Coefficients and the sum of squares that they leave, by the normal equations and Gauss' elimination with pivots."""
    n = len(columns)
    rows = [[math.fsum(map(operator.mul, one, other)) for other in columns] + [math.fsum(map(operator.mul, one, y))] for one in columns]
    for at in range(n):
        pivot = max(range(at, n), key=lambda row: abs(rows[row][at]))
        rows[at], rows[pivot] = rows[pivot], rows[at]
        for row in (row for row in range(n) if row != at):
            share = rows[row][at] / rows[at][at]
            rows[row] = [value - share * of for value, of in zip(rows[row], rows[at])]
    found = [rows[at][n] / rows[at][at] for at in range(n)]
    left = [value - math.fsum(map(operator.mul, found, at)) for value, at in zip(y, zip(*columns))]
    return found, math.fsum(value**2 for value in left)


class Layout:
    """Least squares for the effects of arms and seeds, as a regression on indicators of each."""

    def __init__(self, values, baseline):
        self.values, self.baseline, self.seeds = values, baseline, sorted(values[baseline])
        least = min(2, len(self.seeds))
        self.arms = sorted(arm for arm in values if sum(seed in values[arm] for seed in self.seeds) >= least)
        cells = [(arm, seed) for arm in self.arms for seed in self.seeds if seed in values[arm]]
        self.cells, y = cells, [values[arm][seed][0] for arm, seed in cells]
        # The first seed has no effect of its own: the arms hold the constant.
        self.indicators = [[float(of == arm) for of, _ in cells] for arm in self.arms]
        self.indicators += [[float(of == seed) for _, of in cells] for seed in self.seeds[1:]]
        self.y, self.freedom = y, len(cells) - len(self.indicators)
        self.effects, self.left = regression(self.indicators, y)
        # One seed leaves nothing to tell scatter from: numbers then have no error.
        self.square = self.left / self.freedom if self.freedom else math.nan
        inside = [(run - mean(runs)) ** 2 for arm in values.values() for runs in arm.values() if len(runs) > 1 for run in runs]
        self.own = math.fsum(inside) / sum(len(runs) - 1 for arm in values.values() for runs in arm.values()) if inside else 0.0

    def contrast(self, weights):
        shared = [seed for seed in self.seeds if all(seed in self.values[arm] for arm in weights)]
        number = mean(math.fsum(weight * mean(self.values[arm][seed]) for arm, weight in weights.items()) for seed in shared)
        size = math.fsum(weight**2 for weight in weights.values())
        surer = math.fsum(weight**2 * (1 - mean(1 / len(self.values[arm][seed]) for seed in shared)) for arm, weight in weights.items())
        variance = (size * self.square - surer * min(self.own, self.square)) / len(shared)
        return number, math.sqrt(variance), self.freedom

    def tukey(self):
        arms = dict(zip(self.arms, self.effects))
        seeds = dict(zip(self.seeds, [0.0, *self.effects[len(self.arms) :]]))
        of = mean(arms[arm] for arm, _ in self.cells)
        product = [(arms[arm] - of) * seeds[seed] for arm, seed in self.cells]
        _, left = regression([*self.indicators, product], self.y)
        return f_above((self.left - left) / (left / (self.freedom - 1)), 1, self.freedom - 1)


# Claims: the part of the manifests that the rules use, one flow mapping a line.
def claims(path):
    text = path.read_text(encoding="utf-8")
    baseline = re.search(r"^baseline: (\S+)", text, re.M).group(1)
    for line in re.findall(r"^  - \{(id: .*metric: .*)\}$", text, re.M):
        line = re.sub(r'"[^"]*"', "", line)
        entry = dict(re.findall(r"(\w+): (\[[^\]]*\]|[^,\s]+)", line))
        yield baseline, {key: [float(x) for x in value[1:-1].split(",")] if key == "reported" else value for key, value in entry.items()}


def lines(baseline, claim):
    """(line, scale, weights or pair of weights, accepted range on the table's scale)."""
    base, arm, metric = claim.get("baseline", baseline), claim.get("arm"), claim["metric"]
    tolerance = float(claim.get("tolerance", 0))
    scale = "nats" if metric in ("loss-gap", "gap-closed") else "tokens"
    to_scale = math.log1p if scale == "tokens" else float
    if "direction" in claim and metric in ("token-overhead", "does-not-converge", "loss-gap"):
        than = claim.get("than", base)
        ranges = {"more": (0, math.inf), "fewer": (-math.inf, 0), "no-fewer": (to_scale(-tolerance), math.inf)}
        yield "direction", scale, {arm: 1.0, than: -1.0}, ranges[claim["direction"]]
    if metric in ("token-overhead", "loss-gap"):
        low, high = claim["reported"]
        yield "size", scale, {arm: 1.0, base: -1.0}, (to_scale(low - tolerance - 1e-12), to_scale(high + tolerance + 1e-12))
    if metric == "pass-dominates":
        yield "direction", scale, {claim["full"]: 1.0, claim["without"]: -2.0, base: 1.0}, (0, math.inf)


def p_values(number, error, freedom, accepted):
    low, high = accepted
    inside = max(t_above((number - low) / error, freedom), t_above((high - number) / error, freedom))
    return inside, min(1.0, 2 * t_above(max(low - number, number - high) / error, freedom))


def truth(entries, scale):
    levels = {}
    for _, claim in entries:
        if "reported" in claim and claim["metric"] == ("token-overhead" if scale == "tokens" else "loss-gap"):
            levels[claim["arm"]] = math.log1p(mean(claim["reported"])) if scale == "tokens" else mean(claim["reported"])
    costliest = max(levels.values(), default=0.0)
    if scale == "tokens":
        levels.update({claim["arm"]: max(costliest, 0.0) for _, claim in entries if claim["metric"] == "does-not-converge"})
    return levels


def simulate(layout, asked, levels, campaigns):
    """Share of whole simulated tables in which each question is answered with reproduced, and with differs."""
    own = min(layout.own, layout.square)
    shared, counts = math.sqrt(layout.square - own), {key: [0, 0] for key in asked}
    for _ in range(campaigns):
        table = {}
        for arm, seeds in layout.values.items():
            for seed in (seed for seed in layout.seeds if seed in seeds):
                cell = levels.get(arm, 0.0) + random.gauss(0, 1) * shared
                table.setdefault(arm, {})[seed] = [cell + random.gauss(0, 1) * math.sqrt(own) for _ in seeds[seed]]
        drawn = Layout(table, layout.baseline)
        for key, (weights, accepted) in asked.items():
            inside, outside = p_values(*drawn.contrast(weights), accepted)
            counts[key][0] += inside <= 0.05
            counts[key][1] += inside > 0.05 and outside <= 0.05
    return {key: [count / campaigns for count in pair] for key, pair in counts.items()}


class Compared:
    def __init__(self):
        self.count, self.wrong = 0, []

    def near(self, what, ours, theirs, within=1e-7):
        self.count += 1
        if not abs(ours - theirs) <= within * max(1.0, abs(ours)):
            self.wrong.append(f"{what}: Python gives {ours!r}, Rust {theirs!r}")


def compare_costs(compared, key, scales, costs):
    """What every arm costs over a stretch: every arm that has a seed with a number in common with the baseline, as the layouts give it."""
    of_stretch = {arm: row for (*where, arm), row in costs.items() if tuple(where) == key}
    values = scales[0].values
    beside = [arm for arm in values if arm != key[0] and set(values[arm]) & set(values[key[0]])]
    compared.near(f"{key}: arms", len(beside), len(of_stretch))
    for arm, row in of_stretch.items():
        for layout, back, column in zip(scales, (math.expm1, float), ("overhead", "gap")):
            number, error, freedom = layout.contrast({arm: 1.0, key[0]: -1.0})
            compared.near(f"{key} {arm} {column}", back(number), float(row[column]))
            half = t_point(freedom, 0.95) * error if freedom else None
            for end, sign in (("low", -1), ("high", 1)):
                if half is None:
                    compared.near(f"{key} {arm} has no interval", 0, int(row[f"{column}_{end}"] != ""))
                else:
                    compared.near(f"{key} {arm} {column} {end}", back(number + sign * half), float(row[f"{column}_{end}"]))


def main(directory, tables, campaigns):
    random.seed(20261122)
    curves = {}
    for row in csv.DictReader((directory / "data/validation.csv").open(newline="")):
        curves.setdefault((row["arm"], int(row["seed"])), {})[int(row["tokens"])] = float(row["loss"])
    budget = max(max(curve) for curve in curves.values())
    verdicts = json.loads((tables / "verdicts.json").read_text(encoding="utf-8"))
    rows = {(row["claim"], row["line"]): row for row in csv.DictReader((tables / "claim_lines.csv").open(newline=""))}
    costs = {(row["baseline"], row["stretch"], row["arm"]): row for row in csv.DictReader((tables / "stretches.csv").open(newline=""))}
    again = {arm: arm.split("-again-")[0] for arm, _ in curves if "-again-" in arm}
    compared = Compared()
    for paper in verdicts["papers"]:
        entries = list(claims(tables / "papers" / f"{paper['paper']}.yaml"))
        p = {}
        for baseline in sorted({claim.get("baseline", base) for base, claim in entries}):
            runs = [run for run in curves if again.get(run[0], run[0]) == baseline]
            if not runs:
                continue
            ruler = Ruler(curves, runs, budget)
            if ruler.late_slope is None:
                # Losses cannot be turned into tokens.
                of_baseline = {claim["id"] for base, claim in entries if claim.get("baseline", base) == baseline}
                measured = [key for key, row in rows.items() if key[0] in of_baseline and row["stretch"]]
                compared.near(f"numbers beside {baseline}, which has no slope", 0, len(measured))
                continue
            stretches = {"last quarter": ruler.late, **({"matched depth": ruler.matched} if ruler.matched else {})}
            layouts = {name: [Layout(table, baseline) for table in ruler.tables(curves, of, again)] for name, of in stretches.items()}
            for said in paper.get("precision", []):
                if said["baseline"] == baseline:
                    ratios, losses = layouts[said["stretch"]]
                    compared.near(f"{baseline} sd", math.expm1(math.sqrt(ratios.square)), said["sd"])
                    compared.near(f"{baseline} gap sd", math.sqrt(losses.square), said["gap_sd"])
                    compared.near(f"{baseline} freedom", ratios.freedom, said["freedom"])
                    if said["additivity"] is not None:
                        compared.near(f"{baseline} Tukey", ratios.tukey(), said["additivity"])
            for name, scales in layouts.items():
                compare_costs(compared, (baseline, name), scales, costs)
            asked = {"tokens": {}, "nats": {}}
            for base, claim in entries:
                for line, scale, weights, accepted in lines(base, claim):
                    row = rows.get((claim["id"], line))
                    if claim.get("baseline", base) != baseline or row is None or not row["number"]:
                        continue
                    name = f"{claim['id']} {line}"
                    layout = layouts[row["stretch"]][scale == "nats"]
                    number, error, freedom = layout.contrast(weights)
                    back = math.expm1 if scale == "tokens" else float
                    compared.near(name, back(number), float(row["number"]))
                    if not freedom:
                        compared.near(f"{name} has no interval", 0, sum(row[end] != "" for end in ("low", "high", "p_inside", "p_outside")))
                        continue
                    for confidence, ends in ((0.95, ("low", "high")), (0.90, ("low_90", "high_90"))):
                        half = t_point(freedom, confidence) * error
                        compared.near(f"{name} {ends[0]}", back(number - half), float(row[ends[0]]))
                        compared.near(f"{name} {ends[1]}", back(number + half), float(row[ends[1]]))
                    p[claim["id"], line] = p_values(number, error, freedom, accepted)
                    compared.near(f"{name} p", p[claim["id"], line][0], float(row["p_inside"]))
                    compared.near(f"{name} p outside", p[claim["id"], line][1], float(row["p_outside"]))
                    asked[scale][claim["id"], line] = (layout, weights, accepted)
            for scale, of in asked.items():
                if of:
                    layout = next(iter(of.values()))[0]
                    found = simulate(layout, {key: pair[1:] for key, pair in of.items()}, truth(entries, scale), campaigns)
                    for key, shares in found.items():
                        for share, column in zip(shares, ("chance_reproduced", "chance_differs")):
                            said = float(rows[key][column])
                            spread = max(share * (1 - share), said * (1 - said), 0.25 / campaigns)
                            compared.near(f"{key} {column}", share, said, 5 * math.sqrt(spread * (1 / campaigns + 1 / 2000)))
        # Holm over all lines of the paper that have a p-value, those that are not computed here included.
        of_paper = {key: row for key, row in rows.items() if row["paper"] == paper["paper"] and row["p_inside"]}
        for column in ("inside", "outside"):
            ordered, largest = sorted(of_paper, key=lambda key: float(of_paper[key][f"p_{column}"])), 0.0
            for rank, key in enumerate(ordered):
                largest = max(largest, min(1.0, (len(ordered) - rank) * float(of_paper[key][f"p_{column}"])))
                compared.near(f"{key} Holm {column}", largest, float(of_paper[key][f"holm_{column}"]))
    print(f"{directory.name}: {compared.count} numbers compared, {len(compared.wrong)} differ")
    for line in compared.wrong:
        print(f"  {line}")
    return int(bool(compared.wrong) or compared.count == 0)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 2000))
