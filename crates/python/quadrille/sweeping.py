"""The best layout for every value of one or two numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _quadrille
from .models import ModelLike
from .options import SweepOptions, Values
from .tables import frame, html_table, percent, seconds
from .words import words

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Sweep:
    """What searches have found."""

    varied: list[str]
    """The numbers that vary: columns `vary_...` of the rows."""
    rows: list[dict[str, Any]]
    """A row for every point, with the columns of `quadrille sweep`; `reason` says why there is no layout."""

    @classmethod
    def of(cls, table: list[list[str]]) -> Sweep:
        """From a table whose header comes first."""
        header, *rows = table
        varied = [name.removeprefix("vary_") for name in header if name.startswith("vary_")]
        return cls(varied, [dict(zip(header, map(_value, row))) for row in rows])

    def __repr__(self) -> str:
        return f"Sweep over {' and '.join(self.varied)}: {len(self.rows)} points"

    def to_pandas(self) -> pandas.DataFrame:
        """A row for every point."""
        return frame(self.rows)

    def _repr_html_(self) -> str:
        rows = ([*(row[f"vary_{name}"] for name in self.varied), *_found(row)] for row in self.rows)
        return html_table(repr(self), [*self.varied, "layout", "step", "TFLOP/s a device", "MFU"], rows)


def _found(row: Mapping[str, Any]) -> list[Any]:
    if row["reason"] is not None:
        return [row["reason"], None, None, None]
    return [row["notation"], seconds(row["time_s"]), f"{row['tflops_per_device']:.1f}", percent(row["mfu"])]


def _value(text: str) -> Any:
    """What a cell says: a number, a truth, text, or nothing."""
    if text in ("", "true", "false"):
        return {"": None, "true": True, "false": False}[text]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def sweep(model: ModelLike | None = None, *, vary: Mapping[str, Values] | str, **options: Unpack[SweepOptions]) -> Sweep:
    """Searches the best layout for every value of one number, or every pair of values of two, as `quadrille sweep` does.

    >>> quadrille.sweep("gpt2-124m", vary={"gpus": [8, 16]}, cluster="dgx-a100", global_batch=64).to_pandas()

    An interruption is raised at once; the search that was begun ends by itself.
    """
    with words(["sweep"], {"model": model, "vary": vary, **options}) as said:
        return Sweep.of(json.loads(_quadrille.document(said)))
