"""Dataclasses have the fields that the schemas of the documents say."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

import quadrille

# A class, the schema of its document, the definition in it, and the fields that are no field of the document.
CLASSES = [
    (quadrille.Plan, "plan", None, {"gain_of_fastest", "why", "document"}),
    (quadrille.PlannedLayout, "plan", "PricedLayout", {"document"}),
    (quadrille.ErrorBand, "plan", "Band", set()),
    (quadrille.Oversized, "plan", "Oversized", set()),
    (quadrille.Part, "plan", "BindingPart", set()),
    (quadrille.Sensitivity, "plan", "HardwareGain", set()),
    (quadrille.Change, "plan", "ChoiceGain", set()),
    (quadrille.Step, "run", "StepRecord", set()),
    (quadrille.Event, "run", "Event", set()),
    (quadrille.Checkpoint, "run", "Stored", set()),
]


@pytest.mark.parametrize(("kind", "schema", "definition", "own"), CLASSES)
def test_fields_are_those_of_documents(
    root: Path, kind: type, schema: str, definition: str | None, own: set[str]
) -> None:
    described = json.loads((root / f"docs/src/schemas/{schema}.json").read_text())
    if definition is not None:
        described = described["$defs"][definition]
    named = {field.name for field in fields(kind)}
    assert own <= named
    assert named - own <= set(described["properties"])
