"""Makes llama-chat beside this file: a tiny random Llama with a tokenizer, a chat template and what transformers makes of texts.

    python make_texts.py

Made with Python 3.11, torch 2.15.0, transformers 5.24.0, tokenizers 0.23.3 and safetensors 0.8.0. The folder is what
`save_pretrained` writes of model and tokenizer, with one more file:

texts.json  `texts`: prompts, their tokens and the likeliest ones behind them; `plain` without the post-processor of
            tokenizer.json, `flag` with the tokens that the tokenizer of Llama gives then in transformers 4.57.3
            where tokenizer_config.json has add_bos_token; `parsed` with special tokens in the prompt.
            `chats`: the same of one message of the user, with the tokens of `apply_chat_template`; the answer ends before a
            token of generation_config.json's eos_token_id.
"""

import json
import shutil
import tempfile
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

FOLDER = Path(__file__).parent / "llama-chat"
SPECIAL = ["<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
SEQ_LEN, TOKENS = 96, 12
PROMPTS = ["Hello world", "", " a model of tokens", "caf\u00e9 \U0001f980\n", "<|im_start|>user"]


def tokenizer():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([__doc__] * 3, trainer)
    made.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    made.add_tokens(["<think>"])
    begin = made.token_to_id("<|begin|>")
    made.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A $B", special_tokens=[("<|begin|>", begin)]),
    ])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<|begin|>", eos_token="<|end|>", pad_token="<|pad|>",
                                   chat_template=TEMPLATE)


def model(words):
    ids = words.convert_tokens_to_ids
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=SEQ_LEN, rms_norm_eps=1e-5, tie_word_embeddings=True,
        bos_token_id=ids("<|begin|>"), eos_token_id=ids("<|end|>"), pad_token_id=ids("<|pad|>"),
        rope_parameters=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=32, rope_theta=5000.0))
    made = LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in made.parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.4 * drawn if parameter.dim() >= 2 else parameter + 0.2 * drawn)
    return made


def continued(network, prompt, **options):
    """The likeliest tokens, each by far enough that rounding cannot matter."""
    out = network.generate(torch.tensor([prompt]), max_new_tokens=TOKENS, do_sample=False, return_dict_in_generate=True,
                           output_logits=True, **options)
    for logits in out.logits:
        first, second = logits[0].double().topk(2).values
        assert first - second > 1e-4, (prompt, float(first - second))
    return out.sequences[0, len(prompt):].tolist()


def main():
    torch.manual_seed(0)
    shutil.rmtree(FOLDER, ignore_errors=True)
    words = tokenizer()
    words.save_pretrained(FOLDER)
    model(words).save_pretrained(FOLDER)
    words, network = AutoTokenizer.from_pretrained(FOLDER), AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
        file = Path(folder) / "tokenizer.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "post_processor": None}))
        plain = AutoTokenizer.from_pretrained(folder)

    texts = []
    for kind, of, split in [("usual", words, True), ("plain", plain, True), ("flag", words, True), ("parsed", words, False)]:
        for prompt in PROMPTS:
            ids = of(prompt, split_special_tokens=split)["input_ids"] if prompt or kind != "plain" else [words.bos_token_id]
            tokens = continued(network, ids, eos_token_id=None)
            texts.append({"kind": kind, "prompt": prompt, "prompt_tokens": ids, "tokens": tokens})

    def chat(prompt, system):
        messages = [{"role": "system", "content": system}] * (system is not None) + [{"role": "user", "content": prompt}]
        return words.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)

    # A token that the model draws ends answers, too, so that one of a list does.
    ends = continued(network, chat("Hello world", None), eos_token_id=None)[4]
    generation = FOLDER / "generation_config.json"
    settings = json.loads(generation.read_text())
    settings["eos_token_id"] = [settings["eos_token_id"], ends]
    generation.write_text(json.dumps(settings, indent=2) + "\n")
    network = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    chats = []
    for prompt in PROMPTS[:1] + PROMPTS[2:]:
        for system in [None, "Answer briefly."]:
            ids = chat(prompt, system)
            tokens = continued(network, ids)
            tokens = tokens[:-1] if tokens[-1] in settings["eos_token_id"] else tokens
            chats.append({"prompt": prompt, "system": system, "prompt_tokens": ids, "tokens": tokens})
    assert any(len(chat["tokens"]) < TOKENS for chat in chats)
    (FOLDER / "texts.json").write_text(json.dumps({"texts": texts, "chats": chats}, indent=1) + "\n")


main()
