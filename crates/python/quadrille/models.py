"""Models that are not presets or files: configurations of Hugging Face."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Union

from . import _quadrille


class Configuration(Protocol):
    """What a configuration of the transformers library has, such as a `PretrainedConfig`."""

    def to_dict(self) -> dict[str, Any]:
        """Its fields, as `config.json` has them."""
        ...


@dataclass(frozen=True)
class Model:
    """A model, for every function that takes one."""

    config: str = field(repr=False)
    """The text of its `config.json`."""
    document: dict[str, Any] = field(repr=False)
    """What Quadrille makes of it: the fields of a model file."""

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self.document["name"])

    def __repr__(self) -> str:
        return f"Model({self.name!r})"

    def write(self, folder: Path) -> Path:
        """Writes the configuration into a folder; where it is."""
        path = folder / "config.json"
        path.write_text(self.config, encoding="utf-8")
        return path


ModelLike = Union[str, "Path", Model]
"""A preset's name, the path of a model file, or what `from_hf` makes."""


def from_hf(config: Mapping[str, Any] | Configuration) -> Model:
    """The model of a Hugging Face configuration: the fields of a `config.json`, or a `PretrainedConfig`.

    Raises `InputError` for a model that Quadrille does not know, and says what it knows.
    """
    fields = config if isinstance(config, Mapping) else config.to_dict()
    text = json.dumps(dict(fields), default=str)
    return Model(text, json.loads(_quadrille.model_of_hugging_face(text)))


def model_names() -> list[str]:
    """The models that have a name."""
    return _quadrille.model_names()


def cluster_names() -> list[str]:
    """The clusters that have a name."""
    return _quadrille.cluster_names()
