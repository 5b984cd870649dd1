"""Results as rows: for notebooks as HTML, for pandas as frames."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

Cell = Any
"""What a table has in a cell: text, a number, or something that `str` knows."""


def html_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[Cell]], note: str = "") -> str:
    """A table as HTML; all text is escaped, numbers stand on the right."""
    heads = "".join(f"<th>{_escaped(name)}</th>" for name in header)
    lines = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    below = f"<p>{_escaped(note)}</p>" if note else ""
    return (
        f"<table><caption>{_escaped(caption)}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{lines}</tbody></table>{below}"
    )


def _cell(value: Cell) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f'<td style="text-align:right">{_number(value)}</td>'
    return f'<td style="text-align:left">{_escaped(value)}</td>'


def _number(value: int | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _escaped(value: Cell) -> str:
    return html.escape("" if value is None else str(value))


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A document as named columns, named as `quadrille plan --csv` does: what is nested has the outer name before its own, but
    for the fields of a layout."""
    columns: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            columns |= flat(value, prefix if name == "layout" else f"{prefix}{name}_")
        else:
            columns[prefix + name] = value
    return columns


def frame(rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Rows as a frame of pandas, which is imported here and nowhere else."""
    import pandas

    return pandas.DataFrame(list(rows))


def gigabytes(count: float | None) -> str:
    """Bytes, for people."""
    return "not known" if count is None else f"{count / 1e9:.2f} GB"


def seconds(time: float) -> str:
    """A time, for people."""
    return f"{time:.3f} s" if time >= 1 else f"{1e3 * time:.3f} ms"


def percent(part: float | None) -> str:
    """A part of a whole, for people."""
    return "" if part is None else f"{100 * part:.1f}%"
