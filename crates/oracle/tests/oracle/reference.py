"""Prints reference.txt: loss and gradients of the same GPT-2 written in JAX (f64, automatic differentiation).

    pip install jax && python reference.py > reference.txt

A line per case: its sizes, then the loss, then for each parameter the sum of gradient[e] * cos(e).
"""

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
WORD = 2**32


def mix(value):
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return value ^ (value >> 31)


def philox(key, counter):
    state, key = [counter % WORD, counter // WORD, 0, 0], list(key)
    for _ in range(10):
        low, high = state[0] * 0xD2511F53, state[2] * 0xCD9E8D57
        state = [high // WORD ^ state[1] ^ key[0], high % WORD, low // WORD ^ state[3] ^ key[1], low % WORD]
        key = [(key[0] + 0x9E3779B9) % WORD, (key[1] + 0xBB67AE85) % WORD]
    return state


def mask(case, purpose, shape):
    """Factors of one dropout: 0 or 1 / (1 - rate), by flat index."""
    if case["dropout"] == 0:
        return jnp.ones(shape)
    name = 0xCBF29CE484222325
    for byte in f"dropout {purpose}".encode():
        name = (name ^ byte) * 0x100000001B3 % 2**64
    key = mix((mix(case["seed"]) + name) % 2**64)
    key = mix(key ^ mix((case["step"] + 0x9E3779B97F4A7C15) % 2**64))
    words = [philox((key % WORD, key // WORD), i // 4)[i % 4] for i in range(int(np.prod(shape)))]
    keeps = np.array(words).reshape(shape) >= int(case["dropout"] * WORD)
    return jnp.asarray(keeps / (1 - case["dropout"]))


def shapes(case):
    h, f, v = case["hidden"], case["ffn"], case["vocab"]
    norm = lambda name: [(f"{name}.gamma", (h,)), (f"{name}.beta", (h,))]
    bias = lambda name, width: [(f"{name}.bias", (width,))] if case["biases"] else []
    linear = lambda name, i, o: [(f"{name}.weight", (i, o))] + bias(name, o)
    out = [("embedding.table", (v, h)), ("embedding.positions", (case["max_len"], h))]
    for i in range(case["layers"]):
        b = f"block.{i}."
        out += norm(b + "norm1") + linear(b + "qkv", h, 3 * h) + linear(b + "projection", h, h)
        out += norm(b + "norm2") + linear(b + "up", h, f) + linear(b + "down", f, h)
    return out + norm("final_norm") + ([] if case["tied"] else [("head.weight", (v, h))])


def initial(k, name, shape):
    e = np.arange(np.prod(shape))
    return jnp.asarray(float(name.endswith("gamma")) + 0.4 * np.sin(0.37 * (k + 1) * (e + 1) + k)).reshape(shape)


def loss(p, case):
    b, s, a, h, v = (case[name] for name in ("sequences", "seq_len", "heads", "hidden", "vocab"))
    tokens = (7 * np.arange(b * s) ** 2 + 3).reshape(b, s) % v
    targets = (5 * np.arange(b * s) + 1).reshape(b, s) % v

    def norm(name, x):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / jnp.sqrt(x.var(-1, keepdims=True) + case["epsilon"])
        return scaled * p[f"{name}.gamma"] + p[f"{name}.beta"]

    def linear(name, x):
        return x @ p[f"{name}.weight"] + p.get(f"{name}.bias", 0.0)

    x = p["embedding.table"][tokens] + p["embedding.positions"][:s]
    x = x * mask(case, "embedding", x.shape)
    for i in range(case["layers"]):
        qkv = linear(f"block.{i}.qkv", norm(f"block.{i}.norm1", x)).reshape(b, s, a, 3, h // a)
        q, k, value = qkv[..., 0, :], qkv[..., 1, :], qkv[..., 2, :]
        scores = jnp.einsum("bqad,bkad->baqk", q, k) / np.sqrt(h // a)
        weights = jax.nn.softmax(jnp.where(np.tri(s, dtype=bool), scores, -jnp.inf), -1)
        weights = weights * mask(case, f"block {i} attention", weights.shape)
        attended = jnp.einsum("baqk,bkad->bqad", weights, value).reshape(b, s, h)
        x = x + linear(f"block.{i}.projection", attended) * mask(case, f"block {i} projection", x.shape)
        up = jax.nn.gelu(linear(f"block.{i}.up", norm(f"block.{i}.norm2", x)), approximate=True)
        x = x + linear(f"block.{i}.down", up) * mask(case, f"block {i} down", x.shape)
    logits = norm("final_norm", x) @ p["embedding.table" if case["tied"] else "head.weight"].T
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.asarray(targets)[..., None], -1)
    return -chosen.mean()


SIZES = dict(layers=2, hidden=12, heads=3, ffn=10, vocab=13, max_len=7, sequences=3, seq_len=5, epsilon=1e-5)
CASES = [
    dict(SIZES, tied=True, biases=False, dropout=0.0, seed=0, step=0),
    dict(SIZES, tied=False, biases=True, dropout=0.25, seed=42, step=7),
]

for case in CASES:
    parameters = {name: initial(k, name, shape) for k, (name, shape) in enumerate(shapes(case))}
    value, gradients = jax.value_and_grad(loss)(parameters, case)
    print("case", "tied" if case["tied"] else "untied", *(f"{name}={setting}" for name, setting in case.items()))
    print("loss", repr(float(value)))
    for name in parameters:
        g = np.asarray(gradients[name]).ravel()
        print(name, repr(float(g @ np.cos(np.arange(g.size)))))
