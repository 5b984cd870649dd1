"""How a step is spread over ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import _quadrille
from .tables import html_table


class Layout(Mapping[str, Any]):
    """A layout as documents show it: the fields of a layout file, by name. Functions take it as `layout=`."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def to_toml(self) -> str:
        """The text of the layout file, which `quadrille train --layout` reads."""
        return _quadrille.layout_file(json.dumps(self._fields))

    def write(self, folder: Path) -> Path:
        """Writes the layout file into a folder; where it is."""
        path = folder / "layout.toml"
        path.write_text(self.to_toml(), encoding="utf-8")
        return path

    def __repr__(self) -> str:
        return f"Layout({self.get('grid', dict(self))})"

    def _repr_html_(self) -> str:
        return html_table("layout", ["field", "value"], [[name, value] for name, value in self.items()])
