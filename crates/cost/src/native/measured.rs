//! What the model counts for an operation: with these, measured seconds become the fractions of a device file.
//!
//! The model takes `launch_seconds + FLOPs / (peak * fraction)` for a product or for attention, unless memory traffic takes
//! longer. Where kernels alone took `t` seconds, the fraction is `FLOPs / (peak * t)` with the FLOPs of this file, and the
//! model's seconds are `t` and the launch.

use quadrille_spec::{Layout, LayoutRequest, Model};
use quadrille_step::{At, Computation, StepProgram};

/// The backward pass of flash-style attention computes the scores again: five products where the ledger counts four
/// (Dao et al. 2022).
const FLASH_BACKWARD: f64 = 2.5 / 2.0;

/// Tiles above the diagonal are left out of causal flash-style attention.
const CAUSAL: f64 = 0.5;

/// FLOPs of a product `[m, k] [k, n]`, its shape as `[m, n, k]`.
pub fn product_flops([m, n, k]: [f64; 3]) -> f64 {
    2.0 * m * n * k
}

/// FLOPs that flash-style attention executes over `outputs` elements of its output: 4 for each of a sequence's tokens, ten
/// backward, half of them where the mask is causal.
pub fn attention_flops(backward: bool, causal: bool, seq_len: f64, outputs: f64) -> f64 {
    let counted = 4.0 * seq_len * outputs * if backward { 2.0 * FLASH_BACKWARD } else { 1.0 };
    if causal { CAUSAL * counted } else { counted }
}

/// Length of a sequence whose causal queries see as many keys, in the mean, as queries in windows of `keys` see in a sequence of
/// `seq_len`: kernels skip tiles before a window as they skip tiles above the diagonal. Without a window `keys` is `seq_len`, and
/// so is this length.
pub fn tokens_seen(seq_len: f64, keys: f64) -> f64 {
    keys * (2.0 - keys / seq_len)
}

/// Arithmetic operations for an element of the element-wise operation of that name in ledgers; `None`: a GPT on one device has
/// none.
pub fn sweep_flops(operation: &str) -> Option<f64> {
    let model = Model::gpt(1, 8, 1, 8, 8);
    let request = LayoutRequest::new("x=1".parse().ok()?, 1);
    let program = StepProgram::new(&model, &Layout::new(&model, &request).ok()?).ok()?;
    let stage = &program.stages[0];
    let sections = stage.chunks.iter().flat_map(|chunk| chunk.sections()).chain([&stage.update]);
    let found = sections.flat_map(|section| &section.ops).find(|op| op.operation.name() == operation)?;
    match found.operation.work(At::first(stage)).computation {
        Computation::Sweep { arithmetic, .. } => Some(arithmetic),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{Cluster, Device, Efficiency, ElementType, MeasuredRate};

    use super::*;
    use crate::native::Framework;
    use crate::native::rates::Rates;

    #[test]
    fn arithmetic_is_that_of_the_table_of_operations() {
        let known = ["bias-gelu", "gelu-backward", "adamw", "residual", "gemm", "none"].map(sweep_flops);
        assert_eq!(known, [Some(9.0), Some(13.0), Some(12.0), Some(3.0), None, None]);
    }

    /// Queries of 8 tokens in windows of 3 see 1, 2, 3, 3, ... keys. A causal query counts half its sequence, and its own key half.
    #[test]
    fn windows_are_as_short_sequences() {
        for (seq_len, window) in [(8_usize, 3_usize), (4096, 512), (32_768, 1024), (100, 100), (100, 1)] {
            let seen: usize = (1..=seq_len).map(|keys| keys.min(window)).sum();
            let mean = seen as f64 / seq_len as f64;
            let [all, keys] = [seq_len, window].map(|count| count as f64);
            // The diagonal counts half.
            let expected = 2.0 * mean - keys / all;
            assert!((tokens_seen(all, keys) - expected).abs() < 1e-9 * expected, "{seq_len}, {window}");
        }
    }

    /// A device that holds the fractions of measured seconds predicts these seconds and its launch.
    #[test]
    fn fractions_give_the_measured_seconds_back() {
        let mut device = Cluster::preset("selene").unwrap().device.unwrap();
        device.launch_seconds = 3e-6;
        device.memory_bandwidth = 1e18;
        let peak = device.peak.single;
        let product = [64.0, 256.0, 16.0];
        let attention = [128.0, 64.0, 8.0];
        let product_seconds = 2.5e-7;
        let forward_and_backward = 4e-6;
        let [seq_len, width, heads] = attention;
        let outputs = seq_len * width * heads;
        let both = attention_flops(false, true, seq_len, outputs) + attention_flops(true, true, seq_len, outputs);
        let table = |[m, n, k]: [f64; 3], fraction| Efficiency::Table {
            entries: vec![MeasuredRate { m: m as usize, n: n as usize, k: k as usize, fraction }],
        };
        device.products = table(product, product_flops(product) / (peak * product_seconds));
        device.attention = table(attention, both / (peak * forward_and_backward));
        let rates = Rates::new(&device, &Framework::QUADRILLE);
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-12, "{a} is not {b}");
        close(rates.products(product, 1.0, rates.element_bytes).seconds(), product_seconds + 3e-6);
        let of = |backward| rates.attention(backward, true, attention, outputs, 0.0).seconds();
        close(of(false) + of(true), forward_and_backward + 6e-6);
        // Forward and backward, 4 and 10 of 14 parts.
        close(of(true) - 3e-6, forward_and_backward * 10.0 / 14.0);
        // Products of 16 bits have a table of their own, where there is one; f16 is widened, and multiplied as f32 is.
        device.peak.half = Some(2.0 * peak);
        device.half_products = Some(table(product, product_flops(product) / (2.0 * peak * 1e-7)));
        let seconds = |device: &Device, dtype: ElementType| {
            let rates = Rates::new(device, &Framework::own(dtype, ElementType::F32));
            rates.products(product, 1.0, rates.element_bytes).seconds() - 3e-6
        };
        close(seconds(&device, ElementType::Bf16), 1e-7);
        close(seconds(&device, ElementType::F16), product_seconds);
        close(seconds(&device, ElementType::F32), product_seconds);
        device.half_products = None;
        close(seconds(&device, ElementType::Bf16), product_seconds / 2.0);
    }
}
