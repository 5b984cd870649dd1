//! Files of other programs, and tokenizers.

mod formats;
mod others;
mod tokenizers;
