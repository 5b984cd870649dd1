"""Whether layouts compute what the serial model computes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _quadrille
from .layouts import Layout
from .models import ModelLike
from .options import VerifyOptions
from .tables import frame, html_table
from .words import words

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Verified:
    """How far a layout is from the serial model: the largest relative differences."""

    layout: Layout
    ok: bool
    """Whether all of it is within the limits, and the ledgers are equal."""
    loss_diff: float
    grad_diff: float
    norm_diff: float
    weight_diff: float
    evaluation_diff: float
    ledger_equal: bool
    """Whether bytes, FLOPs and memory were those that were predicted, as integers."""
    failures: list[str]
    document: dict[str, Any] = field(repr=False)
    """All of it, as an entry of `grids` of `quadrille verify --json`."""


_DIFFERENCES = ("loss_diff", "grad_diff", "norm_diff", "weight_diff", "evaluation_diff")


@dataclass(frozen=True)
class Verification:
    """Layouts that were held against the serial model."""

    layouts: list[Verified]
    skipped: list[dict[str, str]]
    """Grids that the model or the batch does not allow, and why."""
    document: dict[str, Any] = field(repr=False)
    """All of it, as `quadrille verify --json` prints it."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Verification:
        """From a document."""
        named = ("ok", *_DIFFERENCES, "ledger_equal", "failures")
        layouts = [
            Verified(layout=Layout(entry["layout"]), **{name: entry[name] for name in named}, document=entry)
            for entry in document["grids"]
        ]
        return cls(layouts, document["skipped"], dict(document))

    @property
    def ok(self) -> bool:
        """Whether all layouts equal the serial model, and their ledgers the predicted ones."""
        return all(layout.ok for layout in self.layouts)

    def to_pandas(self) -> pandas.DataFrame:
        """A row for every layout."""
        names = (*_DIFFERENCES, "ledger_equal", "ok")
        return frame({"grid": each.layout["grid"], **{name: getattr(each, name) for name in names}} for each in self.layouts)

    def _repr_html_(self) -> str:
        header = ["grid", "loss", "gradients", "norm", "weights", "evaluation", "ledger", "result"]
        rows = (
            [each.layout["grid"], *(f"{getattr(each, name):.1e}" for name in _DIFFERENCES), *_words(each)]
            for each in self.layouts
        )
        note = "; ".join(f"skipped {each['grid']}: {each['reason']}" for each in self.skipped)
        return html_table("differences from the serial model", header, rows, note)


def _words(verified: Verified) -> list[str]:
    return ["equal" if verified.ledger_equal else "UNEQUAL", "ok" if verified.ok else "DIFFERS"]


def verify(model: ModelLike | None = None, **options: Unpack[VerifyOptions]) -> Verification:
    """Runs layouts for some steps and holds them against the serial model, as `quadrille verify` does.

    Layouts that differ are no exception: `Verification.ok` says whether there are some.

    >>> assert quadrille.verify("gpt-tiny", ranks=4, all_grids=True, steps=1).ok
    """
    with words(["verify"], {"model": model, **options}) as said:
        return Verification.of(json.loads(_quadrille.document(said)))
