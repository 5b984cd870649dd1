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

    planned: dict[str, str] | None
    """What it was planned for, as its file says it: the framework and, where they are not its usual ones, the types of its numbers.
    `price` and `explain` take them where nothing else is said."""

    def __init__(self, fields: Mapping[str, Any], planned: Mapping[str, str] | None = None) -> None:
        self._fields = dict(fields)
        self.planned = None if planned is None else dict(planned)

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def to_toml(self) -> str:
        """The text of the layout file, which `quadrille train --layout` reads."""
        said = self._fields if self.planned is None else {**self._fields, "planned": self.planned}
        return _quadrille.layout_file(json.dumps(said))

    def write(self, folder: Path) -> Path:
        """Writes the layout file into a folder; where it is."""
        path = folder / "layout.toml"
        path.write_text(self.to_toml(), encoding="utf-8")
        return path

    def __repr__(self) -> str:
        return f"Layout({self.get('grid', dict(self))})"

    def _repr_html_(self) -> str:
        planned = [[f"planned: {name}", value] for name, value in (self.planned or {}).items()]
        return html_table("layout", ["field", "value"], [[name, value] for name, value in self.items()] + planned)
