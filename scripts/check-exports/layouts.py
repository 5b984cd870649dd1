"""The sample of layouts: families, grids of up to 64 ranks, schedules, recomputation, ZeRO, context; the same in every run."""

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


def one(draw):
    """The flags of a random layout; the program may refuse it."""
    model, fields, layers, tensor = draw.choice(MODELS)
    x = draw.choice(tensor)
    y = draw.choice([1, 1, 1, 2])
    z, context, data, pipe = (draw.choice(sizes) for sizes in ([1, 1, 2, 4], [1, 1, 1, 2], [1, 1, 2, 4], [1, 1, 2, 4]))
    if x * y * z * context * data * pipe > 64 or x * y not in tensor:
        return None
    schedule = draw.choice(SCHEDULES) if pipe > 1 else "1f1b"
    activations = draw.choice(["scattered", "replicated"]) if y == 1 else "replicated"
    microbatch = z * draw.choice([1, 2])
    passes = pipe * draw.choice([1, 2]) if pipe > 1 else draw.choice([1, 2, 4])
    flags = ["--model", model] + [word for field in fields for word in ("--set", field)]
    flags += ["--grid", f"x={x},y={y},z={z},context={context},data={data},pipe={pipe}"]
    flags += ["--microbatch", str(microbatch), "--global-batch", str(microbatch * passes * data)]
    flags += ["--activations", activations, "--schedule", schedule, "--recompute", draw.choice(RECOMPUTE)]
    flags += ["--zero", draw.choice(["0", "1", "2"]), "--keep-weights", draw.choice(["use", "use", "step"])]
    flags += ["--overlap", draw.choice(["all", "all", "none", "oar", "ors,oag"])]
    if draw.random() < 0.3:
        flags += ["--order", "x,y,context,z,data,pipe"]
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
    words += ["stage-blocks"] if "--stage-blocks" in value else []
    return [f"model {value['--model']}"] + words


def ranks(flags):
    """The product of the grid's sizes."""
    product = 1
    for pair in flags[flags.index("--grid") + 1].split(","):
        product *= int(pair.split("=")[1])
    return product
