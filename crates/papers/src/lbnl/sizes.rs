//! Sizes that no machine has.

use quadrille_spec::SpecError;

/// The largest size of a group, a fast domain or a microbatch; products of two of them and of a model's sizes fit into
/// 64 bits.
const MAX_SIZE: u64 = 1 << 24;

/// Refuses a size of 0 and what no machine has, 2^24.
///
/// # Errors
/// Names `name`, its value and the rule.
pub(super) fn check_size(name: &str, size: u64) -> Result<(), SpecError> {
    if size == 0 {
        return Err(SpecError::invalid(name, size, "it is at least 1", "use 1 or more"));
    }
    check_most(name, size, MAX_SIZE, "2^24")
}

/// Refuses 0 and more than `most`, which `what` describes.
pub(super) fn check_most(name: &str, value: u64, most: u64, what: &str) -> Result<(), SpecError> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(SpecError::invalid(name, value, format!("it is 1 to {most}, at most {what}"), format!("use {most} or less")))
}
