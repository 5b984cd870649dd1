//! Runs without training on what training has written: any layout evaluates and continues any other's checkpoint.

use std::path::Path;
use std::sync::Arc;

use quadrille_checkpoint::{Checkpoint, Folder};
use quadrille_engine::{
    Cpu, ForwardOptions, GenerateOptions, GenerationPrograms, OnSaveFailure, RunEvent, Samples, Saving, Start,
    TrainOptions, Weights, evaluate_on_cpu, generate_on_cpu, logits, logits_program, random_batch, train_on_cpu,
};
use quadrille_proofs::{SEED, hyper, layout_with, llama};
use quadrille_spec::{Layout, LayoutRequest, Model, Zero};
use quadrille_step::StepProgram;

use crate::checkpoints::about;

const GRIDS: [&str; 6] = ["x=1", "x=2,y=2", "z=2,pipe=2", "context=2,data=2", "expert=2,data=2", "x=4,data=2"];

fn model() -> Model {
    Model { seq_len: 12, ..llama(2) }
}

fn layout(grid: &str) -> Layout {
    let shared = |request: &mut LayoutRequest| request.zero = Zero::Optimizer;
    layout_with(&model(), grid, 16, shared)
}

/// Trains three steps and writes the second's checkpoint; the third step's loss, and the checkpoint.
fn trained(folder: &Path) -> (f64, Arc<Checkpoint>) {
    let program = StepProgram::new(&model(), &layout("x=2,data=2,pipe=2")).unwrap();
    let about = about(&program, SEED, &Start::Drawn);
    let folder = folder.to_path_buf();
    let saving = Saving { folder: folder.clone(), every: Some(2), keep: 9, on_failure: OnSaveFailure::Stop, about };
    let options = TrainOptions { saving: Some(saving), ..TrainOptions::new(3, hyper(None), SEED) };
    let batch = random_batch(&program.model, SEED, program.layout.seq_len);
    let outcome = train_on_cpu(&program, &options, &batch, None, &mut |_: RunEvent| Ok(())).unwrap();
    let checkpoint = Checkpoint::open(&Folder::new(&folder).path_of(2)).unwrap();
    (outcome.records[2].loss, Arc::new(checkpoint))
}

#[test]
fn any_layout_evaluates_and_continues_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let (loss, checkpoint) = trained(folder.path());
    let model = model();
    let run = ForwardOptions::default();
    let weights = Weights::Checkpoint(Arc::clone(&checkpoint));
    let prompts = [vec![1, 2, 3], vec![4]];
    let options = GenerateOptions::greedy(6);
    let mut all = Vec::new();
    for grid in GRIDS {
        let layout = layout(grid);
        // The batch of the third step, on the weights after the second.
        let program = StepProgram::evaluation(&model, &layout).unwrap();
        let source = random_batch(&model, SEED, layout.seq_len);
        let batch = |step: u64, first: usize, samples: Samples<'_>| source(step + 2, first, samples);
        let samples = layout.global_batch as u64;
        let outcome = evaluate_on_cpu(&program, &run, &weights, samples, &batch, &|_| ()).unwrap();
        assert_eq!(outcome.difference, None, "{grid}");
        assert!((outcome.evaluation.loss - loss).abs() < 1e-11 * loss, "{grid}: {} {loss}", outcome.evaluation.loss);

        let programs = GenerationPrograms::new(&model, &layout, &options, &prompts).unwrap();
        let outcome = generate_on_cpu(&programs, &options, &run, &weights, &prompts, &mut |_, _| Ok(())).unwrap();
        assert_eq!(outcome.difference, None, "{grid}");
        all.push(outcome.sequences);
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
}

#[test]
fn numbers_are_rounded_only_if_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (_, checkpoint) = trained(folder.path());
    let tokens = [1, 5, 2, 7];
    let program = logits_program(&model(), &layout("x=2"), tokens.len(), 9).unwrap();
    let run = ForwardOptions::default();
    let exact = logits::<Cpu<f64>>(&program, &run, &Weights::Checkpoint(Arc::clone(&checkpoint)), &tokens).unwrap();
    let narrow = layout("x=2").stored_in(quadrille_spec::ElementType::F32);
    let program = logits_program(&model(), &narrow, tokens.len(), 9).unwrap();
    let refused =
        logits::<Cpu<f32>>(&program, &run, &Weights::Checkpoint(checkpoint), &tokens).unwrap_err().to_string();
    assert!(refused.contains("f64"), "{refused}");
    let rounding = Checkpoint::open(&Folder::new(folder.path()).path_of(2)).unwrap().rounding();
    let rounded = logits::<Cpu<f32>>(&program, &run, &Weights::Checkpoint(Arc::new(rounding)), &tokens).unwrap();
    let largest = exact.values.iter().fold(0.0, |most: f64, logit| most.max(logit.abs()));
    for (exact, rounded) in exact.values.iter().zip(&rounded.values) {
        assert!((exact - f64::from(*rounded)).abs() < 1e-5 * largest, "{exact} {rounded}");
    }
}
