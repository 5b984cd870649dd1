//! Replicas that differ in a bit are told, however far that is below the tolerance.

use quadrille_engine::{Cpu, Held, Hyper, Shard, assemble};
use quadrille_proofs::{SEED, edited_stage, forward_options, hyper, model, program};
use quadrille_spec::{Activations, Algorithm, Choice, Overlap};
use quadrille_verify::{Reference, Tolerance, VerifyOptions, verify};

#[test]
fn shards_of_two_ranks_that_differ_in_a_bit_are_named() {
    let program = program(&model(1), "data=2", Activations::Scattered, Overlap::NONE, 4, 2);
    let stage = &program.stages[0];
    let parameter = &stage.parameters[0];
    let shard = Shard::of(stage, parameter, parameter.value, program.layout.grid.coordinate(0));
    let one = Held { shard, numbers: vec![1.0; parameter.rows * parameter.cols] };
    assert_eq!(assemble(parameter, [(0, &one), (1, &one)]).unwrap(), one.numbers);
    let mut other = one.clone();
    *other.numbers.last_mut().unwrap() = f64::from_bits(1.0_f64.to_bits() + 1);
    assert_eq!(assemble(parameter, [(0, &one), (1, &other)]), Err([0, 1]));
}

/// The copy of the table on the last stage does not decay, by 1e-14 of its size.
#[test]
fn copies_of_a_tied_table_that_differ_in_a_bit_are_named() {
    let whole = program(&model(2), "pipe=2", Activations::Scattered, Overlap::NONE, 4, 2);
    let broken = edited_stage(&whole, 1, |stage| {
        let copy = stage.parameters.iter_mut().find(|parameter| parameter.copy).unwrap();
        copy.decay = false;
    });
    let options = VerifyOptions {
        steps: 1,
        seed: SEED,
        sparsity: None,
        hyper: Hyper { weight_decay: 1e-11, ..hyper(None) },
        states: None,
        threads: 1,
        timeout: forward_options(1).timeout,
        collectives: Choice::Always(Algorithm::Native),
        world: None,
    };
    for (program, failures) in [(&whole, 0), (&broken, 1)] {
        let report =
            verify::<Cpu<f64>>(program, &options, Tolerance::F64, &mut Reference::new(program, &options)).unwrap();
        assert_eq!((report.failures.len(), report.replicas_equal), (failures, failures == 0), "{report:?}");
        assert!(report.failures.iter().all(|failure| failure.contains("replicas of embedding.table")), "{report:?}");
    }
}
