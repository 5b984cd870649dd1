"""Why a question has no answer, in the words of the command line."""

from __future__ import annotations


class QuadrilleError(Exception):
    """What every failure of this package is. Its message names the thing, the value, the rule and the remedy."""


class InputError(QuadrilleError, ValueError):
    """The input cannot be used: where the command line ends with code 2."""


class WorkError(QuadrilleError, RuntimeError):
    """The work failed: where the command line ends with code 1."""
