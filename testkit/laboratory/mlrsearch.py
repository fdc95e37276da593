"""Our MLRsearch and the published one search in the same simulated systems; what they find must agree.

A system with one answer must be found by both, its answer between the bounds of both to within their width. Where trials
differ by chance there is no one answer: the medians over several seeds must agree, and lie where the system puts them.
"""

import json
import random
import statistics
import subprocess
import sys

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

WIDTH = 0.01
LOADS = (1e3, 1e6)
LOSSES = (0.0, 0.00001, 0.001)
SEEDS = 15


class System:
    """What share is lost at a load for so many seconds; draws() gives this trial's random number."""

    def __init__(self, name, lose, truth, tolerance=0.0, exceed=0.5):
        self.name, self.lose, self.truth, self.tolerance, self.exceed = name, lose, truth, tolerance, exceed

    @property
    def by_chance(self):
        return self.tolerance > 0.0


def limited(limit):
    return lambda load, seconds, draw: max(0.0, 1.0 - limit / load)


def noisy(middle, spread):
    return lambda load, seconds, draw: limited(middle * (1 + spread * (2 * draw() - 1)))(load, seconds, draw)


def bloated(limit, buffer):
    return lambda load, seconds, draw: max(0.0, ((load - limit) * seconds - buffer) / (load * seconds))


def degrading(peak):
    def lose(load, seconds, draw):
        if load <= peak:
            return 0.0
        return 1.0 - peak * max(0.1, 1 - 0.6 * min(1.0, (load / peak - 1) / 4)) / load
    return lose


def bimodal(slow, fast, share):
    return lambda load, seconds, draw: limited(slow if draw() < share else fast)(load, seconds, draw)


SYSTEMS = [
    System("hard limit 12,345", limited(12_345), lambda loss: 12_345 / (1 - loss)),
    System("hard limit 250,000", limited(250e3), lambda loss: 250e3 / (1 - loss)),
    System("hard limit 880,000", limited(880e3), lambda loss: 880e3 / (1 - loss)),
    System("bufferbloated", bloated(100e3, 10e3), lambda loss: 110e3 / (1 - loss)),
    System("degrading past its peak", degrading(150e3), lambda loss: 150e3 * (1 + loss / 1.15)),
    System("noisy, half forgiven", noisy(200e3, 0.05), lambda loss: 200e3, 0.02),
    System("bimodal, the slow mode forgiven", bimodal(100e3, 300e3, 0.2), lambda loss: 300e3, 0.02),
    System("bimodal, nothing forgiven", bimodal(100e3, 300e3, 0.6), lambda loss: 100e3, 0.02, exceed=0.0),
]


def ours(program, system, draw):
    goals = [
        {"loss_ratio": loss, "exceed_ratio": system.exceed, "width": WIDTH, "initial_trial": 0.1, "final_trial": 1.0,
         "duration_sum": 11.0}
        for loss in LOSSES
    ]
    plan = {"goals": goals, "min_load": LOADS[0], "max_load": LOADS[1], "coarse_stages": 2, "most_trials": 5000}
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        def say(what):
            process.stdin.write(json.dumps(what) + "\n")
            process.stdin.flush()

        say(plan)
        seconds = 0.0
        for line in process.stdout:
            answer = json.loads(line)
            if "found" in answer:
                assert all(f["complete"] for f in answer["found"]), answer
                return [(f["bounds"]["lower"], f["bounds"]["upper"]) for f in answer["found"]], seconds
            ask = answer["ask"]
            seconds += ask["duration"]
            say({"loss": system.lose(ask["load"], ask["duration"], draw)})
    raise SystemExit(f"our search ended without a result in: {system.name}")


class Measurer(AbstractMeasurer):
    def __init__(self, system, draw):
        self.system, self.draw, self.seconds = system, draw, 0.0

    def measure(self, intended_duration, intended_load):
        self.seconds += intended_duration
        loss = self.system.lose(intended_load, intended_duration, self.draw)
        # In units fine enough that the share lost is what the system said, to 10^-12.
        count = 10**12
        return MeasurementResult(intended_duration=intended_duration, intended_load=intended_load, offered_count=count,
                                 loss_count=round(loss * count))


def theirs(system, draw):
    config = Config()
    config.goals = [
        SearchGoal(loss_ratio=loss, exceed_ratio=system.exceed, relative_width=WIDTH, initial_trial_duration=0.1,
                   final_trial_duration=1.0, duration_sum=11.0, preceding_targets=2, fail_fast=False)
        for loss in LOSSES
    ]
    config.max_load, config.min_load, config.warmup_duration = LOADS[1], LOADS[0], None
    measurer = Measurer(system, draw)
    result = MultipleLossRatioSearch(config).search(measurer, debug=lambda text: None)
    bounds = [result[goal] for goal in config.goals]
    return [(float(b.relevant_lower_bound), float(b.relevant_upper_bound)) for b in bounds], measurer.seconds


def main():
    program = sys.argv[1]
    wrong = []
    print(f"{'system':34}{'loss':>8}{'truth':>10}{'ours':>10}{'published':>10}{'seconds':>9}{'published':>10}")
    for system in SYSTEMS:
        seeds = range(SEEDS if system.by_chance else 1)
        # The same numbers for both, though each draws as many as it makes trials.
        runs = [(ours(program, system, random.Random(s).random), theirs(system, random.Random(s).random)) for s in seeds]
        for nth, loss in enumerate(LOSSES):
            lower = [statistics.median(run[who][0][nth][0] for run in runs) for who in (0, 1)]
            upper = [statistics.median(run[who][0][nth][1] for run in runs) for who in (0, 1)]
            seconds = [statistics.median(run[who][1] for run in runs) for who in (0, 1)]
            truth = system.truth(loss)
            print(f"{system.name:34}{loss:8g}{truth:10.0f}{lower[0]:10.0f}{lower[1]:10.0f}{seconds[0]:9.0f}{seconds[1]:10.0f}")
            allowed = WIDTH * 1.001 + system.tolerance
            what = f"{system.name}, loss {loss}"
            if abs(lower[0] / lower[1] - 1) > allowed:
                wrong.append(f"{what}: we find {lower[0]:.0f}, the published search {lower[1]:.0f}")
            for who, name in enumerate(("ours", "the published one")):
                if not lower[who] <= truth * (1 + system.tolerance + 1e-9):
                    wrong.append(f"{what}: the lower bound of {name} is above the truth")
                if not upper[who] >= truth * (1 - system.tolerance - 1e-9):
                    wrong.append(f"{what}: the upper bound of {name} is below the truth")
            if not system.by_chance and upper[0] - lower[0] > upper[0] * WIDTH * 1.001:
                wrong.append(f"{what}: our bounds are {lower[0]:.0f} and {upper[0]:.0f}, further apart than the width")
    for line in wrong:
        print("WRONG:", line)
    if wrong:
        raise SystemExit(1)
    print("mlrsearch: both searches agree")


main()
