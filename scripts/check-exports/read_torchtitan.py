"""Gives configurations to torchtitan's ConfigManager, and their degrees to its ParallelDims."""

import sys
import types

import torch

# Kernels, which no configuration needs, and which want a newer torch than others here.
torch.compile = lambda function, **_: function
kernels = types.ModuleType("torch.nn.attention.varlen")
kernels.varlen_attn = None
sys.modules.setdefault("torch.nn.attention.varlen", kernels)

from torchtitan.config import ConfigManager
from torchtitan.distributed.parallel_dims import ParallelDims

from reading import answer_all


def read(path, ranks):
    """Every field is known, and the degrees multiply to the ranks."""
    config = ConfigManager().parse_args(["--job.config_file", path])
    by = config.parallelism
    dims = ParallelDims(
        dp_replicate=by.data_parallel_replicate_degree,
        dp_shard=by.data_parallel_shard_degree,
        cp=by.context_parallel_degree,
        tp=by.tensor_parallel_degree,
        pp=by.pipeline_parallel_degree,
        ep=by.expert_parallel_degree,
        etp=by.expert_tensor_parallel_degree,
        world_size=ranks,
    )
    # What its trainer demands of the batch.
    local, whole = config.training.local_batch_size, config.training.global_batch_size
    if whole % (local * dims.dp_replicate * dims.dp_shard) != 0:
        raise ValueError(f"global batch size {whole} % ({local} * ranks of data) != 0")
    if dims.pp > 1 and local % by.pipeline_parallel_microbatch_size != 0:
        raise ValueError(f"local batch size {local} % {by.pipeline_parallel_microbatch_size} != 0")


answer_all(read)
