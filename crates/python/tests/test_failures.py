"""Errors are exceptions with the words of the command line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import quadrille

CASES: list[tuple[Any, dict[str, Any], list[str], list[str]]] = [
    (quadrille.plan, {"model": "lama3-8b"}, ["plan", "--model", "lama3-8b"], ["unknown model", "llama3-8b"]),
    (quadrille.plan, {"gpus": "eight"}, ["plan", "--gpus", "eight"], ["--gpus", "eight"]),
    (quadrille.plan, {"gpu": 8}, ["plan", "--gpu=8"], ["unexpected argument '--gpu'", "similar", "--gpus"]),
    (quadrille.plan, {"cluster": "selen"}, ["plan", "--cluster", "selen"], ["unknown cluster", "selene"]),
    (quadrille.plan, {"fix": {"tq": 8}}, ["plan", "--fix", "tq=8"], ["tq"]),
    (
        quadrille.plan,
        {"model": "gpt3-175b", "gpus": 8, "global_batch": 8},
        ["plan", "--model", "gpt3-175b", "--gpus", "8", "--global-batch", "8"],
        ["8 devices", "fit"],
    ),
    (quadrille.sweep, {"vary": "gpu=8"}, ["sweep", "--vary", "gpu=8"], ["gpu"]),
    (quadrille.explain, {"grid": "x=3"}, ["explain", "--grid", "x=3"], ["x=3"]),
    (quadrille.explain, {"rank": 8, "grid": "x=2"}, ["explain", "--rank", "8", "--grid", "x=2"], ["--rank 8"]),
    (quadrille.price, {"grid": "x=2"}, ["explain", "--price", "--grid", "x=2"], ["device"]),
    (quadrille.verify, {"steps": 0}, ["verify", "--steps", "0"], ["at least one step"]),
    (quadrille.train, {"grid": "x=2", "ranks": 3}, ["train", "--grid", "x=2", "--ranks", "3"], ["--ranks 3", "--grid"]),
    (quadrille.train, {"resume": "nowhere"}, ["train", "--resume", "nowhere"], ["nowhere holds no run.json", "--out"]),
    (quadrille.validate_published, {"csv": "none.csv"}, ["validate", "published", "--csv", "none.csv"], ["none.csv"]),
]


@pytest.mark.parametrize(("function", "keywords", "command", "parts"), CASES)
def test_messages_name_the_thing_and_the_remedy(
    function: Any, keywords: dict[str, Any], command: list[str], parts: list[str]
) -> None:
    with pytest.raises(quadrille.QuadrilleError) as raised:
        function(**keywords)
    message = str(raised.value)
    assert all(part in message for part in parts), message
    program = os.environ.get("QUADRILLE")
    if program is None:
        return
    told = subprocess.run([program, *command], capture_output=True, text=True)
    assert told.stderr.startswith(f"error: {message}"), told.stderr
    assert told.returncode == (2 if isinstance(raised.value, quadrille.InputError) else 1)


def test_kinds_of_failures() -> None:
    assert issubclass(quadrille.InputError, ValueError) and issubclass(quadrille.WorkError, RuntimeError)
    with pytest.raises(quadrille.InputError, match="config.json.*llamma"):
        quadrille.from_hf({"model_type": "llamma"})
    with pytest.raises(quadrille.InputError, match="layout: .*gird"):
        quadrille.train("gpt-tiny", layout=quadrille.Layout({"gird": "x=2"}))


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(quadrille.InputError, match="holds no run.json"):
        quadrille.Run.read(tmp_path)


def test_work_that_fails(tmp_path: Path) -> None:
    with pytest.raises(quadrille.WorkError, match="diverge|finite"):
        quadrille.train("gpt-tiny", set={"vocab": 256}, grid="x=1", steps=40, lr=1e30, threads=1)
