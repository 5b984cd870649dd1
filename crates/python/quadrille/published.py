"""Predictions beside published measurements."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _quadrille
from .options import PublishedOptions
from .tables import frame, html_table, percent
from .words import words

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Unpack


@dataclass(frozen=True)
class SourceErrors:
    """How far predictions are from what a source, or a table of it, has measured."""

    source: str
    table: str | None
    quantity: str
    """`seconds` of a step, or `bytes` of a device."""
    fitted: str
    """Whether numbers of the hardware or of frameworks come from these rows: no, partly or yes."""
    rows: int
    mean_absolute: float
    """As a part of what was measured; so are the others."""
    bias: float
    largest: float


@dataclass(frozen=True)
class Published:
    """Predictions beside published measurements."""

    rows: int
    """Of the table."""
    predicted: int
    """Of them."""
    errors: list[SourceErrors] = field(repr=False)
    fits: dict[str, int]
    """Runs that were out of memory, or ran, and how many of them are called otherwise."""
    unmapped: list[dict[str, Any]] = field(repr=False)
    """Why rows are not predicted, and how many for each reason."""
    document: dict[str, Any] = field(repr=False)
    """All of it, as `quadrille validate published --json` prints it."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Published:
        """From a document."""
        summary = document["summary"]
        errors = [
            _errors(entry, quantity)
            for quantity, entries in (("seconds", summary["times"]), ("bytes", summary["memory"]))
            for entry in entries
        ]
        return cls(
            document["rows"], document["predicted"], errors, summary["fits"], document["unmapped"], dict(document)
        )

    def to_pandas(self) -> pandas.DataFrame:
        """A row for every source, and for every table of one."""
        return frame(vars(each) for each in self.errors)

    def _repr_html_(self) -> str:
        rows = (
            [each.source, each.quantity, each.fitted, each.rows, *map(percent, (each.mean_absolute, each.bias, each.largest))]
            for each in self.errors
            if each.table is None
        )
        header = ["source", "quantity", "fitted", "rows", "mean error", "bias", "largest"]
        return html_table(f"{self.predicted} of {self.rows} published rows, predicted", header, rows)


def _errors(entry: Mapping[str, Any], quantity: str) -> SourceErrors:
    errors = entry["errors"]
    counts = (errors["count"], errors["mean_absolute"], errors["bias"], errors["largest"])
    return SourceErrors(entry["source"], entry["table"], quantity, entry["fitted"], *counts)


def validate_published(**options: Unpack[PublishedOptions]) -> Published:
    """Holds predictions against published step times, memory and out-of-memory outcomes, as `quadrille validate published` does."""
    with words(["validate", "published"], options) as said:
        return Published.of(json.loads(_quadrille.document(said)))
