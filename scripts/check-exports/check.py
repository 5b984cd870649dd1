#!/usr/bin/env python3
"""Exports a sample of layouts and gives each to the frameworks' own readers; prints how many each release accepts.

    check.py --quadrille target/release/quadrille --packages FOLDER [--out FOLDER] [--layouts 200]

FOLDER holds a folder for every release, NAME-VERSION (megatron-core-0.19.2, torchtitan-0.2.2, deepspeed-0.19.8), each made
by `pip install --no-deps --target`. Exit code 1: a release refuses an export; 2: something is missing.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import layouts

HERE = pathlib.Path(__file__).resolve().parent
# The framework as `export --to` names it, by the package that reads it, and the ending of its files.
READERS = {"megatron-core": ("megatron", "sh"), "torchtitan": ("torchtitan", "toml"), "deepspeed": ("deepspeed", "json")}


def export(quadrille, flags, folder, index):
    """Writes a layout for every framework that takes it; paths by framework, and why others have none."""
    paths, reasons = {}, {}
    for framework, ending in (reader for reader in READERS.values() if reader[0] in layouts.frameworks(flags)):
        command = [quadrille, "export", "--to", framework, "--gpus-per-node", "1"] + flags
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reasons[framework] = done.stderr.removeprefix("error: ").splitlines()[0]
            continue
        paths[framework] = folder / f"{index:03}.{ending}"
        paths[framework].write_text(done.stdout, encoding="utf-8")
    return paths, reasons


def refusals(release, framework, files):
    """Paths and reasons of the files that a release refuses."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(release), str(HERE)]))
    questions = "".join(json.dumps([str(path), ranks]) + "\n" for path, ranks in files)
    reader = [sys.executable, HERE / f"read_{framework}.py"]
    done = subprocess.run(reader, input=questions, env=environment, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) != len(files):
        print(f"{release.name} answered {len(answers)} of {len(files)} questions:\n{done.stderr[-2000:]}", file=sys.stderr)
        sys.exit(2)
    return [(answer["path"], answer["reason"]) for answer in answers if answer["reason"]]


def main():
    """Exports, asks, prints."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--quadrille", required=True, type=pathlib.Path)
    flags.add_argument("--packages", required=True, type=pathlib.Path)
    flags.add_argument("--out", type=pathlib.Path, help="where the exports are kept")
    flags.add_argument("--layouts", type=int, default=200)
    arguments = flags.parse_args()
    releases = sorted(path for path in arguments.packages.iterdir() if path.name.rpartition("-")[0] in READERS)
    if not releases:
        flags.error(f"--packages {arguments.packages}: no folder is named like megatron-core-0.19.2")
    out = arguments.out or pathlib.Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)
    exported, counts, unexported = [], collections.Counter(), collections.defaultdict(list)
    for drawn, layout in enumerate(layouts.sample()):
        if len(exported) == arguments.layouts or drawn == 50 * arguments.layouts:
            break
        paths, reasons = export(arguments.quadrille, layout, out, len(exported))
        if paths:
            exported.append((paths, layouts.ranks(layout)))
            counts.update(layouts.parts(layout))
            for framework, reason in reasons.items():
                unexported[framework].append(reason)
    print(f"{len(exported)} layouts: " + ", ".join(f"{part} {count}" for part, count in sorted(counts.items())))
    for framework, reasons in sorted(unexported.items()):
        fields = collections.Counter(reason.split(" = ")[0] for reason in reasons)
        print(f"not exported to {framework}: " + ", ".join(f"{field} {count}" for field, count in fields.most_common()))
    print(f"{'framework':<14} {'release':<10} accepted  refused  first reason")
    refused_any = False
    for release in releases:
        package, _, version = release.name.rpartition("-")
        framework = READERS[package][0]
        files = [(paths[framework], ranks) for paths, ranks in exported if framework in paths]
        refused = refusals(release, framework, files)
        refused_any |= bool(refused)
        first = f"{pathlib.Path(refused[0][0]).name}: {refused[0][1][:200]}" if refused else ""
        print(f"{package:<14} {version:<10} {len(files) - len(refused):>8} {len(refused):>8}  {first}".rstrip())
    sys.exit(int(refused_any))


if __name__ == "__main__":
    main()
