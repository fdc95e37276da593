#!/usr/bin/env python3
"""Computes every figure of a run again from its samples, by itself, and says where run.json disagrees.

usage: recompute.py FOLDER

Checked of a record of the schema ironswan.lab/1: median, median absolute deviation, interquartile range, extremes and number of
repeats of every measure; ratio and difference to the baseline; that every sample belongs to a figure and every figure to samples;
and what holds of any measurement: shares lie between 0 and 1, no count, size, rate or duration is negative, no more arrives than
was sent, percentiles ascend and are above nothing; where it has raw trials of packets, those and what follows from them
(trials.py). Of `line` and `demo`: the measures of each trial from the counters of its window. Of `flood`: the loss, rate and account of
lost packets of each trial, then peaks, curves, places and throughputs, each of which some deciding trial must have carried. In a folder of
`plan --verify`, besides, every prediction from the model and its error (planner.py). Exit status
0: all agrees; 1: something does not, each named on a line; 2: there is no such record.
"""

import json
import math
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import planner
import trials as raw_trials

# Units of time.
TIMES = {"ns", "us", "ms", "s"}
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


def differing(where, found, expected):
    """What of `expected` the record has otherwise."""
    for what, value in expected.items():
        if not same(value, found.get(what)):
            yield f"{where}: {what} is {found.get(what)} in the record and {value} by the samples"


def ascending(where, ranked):
    """Of (rank, name, value), that a higher rank has no smaller value."""
    ranked = sorted(ranked)
    for (_, low, a), (_, high, b) in zip(ranked, ranked[1:]):
        if a > b:
            yield f"{where}: {low} {a} is above {high} {b}"


def reason(base):
    """Why nothing is compared with a baseline: the tester set the limit of one of its samples."""
    if max(base.get("tester_limited", [0])) <= 0:
        return None
    alone = base.get("tester_kpps")
    return f"the tester alone carries {quantile(alone, 0.5):.1f} kpps" if alone else "the tester set the limit"


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
        withheld = reason(base)
        if withheld != figure.get("withheld"):
            yield f"{where}: withheld is {figure.get('withheld')} in the record and {withheld} by the samples"
        if withheld:
            base = {}
        short = {name for sample in run["samples"] if key(sample["factors"]) == this for name in sample.get("absent", {})}
        if short - set(samples[this]) != set(figure.get("absent", {})):
            yield f"{where}: the measures that are absent for a reason are not those of its samples"
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
            yield from differing(f"{where}, {name}", found, expected)
    for this in samples:
        if this not in seen:
            yield f"{named(dict(this))}: samples without a figure"


def check_samples(run):
    units = {m["name"]: m["unit"] for m in run["measures"]}
    for nth, sample in enumerate(run["samples"]):
        where = f"sample {nth} ({named(sample['factors'])})"
        measures = sample["measures"]
        for name in sorted(set(measures) & set(sample.get("absent", {}))):
            yield f"{where}, {name}: it has a value, and a reason why it has none"
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
    for of, name in [("sent", "received"), ("sent", "forwarded"), ("sent", "lost"), ("offered", "carried")]:
        sent, value = measures.get(of), measures.get(name)
        # A rate over another time than that of sending may be a little higher; a count may not.
        slack = 1.0 if units.get(name) in ("1", "packets") else 1.25
        if sent is not None and value is not None and units.get(name) == units.get(of) and value > sent * slack:
            yield f"{where}: {name} {value} is more than {of} {sent}"
    percentiles = {}
    for name, value in measures.items():
        match = re.match(r"^(.*?)_?(?:p(\d+)|max)(_[a-z]+)?$", name)
        if match:
            # p999 is the 99.9th; nothing is above the largest.
            rank = float(f"0.{match[2]}" if len(match[2]) > 1 else f"0.0{match[2]}") if match[2] else 1.0
            percentiles.setdefault((match[1], match[3]), []).append((rank, name, value))
    for ranked in percentiles.values():
        yield from ascending(where, ranked)
        # Whatever has a percentile took some time.
        for _, name, value in ranked:
            if units.get(name) in TIMES and value <= 0:
                yield f"{where}: {name} {value} is no time"


def lab(run, folder):
    """A record of ironswan.lab/1: what disagrees, and what was computed."""
    quantities = sum(len(f["measures"]) for f in run["figures"])
    said = f"{quantities} quantities of {len(run['figures'])} figures follow from {len(run['samples'])} samples"
    wrong, more = MORE.get(run["experiment"], raw_trials.check)(run, folder)
    return list(check_samples(run)) + list(check_figures(run)) + wrong, said + more


def check_window(where, run, window, measures):
    """Of one trial of `line` or `demo`: its measures from the counters of its window."""
    machine = run["machine"]
    seconds, cpu, hz = window["seconds"], window["cpu"], window["ticks_per_second"]
    capacity = machine["cpus"] * seconds
    work = sum(cpu[kind] for kind in ("user", "nice", "system", "irq", "softirq"))
    idle = cpu["idle"] + cpu["iowait"] + cpu["steal"]
    busy = min(max(capacity - idle / hz, 0.0), capacity)
    gateways = sum(g["cpu_ns"] for g in window["gateways"])
    payload = window["payload_bytes"]
    if not 0 < payload <= window["bytes"]:
        yield f"{where}: payload of {payload} bytes in {window['bytes']}"
        return
    cost = raw_trials.cost(busy, run, hz)
    # A share of the ticks that were work; of few of them there is none.
    told = raw_trials.cost(work / hz, run, hz) is not None
    sizes = [g["resident_kib"] for g in window["gateways"] if g["resident_kib"] is not None]
    yield from differing(
        where,
        measures,
        {
            "gbps": payload * 8 / seconds / 1e9,
            "bytes_per_buffer": window["bytes"] / max(window["buffers"], 1),
            "machine_ns_per_byte": None if cost is None else cost * 1e9 / payload,
            "gateways_ns_per_byte": gateways / payload,
            "softirq_share": cpu["softirq"] / max(work, 1) if told else None,
            "resident_kib": max(sizes, default=None),
        },
    )
    yield from differing(where, window, {"busy_share": busy / capacity})
    # Times are read one after the other, and counters are cut to ticks: one of each processor and of each counter.
    inexact = capacity / 50 + (machine["cpus"] + 8) / hz
    not_idle = capacity - (cpu["idle"] + cpu["iowait"]) / hz
    if not_idle < -inexact:
        yield f"{where}: processors were idle for {capacity - not_idle} s of {capacity} s"
    if gateways / 1e9 > max(not_idle, 0.0) + inexact:
        yield f"{where}: gateways used {gateways / 1e9} s of {not_idle} s that were not idle"
    if not 0 <= window["other_load_share"] <= 1:
        yield f"{where}: other_load_share {window['other_load_share']} is not a share"


def line(run, folder):
    """Of a run of `line` or `demo`: what the windows in raw/ say otherwise, and the added cycles of every system."""
    wrong, windows = [], 0
    for nth, sample in enumerate(run["samples"]):
        for path in (folder / name for name in sample["files"] if name.endswith(".window.json")):
            window = json.loads(path.read_text(encoding="utf-8"))
            wrong += check_window(f"sample {nth} ({named(sample['factors'])})", run, window, sample["measures"])
            windows += 1
    cycles = {key(d["factors"]): d["value"] for d in run["derived"] if d["name"] == "added_cycles_per_byte"}
    mhz = run["machine"]["mhz"]
    for figure in run["figures"]:
        added = figure["measures"].get("machine_ns_per_byte", {}).get("added")
        expected = None if mhz is None or added is None else added * mhz / 1e3
        found = {"added_cycles_per_byte": cycles.pop(key(figure["factors"]), None)}
        wrong += differing(named(figure["factors"]), found, {"added_cycles_per_byte": expected})
    wrong += [f"{named(dict(of))}: added cycles without a figure" for of in cycles]
    return wrong, f"; and from {windows} windows" if windows else ""


def check_trial(where, trial):
    sent, received, account = trial["sent"], trial["received"], trial["account"]
    seconds = max(sent["seconds"], received["seconds"])
    yield from differing(
        where,
        trial,
        {
            "loss": 1 - received["unique"] / max(sent["intended"], 1),
            "forwarded_pps": received["unique"] / seconds if seconds > 0 else 0.0,
        },
    )
    if sent["sent"] + sent["unsent"] != sent["intended"] or not 0 <= sent["refused"] <= sent["sent"]:
        yield f"{where}: intended {sent['intended']} is not sent {sent['sent']} and unsent {sent['unsent']}"
    if received["unique"] > sent["sent"]:
        yield f"{where}: received {received['unique']} is more than sent {sent['sent']}"
    places = sum(place["packets"] for place in account["places"])
    lost = account["sent"] - account["received"]
    yield from differing(
        f"{where}, account",
        account,
        {"sent": sent["sent"], "received": received["unique"], "unexplained": lost - places},
    )
    latency = received["latency"]
    if latency:
        names = ["min_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us"]
        yield from ascending(where, [(rank, name, latency[name]) for rank, name in enumerate(names)])
        if latency["min_us"] <= 0:
            yield f"{where}: a packet took {latency['min_us']} us"


def carried(trials, loss):
    """The most that a deciding trial carried with that loss, such as `0.5 %`, in 1000 packets a second."""
    share = float(loss.split(" ")[0]) / 100
    # The share in percent may be off by one bit of what the trials were judged by.
    decided = [t for t in trials if t["purpose"] == "decide" and t["goal"] <= share * (1 + 1e-9)]
    return max((t["offered_pps"] / 1e3 for t in decided if t["loss"] <= share * (1 + 1e-9)), default=None)


def check_flood(where, samples, trials, losses):
    """Of one system under one load of `flood`: its samples from its trials."""
    peak = max(t["forwarded_pps"] for t in trials)
    points, places = {}, {}
    throughput = ("throughput", "alone")
    found = {s["factors"]["loss"]: s["measures"]["kpps"] for s in samples if s["factors"]["part"] in throughput}
    for loss in losses:
        yield from differing(f"{where}, loss {loss}", {"kpps": found.get(loss)}, {"kpps": carried(trials, loss)})
    for t in trials:
        if t["multiple"] is not None:
            points.setdefault(f"{t['multiple']:g}", []).append(t)
    for sample in samples:
        factors, measures = sample["factors"], sample["measures"]
        here = f"{where}, {named({k: v for k, v in factors.items() if k not in ('dut', 'load')})}"
        if factors["part"] in throughput and factors["loss"] == "any":
            yield from differing(here, measures, {"kpps": peak / 1e3})
        elif factors["part"] in throughput and factors["loss"] not in losses:
            yield f"{here}: a loss that was not asked for"
        elif factors["part"] in throughput:
            continue
        elif len(points.get(factors["offered"], [])) <= sample["repeat"]:
            yield f"{here}: there is no trial of it"
        else:
            t = points[factors["offered"]][sample["repeat"]]
            latency, account = t["received"]["latency"] or {}, t["account"]
            if factors["part"] == "curve":
                expected = {
                    "sent_kpps": t["sent"]["sent"] / max(t["sent"]["seconds"], 1e-9) / 1e3,
                    "kpps": t["forwarded_pps"] / 1e3,
                    "loss": min(max(t["loss"], 0.0), 1.0),
                    "of_peak": t["forwarded_pps"] / peak if peak > 0 else 0.0,
                    "p50_us": latency.get("p50_us"),
                    "p99_us": latency.get("p99_us"),
                }
                yield from differing(here, measures, expected)
            else:
                lost = [p["packets"] for p in account["places"] if p["place"] == factors["place"]]
                lost += [max(account["unexplained"], 0)] if factors["place"] == "without a counter" else []
                yield from differing(here, measures, {"lost": min(sum(lost) / max(account["sent"], 1), 1.0)})
                places.setdefault((factors["offered"], sample["repeat"]), set()).add(factors["place"])
    for offered, own in points.items():
        for repeat, t in enumerate(own):
            for place in t["account"]["places"]:
                if place["place"] not in places.get((offered, repeat), set()):
                    yield f"{where}, offered {offered}: the packets lost at {place['place']} have no sample"


# A baseline that carries this share of what the tester carries alone is limited by the tester.
NEAR = 0.9


def check_beside(run):
    """Of a run of `flood`: that what the tester carries alone stands beside every throughput, and what follows from it."""
    of = {(s["factors"]["load"], s["factors"]["loss"]): s["measures"]["kpps"] for s in run["samples"] if s["factors"]["part"] == "alone"}
    for sample in run["samples"] if of else []:
        factors, measures = sample["factors"], sample["measures"]
        if factors["part"] != "throughput":
            continue
        alone = of.get((factors["load"], factors["loss"]))
        yield from differing(named(factors), measures, {"tester_kpps": alone})
        limited = measures.get("tester_limited")
        if limited not in (0, 1):
            yield f"{named(factors)}: tester_limited is {limited}, and neither 0 nor 1"
        if alone is not None and measures["kpps"] >= alone * NEAR and limited != 1:
            yield f"{named(factors)}: {measures['kpps']} kpps are near the {alone} of the tester alone, and not its limit"


def flood(run, folder):
    """Of a run of `flood`: what its trials in raw/ say otherwise, its ratios to wireguard-go, and the tester alone."""
    wrong, count, series = [], 0, {}
    for sample in run["samples"]:
        series.setdefault(tuple(sample["files"]), []).append(sample)
    for files, samples in series.items():
        for name in files:
            trials = [json.loads(row) for row in (folder / name).read_text(encoding="utf-8").splitlines()]
            count += len(trials)
            for nth, trial in enumerate(trials, 1):
                wrong += check_trial(f"{name}, trial {nth}", trial)
            wrong += check_flood(name, samples, trials, run["settings"]["losses allowed"].split(", "))
    kpps = {key(f["factors"]): f["measures"]["kpps"]["summary"]["median"] for f in run["figures"] if "kpps" in f["measures"]}
    ratios = {key(d["factors"]): d["value"] for d in run["derived"] if d["name"] == "of_wireguard_go"}
    for figure in run["figures"]:
        factors = figure["factors"]
        theirs = kpps.get(key({**factors, "dut": "wireguard-go"}))
        if factors["part"] != "throughput" or factors["loss"] == "any" or factors["dut"] == "wireguard-go" or not theirs:
            continue
        of = {k: v for k, v in factors.items() if k != "part"}
        wrong += differing(named(of), {"of_wireguard_go": ratios.pop(key(of), None)}, {"of_wireguard_go": kpps[key(factors)] / theirs})
    wrong += [f"{named(dict(of))}: a ratio without figures" for of in ratios]
    wrong += check_beside(run)
    return wrong, f"; and from {count} trials" if count else ""


# What an experiment has beside what every record has.
MORE = {"line": line, "demo": line, "flood": flood}
SCHEMA = "ironswan.lab/1"


def main():
    if len(sys.argv) != 2:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    path = Path(sys.argv[1]) / "run.json"
    if not path.exists() and (path.parent / "verify.txt").exists():
        try:
            return planner.printed(path.parent)
        except (OSError, KeyError, TypeError, ValueError, StopIteration) as e:
            print(f"{path.parent}: {type(e).__name__} {e}", file=sys.stderr)
            return 2
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
        wrong, said = lab(run, path.parent)
        if run.get("experiment") == "plan":
            more, also = planner.plan(path.parent)
            wrong, said = wrong + more, f"{said}; {also}"
    except (KeyError, TypeError, AttributeError, IndexError, ZeroDivisionError, ValueError, StopIteration) as e:
        print(f"{path}: not as its schema says: {type(e).__name__} {e}", file=sys.stderr)
        return 2
    for each in wrong:
        print(each)
    if not wrong:
        print(said)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
