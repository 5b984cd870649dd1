//! Random models on random layouts, computed on a device, give the serial model's numbers, and predicted and counted
//! ledgers as integers.
//!
//! The device is the emulated one, or with `QUADRILLE_TEST_DEVICE=cuda` a real one.

#![cfg(emulated)]

mod careless;
mod graphs;
mod switched;

use careless::Part;
use proptest::test_runner::TestCaseError;
use quadrille_cuda::DeviceKind;
use quadrille_proofs::{
    Case, cases, combined_cases, described_cases, expert_cases, for_random, gpt_cases, verified_on,
};
use quadrille_spec::ElementType;

/// Holds a case computed on the device against the serial model.
fn holds(case: &Case, dtype: ElementType) -> Result<(), TestCaseError> {
    let real = std::env::var("QUADRILLE_TEST_DEVICE").is_ok_and(|device| device == "cuda");
    let device = if real { DeviceKind::Cuda } else { DeviceKind::Emulated };
    careless::install();
    match verified_on(&device, &case.program(dtype), case) {
        Ok(report) if report.ok && report.ledger_equal => match careless::refused() {
            0 => Ok(()),
            refused => Err(TestCaseError::fail(format!("{refused} graphs were refused"))),
        },
        Ok(report) => Err(TestCaseError::fail(format!("{report:?}"))),
        Err(error) => Err(TestCaseError::fail(error.to_string())),
    }
}

/// So many, or as many as `QUADRILLE_CASES` says.
fn count(usual: u32) -> u32 {
    std::env::var("QUADRILLE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn gpts_equal_the_serial_model() {
    for_random(count(2), gpt_cases(), |case| holds(&case, ElementType::F64));
}

#[test]
fn layouts_equal_the_serial_model() {
    for_random(count(3), cases(), |case| holds(&case, ElementType::F64));
}

#[test]
fn combined_layouts_equal_the_serial_model() {
    for_random(count(2), combined_cases(), |case| holds(&case, ElementType::F64));
}

#[test]
fn described_blocks_equal_the_serial_model() {
    for_random(count(2), described_cases(), |case| holds(&case, ElementType::F64));
}

#[test]
fn experts_equal_the_serial_model() {
    for_random(count(2), expert_cases(), |case| holds(&case, ElementType::F64));
}

#[test]
fn single_precision_is_close_to_the_serial_model() {
    for_random(count(2), cases(), |case| holds(&case, ElementType::F32));
}

#[test]
fn rounded_values_are_close_to_the_serial_model() {
    for_random(count(2), cases(), |case| holds(&case, ElementType::Bf16));
}

/// Whatever of the order of streams is left out is found.
#[test]
fn careless_devices_are_found() {
    if std::env::var("QUADRILLE_TEST_DEVICE").is_ok() {
        return;
    }
    let test = "combined_layouts_equal_the_serial_model";
    for part in careless::PARTS {
        assert_eq!(careless::passes(test, part, 1), part == Part::Nothing, "{part:?} is left out");
    }
}

/// What one kernel does in place of several is found where it does nothing: so it is that kernel that these layouts have run.
#[test]
fn careless_kernels_of_several_operations_are_found() {
    if std::env::var("QUADRILLE_TEST_DEVICE").is_ok() {
        return;
    }
    let test = "gpts_equal_the_serial_model";
    assert!(careless::passes(test, Part::Nothing, 1), "with all that there is");
    for part in careless::AT_ONCE {
        assert!(!careless::passes(test, part, 1), "{part:?} is left out");
    }
}

/// Ranks on three devices, of which two do not reach each other's memory, compute the same; kernels that use memory which they do
/// not reach are found.
#[test]
fn several_devices_equal_the_serial_model_and_careless_ones_are_found() {
    if std::env::var("QUADRILLE_TEST_DEVICE").is_ok() {
        return;
    }
    let test = "combined_layouts_equal_the_serial_model";
    for (part, passes) in [(Part::Nothing, true), (Part::Reach, false)] {
        assert_eq!(careless::passes(test, part, 3), passes, "{part:?} is left out");
    }
}

/// Ranks that use no memory of each other's devices, as if they were processes, compute the same by the library of collectives; what
/// orders its work is found where it is left out.
#[test]
fn ranks_kept_apart_equal_the_serial_model_and_careless_devices_are_found() {
    if std::env::var("QUADRILLE_TEST_DEVICE").is_ok() {
        return;
    }
    for test in ["layouts_equal_the_serial_model", "experts_equal_the_serial_model"] {
        assert!(careless::passes_apart(test, Part::Nothing, "bias=on"), "{test}");
    }
    for part in [Part::Nothing, Part::Waits, Part::Records, Part::Queries] {
        let passed = careless::passes_apart("combined_layouts_equal_the_serial_model", part, "bias=on");
        assert_eq!(passed, part == Part::Nothing, "{part:?} is left out");
    }
}
