"""One layout, priced: its time, its memory and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _quadrille
from .models import ModelLike
from .options import PriceOptions
from .planning import PlannedLayout
from .tables import frame, gigabytes, html_table
from .why import Why
from .words import words

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Unpack


@dataclass(frozen=True)
class MemoryEstimate:
    """What a layout takes of a device's memory, on the rank that needs most."""

    layout: str
    """Its grid."""
    framework: str
    classes: dict[str, int]
    """Bytes by class: parameters, gradients, optimizer, activations, buffers, framework."""
    total_bytes: int
    device_memory_bytes: int | None
    """Of a device of the cluster, where that is known."""
    reserved_bytes: int | None
    """What stays free of it: `memory_reserve`."""
    fits: bool | None
    """Whether the rest is enough."""

    def to_pandas(self) -> pandas.DataFrame:
        """A row for every class."""
        return frame({"class": name, "bytes": count} for name, count in self.classes.items())

    def _repr_html_(self) -> str:
        told = {None: "the memory of a device is not known", True: "it fits", False: "it does not fit"}[self.fits]
        note = f"{gigabytes(self.total_bytes)} of {gigabytes(self.device_memory_bytes)}: {told}"
        rows = ([name, gigabytes(count)] for name, count in self.classes.items())
        return html_table(f"memory of {self.layout}, {self.framework}", ["class", "bytes"], rows, note)


@dataclass(frozen=True)
class Priced:
    """A layout with its price, and why."""

    plan: PlannedLayout
    memory: MemoryEstimate
    why: Why
    document: dict[str, Any] = field(repr=False)
    """All of it, as `quadrille explain --price --json` prints it."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Priced:
        """From a document."""
        plan = PlannedLayout.of(document["plan"], document["planned"])
        memory = MemoryEstimate(
            layout=plan.layout["grid"],
            framework=document["framework"],
            classes=plan.memory,
            total_bytes=plan.memory_bytes,
            device_memory_bytes=document["device_memory_bytes"],
            reserved_bytes=document["reserved_bytes"],
            fits=document["fits"],
        )
        return cls(plan, memory, Why.of(document["explanation"]), dict(document))

    def to_pandas(self) -> pandas.DataFrame:
        """A row with the columns of `quadrille plan --csv`."""
        return self.plan.to_pandas()

    def _repr_html_(self) -> str:
        return self.plan._repr_html_() + self.why._repr_html_()


def price(model: ModelLike | None = None, **options: Unpack[PriceOptions]) -> Priced:
    """Prices a layout on a cluster and explains the price, as `quadrille explain --price` does.

    >>> quadrille.price("llama3-8b", cluster="dgx-h100", grid="x=2,data=4", global_batch=64).plan.time_s
    """
    with words(["explain"], {"model": model, "price": True, **options}) as said:
        return Priced.of(json.loads(_quadrille.document(said)))


def estimate_memory(model: ModelLike | None = None, **options: Unpack[PriceOptions]) -> MemoryEstimate:
    """What a layout takes of a device's memory as a framework runs it, and whether it fits.

    >>> quadrille.estimate_memory("llama3-8b", cluster="dgx-h100", grid="x=2,data=4", global_batch=64).fits
    """
    return price(model, **options).memory
