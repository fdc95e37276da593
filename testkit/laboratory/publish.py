#!/usr/bin/env python3
"""Publishes runs of the laboratory in docs/results: their records, packed, a plot of each experiment, and one page.

usage: publish.py RESULTS [FOLDER ...]      without a FOLDER: writes the page anew from the records that are there

A FOLDER is a run's; its name is the run's. Its `run.json` goes into one of the archives of RESULTS (`KINDS`), so that
`ironswan lab report` makes the tables again. The planner's other documents (its model, a verification) go with it. Raw files, pages and
plots stay out; the plots of `PLOTS` are copied beside the archives. Paths of the machine are shortened in the records, and the names of
raw files are left out. A run takes the place of one of its name; all other runs stay. An archive's bytes depend on its content only:
times, owners and modes are fixed.
"""
import io
import json
import lzma
import re
import shutil
import sys
import tarfile
from pathlib import Path

# The archive of a run, by the beginning of its name; all others are in `experiments`.
KINDS = {"line": "line", "rates": "line", "settings": "line", "flood": "flood", "rfc2544": "rfc2544", "plan": "plan"}
# The plot that is shown of an experiment.
PLOTS = {
    "background": "left", "compare": "carried", "compression": "random", "flood": "curve-1", "line": "added", "lowend": "carried",
    "plan": "aes128gcm16-udp-out", "profile": "stages-ironswan-1", "rfc2544": "curve-a-to-b", "topologies": "host-to-host",
    "transfer": "elapsed", "tunnels": "up",
}
# The experiments in the order of the page; further runs of theirs follow.
ORDER = ("line", "topologies", "transfer", "background", "driver", "rfc2544", "fragments", "compare", "tunnels", "compression",
         "profile", "lowend", "flood", "plan")

# The folder that a run makes for its gateways, and the network namespaces of a trial: the numbers name a process and a moment.
OWN_FOLDER = re.compile(r"/tmp/ironlab-[0-9]+-[0-9]+-[0-9a-f]+/")
OWN_NAME = re.compile(r"\bironlab-[0-9]+-[0-9]+-[0-9a-f]+")
# A file or a folder in a place that only the machine of the run has; its last part stays.
ELSEWHERE = re.compile(r"(?<![\w.:/-])/(?:home|mnt|opt|root|srv|tmp|usr/local|var|work)/(?:[^\s\"':,]*/)?([^\s/\"':,]*)")

HEAD = """# Results

The runs behind the figures of [performance](../performance.md) and of the pages on [measuring](../measuring.md). Each run's record (`run.json`) is in an
archive of this folder. To see its tables again, without measuring:

```
tar -xJf docs/results/line.tar.xz -C /tmp
ironswan lab report /tmp/line
ironswan lab report --html /tmp/line
testkit/laboratory/recompute.py /tmp/line
```

The third command writes the page and all plots into the folder, and the fourth computes the figures again from the samples by a second
program. Raw files and the machine's paths are not published. `scripts/results NAME` makes a run of that name again and publishes it.

Figures of different runs must not be put in one ratio.
"""


def without_paths(text):
    return ELSEWHERE.sub(r"\1", OWN_NAME.sub("ironlab", OWN_FOLDER.sub("run/", text)))


def cleaned(value):
    """A document without the machine's paths and without the names of raw files."""
    if isinstance(value, str):
        return without_paths(value)
    if isinstance(value, list):
        return [cleaned(v) for v in value]
    if isinstance(value, dict):
        return {without_paths(k): [] if k == "files" and isinstance(v, list) else cleaned(v) for k, v in value.items()}
    return value


def documents(folder):
    """(name in the archive, bytes) of each document that a run's folder publishes."""
    for path in sorted(folder.rglob("*.json")):
        if "raw" in path.relative_to(folder).parts:
            continue
        short = json.dumps(cleaned(json.loads(path.read_text(encoding="utf-8"))), ensure_ascii=False, separators=(",", ":"))
        yield f"{folder.name}/{path.relative_to(folder)}", (short + "\n").encode()


def archive_of(name):
    return next((kind for start, kind in KINDS.items() if name.startswith(start)), "experiments") + ".tar.xz"


def stored(archive):
    if not archive.exists():
        return {}
    with tarfile.open(archive) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar.getmembers()}


def pack(results, folder):
    archive = results / archive_of(folder.name)
    files = {name: data for name, data in stored(archive).items() if name.split("/")[0] != folder.name}
    files.update(documents(folder))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(files[name]), 0o644
            tar.addfile(member, io.BytesIO(files[name]))
    archive.write_bytes(lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    plot = PLOTS.get(folder.name)
    if plot:
        shutil.copyfile(folder / f"{plot}.svg", results / f"{folder.name}-{plot}.svg")


def machine(run):
    m = run["machine"]
    model = f"{m['cpus']} x {m['cpu_model']}".replace("(R)", "").replace(" Processor", "")
    return f"{model}, kernel {m['kernel'].split()[0]}{', a virtual machine' if m['virtual_machine'] else ''}"


def command(run):
    """The run's command line, without the folder that it wrote."""
    words = list(run["command_line"])
    if "--out" in words:
        at = words.index("--out")
        del words[at:at + 2]
    return " ".join(["ironswan", *words[1:]])


def section(results, name, run):
    """The page's part about one run."""
    took, count = round(run["seconds"]), len(run["warnings"])
    warnings = f"{count} warning{'' if count == 1 else 's'}" if count else "no warnings"
    yield f"\n## {name}\n"
    if run.get("question"):
        yield f"{run['question']}\n"
    yield (f"[{archive_of(name)}]({archive_of(name)}): {run['started'][:16].replace('T', ' ')} UTC, {took} s, on {machine(run)}; {warnings}.\n"
           f"\n    {command(run)}")
    if name == "plan":
        yield ("\nThe folder `plan/calibrate` is the calibration's run, and `plan/plan.json` the model: `ironswan plan --links --model /tmp/plan/plan.json`\n"
               "answers from it.")
    plot = PLOTS.get(name)
    if plot and (results / f"{name}-{plot}.svg").exists():
        yield f"\n![{name}]({name}-{plot}.svg)"


def page(results):
    runs = {}
    for archive in sorted(results.glob("*.tar.xz")):
        for name, data in stored(archive).items():
            folder, _, file = name.partition("/")
            if file == "run.json":
                runs[folder] = json.loads(data)
    first = [name for name in ORDER if name in runs]
    lines = [HEAD.rstrip()]
    for name in first + sorted(set(runs) - set(first)):
        lines += section(results, name, runs[name])
    (results / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return runs


def main():
    if len(sys.argv) < 2:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    results, folders = Path(sys.argv[1]), [Path(f) for f in sys.argv[2:]]
    absent = [str(f) for f in folders if not (f / "run.json").exists()]
    if absent:
        print(f"publish.py: no run.json in {' '.join(absent)}", file=sys.stderr)
        return 2
    for folder in folders:
        pack(results, folder)
    runs, files = page(results), [f for f in results.iterdir() if f.is_file()]
    print(f"{results}: {len(runs)} runs in {len(files)} files of {sum(f.stat().st_size for f in files)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
