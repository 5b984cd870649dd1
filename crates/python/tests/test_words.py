"""Keywords are the flags of the command line, all of them, and say what is meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import quadrille
from quadrille import _quadrille, options
from quadrille.words import words

# What a function says itself, or does not do: `--json` is always meant, tables are frames here.
OTHERWISE = {
    "plan": {"json"},
    "sweep": {"vary", "out"},
    "explain": {"json", "price"},
    "verify": {"json"},
    "train": {"json"},
    "validate published": {"json", "cross", "table"},
}


@pytest.mark.parametrize(
    ("command", "keywords"),
    [
        ("plan", [options.PlanOptions]),
        ("sweep", [options.SweepOptions]),
        ("explain", [options.ExplainOptions, options.PriceOptions]),
        ("verify", [options.VerifyOptions]),
        ("train", [options.TrainOptions]),
        ("validate published", [options.PublishedOptions]),
    ],
)
def test_every_flag_has_a_keyword(command: str, keywords: list[Any]) -> None:
    flags = {name.replace("-", "_") for name, *_ in _quadrille.flags(command.split())} - {"help", "version"}
    known = {name.rstrip("_") for each in keywords for name in each.__annotations__}
    if command != "validate published":
        known.add("model")
    assert known <= flags, "keywords that are no flags"
    assert flags - known == OTHERWISE[command], "flags without a keyword"


def said(command: str, **keywords: Any) -> list[str]:
    with words(command.split(), keywords) as found:
        return found[len(command.split()) :]


def test_values_are_said_as_the_command_line_takes_them() -> None:
    assert said("plan", gpus=[64, 128], fix={"tp": 8, "schedule": "1f1b"}, explain=True, pareto=False, cac=False) == [
        "--gpus=64,128",
        "--fix=tp=8",
        "--fix=schedule=1f1b",
        "--explain",
        "--cac=false",
    ]
    assert said("sweep", vary={"gpus": [8, 16], "nvs": "4,8"}) == ["--vary=gpus=8,16", "--vary=nvs=4,8"]
    assert said("train", set={"tied": True}, from_="gpt2", data=[Path("a.txt"), "b:0.5"], optimizer_overlap=True) == [
        "--set=tied=true",
        "--from=gpt2",
        "--data=a.txt",
        "--data=b:0.5",
        "--optimizer-overlap",
    ]
    assert said("plan", model=None, gpus=None) == []


def test_layouts_and_models_are_files_as_long_as_they_are_read() -> None:
    model = quadrille.from_hf({"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 16, "vocab_size": 256})
    with words(["train"], {"model": model, "layout": quadrille.Layout({"grid": "x=2"})}) as found:
        config, layout = (Path(word.split("=", 1)[1]) for word in found[1:])
        assert found[1].startswith("--from-hf=") and found[2].startswith("--layout=")
        assert json.loads(config.read_text())["n_layer"] == 2
        assert layout.read_text().strip() == 'grid = "x=2"'
    assert not config.exists() and not layout.exists()
