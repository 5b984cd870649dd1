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

from megatron.core import utils
from megatron.core.transformer import transformer_config

# Formats of 8 and 4 bits ask after the release of Transformer Engine, which is not there.
for asking in (arguments, utils, transformer_config):
    asking.is_te_min_version = lambda *_, **__: True

from reading import answer_all

# What an export leaves to the user, and no kernels of Transformer Engine, which is not there.
ADDED = "--tokenizer-type NullTokenizer --vocab-size 1000 --mock-data --lr 1e-4 --train-iters 10 --no-rope-fusion"


# Flags and what of the transformer's configuration, or of the arguments, they are to decide.
FIELDS = {
    "--add-qkv-bias": "add_qkv_bias",
    "--apply-layernorm-1p": "layernorm_zero_centered_gamma",
    "--exp-avg-dtype": "exp_avg_dtype",
    "--fp4-format": "fp4",
    "--fp8-format": "fp8",
    "--fp8-recipe": "fp8_recipe",
    "--kv-channels": "kv_channels",
    "--kv-lora-rank": "kv_lora_rank",
    "--mscale": "mscale",
    "--mscale-all-dim": "mscale_all_dim",
    "--multi-latent-attention": "multi_latent_attention",
    "--num-query-groups": "num_query_groups",
    "--q-lora-rank": "q_lora_rank",
    "--qk-head-dim": "qk_head_dim",
    "--qk-layernorm": "qk_layernorm",
    "--qk-pos-emb-head-dim": "qk_pos_emb_head_dim",
    "--rope-scaling-factor": "rope_scaling_factor",
    "--rope-type": "rope_type",
    "--rotary-base": "rotary_base",
    "--rotary-percent": "rotary_percent",
    "--rotary-scaling-factor": "rotary_scaling_factor",
    "--rotary-seq-len-interpolation-factor": "rotary_seq_len_interpolation_factor",
    "--use-rope-scaling": "use_rope_scaling",
    "--v-head-dim": "v_head_dim",
    "--window-size": "window_size",
}
TYPES = {"bf16": torch.bfloat16, "fp8": torch.uint8}


def check(words, args, config):
    """Raises where a flag does not decide what it is to."""
    for place, word in enumerate(words):
        if word not in FIELDS:
            continue
        following = words[place + 1] if place + 1 < len(words) else "--"
        said = True if following.startswith("--") else following
        got = getattr(config, FIELDS[word], getattr(args, FIELDS[word], None))
        if isinstance(got, tuple):
            said = tuple(int(number) for number in said.split(","))
        elif isinstance(got, torch.dtype):
            said = TYPES[said]
        elif isinstance(got, (int, float)) and not isinstance(got, bool):
            said = float(said)
        if got != said:
            raise ValueError(f"{word} {following}: the configuration has {got!r}")


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
    check(words, args, arguments.core_transformer_config_from_args(args))
    calculator.unset_num_microbatches_calculator()
    calculator.init_num_microbatches_calculator(
        0, args.rampup_batch_size, args.global_batch_size, args.micro_batch_size, args.data_parallel_size, False
    )


answer_all(read)
