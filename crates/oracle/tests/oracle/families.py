"""Prints families.txt: loss and gradients of small Llamas, vision transformers, mixtures of experts and models with latent attention,
of scalars that remember what they were computed from. Needs nothing but Python 3.

    python families.py > families.txt

A line per case: its sizes, then the loss, then for each parameter the sum of gradient[e] * cos(e). The first case is
reference.py's first, so that the two programs can be held against each other. With experts the gradient is that of
loss + balance + router_z, whose lines follow the loss with the number of dropped choices.
"""

import math


class Number:
    """A value of the computation and its derivatives by the numbers that it was made of."""

    tape = []

    def __init__(self, value, made_of=()):
        self.value, self.made_of, self.gradient = value, made_of, 0.0
        Number.tape.append(self)

    def __add__(self, other):
        return Number(self.value + other.value, [(self, 1.0), (other, 1.0)])

    def __mul__(self, other):
        return Number(self.value * other.value, [(self, other.value), (other, self.value)])

    def apply(self, value, derivative):
        return Number(value, [(self, derivative)])

    def scale(self, factor):
        return self.apply(self.value * factor, factor)

    def shift(self, addend):
        return self.apply(self.value + addend, 1.0)

    def power(self, exponent):
        return self.apply(self.value**exponent, exponent * self.value ** (exponent - 1))

    def exp(self):
        return self.apply(math.exp(self.value), math.exp(self.value))

    def log(self):
        return self.apply(math.log(self.value), 1.0 / self.value)

    def tanh(self):
        return self.apply(math.tanh(self.value), 1.0 - math.tanh(self.value) ** 2)


def total(numbers):
    return Number(math.fsum(n.value for n in numbers), [(n, 1.0) for n in numbers])


def dot(a, b):
    made_of = [pair for x, y in zip(a, b) for pair in ((x, y.value), (y, x.value))]
    return Number(math.fsum(x.value * y.value for x, y in zip(a, b)), made_of)


def differentiate(result):
    result.gradient = 1.0
    for number in reversed(Number.tape):
        for source, derivative in number.made_of:
            source.gradient += number.gradient * derivative


def has_experts(case, i):
    return case.get("experts", 0) > 0 and (i + 1) % case["every"] == 0


def widths(case):
    """Columns of a query and a key, and of a value."""
    d = case.get("head_dim", case["hidden"] // case["heads"])
    return d, case.get("value_dim", d)


def shapes(case):
    h, f, a, (d, v) = case["hidden"], case["ffn"], case["heads"], widths(case)
    beta = lambda name, width: [(f"{name}.beta", (1, width))] if case["norm"] == "layer" else []
    norm = lambda name, width=h: [(f"{name}.gamma", (1, width))] + beta(name, width)
    bias = lambda name, width: [(f"{name}.bias", (1, width))] if case["biases"] else []
    linear = lambda name, i, o: [(f"{name}.weight", (i, o))] + bias(name, o)
    narrow = lambda name, width: linear(name, h, width) + norm(f"{name}_norm", width)
    up = 2 * f if case["activation"] == "swiglu" else f
    values, table = case["patch_values"], (case["vocab"], h)
    out = linear("embedding", values, h) if values else [("embedding.table", table)]
    out += [("embedding.positions", (case["max_len"], h))] if case["positions"] == "learned" else []
    for i in range(case["layers"]):
        b = f"block.{i}."
        out += norm(b + "norm1")
        if "key_value_latent" in case:
            wide, shared = case["key_value_latent"], case["shared_key"]
            out += narrow(b + "query_latent", case["query_latent"]) if case["query_latent"] else []
            out += linear(b + "queries", case["query_latent"] or h, a * d)
            out += narrow(b + "key_value_latent", wide) + linear(b + "keys_values", wide, a * (d - shared + v))
            out += linear(b + "shared_key", h, shared)
        else:
            out += linear(b + "qkv", h, a * d + case["kv_heads"] * (d + v))
        out += linear(b + "projection", a * v, h) + norm(b + "norm2")
        if has_experts(case, i):
            count, shared = case["experts"], case["shared"]
            out += [(f"{b}router.weight", (h, count))]
            out += [(f"{b}experts.up.weight", (count * h, up)), (f"{b}experts.down.weight", (count * f, h))]
            out += linear(b + "shared.up", h, up // f * shared) + linear(b + "shared.down", shared, h) if shared else []
        else:
            out += linear(b + "up", h, up) + linear(b + "down", f, h)
    out += norm("final_norm")
    if values:
        return out + linear("head", h, values)
    return out if case["tied"] else out + [("head.weight", table)]


def initial(k, name, shape):
    """A list of rows."""
    value = lambda e: float(name.endswith("gamma")) + 0.4 * math.sin(0.37 * (k + 1) * (e + 1) + k)
    return [[Number(value(row * shape[1] + column)) for column in range(shape[1])] for row in range(shape[0])]


def norm(p, name, x, case):
    if case["norm"] == "layer":
        mean = total(x).scale(1 / len(x))
        x = [number + mean.scale(-1) for number in x]
    root = dot(x, x).scale(1 / len(x)).shift(case["epsilon"]).power(-0.5)
    scaled = [number * root * gamma for number, gamma in zip(x, p[f"{name}.gamma"][0])]
    return [a + b for a, b in zip(scaled, p[f"{name}.beta"][0])] if case["norm"] == "layer" else scaled


def linear(p, name, x):
    y = [dot(x, column) for column in zip(*p[f"{name}.weight"])]
    return [a + b for a, b in zip(y, p[f"{name}.bias"][0])] if f"{name}.bias" in p else y


def turn(head, position, base):
    """Multiplies the complex numbers head[i] + head[i + d/2] j with those of angle position / base^(2i / d)."""
    pairs = len(head) // 2
    angles = [position / base ** (i / pairs) for i in range(pairs)]
    real = [head[i].scale(math.cos(t)) + head[i + pairs].scale(-math.sin(t)) for i, t in enumerate(angles)]
    imaginary = [head[i].scale(math.sin(t)) + head[i + pairs].scale(math.cos(t)) for i, t in enumerate(angles)]
    return real + imaginary


def rounded(weight):
    """In 13 binary digits: weights that differ by rounding are equal."""
    part, exponent = math.frexp(weight)
    return math.ldexp(math.floor(math.ldexp(part, 13) + 0.5), exponent - 13)


def softmax(scores):
    top = max(score.value for score in scores)
    powers = [score.shift(-top).exp() for score in scores]
    inverse = total(powers).power(-1)
    return [power * inverse for power in powers]


def cut(row, width):
    return [row[at : at + width] for at in range(0, len(row), width)]


def heads(p, name, row, case):
    """Queries, keys and values that a normed row makes, each a list of heads; keys and values once for every query."""
    d, v = widths(case)
    if "key_value_latent" in case:
        narrow = lambda layer: norm(p, f"{name}.{layer}_norm", linear(p, f"{name}.{layer}", row), case)
        queries = linear(p, f"{name}.queries", narrow("query_latent") if case["query_latent"] else row)
        shared = linear(p, f"{name}.shared_key", row)
        own = d - len(shared)
        pairs = cut(linear(p, f"{name}.keys_values", narrow("key_value_latent")), own + v)
        return cut(queries, d), [shared + pair[:own] for pair in pairs], [pair[own:] for pair in pairs]
    in_group = case["heads"] // case["kv_heads"]
    q, k, of_values = [], [], []
    for group in cut(linear(p, f"{name}.qkv", row), in_group * d + d + v):
        q += cut(group[: in_group * d], d)
        k += [group[in_group * d : in_group * d + d]] * in_group
        of_values += [group[in_group * d + d :]] * in_group
    return q, k, of_values


def attention(p, name, rows, case):
    """The heads' results side by side, for each normed row of one sequence."""
    d, v = widths(case)
    queries, keys, values = [], [], []  # [row][head of queries][number]
    for position, row in enumerate(rows):
        q, k, of_values = heads(p, name, row, case)
        if case["positions"] == "rotary":
            turned = case.get("rotary_dim", d)
            turn_first = lambda head: turn(head[:turned], position, case["base"]) + head[turned:]
            q, k = ([turn_first(head) for head in part] for part in (q, k))
        queries.append(q), keys.append(k), values.append(of_values)
    out = []
    for position in range(len(rows)):
        seen = range(position + 1) if case["causal"] else range(len(rows))
        out.append([])
        for head in range(case["heads"]):
            weights = softmax([dot(queries[position][head], keys[key][head]).scale(d**-0.5) for key in seen])
            out[-1] += [dot(weights, [values[key][head][j] for key in seen]) for j in range(v)]
    return out


def activation(x, case):
    if case["activation"] == "swiglu":
        silu = lambda gate: gate * gate.scale(-1).exp().shift(1).power(-1)
        return [silu(gate) * up for gate, up in zip(x[0::2], x[1::2])]
    inner = lambda n: (n + n.power(3).scale(0.044715)).scale(math.sqrt(2 / math.pi))
    return [n.scale(0.5) * inner(n).tanh().shift(1) for n in x]


def sigmoid(x):
    return x.scale(-1).exp().shift(1).power(-1)


def places(chosen, weights, case):
    """The pairs of row and choice of one sequence that have a place."""
    k, group = case["k"], case["group"]
    kept = set()
    for start in range(0, len(chosen), group):
        tokens = min(group, len(chosen) - start)
        most = min(tokens, math.ceil(case["capacity"] * k * tokens / case["experts"]))
        claims = [(row, j) for row in range(start, min(start + group, len(chosen))) for j in range(k)]
        by_choice = lambda claim: (claim[1], claim[0])
        by_score = lambda claim: (-rounded(weights[claim[0]][claim[1]].value), claim[1], claim[0])
        taken = [0] * case["experts"]
        for row, j in sorted(claims, key=by_choice if case["drop"] == "choice" else by_score):
            taken[chosen[row][j]] += 1
            if taken[chosen[row][j]] <= most:
                kept.add((row, j))
    return kept


def experts(p, name, rows, case, routed):
    """What experts give to the rows of one sequence; appends what the router said of it."""
    h, f, k = case["hidden"], case["ffn"], case["k"]
    logits = [linear(p, f"{name}.router", row) for row in rows]
    scores = [softmax(row) if case["router"] == "softmax" else [sigmoid(x) for x in row] for row in logits]
    chosen = [sorted(range(len(row)), key=lambda e: (-row[e].value, e))[:k] for row in scores]
    weights = []
    for row, ids in zip(scores, chosen):
        factor = total([row[e] for e in ids]).power(-1) if case["normalize"] else Number(1.0)
        weights.append([(row[e] * factor).scale(case["scale"]) for e in ids])
    kept = places(chosen, weights, case)
    out = []
    for t, row in enumerate(rows):
        given = [[Number(0.0)] * h]
        for j in (j for j in range(k) if (t, j) in kept):
            e = chosen[t][j]
            up = [dot(row, column) for column in zip(*p[f"{name}.experts.up.weight"][e * h : (e + 1) * h])]
            down = p[f"{name}.experts.down.weight"][e * f : (e + 1) * f]
            result = [dot(activation(up, case), column) for column in zip(*down)]
            given.append([number * weights[t][j] for number in result])
        if case["shared"]:
            given.append(linear(p, f"{name}.shared.down", activation(linear(p, f"{name}.shared.up", row), case)))
        out.append([total(column) for column in zip(*given)])
    routed.append((logits, scores, chosen, len(rows) * k - len(kept)))
    return out


def router_losses(routed, case):
    """Of one block, whose router said this of every sequence: balance and z loss."""
    count, k = case["experts"], case["k"]
    scopes = [routed] if case["balance"] == "batch" else [[sequence] for sequence in routed]
    balances, tokens = [], sum(len(chosen) for _, _, chosen, _ in routed)
    for scope in scopes:
        shares = [[s * total(row).power(-1) for s in row] for _, scores, _, _ in scope for row in scores]
        ids = [e for _, _, chosen, _ in scope for row in chosen for e in row]
        loads = [ids.count(e) * count / (k * len(shares)) for e in range(count)]
        means = [total([row[e] for row in shares]).scale(1 / len(shares)) for e in range(count)]
        balances.append(total([mean.scale(load * len(shares) / tokens) for mean, load in zip(means, loads)]))
    squares = [total([x.exp() for x in row]).log().power(2) for logits, _, _, _ in routed for row in logits]
    mean = lambda numbers: total(numbers).scale(1 / len(numbers))
    return total(balances).scale(case["balance_loss"]), mean(squares).scale(case["z_loss"])


def block(p, name, x, case, routed=None):
    """The rows of one sequence; experts append to `routed`."""
    add = lambda x, y: [[a + b for a, b in zip(*rows)] for rows in zip(x, y)]
    normed = [norm(p, f"{name}.norm1", row, case) for row in x]
    x = add(x, [linear(p, f"{name}.projection", row) for row in attention(p, name, normed, case)])
    normed = [norm(p, f"{name}.norm2", row, case) for row in x]
    if routed is not None:
        return add(x, experts(p, name, normed, case, routed))
    up = [linear(p, f"{name}.up", row) for row in normed]
    return add(x, [linear(p, f"{name}.down", activation(row, case)) for row in up])


def loss(p, case):
    """The mean loss, and for each block with experts what its router said of every sequence."""
    losses, routed = [], {i: [] for i in range(case["layers"]) if has_experts(case, i)}
    lengths = case.get("lengths", [case["seq_len"]] * case["sequences"])
    for sequence, length in enumerate(lengths):
        at, v = sequence * case["seq_len"], case["patch_values"]
        n = range(at, at + length)
        if v:
            x = [linear(p, "embedding", [Number(math.sin(0.7 * (i * v + j))) for j in range(v)]) for i in n]
        else:
            x = [p["embedding.table"][(7 * i * i + 3) % case["vocab"]] for i in n]
        if case["positions"] == "learned":
            x = [[a + b for a, b in zip(*rows)] for rows in zip(x, p["embedding.positions"])]
        for i in range(case["layers"]):
            x = block(p, f"block.{i}", x, case, routed.get(i))
        for i, row in zip(n, x):
            row = norm(p, "final_norm", row, case)
            if v:
                wrong = [y.shift(-math.cos(1.3 * (i * v + j))) for j, y in enumerate(linear(p, "head", row))]
                losses += [number.power(2) for number in wrong]
            elif i % 4 != case.get("ignored"):
                table = p["embedding.table" if case["tied"] else "head.weight"]
                probabilities = softmax([dot(row, entry) for entry in table])
                losses.append(probabilities[(5 * i + 1) % case["vocab"]].log().scale(-1))
    return total(losses).scale(1 / len(losses)), list(routed.values())


GPT = dict(
    layers=2, hidden=12, heads=3, kv_heads=3, ffn=10, vocab=13, max_len=7, patch_values=0, tied=True, biases=False,
    norm="layer", epsilon=1e-5, positions="learned", base=0, activation="gelu", causal=True, sequences=3, seq_len=5,
)  # fmt: skip
LLAMA = GPT | dict(hidden=16, heads=4, kv_heads=2, tied=False, norm="rms", positions="rotary", base=50, activation="swiglu")
VIT = GPT | dict(vocab=0, patch_values=6, tied=False, biases=True, causal=False)
MOE = dict(
    experts=4, k=2, every=1, shared=0, router="softmax", normalize=True, scale=1.0, balance="sequence", balance_loss=0.5,
    z_loss=0.1, capacity=0.9, group=5, drop="choice",
)  # fmt: skip
CASES = dict(
    gpt=GPT,
    llama=LLAMA,
    vit=VIT,
    tokens=GPT | dict(kv_heads=1, biases=True, norm="rms", epsilon=0.1, activation="swiglu", causal=False),
    patches=LLAMA | dict(vocab=0, patch_values=3, biases=True, norm="layer", activation="gelu", kv_heads=1),
    moe=LLAMA | MOE,
    sigmoid=GPT
    | MOE
    | dict(experts=5, k=3, every=2, shared=4, router="sigmoid", scale=2.5, balance="batch", capacity=0.5, drop="score"),
    plain=LLAMA | MOE | dict(k=1, normalize=False, router="sigmoid", balance_loss=0.2, z_loss=0.0, capacity=1.3),
    padded=LLAMA | MOE | dict(lengths=[5, 2, 4], ignored=1),
    padded_batch=GPT
    | MOE
    | dict(experts=5, k=3, router="sigmoid", balance="batch", capacity=0.5, drop="score", lengths=[1, 4, 3], ignored=3),
    latent=LLAMA
    | dict(kv_heads=4, epsilon=0.1, head_dim=7, value_dim=5)
    | dict(key_value_latent=6, query_latent=5, shared_key=4, rotary_dim=4),
    latent_keys=GPT
    | dict(epsilon=0.1, head_dim=5, value_dim=6, key_value_latent=7, query_latent=0, shared_key=2),
)

for name, case in CASES.items():
    Number.tape.clear()
    parameters = {name: initial(k, name, shape) for k, (name, shape) in enumerate(shapes(case))}
    result, routed = loss(parameters, case)
    losses = [router_losses(block, case) for block in routed]
    differentiate(total([result] + [number for block in losses for number in block]))
    print("case", name, *(f"{name}={setting}" for name, setting in case.items()))
    print("loss", repr(result.value))
    if losses:
        print("balance", repr(sum(balance.value for balance, _ in losses)))
        print("router_z", repr(sum(z.value for _, z in losses)))
        print("dropped", sum(dropped for block in routed for *_, dropped in block))
    for name, rows in parameters.items():
        numbers = [number for row in rows for number in row]
        print(name, repr(math.fsum(number.gradient * math.cos(e) for e, number in enumerate(numbers))))
