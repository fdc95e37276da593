#!/usr/bin/env python3
"""Computes every figure of a run again from its samples, by itself, and says where run.json disagrees.

usage: recompute.py FOLDER

Checked of a record of the schema ironswan.lab/1: median, median absolute deviation, interquartile range, extremes and number of
repeats of every measure; ratio and difference to the baseline; that every sample belongs to a figure and every figure to samples;
and what holds of any measurement: shares lie between 0 and 1, no count, size, rate or duration is negative, no more arrives than
was sent, percentiles ascend. Exit status 0: all agrees; 1: something does not, each named on a line; 2: there is no such record.
"""

import json
import math
import re
import sys
from pathlib import Path

SCHEMA = "ironswan.lab/1"
# Units of what can be counted or timed, of which there is never less than nothing.
COUNTED = re.compile(
    r"^(1|packets|frames|bytes|buffers|operations|samples|KiB|MiB|GiB|us|ms|s|MHz"
    r"|(packets|frames|bytes|operations|setups|tunnels|[kMG]?b|[KMG]i?B|kB)/s)$"
)


def quantile(values, q):
    """Linear interpolation between order statistics."""
    ordered = sorted(values)
    rank = q * (len(ordered) - 1)
    low = math.floor(rank)
    high = math.ceil(rank)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def summary(values):
    middle = quantile(values, 0.5)
    return {
        "n": len(values),
        "median": middle,
        "mad": quantile([abs(v - middle) for v in values], 0.5),
        "iqr": quantile(values, 0.75) - quantile(values, 0.25),
        "min": min(values),
        "max": max(values),
    }


def same(a, b):
    if a is None or b is None:
        return a is None and b is None
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def key(factors):
    return tuple(sorted(factors.items()))


def named(factors):
    return ", ".join(f"{k} {v}" for k, v in sorted(factors.items())) or "everything"


def check_figures(run):
    samples = {}
    for sample in run["samples"]:
        own = samples.setdefault(key(sample["factors"]), {})
        for name, value in sample["measures"].items():
            own.setdefault(name, []).append(value)
    seen = set()
    for figure in run["figures"]:
        where = named(figure["factors"])
        this = key(figure["factors"])
        if this in seen:
            yield f"{where}: the figure is there twice"
        seen.add(this)
        if this not in samples:
            yield f"{where}: the figure has no samples"
            continue
        base = {}
        baseline = run["baseline"]
        if baseline and figure["factors"].get(baseline["factor"], baseline["value"]) != baseline["value"]:
            base = samples.get(key({**figure["factors"], baseline["factor"]: baseline["value"]}), {})
        for name in sorted(set(samples[this]) | set(figure["measures"])):
            if name not in figure["measures"] or name not in samples[this]:
                yield f"{where}, {name}: in the samples or in the figure, but not in both"
                continue
            quantity = figure["measures"][name]
            own = summary(samples[this][name])
            expected = dict(own, ratio=None, added=None)
            if name in base:
                compared = quantile(base[name], 0.5)
                expected["added"] = own["median"] - compared
                expected["ratio"] = own["median"] / compared if compared != 0 else None
            found = dict(quantity["summary"], ratio=quantity["ratio"], added=quantity["added"])
            for what, value in expected.items():
                if not same(value, found[what]):
                    yield f"{where}, {name}: {what} is {found[what]} in the record and {value} by the samples"
    for this in samples:
        if this not in seen:
            yield f"{named(dict(this))}: samples without a figure"


def check_samples(run):
    units = {m["name"]: m["unit"] for m in run["measures"]}
    for nth, sample in enumerate(run["samples"]):
        where = f"sample {nth} ({named(sample['factors'])})"
        measures = sample["measures"]
        for name, value in measures.items():
            unit = units.get(name)
            if unit is None:
                yield f"{where}: the measure {name} is not declared"
            elif not math.isfinite(value):
                yield f"{where}, {name}: {value} is not a number"
            elif unit == "share" and not 0 <= value <= 1:
                yield f"{where}, {name}: {value} is not a share"
            elif COUNTED.match(unit) and value < 0:
                yield f"{where}, {name}: {value} is less than nothing"
        yield from check_pairs(where, measures, units)


def check_pairs(where, measures, units):
    """What two measures of one sample say of each other, as far as their names tell."""
    sent = measures.get("sent")
    for name in ("received", "forwarded", "lost"):
        value = measures.get(name)
        # A rate over another time than that of sending may be a little higher; a count may not.
        slack = 1.0 if units.get(name) in ("1", "packets") else 1.25
        if sent is not None and value is not None and units.get(name) == units.get("sent") and value > sent * slack:
            yield f"{where}: {name} {value} is more than sent {sent}"
    percentiles = {}
    for name, value in measures.items():
        match = re.match(r"^(.*?)_?p(\d+)(_[a-z]+)?$", name)
        if match:
            # p999 is the 99.9th.
            rank = float(f"0.{match[2]}" if len(match[2]) > 1 else f"0.0{match[2]}")
            percentiles.setdefault((match[1], match[3]), []).append((rank, name, value))
    for ranked in percentiles.values():
        ranked.sort()
        for (_, low, a), (_, high, b) in zip(ranked, ranked[1:]):
            if a > b:
                yield f"{where}: {low} {a} is above {high} {b}"


def main():
    if len(sys.argv) != 2:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    path = Path(sys.argv[1]) / "run.json"
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        print(f"{path}: {e}", file=sys.stderr)
        return 2
    schema = run.get("schema") if isinstance(run, dict) else None
    if schema != SCHEMA:
        print(f"{path}: its schema is {schema}; this program reads {SCHEMA}", file=sys.stderr)
        return 2
    try:
        wrong = list(check_samples(run)) + list(check_figures(run))
    except (KeyError, TypeError, AttributeError, IndexError) as e:
        print(f"{path}: not as its schema says: {type(e).__name__} {e}", file=sys.stderr)
        return 2
    for line in wrong:
        print(line)
    quantities = sum(len(f["measures"]) for f in run["figures"])
    if not wrong:
        print(f"{quantities} quantities of {len(run['figures'])} figures follow from {len(run['samples'])} samples")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
