"""The sample of layouts: families, with experts and without, types of numbers, grids of up to 64 ranks, schedules, recomputation,
ZeRO, context; the same in every run."""

import pathlib
import random

CONFIGURATIONS = pathlib.Path(__file__).resolve().parents[2] / "crates/spec/tests/data/hugging_face"
# Published configurations, layers, and the sizes that x and x*y may have.
FAMILIES = [
    ("llama-3.1-8b", 32, [1, 2, 4, 8]),
    ("llama-3.2-1b", 16, [1, 2, 4]),
    ("qwen2.5-7b", 28, [1, 2, 4]),
    ("qwen2.5-0.5b", 24, [1, 2]),
    ("qwen3-8b", 36, [1, 2, 4]),
    ("mistral-7b-v0.1", 32, [1, 2, 4]),
    ("mistral-nemo-12b", 40, [1, 2, 4]),
    ("phi-3-mini-4k", 32, [1, 2, 4]),
    ("smollm2-135m", 30, [1, 3]),
    ("starcoder2-3b", 30, [1, 2]),
    ("gemma-2-2b", 26, [1, 2]),
    ("pythia-1b", 16, [1, 2]),
    ("deepseek-v3", 61, [1, 2, 4]),
    ("kimi-k2", 61, [1, 2]),
]
PRODUCTS = ["fp8", "fp8-block", "mxfp8", "nvfp4"]

# Preset, fields that are set, layers, and the sizes that x and x*y may have.
MODELS = [
    ("gpt-demo", ["layers=8"], 8, [1, 2, 4]),
    ("llama-tiny", ["layers=12"], 12, [1, 2, 4]),
    ("gpt3-1.3b", [], 24, [1, 2, 4, 8]),
    ("gpt-20b", [], 32, [1, 2, 4]),
    ("llama3-8b", [], 32, [1, 2, 4, 8]),
    ("llama2-7b", [], 32, [1, 2, 4, 8]),
    ("llama3-8b", ["rotary_dim=64", "norm_offset=true"], 32, [1, 2, 4]),
    ("llama3-8b", ["activation=relu2", "rotary_scaling=linear", "rotary_factor=4"], 32, [1, 2, 4]),
    ("gpt3-1.3b", ["activation=gelu-erf"], 24, [1, 2, 4]),
]
# The same with experts.
MIXTURES = [
    ("mixtral-8x7b", ["seq_len=4096"], 32, [1, 2, 4, 8]),
    ("mixtral-8x7b", ["seq_len=4096", "capacity=1.25", "drop=score", "router_z_loss=0.001"], 32, [1, 2, 4]),
    ("mixtral-8x7b", ["seq_len=4096", "expert_every=2", "shared_ffn=14336", "router=sigmoid",
                      "router_bias_rate=0.001"], 32, [1, 2, 4]),
    ("mixtral-8x7b", ["seq_len=4096", "expert_first=3", "experts_per_token=1", "router_scale=2.5"], 32, [1, 2, 4]),
    ("qwen3-30b-a3b", ["balance=none"], 48, [1, 2, 4]),
    ("qwen3-30b-a3b", [], 48, [1, 2, 4]),
    ("ted-1.3b", [], 24, [1, 2]),
]
SCHEDULES = ["1f1b", "1f1b", "gpipe", "interleaved", "zb-h1", "message-driven"]
RECOMPUTE = ["none", "none", "selective", "full", "full:2"]


def pieces(draw, layers, pipe):
    """Uneven pieces that add up, or none."""
    if pipe == 1 or draw.random() < 0.7:
        return []
    blocks = [layers // pipe] * pipe
    blocks[-1] += layers - sum(blocks)
    if blocks[0] > 1:
        blocks[0], blocks[-1] = blocks[0] - 1, blocks[-1] + 1
    return ["--stage-blocks", ",".join(map(str, blocks))]


def spread(draw):
    """The size of the axis expert, and the flags that spread experts."""
    over = draw.choice(["expert", "expert", "x,expert", "context,expert", "x,context,expert", "z,expert", "none"])
    flags = ["--experts-over", over, "--dispatch", draw.choice(["dropped", "dropped", "duplicated"])]
    return draw.choice([1, 2, 4]), flags


def numbers(draw):
    """Flags of the types of numbers, of which frameworks have some."""
    flags = ["--products", draw.choice(PRODUCTS)] if draw.random() < 0.25 else []
    flags += ["--gradients", "bf16"] if draw.random() < 0.15 else []
    return flags + (["--moments", draw.choice(["bf16", "fp8"])] if draw.random() < 0.1 else [])


def model(draw):
    """The flags of a model, its layers, the sizes of tensor parallelism, and whether it has experts."""
    kind = draw.random()
    if kind < 0.35:
        name, layers, tensor = draw.choice(FAMILIES)
        flags = ["--from-hf", str(CONFIGURATIONS / f"{name}.json"), "--set", "seq_len=4096"]
        return flags, layers, tensor, name in ("deepseek-v3", "kimi-k2")
    mixture = kind < 0.6
    name, fields, layers, tensor = draw.choice(MIXTURES if mixture else MODELS)
    return ["--model", name] + [word for field in fields for word in ("--set", field)], layers, tensor, mixture


def one(draw):
    """The flags of a random layout; the program may refuse it."""
    described, layers, tensor, mixture = model(draw)
    expert, more = spread(draw) if mixture else (1, [])
    x = draw.choice(tensor)
    y = draw.choice([1, 1, 1, 2])
    z, context, data, pipe = (draw.choice(sizes) for sizes in ([1, 1, 2, 4], [1, 1, 1, 2], [1, 1, 2, 4], [1, 1, 2, 4]))
    if x * y * z * context * expert * data * pipe > 64 or x * y not in tensor:
        return None
    schedule = draw.choice(SCHEDULES) if pipe > 1 else "1f1b"
    activations = draw.choice(["scattered", "replicated"]) if y == 1 else "replicated"
    microbatch = z * draw.choice([1, 2])
    passes = pipe * draw.choice([1, 2]) if pipe > 1 else draw.choice([1, 2, 4])
    flags = described + numbers(draw)
    flags += ["--grid", f"x={x},y={y},z={z},context={context},expert={expert},data={data},pipe={pipe}"]
    flags += ["--microbatch", str(microbatch), "--global-batch", str(microbatch * passes * expert * data)] + more
    flags += ["--activations", activations, "--schedule", schedule, "--recompute", draw.choice(RECOMPUTE)]
    flags += ["--zero", draw.choice(["0", "1", "2"]), "--keep-weights", draw.choice(["use", "use", "step"])]
    flags += ["--overlap", draw.choice(["all", "all", "none", "oar", "ors,oag"])]
    if draw.random() < 0.3:
        flags += ["--order", draw.choice(["x,y,context,z,expert,data,pipe", "x,y,context,pipe,z,expert,data"])]
    if schedule == "interleaved" and layers % (2 * pipe) == 0:
        return flags + ["--chunks", "2"]
    return flags + pieces(draw, layers, pipe)


def sample():
    """Endless, each once."""
    draw, seen = random.Random(20261126), set()
    while True:
        flags = one(draw)
        if flags and tuple(flags) not in seen:
            seen.add(tuple(flags))
            yield flags


def parts(flags):
    """What of a layout is not the usual, as words to be counted."""
    value = dict(zip(flags[::2], flags[1::2]))
    words = [f"{axis} > 1" for axis, size in (pair.split("=") for pair in value["--grid"].split(",")) if size != "1"]
    words += [f"{key[2:]} {value[key]}" for key in ("--schedule", "--activations", "--recompute", "--zero")]
    more = ("--experts-over", "--dispatch", "--products", "--gradients", "--moments")
    words += [f"{key[2:]} {value[key]}" for key in more if key in value]
    words += ["stage-blocks"] if "--stage-blocks" in value else []
    name = value.get("--model") or pathlib.Path(value["--from-hf"]).stem
    return [f"model {name}"] + words


def frameworks(flags):
    """Those that take the layout: the others know no experts."""
    return ("megatron", "torchtitan") if "--experts-over" in flags else ("megatron", "torchtitan", "deepspeed")


def ranks(flags):
    """The product of the grid's sizes."""
    product = 1
    for pair in flags[flags.index("--grid") + 1].split(","):
        product *= int(pair.split("=")[1])
    return product
