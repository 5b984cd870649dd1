"""The steps of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, overload

from .tables import frame, html_table

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Step:
    """A step's record."""

    step: int
    """From 1."""
    loss: float
    """Mean loss in nats."""
    grad_norm: float
    """Before clipping."""
    lr: float
    tokens: int
    """Target tokens up to and with this step."""
    seconds: float
    tokens_per_second: float
    applied: bool
    """Whether the gradient was applied."""
    repeated: bool
    """Whether the update was begun before the gradient's norm was known, and done again since that was clipped."""
    spike: bool
    """Whether the loss stands out from those before."""
    loss_scale: int | None
    """By what gradients were multiplied until the update, if they were."""
    overflow: bool
    """Whether they were not finite for that reason."""
    router: dict[str, Any] | None
    """What routers have lost and dropped, if the model has experts."""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Step:
        """From a record; a number that is null there is not finite."""
        said: dict[str, Any] = {each.name: record.get(each.name) for each in fields(cls)}
        return cls(**said | {name: math.nan for name in ("loss", "grad_norm") if said[name] is None})


@dataclass(frozen=True)
class Event:
    """Something beside steps that happened in a run."""

    step: int
    """After which it happened."""
    kind: str
    """`resumed`, `saved`, `not saved`, `skipped`, `diverged`, `spike`, `validation` or `stopped`."""
    text: str
    loss: float | None
    """Of a validation or a spike."""


class Steps(Sequence[Step]):
    """The steps of a run, and their fields as arrays: `steps.loss`."""

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._steps = [Step.of(record) for record in records]

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> list[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | list[Step]:
        return self._steps[index]

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self._steps)

    def column(self, name: str) -> Any:
        """A field of every step: an array of NumPy if that is installed, else a list."""
        values = [getattr(step, name) for step in self._steps]
        try:
            import numpy
        except ImportError:
            return values
        return numpy.array(values)

    @property
    def step(self) -> Any:
        """Numbers of the steps."""
        return self.column("step")

    @property
    def loss(self) -> Any:
        """Mean losses in nats."""
        return self.column("loss")

    @property
    def grad_norm(self) -> Any:
        """Norms of the gradients, before clipping."""
        return self.column("grad_norm")

    @property
    def lr(self) -> Any:
        """Learning rates."""
        return self.column("lr")

    @property
    def tokens(self) -> Any:
        """Target tokens up to and with each step."""
        return self.column("tokens")

    @property
    def seconds(self) -> Any:
        """Seconds that the steps took."""
        return self.column("seconds")

    @property
    def tokens_per_second(self) -> Any:
        """Target tokens of the steps per second."""
        return self.column("tokens_per_second")

    def to_pandas(self) -> pandas.DataFrame:
        """A row for every step."""
        return frame(vars(step) for step in self._steps)

    def __repr__(self) -> str:
        if not self._steps:
            return "no steps"
        first, last = self._steps[0], self._steps[-1]
        return f"steps {first.step} to {last.step}: loss {first.loss:.4f} to {last.loss:.4f}"

    def _repr_html_(self) -> str:
        every = max(1, len(self) // 15)
        shown = [step for step in self if step.step % every == 0 or step in (self[0], self[-1])]
        rows = ([step.step, f"{step.loss:.4f}", f"{step.grad_norm:.4f}", f"{step.lr:.2e}"] for step in shown)
        return html_table(repr(self), ["step", "loss", "norm", "learning rate"], rows)
