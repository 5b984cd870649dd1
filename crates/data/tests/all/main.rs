//! Files of other programs, and tokenizers.

mod ends;
mod formats;
mod others;
mod tokenizers;
