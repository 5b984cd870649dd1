//! The native cost model speaks of the step program's operations: what it counts in closed form is the ledger.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quadrille_cost::native::{Candidate, Framework, Problem, Volumes};
use quadrille_proofs::{Case, cases, combined_cases};
use quadrille_spec::{Axis, AxisSet, Cluster, CollectiveKind, ElementType, RankLedger};
use quadrille_step::{StepProgram, predict_rank};

/// The case's program in f32 with pieces as equal as possible.
fn program(case: &Case) -> Option<StepProgram> {
    let layout = &case.layout;
    let request = quadrille_spec::LayoutRequest {
        per_node: None,
        activations: layout.activations,
        linear: layout.linear,
        summa_panels: (layout.linear == quadrille_spec::Linear::Summa).then_some(layout.summa_panels),
        overlap: layout.overlap,
        overlap_chunks: layout.overlap_chunks,
        schedule: layout.schedule,
        chunks: layout.chunks,
        microbatch_group: (layout.schedule == quadrille_spec::Schedule::Interleaved).then_some(layout.microbatch_group),
        stage_blocks: None,
        recompute: layout.recompute,
        keep_communicated: layout.keep_communicated,
        zero: layout.zero,
        keep_weights: layout.keep_weights,
        global_batch: layout.global_batch,
        microbatch: Some(layout.microbatch),
        seq_len: Some(layout.seq_len),
        dtype: ElementType::F32,
        grid: layout.grid,
    };
    let layout = quadrille_spec::Layout::if_legal(&case.model, &request)?;
    Some(StepProgram::new(&case.model, &layout).unwrap())
}

fn problem(program: &StepProgram) -> Problem {
    let cluster = Cluster::preset("selene").unwrap();
    let StepProgram { model, layout, .. } = program;
    Problem::new(model, &cluster, Framework::QUADRILLE, layout.global_batch, layout.seq_len).unwrap()
}

fn candidate(program: &StepProgram) -> Candidate {
    Candidate::of(&program.layout, &Cluster::preset("selene").unwrap())
}

/// A rank of the stage whose ZeRO shards have no padding.
fn rank_of(program: &StepProgram, stage: usize) -> usize {
    let grid = &program.layout.grid;
    let is_it = |rank: &usize| {
        let place = grid.coordinate(*rank);
        place.on(Axis::Pipe) == stage && place.on(Axis::Data) == 0 && place.on(Axis::Context) == 0
    };
    (0..grid.ranks()).find(is_it).unwrap()
}

type Transfers = BTreeMap<(String, CollectiveKind), (u64, u64)>;

fn transfers(ledger: &RankLedger) -> Transfers {
    let all =
        ledger.axes.iter().flat_map(|(key, kinds)| kinds.iter().map(move |(kind, each)| ((key.clone(), *kind), each)));
    all.map(|(key, each)| (key, (each.calls, each.payload_bytes))).collect()
}

fn counted(volumes: &Volumes) -> Transfers {
    let key = |axes: &AxisSet| axes.key();
    volumes
        .transfers
        .iter()
        .map(|((axes, kind), each)| ((key(axes), *kind), (each.calls, each.payload_bytes)))
        .collect()
}

fn check(case: &Case) -> Result<(), TestCaseError> {
    let Some(program) = program(case) else { return Ok(()) };
    let (problem, candidate) = (problem(&program), candidate(&program));
    for stage in 0..program.stages.len() {
        let ledger = predict_rank(&program, rank_of(&program, stage));
        let volumes = problem.volumes(&candidate, stage);
        prop_assert_eq!(counted(&volumes), transfers(&ledger), "stage {} of {:?}", stage, program.layout);
        prop_assert_eq!(volumes.flops, ledger.flops, "stage {} of {:?}", stage, program.layout);
        prop_assert_eq!(&volumes.elements, &ledger.elements, "stage {} of {:?}", stage, program.layout);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plain_layouts_count_what_their_ledgers_say(case in cases()) {
        check(&case)?;
    }

    #[test]
    fn combined_layouts_count_what_their_ledgers_say(case in combined_cases()) {
        check(&case)?;
    }
}
