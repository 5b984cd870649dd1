//! What the rates of a plan are: TFLOP/s of a device, MFU and HFU.

use quadrille_plan::native::{Question, Setting};
use quadrille_run::units::decimal;
use quadrille_spec::FlopsConvention;

/// FLOPs that TFLOP/s and MFU are of.
pub(crate) fn counted(convention: FlopsConvention) -> &'static str {
    match convention {
        FlopsConvention::Native => {
            "FLOPs of products and attention, forward and backward, nothing twice and no causal discount"
        }
        FlopsConvention::Megatron => {
            "FLOPs as Megatron-LM's log counts them (num_floating_point_operations: half of attention, logits of the padded \
             vocabulary, no routers)"
        }
        FlopsConvention::Torchtitan => {
            "FLOPs as torchtitan's log counts them (6 a token and active parameter that is no table, attention without causal \
             discount)"
        }
    }
}

/// What TFLOP/s, MFU and HFU are.
pub(super) fn utilization(question: &Question, setting: &Setting) -> String {
    let counted = counted(question.flops_convention);
    match setting.peak() {
        None => format!("TFLOP/s: {counted}, over step x devices\n"),
        Some((peak, kind)) => format!(
            "TFLOP/s, MFU: {counted}, over step x devices, and over that x {} ({kind} peak); HFU: all that are executed, over \
             the same\n",
            decimal(peak, "FLOP/s")
        ),
    }
}
