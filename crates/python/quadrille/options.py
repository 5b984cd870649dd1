"""The keywords of each function: those of the command line's flags, with `_` in place of `-`.

`quadrille COMMAND --help`, and the book's page of commands, say what each of them means. Where the command line takes
`KEY=VALUE`, keywords take a mapping; where it takes several values, a sequence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, Union

from .layouts import Layout

FilePath = Union[str, "os.PathLike[str]"]
"""The path of a file or a folder."""
Number = Union[int, float]
"""A number of any kind."""
Value = Union[str, bool, int, float]
"""What a field or a choice may be."""
Values = Union[str, Number, Sequence[Number]]
"""A number, several, or a range in words: `64..1024`."""
Choices = Union[str, Sequence[str], Mapping[str, Value]]
"""`{"tp": 8}`, or in the words of the command line `"tp=8"`."""


class ModelOptions(TypedDict, total=False):
    """Which model, beside its name or file."""

    from_hf: FilePath | None
    set: Choices | None


class LayoutOptions(TypedDict, total=False):
    """How a step is spread over ranks."""

    layout: FilePath | Layout | None
    grid: str | None
    ranks: int | None
    order: str | None
    per_node: int | None
    activations: str | None
    linear: str | None
    summa_panels: int | None
    experts_over: str | None
    dispatch: str | None
    expert_rows: int | None
    vocab_multiple: int | None
    global_batch: int | str | None
    microbatch: int | None
    seq_len: int | str | None
    gradients: str | None
    cluster: FilePath | None
    schedule: str | None
    chunks: int | None
    microbatch_group: int | None
    stage_blocks: Sequence[int] | None
    recompute: str | None
    cac: bool | None
    zero: int | None
    keep_weights: str | None
    offload: FilePath | None
    bucket: int | None
    optimizer_overlap: bool | None
    overlap: str | None
    overlap_chunks: int | None


class NumberOptions(TypedDict, total=False):
    """What trains, and in which numbers."""

    framework: str | None
    sparsity: Value | None
    products: str | None
    moments: str | None
    imbalance: FilePath | Number | None
    memory_reserve: Value | None


class SearchOptions(ModelOptions, LayoutOptions, NumberOptions, total=False):
    """What is searched, and what it is for."""

    nvs: int | None
    any_layout: bool | None
    fix: Choices | None
    max: Choices | None
    min: Choices | None
    search_limit: int | None
    tokens: Number | None
    price_per_hour: Number | None
    currency: str | None
    days: Number | None
    goodput: bool | None
    mtbf: Number | None
    checkpoint_bandwidth: Number | None
    checkpoint_seconds: Number | None
    restart_seconds: Number | None
    flops_convention: str | None


class PlanOptions(SearchOptions, total=False):
    """The keywords of `plan`."""

    request: FilePath | None
    gpus: Values | None
    nodes: Values | None
    dtype: str | None
    top: int | None
    csv: FilePath | None
    variants: bool | None
    pareto: bool | None
    exotic: bool | None
    tolerance: Value | None
    explain: bool | None
    out: FilePath | None
    html: FilePath | None


class SweepOptions(SearchOptions, total=False):
    """The keywords of `sweep`, beside what varies."""

    gpus: int | None
    nodes: int | None
    html: FilePath | None


class PriceOptions(ModelOptions, LayoutOptions, NumberOptions, total=False):
    """The keywords of `price` and `estimate_memory`; `from_` is the flag `--from`."""

    from_: FilePath | None
    any_layout: bool | None
    dtype: str | None
    flops_convention: str | None


class ExplainOptions(ModelOptions, LayoutOptions, total=False):
    """The keywords of `explain`; `from_` is the flag `--from`."""

    from_: FilePath | None
    dtype: str | None
    framework: str | None
    sparsity: Value | None
    products: str | None
    moments: str | None
    program: bool | None
    ledger: bool | None
    rank: int | None
    layer: int | None
    html: FilePath | None
    timeline: bool | None
    trace: FilePath | None
    device_gflops: Number | None
    memory_gb_s: Number | None
    latency_us: Number | None


class RunOptions(TypedDict, total=False):
    """Where and with what ranks run."""

    seed: int | None
    lr: Number | None
    threads: int | None
    timeout: Number | None
    collectives: str | None
    device: str | None


class VerifyOptions(ModelOptions, LayoutOptions, RunOptions, total=False):
    """The keywords of `verify`."""

    all_grids: bool | None
    axes: Sequence[str] | str | None
    steps: int | None
    dtype: str | None
    sparsity: Value | None


class TrainOptions(ModelOptions, LayoutOptions, RunOptions, total=False):
    """The keywords of `train`; `from_` is the flag `--from`."""

    steps: int | None
    dtype: str | None
    loss_scale: str | int | None
    log: FilePath | None
    trace: FilePath | None
    tune_matmul: Literal[True] | FilePath | None
    out: FilePath | None
    resume: FilePath | None
    from_: FilePath | None
    checkpoint_every: int | None
    keep: int | None
    on_checkpoint_failure: str | None
    on_divergence: str | None
    largest_loss: Number | None
    validate_every: int | None
    validation_batches: int | None
    data: FilePath | Sequence[FilePath] | None
    tokenizer: FilePath | None
    text_field: str | None
    format: str | None
    force_binary: bool | None
    skip_bad_lines: bool | None
    parse_special: bool | None
    documents: str | None
    validation: Number | None
    validation_data: FilePath | Sequence[FilePath] | None
    goldfish: str | None
    cache: FilePath | None


class PublishedOptions(TypedDict, total=False):
    """The keywords of `validate_published`."""

    csv: FilePath | None
    rows: FilePath | None
    flops_convention: str | None
    html: FilePath | None
