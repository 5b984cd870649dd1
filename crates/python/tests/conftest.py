"""What tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

import quadrille


@pytest.fixture(scope="session")
def found() -> quadrille.Plan:
    """A plan with its reasons."""
    return quadrille.plan("gpt2-124m", gpus=8, cluster="dgx-a100", global_batch=64, top=3, explain=True)


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[quadrille.Published, str]:
    """Predictions beside published runs, and the rows that were written."""
    rows = tmp_path_factory.mktemp("published") / "rows.csv"
    return quadrille.validate_published(rows=rows), rows.read_text()


@pytest.fixture
def root() -> Path:
    """The checkout."""
    return Path(__file__).resolve().parents[3]
