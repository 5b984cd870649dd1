//! Values stored in 16 bits: random layouts are close to the serial model at the same rounded weights, replicas are equal in
//! every bit, every stored weight is its master rounded, and ledgers are equal as integers. What was the worst is printed.

use std::sync::Mutex;

use half::{bf16, f16};
use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};
use quadrille_engine::Start;
use quadrille_proofs::{Case, cases, combined_cases, described_cases, for_random, verified};
use quadrille_spec::{ElementType, Layout, MemoryClass, RealType, Zero};
use quadrille_step::{StepProgram, predict};

use crate::checkpoints::{bits, opened, run_as};

/// The largest differences of loss, gradients, norm, weights and evaluation.
type Worst = Mutex<[f64; 5]>;

/// Holds a case against the serial model, with gradients of weights in 16 bits or not.
fn holds(case: &Case, dtype: ElementType, narrow: bool, worst: &Worst) -> Result<(), TestCaseError> {
    let gradients = if narrow { dtype } else { dtype.real().into() };
    let layout = Layout { gradients, ..case.layout_in(dtype) };
    let program = StepProgram::new(&case.model, &layout).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let report = verified(&program, case).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let found = [report.loss_diff, report.grad_diff, report.norm_diff, report.weight_diff, report.evaluation_diff];
    let mut worst = worst.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    worst.iter_mut().zip(found).for_each(|(worst, found)| *worst = worst.max(found));
    if report.ok { Ok(()) } else { Err(TestCaseError::fail(format!("{report:?}"))) }
}

fn all_hold(dtype: ElementType, narrow: bool) {
    let worst = Worst::default();
    for_random(25, combined_cases(), |case| holds(&case, dtype, narrow, &worst));
    for_random(25, cases(), |case| holds(&case, dtype, narrow, &worst));
    for_random(15, described_cases(), |case| holds(&case, dtype, narrow, &worst));
    let worst = worst.into_inner().unwrap_or_default().map(|difference| format!("{difference:.1e}"));
    println!("{dtype}, loss, gradients, norm, weights, evaluation: {}", worst.join(", "));
}

#[test]
fn layouts_in_bf16_are_close_to_the_serial_model() {
    all_hold(ElementType::Bf16, false);
}

#[test]
fn layouts_in_f16_are_close_to_the_serial_model() {
    all_hold(ElementType::F16, false);
}

#[test]
fn gradients_of_weights_in_16_bits_are_close_too() {
    all_hold(ElementType::Bf16, true);
    all_hold(ElementType::F16, true);
}

/// A run that goes on is the one that was not interrupted, in every bit: checkpoints hold masters. In f32 it begins with the
/// same numbers.
#[test]
fn checkpoints_hold_masters_and_are_read_in_other_types() {
    for_random(6, combined_cases(), |case| {
        let folder = tempfile::tempdir().map_err(|error| TestCaseError::fail(error.to_string()))?;
        let place = |name: &str| folder.path().join(name);
        let run = |dtype, name: &str, start, steps| {
            let done = run_as(&case, &case.layout_in(dtype), &place(name), start, steps);
            done.map_err(|error| TestCaseError::fail(error.to_string()))
        };
        for dtype in [ElementType::Bf16, ElementType::F16] {
            let name = |what: &str| format!("{what} {dtype}");
            run(dtype, &name("whole"), Start::Drawn, 4)?;
            let middle = opened(&place(&name("whole")), 2);
            prop_assert_eq!(middle.about().dtype, RealType::F32);
            run(dtype, &name("resumed"), Start::Resumed(middle.clone()), 4)?;
            prop_assert_eq!(bits(&opened(&place(&name("resumed")), 4)), bits(&opened(&place(&name("whole")), 4)));
            let masters = bits(&middle);
            let rounded = |bits: &u64| {
                let number = f64::from_bits(*bits) as f32;
                bf16::from_f32(number).to_f32() == number || f16::from_f32(number).to_f32() == number
            };
            prop_assert!(!masters.iter().all(|(.., numbers)| numbers.iter().all(rounded)), "masters are not rounded");
            run(ElementType::F32, &name("wider"), Start::Resumed(middle), 4)?;
        }
        Ok(())
    });
}

/// 18 bytes a parameter with gradients in f32, 16 with gradients in 16 bits; vectors take the 16 of f32.
#[test]
fn states_take_the_bytes_of_their_types() {
    for_random(40, cases(), |case| {
        for (gradients, of_matrix) in [(ElementType::F32, [2, 4, 12]), (ElementType::Bf16, [2, 2, 12])] {
            let layout = Layout { gradients, zero: Zero::Off, ..case.layout_in(ElementType::Bf16) };
            let program = StepProgram::new(&case.model, &layout).unwrap();
            let ledger = predict(&program);
            let classes = [MemoryClass::Parameters, MemoryClass::Gradients, MemoryClass::Optimizer];
            for rank in &ledger.ranks {
                let stage = program.of_rank(rank.rank);
                for (class, (matrix, vector)) in classes.into_iter().zip(of_matrix.into_iter().zip([4, 4, 8])) {
                    let bytes = |parameter: &quadrille_step::Parameter| {
                        let each = if parameter.decay { matrix } else { vector };
                        each * stage.value(parameter.value).local_elements as u64
                    };
                    let expected: u64 = stage.parameters.iter().map(bytes).sum();
                    prop_assert_eq!(rank.memory.peak_of[&class], expected, "{:?}, gradients in {}", class, gradients);
                }
            }
        }
        Ok(())
    });
}
