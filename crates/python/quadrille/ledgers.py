"""What ranks compute, send and hold in a step, as integers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .tables import frame, html_table

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Transfer:
    """What a rank sends by one collective over some axes in a step."""

    rank: int
    axes: str
    collective: str
    calls: int
    payload_bytes: int
    """Of the full buffers."""
    wire_bytes: int
    """That leave the rank."""


@dataclass(frozen=True)
class Ledger:
    """The ledgers of ranks."""

    ranks: list[dict[str, Any]]
    """Each as `quadrille explain --ledger --json` prints it: axes, layers, flops, elements, memory."""

    def __repr__(self) -> str:
        return f"Ledger of {len(self.ranks)} rank{'' if len(self.ranks) == 1 else 's'}"

    def transfers(self) -> list[Transfer]:
        """Every rank's, axis by axis, that there are."""
        return list(self._transfers())

    def _transfers(self) -> Iterator[Transfer]:
        for ledger in self.ranks:
            for axes, collectives in ledger["axes"].items():
                for collective, counts in collectives.items():
                    yield Transfer(ledger["rank"], axes, collective, **counts)

    def bytes_sent(self, rank: int) -> int:
        """Bytes that leave a rank in a step."""
        return sum(transfer.wire_bytes for transfer in self._transfers() if transfer.rank == rank)

    def to_pandas(self) -> pandas.DataFrame:
        """A row for every rank, axis and collective."""
        return frame(vars(transfer) for transfer in self._transfers())

    def _repr_html_(self) -> str:
        header = ["rank", "axes", "collective", "calls", "payload bytes", "wire bytes"]
        sent = (list(vars(transfer).values()) for transfer in self._transfers())
        held = ([ledger["rank"], sum(ledger["flops"].values()), ledger["memory"]["peak"]] for ledger in self.ranks)
        return html_table("computed and held in a step", ["rank", "FLOP", "peak bytes"], held) + html_table(
            "sent in a step", header, sent
        )
