"""Why a layout is as fast as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .tables import frame, html_table, percent, seconds

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Part:
    """A part of a step."""

    part: str
    words: str
    """What it is."""
    time_s: float
    share: float
    """Of the step."""


@dataclass(frozen=True)
class Sensitivity:
    """What a tenth more of a number of the hardware gives."""

    field: str
    gained_s: float
    gained_share: float
    origin: str
    """Where the number is from: measured, fitted, data_sheet or assumed."""


@dataclass(frozen=True)
class Change:
    """The step with one choice changed."""

    notation: str
    """The changed layout, e.g. "TP4 PP8 DP2"."""
    change: str
    time_s: float
    gained_s: float
    """Negative where it is slower."""
    memory_bytes: int


@dataclass(frozen=True)
class Why:
    """What binds, what faster hardware or another choice would give, why the next layout lost."""

    binding: list[Part]
    sensitivities: list[Sensitivity] = field(repr=False)
    changes: list[Change] = field(repr=False)
    runner_up: dict[str, Any] | None = field(repr=False)
    """Its layout, its time, and by which part it is slower."""
    document: dict[str, Any] = field(repr=False)
    """All of it, as the field `explanation` of `quadrille plan --explain --json`."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Why:
        """From a document."""
        named = ("field", "gained_s", "gained_share", "origin")
        return cls(
            binding=[Part(**part) for part in document["binding"]],
            sensitivities=[Sensitivity(**{name: each[name] for name in named}) for each in document["sensitivities"]],
            changes=[Change(**change) for change in document["changes"]],
            runner_up=document["runner_up"],
            document=dict(document),
        )

    def to_pandas(self) -> pandas.DataFrame:
        """The parts of a step that bind, largest first."""
        return frame(vars(part) for part in self.binding)

    def _repr_html_(self) -> str:
        binding = ([part.words, seconds(part.time_s), percent(part.share)] for part in self.binding if part.share > 0.001)
        gains = ([each.field, percent(each.gained_share), each.origin] for each in self.sensitivities[:6])
        changes = ([each.notation, each.change, seconds(each.time_s)] for each in self.changes[:6])
        return (
            html_table("what binds", ["part", "time", "share"], binding)
            + html_table("10% more of a number of the hardware", ["number", "saves", "origin"], gains)
            + html_table("one choice changed", ["layout", "choice", "step"], changes)
        )
