//! What training starts from and reads does not depend on the layout, in any bit.

use std::collections::BTreeMap;
use std::sync::Mutex;

use proptest::prelude::*;
use quadrille_data::{DemoCorpus, TokenSource, Tokenizer, fill_batch};
use quadrille_engine::{InitialValues, Samples, TrainOptions, assemble, initial_tensor, train};
use quadrille_proofs::{SEED, cases, hyper, model, program, trajectory};
use quadrille_spec::{Activations, Axis, ElementType, Overlap};
use quadrille_step::{Initial, StepProgram};

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn shards_are_pieces_of_the_same_tensors(case in cases()) {
        let program = case.program(ElementType::F64);
        let ranks = trajectory(&program, 0, case.threads).unwrap();
        let stage = &program.stages[0];
        for (index, parameter) in stage.parameters.iter().enumerate() {
            let floats = |bits: &Vec<u64>| bits.iter().map(|bits| f64::from_bits(*bits)).collect::<Vec<f64>>();
            let shards: Vec<Vec<f64>> = ranks.iter().map(|rank| floats(&rank.start[index])).collect();
            let shards: Vec<(usize, &[f64])> = shards.iter().map(Vec::as_slice).enumerate().collect();
            let whole = assemble(stage, parameter, parameter.value, &shards).unwrap();
            let drawn = initial_tensor(parameter, SEED, InitialValues::Perturbed);
            let bits = |tensor: &[f64]| tensor.iter().map(|element| element.to_bits()).collect::<Vec<u64>>();
            prop_assert_eq!(bits(&whole), bits(&drawn), "{}", parameter.name);
        }
    }
}

/// Ties the tensors to their numbers: otherwise all zeros would be independent of the layout, too.
#[test]
fn initial_tensors_have_their_spread() {
    let program = program(&model(2), "x=1", Activations::Replicated, Overlap::NONE, 1, 1);
    for parameter in &program.stages[0].parameters {
        let tensor = initial_tensor(parameter, 3, InitialValues::Training);
        assert_eq!(tensor.len(), parameter.rows * parameter.cols);
        let mean = tensor.iter().sum::<f64>() / tensor.len() as f64;
        let spread = (tensor.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / tensor.len() as f64).sqrt();
        match parameter.initial {
            Initial::Constant(value) => assert!(tensor.iter().all(|w| *w == value), "{}", parameter.name),
            Initial::Normal(deviation) => {
                assert!((0.7..1.3).contains(&(spread / deviation)), "{}: {spread}", parameter.name);
                let published = if parameter.name.contains("projection") || parameter.name.contains("down") {
                    0.02 / 2.0 // GPT-2: residual projections by the root of twice the layers, here 2 x 2.
                } else {
                    0.02
                };
                assert_eq!(deviation, published, "{}", parameter.name);
            }
        }
    }
}

/// Tokens and targets by (step, sequence).
type Sequences = BTreeMap<(u64, usize), (Vec<u32>, Vec<u32>)>;

/// What the ranks read in two steps, and how many ranks read each sequence.
fn read(program: &StepProgram, source: &TokenSource) -> (Sequences, BTreeMap<(u64, usize), usize>) {
    let seq_len = program.layout.seq_len;
    let seen = Mutex::new((Sequences::new(), BTreeMap::new()));
    let batch = |step: u64, first: usize, samples: Samples| {
        let (tokens, targets) = samples.tokens()?;
        fill_batch(source, 5, step, first as u64, tokens.len() / seq_len, seq_len, tokens, targets)?;
        let mut seen = seen.lock().unwrap();
        for (at, (tokens, targets)) in tokens.chunks(seq_len).zip(targets.chunks(seq_len)).enumerate() {
            let sequence = (tokens.to_vec(), targets.to_vec());
            let known = seen.0.entry((step, first + at)).or_insert_with(|| sequence.clone()).clone();
            assert_eq!(known, sequence, "two ranks see different tokens in sequence {}", first + at);
            *seen.1.entry((step, first + at)).or_default() += 1;
        }
        Ok(())
    };
    let options = TrainOptions::new(2, hyper(None), 1);
    train::<f64>(program, &options, &batch, None, &mut |_| Ok(())).unwrap();
    seen.into_inner().unwrap()
}

#[test]
fn batches_are_the_same_sequences_in_every_layout() {
    let bytes = quadrille_spec::Model { vocab: 256, ..model(1) };
    let source = TokenSource::from(DemoCorpus::new(5, Tokenizer::Bytes, 4000));
    let serial = program(&bytes, "x=1", Activations::Scattered, Overlap::NONE, 8, 8);
    let (reference, _) = read(&serial, &source);
    assert_eq!(reference.keys().copied().collect::<Vec<_>>(), keys(&serial));
    for (grid, microbatch) in [("x=2,y=2", 4), ("z=2,data=2", 2), ("x=2,z=4", 8), ("y=2,data=4", 2), ("data=8", 1)] {
        let program = program(&bytes, grid, Activations::Scattered, Overlap::ALL, 8, microbatch);
        let (sequences, readers) = read(&program, &source);
        assert_eq!(sequences, reference, "{grid}");
        let replicas = program.layout.grid.size(Axis::X) * program.layout.grid.size(Axis::Y);
        assert!(readers.values().all(|count| *count == replicas), "{grid}: {readers:?}");
    }
}

/// (step, sequence) of two steps.
fn keys(program: &StepProgram) -> Vec<(u64, usize)> {
    (1..=2).flat_map(|step| (0..program.layout.global_batch).map(move |sequence| (step, sequence))).collect()
}
