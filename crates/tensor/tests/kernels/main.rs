//! Every kernel against plain `f64` loops, at odd sizes, bit-equal for any number of threads.

mod attention;
mod attention_parts;
mod cached;
mod columns;
mod cross_entropy;
mod elementwise;
mod embedding;
mod experts;
mod few_rows;
mod head_norm;
mod latent;
mod matmul;
mod norm;
mod rms_norm;
mod rotary;
mod rows;
mod squared_error;
mod stored;
mod stored_attention;
mod stored_products;
mod stored_rows;
mod support;
mod swiglu;
