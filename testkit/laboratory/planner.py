"""What `ironswan plan --verify --out FOLDER` found, computed again from its parts: the model (plan.json) and what was measured
(both in verify.json). Of every load: what it cost, from its repeats; what the model predicts, from the model's own numbers; how far the
two are apart; of all, the median and the worst. Used by recompute.py.
"""

import json
import math
import re
from pathlib import Path

ETHERNET = 18
# Calls and wakings for a packet that meets no other.
ALONE = 2.0
# Flows of a load that says nothing else.
FLOWS = 64
# Bursts from here on go to engines that work on packets side by side.
WORTH = 8
# What a rate may lose that a verification looks for itself; no run asks for it.
OWN_LOSS = "0.5%"
WAYS = {"out": ("out", "seal"), "in": ("into", "open")}


def quantile(values, q):
    ordered = sorted(values)
    rank = q * (len(ordered) - 1)
    low, high = math.floor(rank), math.ceil(rank)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def median(values):
    return quantile(values, 0.5)


def base(curve, pps):
    """A curve at a rate: on a straight line of the logarithms between two points, outside of all as at the nearest."""
    above = next((n for n, point in enumerate(curve) if point["pps"] >= pps), None)
    if above is None:
        return curve[-1]
    if above == 0:
        return curve[0]
    low, high = curve[above - 1], curve[above]
    share = math.log(pps / low["pps"]) / math.log(high["pps"] / low["pps"])

    def between(name):
        a, b = low[name], high[name]
        return a * (b / a) ** share if a > 0 and b > 0 else a + (b - a) * share

    return {name: between(name) for name in ("ns", "calls", "burst")}


def sharing(curve, burst):
    """A curve where so many packets share a call, on the same lines; at its end where that many were never seen to."""
    above = next((n for n, point in enumerate(curve) if point["burst"] >= burst), None)
    if above is None or above == 0:
        return curve[-1 if above is None else 0]
    low, high = curve[above - 1], curve[above]
    share = math.log(burst / low["burst"]) / math.log(high["burst"] / low["burst"])
    return base(curve, low["pps"] * (high["pps"] / low["pps"]) ** share)


def text(suite, frame):
    """Bytes that are sealed of the packet in such a frame: with pad length, next header, and padding."""
    block = max(suite["block"], 1)
    return math.ceil((frame - ETHERNET + 2) / block) * block


def longest(suite, mix, packets):
    """The longest text of so many packets in no order, on average."""
    mean = below = 0.0
    for frame in sorted({part["frame"] for part in mix["parts"]}):
        share = sum(part["share"] for part in mix["parts"] if part["frame"] <= frame) ** packets
        mean += (share - below) * text(suite, frame)
        below = share
    return mean


def crypto(suite, work, mix, burst):
    """Sealing or opening a packet of a mix, alone, when so many share a call."""
    lines = [(b["packets"], b[work]) for b in suite["bursts"]]
    (few, a), (lanes, b) = lines[2], lines[3]
    lane = max(a["per_byte"] - b["per_byte"], 0.0) / (1 / few - 1 / lanes)
    lane = min(lane, b["per_byte"] * lanes)
    mean = sum(part["share"] * text(suite, part["frame"]) for part in mix["parts"])

    def alone(packets, line):
        waits = lane * (longest(suite, mix, packets) - mean) / packets if packets >= WORTH else 0.0
        return line["per_packet"] + line["per_byte"] * mean + waits

    costs = [(packets, alone(packets, line)) for packets, line in lines]
    above = next((n for n, (packets, _) in enumerate(costs) if packets >= burst), None)
    if above is None:
        return costs[-1][1]
    if above == 0:
        return costs[0][1]
    (fewer, low), (more, high) = costs[above - 1], costs[above]
    share = (1 / fewer - 1 / burst) / (1 / fewer - 1 / more)
    return low * (1 - share) + high * share


def gathered_end(gathering, end, alone):
    """The end of a curve for packets that crypto takes so long for, each by itself: dearer ones share calls with more others."""
    low, high = gathering["crypto"]
    share = min(max((alone - low) / (high - low), 0.0), 1.0)
    calls, burst = (a * (b / a) ** share for a, b in (gathering["calls"], gathering["burst"]))
    return {**end, "calls": calls, "burst": burst, "ns": max(end["ns"] + gathering["per_call"] * (calls - end["calls"]), 0.0)}


def of_flows(model, way, flows):
    """What so many flows add to a packet of one flow: between two measured numbers by the logarithm, beyond the last as the last."""
    before = 1, 0.0
    for cost in model.get("flows", []):
        count, added = cost["flows"], cost["added"][list(WAYS).index(way)]
        if count <= 1:
            continue
        if flows <= count:
            share = math.log(max(flows, 1) / before[0]) / math.log(count / before[0])
            return before[1] + (added - before[1]) * min(max(share, 0.0), 1.0)
        before = count, added
    return before[1]


def in_bursts(model, way, at_once, what):
    """What is measured of bursts, for so many at once: between two lengths on a line of the logarithms, beyond the last as the last."""
    before = 1, 0.0
    for burst in model["bursts"]:
        length, log = burst["at_once"], math.log(burst[what][list(WAYS).index(way)])
        if length <= 1:
            continue
        if at_once <= length:
            share = math.log(max(at_once, 1) / before[0]) / math.log(length / before[0])
            return math.exp(before[1] + (log - before[1]) * min(max(share, 0.0), 1.0))
        before = length, log
    return math.exp(before[1])


def together(model, curve, way, pps, at_once):
    """A curve at a rate for packets that come so many at once."""
    at, sharing_all, ratio = base(curve, pps), at_once, 0.0
    if model.get("bursts"):
        sharing_all, ratio = (in_bursts(model, way, at_once, what) for what in ("shared", "ratio"))
    shared = sharing(curve, sharing_all)
    if shared["burst"] <= at["burst"]:
        return at
    return {**shared, "ns": min(max(at["ns"] * ratio, shared["ns"]), at["ns"])}


def predicted(model, suite, path, way, mix, pps, flows=None, burst=None):
    """Nanoseconds of a gateway for a packet, by the model; with one SA."""
    suite = next(s for s in model["suites"] if s["suite"] == suite)
    cost = next(p for p in model["paths"] if p["path"] == path and p["way"] == way)
    curve = list(cost["merged" if mix["merged"] else "packets"])
    if "gathering" in cost and not mix["merged"]:
        curve[-1] = gathered_end(cost["gathering"], curve[-1], crypto(suite, WAYS[way][1], mix, 1))
    at = together(model, curve, way, pps, burst or 1)
    gathered = min(max(1 - at["calls"] / ALONE, 0.0), 1.0)
    mean = sum(part["share"] * (part["frame"] - ETHERNET) for part in mix["parts"])
    of_bytes = 0.0 if mix["merged"] else cost["per_byte"] * mean
    # The base was measured with the usual flows.
    beyond = max(at["calls"] - cost["packets"][-1]["calls"], 0.0)
    wakings = min(cost.get("waking", {"value": 0.0})["value"] * beyond, at["ns"])
    usual, asked = (of_flows(model, way, n) for n in (FLOWS, flows or FLOWS))
    of_usual = min(usual, at["ns"] - wakings)
    at_flows = at["ns"] - of_usual + max(of_usual + asked - usual, 0.0)
    return at_flows + cost["per_change"] * mix["change"] * gathered + of_bytes + crypto(suite, WAYS[way][1], mix, at["burst"])


def same(a, b):
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def differing(where, found, expected):
    for what, value in expected.items():
        if not same(value, found.get(what)):
            yield f"{where}: {what} is {found.get(what)} in verify.json and {value} by what was measured"


def check_loads(model, verify):
    """Every load: predicted cells, and the ratios of those that the calibration had, too."""
    known = {load_key(c): c for c in model["cells"]}
    cells = {(c["suite"], c["path"], c["way"], c["mix"], c["offered"]): c for c in verify["cells"]}
    if len(cells) != len(verify["cells"]):
        yield "a cell is there twice"
    ratios = []
    for load in verify["measured"]:
        for way, (side, _) in WAYS.items():
            if load["alone"] not in (None, way):
                continue
            of = lambda cell, name: [seen[side][name] for seen in cell["seen"]]
            ns = of(load, "ns")
            before = known.get(load_key(load))
            if before:
                ratios.append(median(ns) / median(of(before, "ns")))
                continue
            mix = load["mix"]
            where = f"{load['suite']}, {load['path']}, {way}, {mix['name']}, {load['offered'] or 'all'}"
            cell = cells.pop((load["suite"], load["path"], way, mix["name"], load["offered"]), None)
            if cell is None:
                yield f"{where}: it was measured and is not among the cells"
                continue
            pps, measured = median(of(load, "pps")), median(ns)
            rate = pps if load["offered"] is not None else math.inf
            expected = {
                "pps": pps,
                "measured_ns": measured,
                "spread": (max(ns) - min(ns)) / measured,
                "predicted_ns": predicted(model, load["suite"], load["path"], way, mix, rate, load.get("flows"), load.get("burst")),
            }
            expected["error"] = expected["predicted_ns"] / measured - 1
            yield from differing(where, cell, expected)
    for left in cells:
        yield f"{', '.join(map(str, left))}: a cell without a measurement"
    off = [abs(r - 1) for r in ratios]
    again = {"loads": len(ratios), "shift": median(ratios) - 1, "median": median(off), "worst": max(off)}
    yield from differing("measured again", verify["again"], again)


def load_key(cell):
    return cell["suite"], cell["path"], json.dumps(cell["mix"], sort_keys=True), cell.get("flows"), cell.get("burst"), cell["offered"], cell["alone"]


def busy_at_most(model, path, way):
    """The share of the processors that were busy at the highest rates of one gateway alone: that of the fullest load."""
    own = [c for c in model["cells"] if c["alone"] == way and c["path"] == path]
    capacity = model["machine"]["cpus"] * 1e9
    busy = [s["machine_ns"] * s["packets"] / s["seconds"] / capacity for c in own for s in c["seen"]]
    return min(max(busy), 1.0) if busy else 1.0


def found_by_searches(verify, rate):
    """Of a rate that the verification looked for itself: what its searches found, and how far they are apart."""
    if rate["loss"] != OWN_LOSS:
        return {}
    key = rate["suite"], rate["path"], rate["way"], rate["mix"]["name"]
    own = [c for c in verify["measured"] if (c["suite"], c["path"], c["alone"], c["mix"]["name"]) == key]
    pps = [seen[WAYS[rate["way"]][0]]["pps"] for cell in own for seen in cell["seen"]]
    if not pps:
        # A rate of the other run, whose loss may be the same: it has no searches here, and so no spread.
        return {"measured_pps": None} if "spread" in rate else {}
    # Before searches were repeated only their loads were, and nothing was said of how far they are apart.
    apart = {"spread": (max(pps) - min(pps)) / median(pps)} if "spread" in rate else {}
    return {"measured_pps": median(pps), **apart}


def check_rates(model, verify):
    """The highest rates of one gateway beside a tester: the model's cost is taken as it is, the tester's as it was measured."""
    for rate in verify["rates"]:
        where = f"{rate['dut']}, {rate['way']}, {rate['mix']['name']}"
        cost = lambda pps: predicted(model, rate["suite"], rate["path"], rate["way"], rate["mix"], pps)
        at, error = rate["predicted_pps"], rate["predicted_pps"] / rate["measured_pps"] - 1
        expected = {
            **found_by_searches(verify, rate),
            "beside_ns": rate["machine_ns"] - rate["measured_ns"],
            "busy_at_most": busy_at_most(model, rate["path"], rate["way"]),
            "predicted_ns": cost(rate["measured_pps"]),
            "ns_error": cost(rate["measured_pps"]) / rate["measured_ns"] - 1,
            "error": error,
        }
        yield from differing(where, rate, expected)
        used = at * (cost(at) + rate["beside_ns"])
        capacity = verify["machine"]["cpus"] * 1e9 * rate["busy_at_most"]
        if not math.isclose(used, capacity, rel_tol=1e-6):
            yield f"{where}: {at} packets/s take {used / 1e9} processors, and there are {capacity / 1e9}"


def check_whole(verify):
    errors = [abs(c["error"]) for c in verify["cells"] + verify["rates"]]
    spreads = [c["spread"] for c in verify["cells"]]
    expected = {
        "median_error": median(errors),
        "worst_error": max(errors),
        "median_spread": median(spreads),
        "worst_spread": max(spreads),
        "within": sum(e <= 0.25 for e in errors) / len(errors),
    }
    yield from differing("all", verify, expected)
    # Where the machine does not repeat itself to 5 %, or was asked once, no model can be judged.
    repeated = any(len(load["seen"]) > 1 for load in verify["measured"])
    met = expected["median_error"] <= 0.1 and expected["within"] >= 0.9
    verdict = ("met" if met else "missed") if repeated and expected["median_spread"] <= 0.05 else "cannot-tell"
    if verify["verdict"] != verdict:
        yield f"all: the verdict is {verify['verdict']} in verify.json and {verdict} by the errors"


def plan(folder):
    """What disagrees in a folder of the planner, and what was computed; of a folder without a verification, nothing."""
    files = {}
    for name in ("plan.json", "verify.json"):
        path = Path(folder) / name
        if not path.exists():
            return [], "no verification"
        files[name] = json.loads(path.read_text(encoding="utf-8"))
    model, verify = files["plan.json"], files["verify.json"]
    if verify["model_made"] != model["made"]:
        return [f"plan.json was made {model['made']} and verify.json is of one made {verify['model_made']}"], ""
    wrong = [*check_loads(model, verify), *check_rates(model, verify), *check_whole(verify)]
    errors = [abs(c["error"]) for c in verify["cells"] + verify["rates"]]
    return wrong, (
        f"{len(errors)} predictions follow from the model: median error {100 * median(errors):.1f} %, worst {100 * max(errors):.1f} %"
    )


IMIX = {"name": "imix", "parts": [{"frame": f, "share": n / 12} for f, n in ((64, 7), (594, 4), (1418, 1))], "change": 0.25}


def printed(folder):
    """A verification of which only the text is kept (verify.txt), as far as its digits go: predictions from the model at the rates that
    it prints, errors, the median and the worst. Prints what disagrees; the exit status, as of recompute.py."""
    model = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    text = (folder / "verify.txt").read_text(encoding="utf-8")
    wrong, errors = [], []
    for line in text.splitlines():
        words = line.split()
        if len(words) != 12 or words[1] not in ("udp", "raw"):
            continue
        suite, path, way, name, offered = words[:5]
        pps, said, measured = (float(word.replace(",", "")) for word in words[5:8])
        one = {"name": name, "parts": [{"frame": int(name), "share": 1}], "change": 0} if name.isdigit() else IMIX
        ns = predicted(model, suite, path, way, {**one, "merged": False}, math.inf if offered in ("all", "highest") else pps)
        if not math.isclose(ns, said, rel_tol=1e-3):
            wrong.append(f"{line.strip()}: predicted is {ns:.0f} by the model")
        if abs(100 * (ns / measured - 1) - float(words[10])) > 0.6:
            wrong.append(f"{line.strip()}: the error is {100 * (ns / measured - 1):+.1f} %")
        errors.append(100 * abs(ns / measured - 1))
    found = re.search(r"^median error ([\d.]+) % .*, worst ([\d.]+) % ", text, re.MULTILINE)
    if not errors or not found:
        wrong.append("verify.txt has no predictions, or does not say how far they are off")
    elif abs(median(errors) - float(found[1])) > 0.1 or abs(max(errors) - float(found[2])) > 0.1:
        wrong.append(f"median error {median(errors):.1f} %, worst {max(errors):.1f} %, and verify.txt says {found[1]} and {found[2]}")
    for each in wrong:
        print(each)
    if not wrong:
        print(f"{len(errors)} predictions follow from the model: median error {median(errors):.1f} %, worst {max(errors):.1f} %")
    return 1 if wrong else 0
