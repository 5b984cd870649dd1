"""Gives flags to Megatron-LM's argument parser, its validation, and the configuration of the transformer."""

import os
import shlex
import sys
import typing
import warnings

warnings.simplefilter("ignore")
if not hasattr(typing, "override"):  # Python 3.11
    from typing_extensions import override

    typing.override = override

import torch

# The device, as far as arguments ask after it: an H100 that is not there.
torch.cuda.get_device_capability = lambda *_: (9, 0)
torch.cuda.get_device_properties = lambda *_: type("Properties", (), {"major": 9, "minor": 0})()

from megatron.core import num_microbatches_calculator as calculator
from megatron.training import arguments

from reading import answer_all

# What an export leaves to the user, and no kernels of Transformer Engine, which is not there.
ADDED = "--tokenizer-type NullTokenizer --vocab-size 1000 --mock-data --lr 1e-4 --train-iters 10 --no-rope-fusion"


def read(path, ranks):
    """The script's environment and flags."""
    with open(path, encoding="utf-8") as file:
        lines = [line for line in file.read().replace("\\\n", " ").splitlines() if not line.startswith("#")]
    for line in lines:
        if line.startswith("export "):
            name, value = line.removeprefix("export ").split("=")
            os.environ[name] = value
        elif line.startswith("unset "):
            os.environ.pop(line.removeprefix("unset "), None)
    words = shlex.split(lines[-1])
    sys.argv = words[words.index("pretrain_gpt.py") :] + shlex.split(ADDED)
    os.environ.update(RANK="0", WORLD_SIZE=str(ranks), LOCAL_RANK="0")
    args = arguments.validate_args(arguments.parse_args(), {})
    arguments.core_transformer_config_from_args(args)
    calculator.unset_num_microbatches_calculator()
    calculator.init_num_microbatches_calculator(
        0, args.rampup_batch_size, args.global_batch_size, args.micro_batch_size, args.data_parallel_size, False
    )


answer_all(read)
