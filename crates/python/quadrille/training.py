"""A training run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _quadrille
from .layouts import Layout
from .ledgers import Ledger
from .models import ModelLike
from .options import TrainOptions
from .steps import Event, Step, Steps
from .words import words

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Unpack

OnStep = Callable[[Step], object]
"""Called after every step, on the thread that has called `train`. `False` ends the run in good order; what it raises does so, too,
and is raised by `train`."""


@dataclass(frozen=True)
class Training:
    """What came of a run. Its bytes, FLOPs and memory were those that were predicted, else `train` has raised `WorkError`."""

    layout: Layout
    steps: Steps
    events: list[Event]
    """Validation, checkpoints, and what else happened."""
    floor: float | None
    """The least mean loss that a model can reach on the data, where that is known."""
    predicted: Ledger = field(repr=False)
    """What every rank computes, sends and holds in a step."""
    stopped: int | None
    """The step after which the run was stopped, if it was."""
    document: dict[str, Any] = field(repr=False)
    """All that the run says at its end, as `quadrille train --json` prints it."""

    @classmethod
    def of(cls, summary: Mapping[str, Any], events: list[Event], stopped: int | None) -> Training:
        """From what a run says at its end, and what it has told before."""
        return cls(
            layout=Layout(summary["layout"]),
            steps=Steps(summary["steps"]),
            events=events,
            floor=summary["floor"],
            predicted=Ledger(summary["ledger"]["predicted"]["ranks"]),
            stopped=stopped,
            document=dict(summary),
        )

    def to_pandas(self) -> pandas.DataFrame:
        """A row for every step."""
        return self.steps.to_pandas()

    def _repr_html_(self) -> str:
        return self.steps._repr_html_()


def train(model: ModelLike | None = None, *, callback: OnStep | None = None, **options: Unpack[TrainOptions]) -> Training:
    """Trains on ranks that are threads of this process, as `quadrille train` does.

    >>> quadrille.train("gpt-demo", grid="x=2", steps=10, callback=lambda step: print(step.loss))

    With `out` a folder is kept, from which `resume` goes on and which `Run` reads. An interruption ends the run after its step, with a
    checkpoint where there is a folder, and is raised then; a second one is raised at once.
    """
    events: list[Event] = []

    def told(text: str) -> object:
        happened = json.loads(text)
        if "event" in happened:
            events.append(Event(**happened["event"]))
            return True
        return True if callback is None else callback(Step.of(happened["step"]))

    with words(["train"], {"model": model, **options}) as said:
        summary, stopped = _quadrille.train(said[1:], told)
    return Training.of(json.loads(summary), events, stopped)
