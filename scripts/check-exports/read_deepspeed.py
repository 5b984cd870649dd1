"""Gives configurations to DeepSpeedConfig as deepspeed.initialize does, on a job of so many ranks of which none but this
one runs (torch's fake process group)."""

import logging
import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

import torch.distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

import deepspeed.comm as comm
from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.tensor_parallel.init_utils import load_ds_config

from reading import answer_all

# A kernel for messages in shared memory, which would be compiled.
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
logging.disable(logging.CRITICAL)


def read(path, ranks):
    """First and last rank: both must be in every group that the configuration makes."""
    for rank in {0, ranks - 1}:
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
        try:
            sys.modules["deepspeed.comm.comm"].cdb = None
            comm.init_distributed(dist_backend="fake", auto_mpi_discovery=False)
            config, mesh = load_ds_config(path), None
            if "sequence_parallel_size" in config and "data_parallel_size" in config:
                sizes = (config["data_parallel_size"], config["sequence_parallel_size"])
                mesh = comm.initialize_mesh_device(sizes, ("data_parallel", "sequence_parallel"))
            DeepSpeedConfig(config, None, mesh_device=mesh)
        finally:
            torch.distributed.destroy_process_group()


answer_all(read)
