//! Files of other programs, and tokenizers.

mod cut;
mod ends;
mod formats;
mod others;
mod tokenizers;
