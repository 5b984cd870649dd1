"""Which layouts of a cluster's devices are the fastest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _quadrille
from .layouts import Layout
from .models import ModelLike
from .options import PlanOptions
from .tables import flat, frame, gigabytes, html_table, percent, seconds
from .why import Why
from .words import words

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Unpack


@dataclass(frozen=True)
class PlannedLayout:
    """A layout with its price."""

    layout: Layout
    notation: str
    """In the words of Megatron-LM: `TP8 PP4 DP2`."""
    devices: int
    time_s: float
    """Seconds of a step."""
    parts_s: dict[str, float]
    """What they are spent on; of communication by axis, as `communication_x`."""
    memory_bytes: int
    """On the device that needs most."""
    memory: dict[str, int]
    """The same by class."""
    tokens_per_s: float
    flops_convention: str
    """How the model's FLOPs are counted: native, megatron or torchtitan."""
    tflops_per_device: float
    """The model's FLOPs in a second on each device, in 10^12."""
    variants: int | None
    """Legal layouts of its grid and spreading of experts, which it is the best of; None with `variants=True`."""
    mfu: float | None
    """The part of the devices' peak that the model's FLOPs make use of, where that is known."""
    error_band: ErrorBand | None
    """How far published runs like it were from what was predicted of them; `None`: too few runs of its kind are published."""
    error_band_reason: str | None
    """Why there is no band."""
    document: dict[str, Any] = field(repr=False)
    """All that the search says of it, as an entry of `plans` of `quadrille plan --json`."""

    @classmethod
    def of(cls, document: Mapping[str, Any], planned: Mapping[str, str]) -> PlannedLayout:
        """From an entry of a document, and what that says it is planned for."""
        return cls(
            layout=Layout(document["layout"], planned),
            notation=document["notation"],
            devices=document["devices"],
            time_s=document["time_s"],
            parts_s=flat(document["parts_s"]),
            memory_bytes=document["memory_bytes"],
            memory={name: count for name, count in document["memory"].items() if name != "stage"},
            tokens_per_s=document["tokens_per_s"],
            flops_convention=document["flops_convention"],
            tflops_per_device=document["tflops_per_device"],
            variants=document.get("variants"),
            mfu=document["mfu"],
            error_band=ErrorBand.of(document["error_band"]),
            error_band_reason=document["error_band_reason"],
            document=dict(document),
        )

    def to_pandas(self) -> pandas.DataFrame:
        """A row with the columns of `quadrille plan --csv`."""
        return frame([flat(self.document)])

    def _row(self) -> list[Any]:
        speed = [f"{self.tflops_per_device:.1f}", percent(self.mfu)]
        return [self.notation, self.devices, seconds(self.time_s), gigabytes(self.memory_bytes), *speed]

    def _repr_html_(self) -> str:
        return html_table(self.layout["grid"], _HEADER, [self._row()]) + self.layout._repr_html_()


_HEADER = ["layout", "devices", "step", "memory", "TFLOP/s a device", "MFU"]


@dataclass(frozen=True)
class ErrorBand:
    """Measured over predicted times of the published runs that are most like a plan."""

    low: float
    """One of ten is below."""
    middle: float
    high: float
    """One of ten is above."""
    runs: int
    runs_of_kind: int
    """Published runs of the plan's kind: device generation, framework, kind of model, products and length of sequences."""

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> ErrorBand | None:
        """From a document; `None` where that has no band."""
        if document is None:
            return None
        return cls(*(document[name] for name in ("low", "middle", "high", "runs", "runs_of_kind")))


@dataclass(frozen=True)
class Oversized:
    """Published runs that ran, and those of them that are called too large."""

    device: str
    framework: str
    ran: int
    called_too_large: int


@dataclass(frozen=True)
class Plan:
    """What a search has found."""

    model: str
    cluster: str
    framework: str
    gpus: int
    global_batch: int
    seq_len: int
    plans: list[PlannedLayout]
    """The fastest, fastest first: the best variant of each grid, or variants too with `variants=True`."""
    advised: PlannedLayout
    """The layout to run: the simplest of those that predictions do not tell apart from the fastest; where `memory_reserve` is left out,
    among those that 95 of 100 runs fit into, if there are any."""
    gain_of_fastest: float
    """How much less the fastest takes than the advised one, as a part of its time."""
    error_band: ErrorBand | None
    """That of `advised`."""
    error_band_reason: str | None
    """Why there is none."""
    called_too_large: Oversized | None
    """Published runs of this device and kind of framework; `None`: there are none."""
    framework_differences: list[str]
    """Parts of `advised` that the framework has in another way or lacks, each with what it does instead."""
    counts: dict[str, int]
    """Grids and configurations that there are, and what became of them."""
    refusals: list[dict[str, Any]] = field(repr=False)
    """Rules, what they refused, and an example each."""
    pareto: list[PlannedLayout] = field(repr=False)
    """With `pareto=True`: those than which none has fewer devices, less time and less memory."""
    why: Why | None = field(repr=False)
    """With `explain=True`: why the advised layout is as fast as it is."""
    stopped: bool
    """True if `search_limit` ended the search."""
    document: dict[str, Any] = field(repr=False)
    """All of it, as `quadrille plan --json` prints it."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Plan:
        """From a document."""
        why, planned = document.get("explanation"), document["planned"]
        oversized = document["called_too_large"]
        return cls(
            **{name: document[name] for name in ("model", "cluster", "framework", "gpus", "global_batch", "seq_len")},
            plans=[PlannedLayout.of(entry, planned) for entry in document["plans"]],
            advised=PlannedLayout.of(document["advised"]["plan"], planned),
            gain_of_fastest=document["advised"]["gain_of_fastest"],
            error_band=ErrorBand.of(document["error_band"]),
            error_band_reason=document["error_band_reason"],
            called_too_large=oversized and Oversized(**oversized),
            framework_differences=document["framework_differences"],
            counts=document["counts"],
            refusals=document["refusals"],
            pareto=[PlannedLayout.of(entry, planned) for entry in document.get("pareto", [])],
            why=why and Why.of(why),
            stopped=document["stopped"],
            document=dict(document),
        )

    def to_pandas(self) -> pandas.DataFrame:
        """A row for every layout, or for those of the Pareto front if that was asked for, with the columns of `quadrille plan
        --csv`."""
        return frame(flat(plan.document) for plan in self.pareto or self.plans)

    def _repr_html_(self) -> str:
        caption = f"{self.model} on {self.gpus} devices of {self.cluster}, {self.framework}, {self.global_batch} sequences a step"
        note = f"advised: {self.advised.notation}, {seconds(self.advised.time_s)} a step"
        if self.error_band:
            note += f"; runs like it took {self.error_band.low:.2f} to {self.error_band.high:.2f} times what was predicted"
        else:
            note += f"; {self.error_band_reason}"
        return html_table(caption, _HEADER, (plan._row() for plan in self.pareto or self.plans), note)


def plan(model: ModelLike | None = None, **options: Unpack[PlanOptions]) -> Plan:
    """Searches every legal layout of a model on so many devices of a cluster, as `quadrille plan` does.

    >>> found = quadrille.plan("gpt2-124m", gpus=8, cluster="dgx-a100", global_batch=64, fix={"tp": 2})

    The interpreter's lock is free meanwhile. An interruption is raised at once; the search that was begun ends by itself.
    Raises `InputError` where no layout is legal and fits, and says why and what would help.
    """
    with words(["plan"], {"model": model, **options}) as said:
        return Plan.of(json.loads(_quadrille.document(said)))
