"""Answers are those of the documents, and render."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import quadrille


def test_a_plan_advises_a_layout_and_says_why(found: quadrille.Plan) -> None:
    assert (found.gpus, found.framework, len(found.plans)) == (8, "megatron", 3)
    times = [plan.time_s for plan in found.plans]
    assert times == sorted(times) and found.advised.time_s <= 1.03 * times[0]
    assert found.advised.memory_bytes == sum(found.advised.memory.values())
    assert found.why is not None and sum(part.share for part in found.why.binding) == pytest.approx(1)
    assert found.error_band is not None and found.error_band.low < found.error_band.high
    assert found.error_band == found.advised.error_band and found.error_band_reason is None
    assert found.called_too_large is not None and found.called_too_large.device == "a100-80"
    assert 0 <= found.called_too_large.called_too_large < found.called_too_large.ran
    columns = found.to_pandas()
    assert list(columns["time_s"]) == times and "parts_s_communication_x" in columns and "grid" in columns


def test_choices_that_are_fixed_are_kept() -> None:
    fixed = quadrille.plan("gpt2-124m", gpus=8, cluster="dgx-a100", global_batch=64, fix={"tp": 2, "pp": 2}, top=1)
    assert fixed.advised.notation.startswith("TP2 PP2") and fixed.why is None


def test_a_plan_without_runs_of_its_kind_has_no_error_band() -> None:
    priced = quadrille.price("gpt2-124m", cluster="pcie-8x-l40s", grid="data=8", global_batch=64)
    assert priced.plan.error_band is None
    assert priced.plan.error_band_reason == (
        "no published runs of this kind: none on l40s or a device of its generation"
    )


def test_a_planned_layout_has_the_price_with_which_it_was_found(found: quadrille.Plan) -> None:
    priced = quadrille.price("gpt2-124m", cluster="dgx-a100", layout=found.advised.layout)
    assert priced.plan.time_s == found.advised.time_s
    memory = quadrille.estimate_memory("gpt2-124m", cluster="dgx-a100", layout=found.advised.layout)
    assert memory == priced.memory and memory.total_bytes == found.advised.memory_bytes and memory.fits
    assert int(memory.to_pandas()["bytes"].sum()) == memory.total_bytes


def test_a_planned_layout_carries_what_it_was_planned_for() -> None:
    question: dict[str, Any] = {"cluster": "dgx-h100", "global_batch": 64}
    found = quadrille.plan("gpt2-124m", gpus=4, framework="megatron-stored", products="fp8", gradients="bf16", top=1, **question)
    layout = found.advised.layout
    assert layout.planned == {"framework": "megatron-stored", "products": "fp8", "gradients": "bf16"}
    assert layout.to_toml().endswith('[planned]\nframework = "megatron-stored"\nproducts = "fp8"\ngradients = "bf16"\n')
    priced = quadrille.price("gpt2-124m", layout=layout, cluster="dgx-h100")
    assert (priced.memory.framework, priced.plan.time_s) == ("megatron-stored", found.advised.time_s)
    assert priced.plan.layout.planned == layout.planned
    assert quadrille.explain("gpt2-124m", layout=layout, rank=0).document["framework"] == "megatron-stored"
    # What is said wins, and fields alone were planned for nothing.
    assert quadrille.price("gpt2-124m", layout=layout, framework="megatron", cluster="dgx-h100").memory.framework == "megatron"
    assert quadrille.explain("gpt2-124m", layout=quadrille.Layout(layout), rank=0).document["framework"] == "quadrille"


def test_a_run_is_explained_in_its_layout(tmp_path: Path) -> None:
    run = tmp_path / "run"
    quadrille.train("gpt-tiny", set={"vocab": 256}, grid="x=2", steps=1, threads=1, out=run)
    explained = quadrille.explain(from_=run, rank=0)
    assert (explained.layout["grid"], explained.document["model"]["vocab"]) == ("x=2,y=1,z=1,data=1", 256)
    assert quadrille.price(from_=run, cluster="selene").memory.framework == "quadrille"


def test_files_are_written_as_the_command_line_writes_them(tmp_path: Path) -> None:
    out, page = tmp_path / "layout.toml", tmp_path / "plan.html"
    found = quadrille.plan("gpt2-124m", gpus=4, cluster="dgx-a100", global_batch=16, out=out, html=page)
    assert set(out.read_text().splitlines()) <= set(found.advised.layout.to_toml().splitlines())
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_batches_may_be_counted_in_tokens_and_flops_as_logs_do() -> None:
    question: dict[str, Any] = {"cluster": "dgx-a100", "grid": "data=8", "seq_len": "0.5k"}
    tokens = quadrille.price("gpt2-124m", global_batch="64k", flops_convention="megatron", **question).plan
    assert (tokens.layout["global_batch"], tokens.layout["seq_len"]) == (128, 512)
    native = quadrille.price("gpt2-124m", global_batch=128, **question).plan
    assert (native.flops_convention, tokens.flops_convention) == ("native", "megatron")
    assert 0 < tokens.tflops_per_device < native.tflops_per_device and tokens.time_s == native.time_s
    rate = native.document["model_flops"] / (native.time_s * native.devices * 1e12)
    assert native.tflops_per_device == pytest.approx(rate)


def test_a_sweep_has_a_row_for_every_point() -> None:
    swept = quadrille.sweep("gpt2-124m", vary={"gpus": [4, 8]}, cluster="dgx-a100", global_batch=64)
    assert [row["vary_gpus"] for row in swept.rows] == [4, 8] and swept.varied == ["gpus"]
    assert swept.rows[0]["time_s"] > swept.rows[1]["time_s"] and swept.rows[0]["reason"] is None
    assert list(swept.to_pandas()["devices"]) == [4, 8]


def test_a_sweep_says_where_nothing_fits() -> None:
    swept = quadrille.sweep("gpt3-175b", vary="gpus=4,8", cluster="dgx-a100", global_batch=16)
    assert all("fit" in row["reason"] for row in swept.rows)
    assert "fit" in swept._repr_html_()


def test_an_explanation_counts_what_ranks_send() -> None:
    explained = quadrille.explain("gpt-tiny", grid="x=2,data=2", program=True, ledger=True, timeline=True, cluster="selene")
    assert explained.ledger is not None and len(explained.ledger.ranks) == 4
    sent = [each.wire_bytes for each in explained.ledger.transfers() if each.rank == 0]
    assert explained.ledger.bytes_sent(0) == sum(sent) > 0
    assert explained.program and explained.simulation
    assert int(explained.to_pandas()["wire_bytes"].sum()) == sum(explained.ledger.bytes_sent(rank) for rank in range(4))
    assert quadrille.explain("gpt-tiny", grid="x=2", program=True).ledger is None


def test_layouts_are_proven() -> None:
    proven = quadrille.verify("gpt-tiny", ranks=2, all_grids=True, axes=["x", "pipe"], steps=1)
    assert proven.ok and len(proven.layouts) == 2 and max(each.grad_diff for each in proven.layouts) < 1e-11
    assert list(proven.to_pandas()["ok"]) == [True, True]


def test_predictions_are_held_against_published_runs(published: tuple[quadrille.Published, str]) -> None:
    found, rows = published
    assert 0 < found.predicted < found.rows
    assert found.rows - found.predicted == sum(each["rows"] for each in found.unmapped)
    assert {each.quantity for each in found.errors} == {"seconds", "bytes"}
    assert rows.count("\n") == found.predicted + 1


CONFIG = {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": 32, "vocab_size": 256}


def test_configurations_are_models() -> None:
    model = quadrille.from_hf(CONFIG)
    pretrained = SimpleNamespace(to_dict=lambda: CONFIG | {"torch_dtype": SimpleNamespace()})
    assert model.document == quadrille.from_hf(pretrained).document
    assert (model.document["hidden"], model.document["layers"]) == (64, 2)
    of_model = quadrille.explain(model, grid="x=2").document["model"]
    assert of_model == model.document


def test_names_are_listed() -> None:
    assert "llama3-8b" in quadrille.model_names() and "dgx-h100" in quadrille.cluster_names()


def results(found: quadrille.Plan) -> list[Any]:
    """One of every kind."""
    tiny = {"model": "gpt-tiny", "grid": "x=2"}
    priced = quadrille.price(cluster="selene", **tiny)
    explained = quadrille.explain(**tiny)
    return [
        *(found, found.advised, found.why, found.advised.layout, priced, priced.memory, explained, explained.ledger),
        quadrille.sweep("gpt2-124m", vary={"gpus": 4}, cluster="dgx-a100", global_batch=64),
        quadrille.verify(**tiny, steps=1),
    ]


def test_results_render_in_notebooks(found: quadrille.Plan, published: tuple[quadrille.Published, str]) -> None:
    for result in [*results(found), published[0]]:
        page = result._repr_html_()
        assert page.count("<table>") == page.count("</table>") > 0, type(result)
        assert len(repr(result)) < 5000, type(result)
        if not isinstance(result, quadrille.Layout):
            assert len(result.to_pandas()) > 0, type(result)


def test_text_of_others_is_escaped() -> None:
    layout = quadrille.Layout({"grid": "<script>"})
    assert "<script>" not in layout._repr_html_() and "&lt;script&gt;" in layout._repr_html_()


def test_pandas_and_numpy_are_imported_where_they_are_needed() -> None:
    """In a process of its own, where neither can be."""
    program = """
import sys
sys.modules |= dict.fromkeys(["numpy", "pandas"])
import quadrille
steps = quadrille.train("gpt-tiny", set={"vocab": 256}, grid="x=1", steps=2, threads=1).steps
assert isinstance(steps.loss, list) and len(steps.loss) == 2
try:
    steps.to_pandas()
except ImportError:
    print("no pandas")
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "no pandas"


def test_documents_are_plain_json(found: quadrille.Plan) -> None:
    assert json.loads(json.dumps(found.document)) == found.document
