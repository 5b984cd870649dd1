"""The sample of layouts: families, with experts and without, grids of up to 64 ranks, schedules, recomputation, ZeRO, context;
the same in every run."""

import random

# Preset, fields that are set, layers, and the sizes that x and x*y may have.
MODELS = [
    ("gpt-demo", ["layers=8"], 8, [1, 2, 4]),
    ("llama-tiny", ["layers=12"], 12, [1, 2, 4]),
    ("gpt3-1.3b", [], 24, [1, 2, 4, 8]),
    ("gpt-20b", [], 32, [1, 2, 4]),
    ("llama3-8b", [], 32, [1, 2, 4, 8]),
    ("llama2-7b", [], 32, [1, 2, 4, 8]),
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


def one(draw):
    """The flags of a random layout; the program may refuse it."""
    mixture = draw.random() < 0.4
    model, fields, layers, tensor = draw.choice(MIXTURES if mixture else MODELS)
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
    flags = ["--model", model] + [word for field in fields for word in ("--set", field)]
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
    draw, seen = random.Random(20261122), set()
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
    words += [f"{key[2:]} {value[key]}" for key in ("--experts-over", "--dispatch") if key in value]
    words += ["stage-blocks"] if "--stage-blocks" in value else []
    return [f"model {value['--model']}"] + words


def frameworks(flags):
    """Those that take the layout: the others know no experts."""
    return ("megatron", "torchtitan") if "--experts-over" in flags else ("megatron", "torchtitan", "deepspeed")


def ranks(flags):
    """The product of the grid's sizes."""
    product = 1
    for pair in flags[flags.index("--grid") + 1].split(","):
        product *= int(pair.split("=")[1])
    return product
