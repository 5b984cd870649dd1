"""Makes the fixtures beside this file: tiny random models as transformers saves them, and what torch computes of them.

    python make_fixtures.py [MODEL...]

Made with Python 3.11, torch 2.15.0, transformers 5.23.0 (from olmoe on in MODELS: 5.24.0) and
safetensors 0.8.0; all random numbers are drawn from fixed
seeds. Every folder is what `save_pretrained` writes (without generation_config.json). Those of MODELS with
`expected` have two more files:

expected.safetensors  `inputs`, `targets` [4, 8] (I64), `loss` [1], `logits` [4, 8, vocab]; the loss is the mean
                      cross-entropy of the targets
gradients.safetensors the gradient of the loss for every stored tensor, under its name

Both are computed in float64 from the stored weights and rounded to float32. The rotary angles of all families but GPT-2,
the mean squares of RMS norms and the scores of routers are float32 also then: the library's modules compute them so.

mixtral-fused and olmoe-fused are mixtral and olmoe under the names that the library's modules have: one tensor for all
experts.
"""

import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM, Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GemmaConfig,
    GemmaForCausalLM, GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig,
    LlamaForCausalLM, MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Olmo2Config,
    Olmo2ForCausalLM, OlmoeConfig, OlmoeForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM,
    Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, Starcoder2Config, Starcoder2ForCausalLM,
)

HERE = Path(__file__).parent
VOCAB, SEQ_LEN, SEQUENCES, TOKENS = 97, 16, 4, 8


def gpt2(**changes):
    sizes = dict(vocab_size=VOCAB, n_positions=SEQ_LEN, n_embd=32, n_layer=2, n_head=4, n_inner=96, bos_token_id=96,
                 eos_token_id=96, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)
    return GPT2LMHeadModel(GPT2Config(**{**sizes, **changes}))


ROTARY = dict(vocab_size=VOCAB, max_position_embeddings=SEQ_LEN, hidden_size=32, num_hidden_layers=2,
              num_attention_heads=4)
LLAMA = dict(ROTARY, intermediate_size=40, num_key_value_heads=2, rms_norm_eps=1e-5)


def llama(**changes):
    return LlamaForCausalLM(LlamaConfig(**{**LLAMA, **changes}))


def mistral():
    return MistralForCausalLM(MistralConfig(**LLAMA, sliding_window=None))


def olmo2():
    return Olmo2ForCausalLM(Olmo2Config(**LLAMA, pad_token_id=None, eos_token_id=None))


def gpt_neox():
    return GPTNeoXForCausalLM(GPTNeoXConfig(
        **ROTARY, intermediate_size=96, use_parallel_residual=False, rotary_pct=1.0, hidden_act="gelu_new"))


def gpt_neox_parallel():
    """Attention and perceptron beside each other; a half of each head turns."""
    return GPTNeoXForCausalLM(GPTNeoXConfig(
        **NARROW, intermediate_size=32, use_parallel_residual=True, rotary_pct=0.5, hidden_act="gelu_fast"))


def pythia():
    """As it is published: GELU by the error function, and a quarter of each head turns."""
    return GPTNeoXForCausalLM(GPTNeoXConfig(**{**NARROW, "num_attention_heads": 2}, intermediate_size=32))


# Narrower than the others.
NARROW = dict(ROTARY, hidden_size=16)
KIN = dict(NARROW, intermediate_size=24, num_key_value_heads=2, rms_norm_eps=1e-5, bos_token_id=None, eos_token_id=None,
           pad_token_id=None)


def llama31():
    """Of the four pairs of a head one keeps its frequency, one is mixed, two are scaled."""
    scaling = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32, rope_theta=100.0)
    return LlamaForCausalLM(LlamaConfig(**KIN, head_dim=8, rope_parameters=scaling))


def mistral_window():
    """A window of three tokens, and heads wider than their part of the stream."""
    return MistralForCausalLM(MistralConfig(**KIN, head_dim=6, sliding_window=3))


def phi3():
    """A half of each head turns; a window of five tokens."""
    return Phi3ForCausalLM(Phi3Config(**KIN, partial_rotary_factor=0.5, sliding_window=5))


def qwen2():
    """The second block has a window of three tokens."""
    return Qwen2ForCausalLM(Qwen2Config(**KIN, use_sliding_window=True, sliding_window=3, max_window_layers=1))


def qwen3():
    return Qwen3ForCausalLM(Qwen3Config(**KIN, head_dim=6, tie_word_embeddings=True))


def starcoder2():
    sizes = {name: value for name, value in KIN.items() if name != "rms_norm_eps"}
    return Starcoder2ForCausalLM(Starcoder2Config(**sizes, sliding_window=3))


# Heads wider than their part of the stream; no special tokens, of which the library would leave one without a gradient.
GEMMA = dict(vocab_size=VOCAB, max_position_embeddings=SEQ_LEN, hidden_size=24, intermediate_size=20, num_attention_heads=2,
             num_key_value_heads=1, head_dim=16, bos_token_id=None, eos_token_id=None, pad_token_id=None)


def gemma():
    return GemmaForCausalLM(GemmaConfig(**GEMMA, num_hidden_layers=2))


def gemma2():
    """Windows in every second block, from the first on; both caps are low enough to be felt."""
    return Gemma2ForCausalLM(Gemma2Config(
        **GEMMA, num_hidden_layers=3, sliding_window=3, query_pre_attn_scalar=12, attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0))


def gemma3():
    """The second block sees all and turns by other angles, which are scaled."""
    return Gemma3ForCausalLM(Gemma3TextConfig(
        **GEMMA, num_hidden_layers=3, sliding_window=3, query_pre_attn_scalar=12,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}))


# Four small experts; no loss of their loads, which is another one here.
EXPERTS = dict(ROTARY, hidden_size=16, num_key_value_heads=2, num_experts_per_tok=2, rms_norm_eps=1e-5,
               router_aux_loss_coef=0.0)


def mixtral():
    return MixtralForCausalLM(MixtralConfig(**EXPERTS, intermediate_size=8, num_local_experts=4))


def olmoe():
    return OlmoeForCausalLM(OlmoeConfig(**EXPERTS, intermediate_size=8, num_experts=4, pad_token_id=None, eos_token_id=None))


def qwen3_moe():
    """Heads wider than their part of the stream; the first block has a perceptron; weights are not normalized."""
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(
        **EXPERTS, intermediate_size=24, moe_intermediate_size=8, num_experts=4, head_dim=8, mlp_only_layers=[0],
        norm_topk_prob=False))


# Folder: the model, the type of its stored weights, the size of a shard, whether torch's results are stored.
MODELS = {
    "gpt2": (gpt2, torch.float32, "5GB", True),
    "llama": (llama, torch.float32, "5GB", True),
    "llama-tied": (lambda: llama(tie_word_embeddings=True, rope_theta=500000.0), torch.float32, "5GB", True),
    "llama-biases": (lambda: llama(attention_bias=True, mlp_bias=True, num_hidden_layers=1), torch.float32, "5GB", True),
    "mistral": (mistral, torch.float32, "5GB", True),
    "gpt-neox": (gpt_neox, torch.float32, "5GB", True),
    "llama-bf16": (lambda: llama(num_hidden_layers=1), torch.bfloat16, "5GB", True),
    "gpt2-f16": (lambda: gpt2(n_layer=1), torch.float16, "5GB", False),
    "llama-sharded": (lambda: llama(num_hidden_layers=1), torch.float32, "20KB", False),
    "mixtral": (mixtral, torch.float32, "5GB", True),
    "qwen3-moe": (qwen3_moe, torch.float32, "5GB", True),
    "olmoe": (olmoe, torch.float32, "5GB", True),
    "olmo2": (olmo2, torch.float32, "5GB", True),
    "gpt-neox-parallel": (gpt_neox_parallel, torch.float32, "5GB", True),
    "llama-3.1": (llama31, torch.float32, "5GB", True),
    "mistral-window": (mistral_window, torch.float32, "5GB", True),
    "phi3": (phi3, torch.float32, "5GB", True),
    "qwen2": (qwen2, torch.float32, "5GB", True),
    "qwen3": (qwen3, torch.float32, "5GB", True),
    "starcoder2": (starcoder2, torch.float32, "5GB", True),
    "pythia": (pythia, torch.float32, "5GB", True),
    "gemma": (gemma, torch.float32, "5GB", True),
    "gemma2": (gemma2, torch.float32, "5GB", True),
    "gemma3": (gemma3, torch.float32, "5GB", True),
}
# Folder: the one whose weights it has under the names of the library's modules.
FUSED = {"mixtral-fused": "mixtral", "olmoe-fused": "olmoe"}


def randomize(model, seed):
    """No parameter is zero or one: an exchange of two vectors of either must not go unnoticed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.15 * drawn if parameter.dim() >= 2 else parameter + 0.2 * drawn)


def expect(folder, seed):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager",
                                                 experts_implementation="eager").eval()
    generator = torch.Generator().manual_seed(1000 + seed)
    tokens = torch.randint(VOCAB, (SEQUENCES, TOKENS + 1), generator=generator)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    logits = model(input_ids=inputs, use_cache=False).logits
    assert logits.dtype == torch.float64
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))
    loss.backward()
    results = {"inputs": inputs, "targets": targets, "loss": loss.detach().reshape(1).float(),
               "logits": logits.detach().float()}
    save_file(results, folder / "expected.safetensors")
    save_gradients(model, folder)
    print(f"{folder.name}: loss {loss.item():.6f}")


def save_gradients(model, folder):
    """As if they were the model's weights, so that the library gives them the names that it stores."""
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)
    with tempfile.TemporaryDirectory() as saved:
        model.float().save_pretrained(saved)
        gradients = load_file(Path(saved) / "model.safetensors")
    assert gradients.keys() == load_file(folder / "model.safetensors").keys()
    assert all(gradient.abs().max() > 0 for gradient in gradients.values())
    save_file(gradients, folder / "gradients.safetensors")


def save_fused(folder, of):
    model = AutoModelForCausalLM.from_pretrained(of)
    model.save_pretrained(folder, save_original_format=False)
    (folder / "generation_config.json").unlink(missing_ok=True)


def main(wanted):
    for seed, (name, (build, dtype, shard, expected)) in enumerate(MODELS.items()):
        if wanted and name not in wanted:
            continue
        folder = HERE / name
        torch.manual_seed(seed)
        model = build()
        randomize(model, seed)
        model.to(dtype).save_pretrained(folder, max_shard_size=shard)
        (folder / "generation_config.json").unlink(missing_ok=True)
        if expected:
            expect(folder, seed)
    for name, of in FUSED.items():
        if not wanted or name in wanted:
            save_fused(HERE / name, HERE / of)


main(sys.argv[1:])
