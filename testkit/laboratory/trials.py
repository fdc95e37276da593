"""The raw trials of searches with packets: what holds of any trial, and the figures of run.json computed from them.

A record of `rfc2544`, `compare`, `fragments`, `lowend` or `cores` names for each sample with packets a file in raw/ (its columns are in
docs/measuring/rfc2544.md). From it the search is judged anew: which trials said nothing, which loads were carried (MLRsearch),
what arrived at the highest of them, and what later trials left of it. Nothing here is taken from the laboratory's own code.
"""

import csv
import math
import re
from statistics import median

EXPERIMENTS = ("rfc2544", "compare", "fragments", "lowend", "cores")
# Ticks of the kernel's accounting in a second, the fewest that a cost may rest on, and a pause that may cost a trial what was due
# meanwhile.
HERTZ, FEWEST_TICKS, PAUSE = 100, 10, 0.01
OF_WAY = ("intended", "sent", "unsent", "refused", "received", "lost", "unopened", "socket_drops")
OF_WAY += ("duplicates", "reordered", "corrupt")
OF_TRIAL = ("machine_s", "idle_s", "stolen_s", "busy_s", "gateways_ns", "outer_bytes", "outer_packets")
LATENCY = ("p50_us", "p90_us", "p99_us", "p999_us", "max_us")


def same(a, b):
    return a is b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12))


def cost(seconds, run, hertz=HERTZ):
    """Processor time for a cost; none where a run leaves out costs that rest on few ticks, and this one does."""
    short = "costs" in run["settings"] and seconds * hertz + 1e-9 < FEWEST_TICKS
    return None if short else seconds


def as_share(text):
    """`0.1%` or `1.5`."""
    return float(text.rstrip("%")) / (100 if "%" in text else 1)


class Trial:
    """One trial: what was asked for, what was counted of the whole machine, and a row for each way."""

    def __init__(self, row):
        number = lambda name: float(row[name]) if row[name] else None
        self.n, self.purpose, self.of = int(row["trial"]), row["purpose"], row["of"]
        self.began, self.rate, self.seconds, self.told = map(number, ("began_s", "offered_pps", "duration_s", "told_loss"))
        self.machine = {name: float(row[name]) for name in OF_TRIAL}
        self.ways = []
        # The throughput of whose shares and multiples latency and curve are, where a run has later trials.
        self.base = None

    def add(self, row):
        way = {name: int(row[name]) for name in OF_WAY}
        way.update({name: float(row[name]) for name in ("send_s", "receive_s")})
        way.update({name: float(row[name]) if row[name] else None for name in LATENCY})
        self.ways.append(way)

    def sum(self, name):
        return sum(way[name] for way in self.ways)

    def worst(self, share):
        return max([0.0] + [share(way) for way in self.ways])

    # What the generator left out, and what was lost of what it sent; of all that was intended; without what the receiver dropped.
    def unsent(self):
        return self.worst(lambda way: way["unsent"] / max(way["intended"], 1))

    def lost(self):
        return self.worst(lambda way: 1.0 - min(way["received"] / max(way["sent"], 1), 1.0))

    def loss(self):
        return self.worst(lambda way: 1.0 - way["received"] / max(way["intended"], 1))

    def lost_by_the_system(self):
        return self.worst(lambda way: 1.0 - (way["received"] + way["socket_drops"]) / max(way["sent"], 1))

    def measures(self, run):
        received = max(self.sum("received"), 1)
        seconds = max([1e-9] + [max(way["send_s"], way["receive_s"]) for way in self.ways])
        machine = self.machine
        busy = cost(machine["busy_s"], run)
        found = {
            "kpps": self.sum("received") / seconds / 1e3,
            "sent_kpps": sum(way["sent"] / max(way["send_s"], 1e-9) for way in self.ways) / 1e3,
            "loss": self.loss(),
            "busy": machine["busy_s"] / machine["machine_s"],
            "machine_ns": None if busy is None else busy * 1e9 / received,
            "ns_packet": None if busy is None else busy * 1e9 / received,
            "gateways_ns": machine["gateways_ns"] / received,
            "core": machine["gateways_ns"] / 2e9 / seconds,
            "crossing": machine["outer_packets"] / received,
            "outer_gbps": (machine["outer_bytes"] + 18 * machine["outer_packets"]) * 8 / seconds / 1e9,
        }
        for name in LATENCY:
            known = [way[name] for way in self.ways if way[name] is not None]
            if known:
                found[name] = max(known)
        return found


def read(path):
    """The trials of a file, in their order."""
    trials = []
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if not trials or trials[-1].n != int(row["trial"]):
                trials.append(Trial(row))
            trials[-1].add(row)
    return trials


def ahead(name, settings):
    """Packets that may be due beyond the rate: those of a capture come as far apart as they did, in rounds."""
    mix = re.match(r"(\d+) IP packets", settings.get("mix", ""))
    # Merged packets are sent in pieces of a frame, of 64 KB in all.
    return 1 if mix is None or not name.startswith("raw/mix-") else 45 * int(mix[1])


def check_trial(where, trial, cpus, beyond):
    """What holds of any trial, whatever was tested."""
    for way in trial.ways:
        for name in OF_WAY:
            if way[name] < 0 and name != "lost":
                yield f"{where}: {name} {way[name]} is less than nothing"
        if way["sent"] + way["unsent"] != way["intended"] or way["refused"] > way["sent"]:
            yield f"{where}: intended {way['intended']} is not sent {way['sent']} and unsent {way['unsent']}"
        if trial.rate is not None and way["intended"] > trial.rate * trial.seconds + beyond:
            yield f"{where}: intended {way['intended']} is more than {trial.rate} a second for {trial.seconds} s"
        if way["lost"] != way["sent"] - way["received"]:
            yield f"{where}: lost {way['lost']} is not sent {way['sent']} less received {way['received']}"
        # Packets that were counted on the outer link and not opened are not known to be the generator's.
        if way["received"] - way["unopened"] > way["sent"]:
            yield f"{where}: received {way['received']} is more than sent {way['sent']}"
        known = [(name, way[name]) for name in LATENCY if way[name] is not None]
        if known and len(known) < len(LATENCY):
            yield f"{where}: some percentiles of the latency are known and others are not"
        for (low, a), (high, b) in zip(known, known[1:]):
            if a > b:
                yield f"{where}: {low} {a} is above {high} {b}"
        if known and known[0][1] <= 0:
            yield f"{where}: half of the packets took {known[0][1]} us"
        if known and way["received"] == way["unopened"]:
            yield f"{where}: a latency is known of no packet"
    machine = trial.machine
    capacity, idle = machine["machine_s"], machine["idle_s"]
    # Times are read one after the other, and counters are cut to ticks: one of each processor and of each counter.
    inexact = capacity / 50 + (cpus + 8) / HERTZ
    if capacity <= 0 or min(machine.values()) < 0:
        yield f"{where}: a time is less than nothing: {machine}"
    if idle > capacity + inexact:
        yield f"{where}: processors were idle for {idle} s of {capacity} s"
    busy = min(max(capacity - idle - machine["stolen_s"], 0.0), capacity)
    if not same(machine["busy_s"], busy):
        yield f"{where}: busy_s is {machine['busy_s']}, and {busy} by what was not idle"
    if machine["gateways_ns"] / 1e9 > max(capacity - idle, 0.0) + inexact:
        yield f"{where}: gateways used {machine['gateways_ns'] / 1e9} s of {capacity - idle} s that were not idle"


class Care:
    """How the search was made, by the settings of the record."""

    def __init__(self, settings):
        numbers = lambda name: [float(n) for n in re.findall(r"[\d.]+(?:e-?\d+)?", settings[name])]
        self.losses = numbers("loss allowed")
        self.width, self.exceed = numbers("width")[0] / 100, numbers("bad seconds forgiven")[0] / 100
        _, self.full, self.sum = numbers("trials")
        # Runs of older programs have no later trials, and warn of throughputs that others contradict.
        self.later = "later trials" in settings


class Found:
    """What the trials of a search say of one goal."""

    def __init__(self, goal, care, told):
        self.goal, self.care = goal, care
        self.lower = self.upper = self.pps = None
        self.at, self.heard, self.searched = [], [], []
        self.confirmed = self.of = 0
        for load in sorted({trial.rate for trial, _ in told}):
            kind = self.classify([(trial.seconds, loss) for trial, loss in told if trial.rate == load])
            if kind == "upper":
                self.upper = load
                break
            if kind == "lower":
                self.lower = load
        if self.lower is None:
            return
        self.searched = [trial for trial, _ in told if self.is_full(trial.seconds)]
        at = [(trial.seconds, loss) for trial, loss in told if trial.rate == self.lower and self.is_full(trial.seconds)]
        # What arrived in the worst of the trials that are not forgiven.
        self.arrived = self.lower * (1 - self.loss_at(at))
        self.load = self.lower
        self.count()
        self.before = self.pps

    def count(self):
        """What was carried at the load: none was sent in the place of what was left out."""
        self.at = [trial for trial in self.searched + self.heard if trial.rate == self.load]
        self.pps = self.arrived * (1 - max([0.0] + [trial.unsent() for trial in self.at]))

    def word(self, trial, load):
        """What a later trial says of a load: 1 that it is carried, -1 that too much is lost, 0 nothing."""
        slack = 0.0 if trial.purpose == "confirm" else PAUSE / max(trial.seconds, PAUSE)
        if trial.lost() <= self.goal:
            return 1 if trial.rate >= load * (1 - self.care.width / 4) else 0
        beyond = trial.lost_by_the_system() > self.goal + slack
        return -1 if beyond and trial.rate <= load * (1 + 1e-9) else 0

    def votes(self, trials, load, word):
        return [min(trial.seconds, self.care.full) for trial in trials if self.word(trial, load) == word]

    def later_class(self, stage, load):
        good, bad = sum(self.votes(stage, load, 1)), sum(self.votes(stage, load, -1))
        whole = max(good + bad, self.care.sum)
        allowed = whole * self.care.exceed + whole * 1e-9
        if bad > allowed:
            return "upper"
        return "lower" if whole - good <= allowed else "undecided"

    def settle(self, stage):
        """Lowers the load to what the later trials of a stage left of it."""
        if self.pps is None or not self.load:
            return
        self.heard += stage
        start = self.load
        if self.later_class(stage, start) == "upper":
            known = sorted({trial.rate for trial in stage if trial.rate < start} | {start})
            kinds = {load: self.later_class(stage, load) for load in known}
            self.load = max((load for load in known if kinds[load] == "lower"), default=0.0)
            self.upper = min(load for load in known if kinds[load] == "upper" and load > self.load)
        if self.load != self.lower:
            # Of a load that was lowered, what arrived in the worst of all trials that it carried.
            carried = [t.lost() for t in self.searched + self.heard if t.rate == self.load and t.lost() <= self.goal]
            self.arrived = self.load * (1 - max([0.0] + carried))
        about = self.load or self.lower
        self.confirmed = len(self.votes(self.heard, about, 1)) if self.load else 0
        self.of = self.confirmed + len(self.votes(self.heard, about, -1))
        self.count()

    def lowered(self):
        return self.pps is not None and self.load < self.lower

    def is_full(self, seconds):
        return seconds >= self.care.full * (1 - 1e-9)

    def classify(self, trials):
        sums = {(full, good): 0.0 for full in (True, False) for good in (True, False)}
        for seconds, loss in trials:
            sums[self.is_full(seconds), loss <= self.goal] += seconds
        allowance = sums[False, True] * self.care.exceed / (1 - self.care.exceed)
        bad = sums[True, False] + max(sums[False, False] - allowance, 0.0)
        whole = max(sums[True, True] + bad, self.care.sum)
        allowed = whole * self.care.exceed + whole * 1e-9
        if bad > allowed:
            return "upper"
        return "lower" if whole - sums[True, True] <= allowed else "undecided"

    def loss_at(self, full):
        whole = max(sum(seconds for seconds, _ in full), self.care.sum)
        remaining, loss = whole * (1 - self.care.exceed), 1.0
        for seconds, loss in sorted(full, key=lambda trial: trial[1]):
            remaining -= seconds
            if remaining <= whole * 1e-9:
                break
        return loss


def judged(trials, care):
    """The trials of a search with the loss that each said; none for one that was repeated because its generator paused."""
    again = 0
    for trial in trials:
        kept = trial.unsent() <= care.width / 2
        if not kept and again < 2:
            again += 1
            yield trial, None
            continue
        again = 0
        yield trial, trial.lost() if kept else 1 - (1 - trial.unsent()) * (1 - trial.lost())


class File:
    """The trials of one system under one load, checked, with what was found for each goal."""

    def __init__(self, name, path, run):
        self.name, self.trials, self.run = name, read(path), run
        self.wrong = []
        self.care = Care(run["settings"])
        if [trial.n for trial in self.trials] != list(range(1, len(self.trials) + 1)):
            self.wrong.append(f"{name}: trials are not numbered from 1")
        for before, after in zip(self.trials, self.trials[1:]):
            if after.began < before.began:
                self.wrong.append(f"{name}, trial {after.n}: it began before the one before it")
        if len({len(trial.ways) for trial in self.trials}) != 1:
            self.wrong.append(f"{name}: trials have different numbers of ways")
        for trial in self.trials:
            self.wrong += check_trial(f"{name}, trial {trial.n}", trial, run["machine"]["cpus"], ahead(name, run["settings"]))
        said = list(judged([trial for trial in self.trials if trial.purpose == "search"], self.care))
        for trial, loss in said:
            if not same(trial.told, loss):
                self.wrong.append(f"{name}, trial {trial.n}: told_loss is {trial.told}, and {loss} by its counts")
        told = [(trial, loss) for trial, loss in said if loss is not None]
        self.found = [Found(goal, self.care, told) for goal in self.care.losses]
        if self.care.later:
            self.confirm()

    def confirm(self):
        """Judges the later trials, stage by stage: those that only confirm, then each time those beside latency and curve."""
        stages, before = [[]], None
        for trial in self.trials:
            if trial.purpose == "latency" and before != "latency":
                self.settle(stages[-1])
                stages.append([])
            before = trial.purpose
            if trial.purpose not in ("confirm", "latency", "curve"):
                continue
            trial.base = self.base()
            # A trial whose generator paused says nothing.
            kept = trial.unsent() <= self.care.width / 2
            if trial.purpose == "confirm" and not same(trial.told, trial.lost() if kept else None):
                self.wrong.append(f"{self.name}, trial {trial.n}: told_loss is {trial.told}, and {trial.lost()} by its counts")
            if kept:
                stages[-1].append(trial)
        self.settle(stages[-1])

    def settle(self, stage):
        for found in self.found:
            found.settle(stage)

    def of(self, purpose, of):
        return [trial for trial in self.trials if (trial.purpose, trial.of) == (purpose, of)]

    def first(self):
        """The throughput for the strictest loss that was reached."""
        return next((found for found in self.found if found.pps), None)

    def base(self):
        """The rate, each way, whose shares and multiples are offered: the first throughput, or what came through the flood."""
        first, flood = self.first(), self.of("flood", "flood")
        if first:
            return max(first.pps, 100.0)
        return max(flood[0].measures(self.run)["kpps"] * 1e3 / len(flood[0].ways), 100.0) if flood else None

    def contradicted(self):
        """Whether a trial of latency or of the curve lost clearly more than the throughput at or above it allows."""
        first = None if self.care.later else self.first()
        for trial in self.trials if first else []:
            if trial.purpose in ("latency", "curve") and trial.rate <= first.pps * (1 + 1e-9):
                beyond = max(1 - first.pps * (1 - self.care.width) / trial.rate, 0.0)
                if trial.lost_by_the_system() > first.goal + beyond + PAUSE / max(trial.seconds, PAUSE):
                    return True
        return False


def purpose(factors):
    """For what the trials of a sample were, and which of them; none for one that has no packets."""
    part = factors.get("part")
    if factors.get("load") == "TCP" or part == "tester":
        return None
    if part == "alone":
        return ("flood", "flood") if factors["loss"] == "flood" else ("search", "")
    if part == "curve":
        return ("flood" if factors["offered"] == "flood" else "curve", factors["offered"])
    return {"latency": ("latency", factors.get("load")), "offered": ("rate", factors.get("load"))}.get(part, ("search", ""))


def check_sample(where, sample, kind, file, experiment):
    """The figures that a sample states, from its trials."""
    factors, measures = sample["factors"], sample["measures"]
    expected, trials = {}, file.of(*kind)
    if kind[0] == "search":
        losses = file.care.losses
        share = as_share(factors["loss"]) if "loss" in factors else losses[0]
        found = min(file.found, key=lambda f: abs(f.goal - share))
        trials = found.at
        if found.upper is not None:
            expected["bound_kpps"] = found.upper / 1e3
        if found.pps is None and "kpps" in measures:
            yield f"{where}: kpps is {measures['kpps']} in the record, and no load was carried in {file.name}"
        if found.pps is not None and "kpps" not in measures:
            yield f"{where}: it has no kpps, and {found.pps / 1e3} were carried in {file.name}"
        if file.care.later and found.pps is not None:
            ways = len(file.trials[0].ways)
            expected.update({"found_kpps": found.before * ways / 1e3, "confirmed": found.confirmed, "later": found.of})
            # The tester alone is searched, and not tried again.
            if "confirmed" not in measures and factors.get("part") != "alone":
                yield f"{where}: it does not say how many later trials confirmed it"
    elif file.care.later and trials:
        # Latency and curve are measured again where they have lowered a throughput: the last ones are shown.
        trials = trials[-1:]
    elif len(trials) != 1:
        yield f"{where}: {file.name} has {len(trials)} trials of it"
        return
    of_each = [trial.measures(file.run) for trial in trials]
    for name in of_each[0] if of_each else ():
        if all(name in of for of in of_each):
            known = [of[name] for of in of_each if of[name] is not None]
            expected[name] = median(known) if known else None
    if kind[0] == "search" and found.pps is not None and not trials:
        expected["kpps"] = found.pps * len(file.trials[0].ways) / 1e3
    if kind[0] == "search" and trials:
        kpps = found.pps * len(trials[0].ways) / 1e3
        if experiment == "rfc2544" and expected["kpps"] > 0:
            expected["outer_gbps"] *= kpps / expected["kpps"]
        expected["kpps"] = kpps
    size = factors.get("size", factors.get("load", "")).removesuffix(" B")
    if size.isdigit() and "kpps" in expected and kind[0] != "rate":
        # Of each frame 18 bytes are not the IP packet inside.
        gbps = expected["kpps"] * (int(size) - 18) * 8 / 1e6
        expected.update({"inner_gbps": gbps, "gbps": gbps, "mbps": gbps * 1e3})
    for name, value in expected.items():
        if name in measures and not same(measures[name], value):
            yield f"{where}: {name} is {measures[name]} in the record, and {value} by {file.name}"
    # Offered was what the sample says: a share or a multiple of the throughput.
    if kind[0] in ("latency", "curve"):
        base = trials[0].base or file.base()
        if not same(trials[0].rate, base * as_share(kind[1])):
            yield f"{where}: {trials[0].rate} packets/s were offered, not {kind[1]} of {base}"


def check(run, folder):
    """What of a record disagrees with its raw trials, and a word on how much was checked."""
    if run["experiment"] not in EXPERIMENTS:
        return [], ""
    files, wrong, without, checked, contradicted, lowered = {}, [], 0, 0, set(), set()
    for nth, sample in enumerate(run["samples"]):
        kind = purpose(sample["factors"])
        if kind is None:
            continue
        if not sample["files"]:
            without += 1
            continue
        name = sample["files"][0]
        where = f"sample {nth} ({', '.join(f'{k} {v}' for k, v in sorted(sample['factors'].items()))})"
        if name not in files:
            try:
                files[name] = File(name, folder / name, run)
                wrong += files[name].wrong
            except (OSError, ValueError, KeyError, TypeError) as e:
                files[name] = None
                wrong.append(f"{name}: no file of trials: {type(e).__name__} {e}")
        file = files[name]
        if file is None:
            continue
        checked += 1
        wrong += check_sample(where, sample, kind, file, run["experiment"])
        if run["experiment"] == "rfc2544" and file.contradicted():
            factors = sample["factors"]
            contradicted.add(f"{factors['dut']}, {factors['size']} B, {factors['direction']}: ")
        if run["experiment"] == "rfc2544" and kind[0] == "search":
            factors = sample["factors"]
            if min(file.found, key=lambda f: abs(f.goal - as_share(factors["loss"]))).lowered():
                start = f"{factors['dut']}, {factors['size']} B, {factors['direction']}: the search found "
                lowered.add((start, f" for a loss of {factors['loss']}, but "))
    said = {w["text"] for w in run["warnings"] if w["kind"] == "contradicted"}
    for start in sorted(contradicted):
        if not any(text.startswith(start) for text in said):
            wrong.append(f"{start}it loses more at or below its throughput than that allows, and no warning says so")
    if any(not text.startswith(tuple(contradicted)) for text in said) and not without:
        wrong.append("a warning says that a throughput is contradicted, and no trial does it")
    texts = [w["text"] for w in run["warnings"] if w["kind"] == "lowered"]
    for start, of in sorted(lowered):
        if not any(text.startswith(start) and of in text for text in texts):
            wrong.append(f"{start}more{of}no warning says that it was lowered")
    if run["experiment"] == "rfc2544" and not without:
        for text in texts:
            if not any(text.startswith(start) and of in text for start, of in lowered):
                wrong.append(f"a warning says that a throughput was lowered, and no trial does it: {text}")
    trials = sum(len(file.trials) for file in files.values() if file)
    words = [f"; {checked} samples follow from {trials} raw trials"] if checked else []
    return wrong, "".join(words + ([f"; nothing is kept to check {without} samples with packets against"] if without else []))
