//! Files of other programs, and tokenizers.

mod broken_tokenizers;
mod cut;
mod ends;
mod formats;
mod others;
mod special_tokens;
mod tokenizers;
