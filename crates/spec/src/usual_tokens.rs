//! Usual names of special tokens, for a `tokenizer.json` without a file that names them.

/// Names of the token that ends a document, the one that counts first.
pub const USUAL_ENDS: [&str; 7] =
    ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<|end▁of▁sentence|>", "[EOS]"];

/// Names of the token that begins a text, the one that counts first.
pub const USUAL_BEGINNINGS: [&str; 7] = [
    "<|begin_of_text|>",
    "<s>",
    "<bos>",
    "<|startoftext|>",
    "<|begin▁of▁sentence|>",
    "<｜begin▁of▁sentence｜>",
    "[BOS]",
];
