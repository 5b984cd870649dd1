"""What one layout does, without running it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _quadrille
from .layouts import Layout
from .ledgers import Ledger
from .models import ModelLike
from .options import ExplainOptions
from .tables import html_table
from .words import words

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Explanation:
    """What a layout computes, sends and holds in a step."""

    layout: Layout
    program: list[str] | None = field(repr=False)
    """With `program=True`: the step program, a line an operation."""
    ledger: Ledger | None
    """What every rank computes, sends and holds; `None` where the program alone was asked for."""
    recomputation: dict[str, Any] | None = field(repr=False)
    """The memory of other choices of what is computed again, of Quadrille's own engine."""
    simulation: dict[str, Any] | None = field(repr=False)
    """With `timeline=True`: the step, simulated."""
    document: dict[str, Any] = field(repr=False)
    """All of it, as `quadrille explain --json` prints it."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Explanation:
        """From a document."""
        ranks = document.get("ranks")
        return cls(
            layout=Layout(document["layout"]),
            program=document.get("program"),
            ledger=None if ranks is None else Ledger(ranks),
            recomputation=document.get("recomputation"),
            simulation=document.get("simulation"),
            document=dict(document),
        )

    def to_pandas(self) -> pandas.DataFrame:
        """The ledger's transfers: a row for every rank, axis and collective."""
        return (self.ledger or Ledger([])).to_pandas()

    def _repr_html_(self) -> str:
        parts = [] if self.ledger is None else [self.ledger._repr_html_()]
        lines = list(self.program or [])
        if self.simulation is not None:
            lines += self.simulation["timeline"]
        if lines:
            parts.append(html_table(str(self.layout["grid"]), [""], ([line] for line in lines)))
        return "".join(parts) or self.layout._repr_html_()


def explain(model: ModelLike | None = None, **options: Unpack[ExplainOptions]) -> Explanation:
    """Tells what a layout does in a step, as `quadrille explain` does; `price` tells what it costs.

    >>> quadrille.explain("gpt-tiny", grid="x=2,data=2").ledger.bytes_sent(rank=0)
    """
    with words(["explain"], {"model": model, **options}) as said:
        return Explanation.of(json.loads(_quadrille.document(said)))
