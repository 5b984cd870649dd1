//! What training starts from and reads does not depend on the layout, in any bit.

use std::collections::BTreeMap;
use std::sync::Mutex;

use proptest::prelude::*;
use quadrille_comm::{JobOptions, run_ranks};
use quadrille_data::{DemoCorpus, TokenSource, Tokenizer, fill_batch};
use quadrille_engine::{
    Cpu, EngineError, Held, InitialValues, RankEngine, Samples, Shard, TrainOptions, assemble, train_on_cpu,
};
use quadrille_oracle as oracle;
use quadrille_proofs::{SEED, Trajectory, cases, hyper, llama, model, program, trajectory, vit};
use quadrille_spec::{Activations, Axis, ElementType, Overlap};
use quadrille_step::StepProgram;

fn bits(tensor: &[f64]) -> Vec<u64> {
    tensor.iter().map(|element| element.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn shards_are_pieces_of_the_same_tensors(case in cases()) {
        let program = case.program(ElementType::F64);
        let ranks = trajectory(&program, 0, case.threads).unwrap();
        let stage = &program.stages[0];
        let drawn = oracle::initial(&program.model, SEED, true);
        for (index, parameter) in stage.parameters.iter().enumerate() {
            let floats = |bits: &Vec<u64>| bits.iter().map(|bits| f64::from_bits(*bits)).collect::<Vec<f64>>();
            let shard = |rank| Shard::of(stage, parameter, parameter.value, program.layout.grid.coordinate(rank));
            let held = |(rank, run): (usize, &Trajectory)| Held { shard: shard(rank), numbers: floats(&run.start[index]) };
            let held: Vec<Held> = ranks.iter().enumerate().map(held).collect();
            let whole = assemble(parameter, held.iter().enumerate()).unwrap();
            prop_assert_eq!(bits(&whole), bits(&drawn[&parameter.name]), "{}", parameter.name);
        }
    }
}

#[test]
fn training_starts_from_the_oracles_values() {
    let job = JobOptions::new(1);
    for model in [model(2), llama(3), vit(2)] {
        let program = program(&model, "x=1", Activations::Replicated, Overlap::NONE, 1, 1);
        for (values, perturbed) in [(InitialValues::Training, false), (InitialValues::Perturbed, true)] {
            let expected = oracle::initial(&model, 3, perturbed);
            let tensors = run_ranks(&job, |context| {
                Ok(RankEngine::<Cpu<f64>>::new(&program, context, 1, hyper(None), 3, values)?.weights()?)
            });
            let tensors = &tensors.unwrap()[0];
            assert_eq!(tensors.len(), expected.len());
            for (parameter, tensor) in program.stages[0].parameters.iter().zip(tensors) {
                // Of one rank nothing is cut, but the vocabulary may be padded.
                let tensor = &tensor.numbers[..parameter.rows * parameter.cols];
                assert_eq!(bits(tensor), bits(&expected[&parameter.name]), "{}", parameter.name);
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
        fill_batch(source, 5, step, first as u64, tokens.len() / seq_len, seq_len, tokens, targets)
            .map_err(EngineError::of_callback)?;
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
    train_on_cpu(program, &options, &batch, None, &mut |_| Ok(())).unwrap();
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
