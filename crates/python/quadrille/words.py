"""Keywords as the words of the command line, which has one reader of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from . import _quadrille
from .errors import InputError
from .layouts import Layout
from .models import Model


@contextmanager
def words(command: Sequence[str], options: Mapping[str, object], *places: object) -> Iterator[list[str]]:
    """The words of a command with its places and a flag for every keyword that says something.

    Models and layouts that are no files are some as long as the words are in use.
    """
    with TemporaryDirectory(prefix="quadrille-") as folder:
        said = list(command)
        for name, value in options.items():
            if value is not None:
                said += _flag(tuple(command), name, value, Path(folder))
        # A place may begin as a flag does.
        yield [*said, "--", *map(_text, places)] if places else said


def _flag(command: tuple[str, ...], name: str, value: object, folder: Path) -> list[str]:
    if isinstance(value, Model) and name == "model":
        name, value = "from_hf", value.write(folder)
    elif isinstance(value, Model):
        raise InputError(f"{name}: this is a model, which goes where a model is asked for")
    elif isinstance(value, Layout):
        value = value.write(folder)
    flag = name.rstrip("_").replace("_", "-")
    # A flag that is not there is for the reader of the words to refuse.
    takes_value, repeats = _flags(command).get(flag, (True, False))
    if value is True:
        return [f"--{flag}"]
    if value is False:
        return [f"--{flag}=false"] if takes_value else []
    texts = _texts(value)
    return [f"--{flag}={text}" for text in (texts if repeats else [",".join(texts)])]


@cache
def _flags(command: tuple[str, ...]) -> dict[str, tuple[bool, bool]]:
    return {name: (takes_value, repeats) for name, takes_value, repeats in _quadrille.flags(command)}


def _texts(value: object) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{key}={','.join(_texts(each))}" for key, each in value.items()]
    if isinstance(value, Iterable) and not isinstance(value, (str, os.PathLike)):
        return [_text(each) for each in value]
    return [_text(value)]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
