"""The folder of a run, read while it goes on or later."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _quadrille
from .layouts import Layout
from .ledgers import Ledger
from .options import FilePath
from .steps import Event, Steps
from .words import words

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Checkpoint:
    """A finished checkpoint of a run."""

    step: int
    name: str
    """Of its folder."""
    bytes: int
    """Of all its files."""


@dataclass(frozen=True)
class Run:
    """A run's folder, as `train(out=...)` writes it: `Run.read(folder)`."""

    path: Path
    layout: Layout
    """Of its last part."""
    steps: Steps
    events: list[Event]
    checkpoints: list[Checkpoint]
    """Oldest first."""
    last: int | None
    """The step after which it was to end, if it says so."""
    floor: float | None
    """The least mean loss that a model can reach on the data, where that is known."""
    tflops_per_device: float | None
    """TFLOP/s of a rank in the median step: products and attention, without causal discount."""
    predicted: Ledger = field(repr=False)
    """What every rank computes, sends and holds in a step."""
    ledger_equal: bool | None
    """Whether that is what was counted, as integers, in every step; `None` before the run's end."""
    document: dict[str, Any] = field(repr=False)
    """All of it, as `quadrille report --json` prints it."""

    @classmethod
    def read(cls, folder: FilePath) -> Run:
        """Reads a folder.

        Raises `InputError` where there is no run, or a file says what no run writes.
        """
        with words(["report"], {}, folder) as said:
            document = json.loads(_quadrille.document(said))
        return cls(
            path=Path(document["path"]),
            layout=Layout(document["layout"]),
            steps=Steps(document["steps"]),
            events=[Event(**event) for event in document["events"]],
            checkpoints=[Checkpoint(**stored) for stored in document["checkpoints"]],
            last=document["last"],
            floor=document["floor"],
            tflops_per_device=document["tflops_per_device"],
            predicted=Ledger(document["ledger"]["predicted"]["ranks"]),
            ledger_equal=document["ledger"]["equal"],
            document=document,
        )

    def to_pandas(self) -> pandas.DataFrame:
        """A row for every step."""
        return self.steps.to_pandas()

    def _repr_html_(self) -> str:
        return self.steps._repr_html_()
