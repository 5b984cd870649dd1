//! Collectives on their streams.

use quadrille_cost::simulation::{Communication, Machine, Simulation, simulate};
use quadrille_spec::{
    Axis, AxisSet, CollectiveKind, KeepWeights, LayoutRequest, Linear, Overlap, Recompute, Schedule, Zero,
};
use quadrille_step::schedule::{Action, Pass, Step};
use quadrille_step::{Op, Operation, Section, StageProgram, StepProgram};

use crate::common::{close, program};

/// Every product takes 10 s, every collective 4 s, all else nothing.
struct TenAndFour;

/// The same, with products half as fast beside collectives.
struct Shared;

impl Machine for Shared {
    fn operation_seconds(&self, stage: &StageProgram, op: &Op) -> f64 {
        TenAndFour.operation_seconds(stage, op)
    }

    fn collective_seconds(&self, collective: &Communication) -> f64 {
        TenAndFour.collective_seconds(collective)
    }

    fn message_seconds(&self, _: u64) -> f64 {
        0.0
    }

    fn share_beside_collectives(&self) -> f64 {
        0.5
    }
}

impl Machine for TenAndFour {
    fn operation_seconds(&self, _: &StageProgram, op: &Op) -> f64 {
        if matches!(op.operation, Operation::Gemm(_)) { 10.0 } else { 0.0 }
    }

    fn collective_seconds(&self, _: &Communication) -> f64 {
        4.0
    }

    fn message_seconds(&self, _: u64) -> f64 {
        0.0
    }
}

/// The operations that handmade passes are put together from.
struct Parts {
    program: StepProgram,
    product: Op,
    /// Issue and wait, by axis.
    collectives: Vec<(Axis, [Op; 2])>,
}

impl Parts {
    fn new() -> Self {
        let program = program(1, "x=2,y=2", 1, |_| {});
        let ops = &program.stages[0].chunks[0].forward.ops;
        let product = *ops.iter().find(|op| matches!(op.operation, Operation::Gemm(_))).unwrap();
        let collectives = ops.iter().filter_map(|op| match op.operation {
            Operation::Issue(collective) => {
                let axis = [Axis::X, Axis::Y].into_iter().find(|axis| collective.axes == axis.only())?;
                Some((axis, [*op, Op { operation: Operation::Wait(collective), ..*op }]))
            }
            _ => None,
        });
        let collectives = collectives.collect();
        Self { product, collectives, program }
    }

    /// Issue and wait of the `index`-th collective over `axis`.
    fn collective(&self, axis: Axis, index: usize) -> [Op; 2] {
        self.collectives.iter().filter(|(of, _)| *of == axis).nth(index).unwrap().1
    }

    /// A step of one forward pass of these operations.
    fn simulate(&self, ops: &[&Op]) -> Simulation {
        self.simulate_on(&TenAndFour, ops)
    }

    fn simulate_on(&self, machine: &dyn Machine, ops: &[&Op]) -> Simulation {
        let mut program = self.program.clone();
        let stage = &mut program.stages[0];
        stage.steps = vec![Step::Run(Action { pass: Pass::Forward, microbatch: 0, chunk: 0 })];
        stage.chunks[0].forward.ops = ops.iter().map(|op| *(*op)).collect();
        stage.update = Section::default();
        simulate(&program, machine).unwrap()
    }
}

#[test]
fn a_collective_under_a_product_costs_nothing() {
    let parts = Parts::new();
    let [issue, wait] = &parts.collective(Axis::X, 0);
    assert_eq!(parts.simulate(&[issue, &parts.product, wait]).step_seconds, 10.0);
    let at_once = parts.simulate(&[issue, wait, &parts.product]);
    assert_eq!(at_once.step_seconds, 14.0);
    assert_eq!(at_once.stages[0].busy_s, 10.0);
    assert_eq!(at_once.stages[0].waiting_on_collectives_s, [(Axis::X.only(), 4.0)].into());
}

/// As long as one is under way; what that adds counts as waiting for it.
#[test]
fn products_are_slower_beside_collectives() {
    let parts = Parts::new();
    let product = &parts.product;
    let [issue, wait] = &parts.collective(Axis::X, 0);
    let on = |ops: &[&Op]| {
        let Simulation { step_seconds, stages, .. } = parts.simulate_on(&Shared, ops);
        assert_eq!(stages[0].busy_s, 10.0 * ops.iter().filter(|op| **op == product).count() as f64);
        let [x, y] = [Axis::X, Axis::Y].map(|axis| stages[0].waiting_on_collectives_s.get(&axis.only()).copied());
        (step_seconds, x.unwrap_or(0.0), y.unwrap_or(0.0))
    };
    // In 4 seconds two seconds of work are done.
    assert_eq!(on(&[issue, product, wait]), (12.0, 2.0, 0.0));
    assert_eq!(on(&[issue, product, product, wait]), (22.0, 2.0, 0.0));
    assert_eq!(on(&[issue, wait, product]), (14.0, 4.0, 0.0));
    assert_eq!(on(&[product, issue, wait]), (14.0, 4.0, 0.0));
    // Two before it and this one follow each other: in 12 seconds 6 are done, in 8 of them beside those before it.
    let [issue_a, wait_a] = &parts.collective(Axis::Y, 0);
    let [issue_b, wait_b] = &parts.collective(Axis::Y, 1);
    assert_eq!(on(&[issue_a, issue_b, issue, product, wait_a, wait_b, wait]), (16.0, 2.0, 4.0));
}

#[test]
fn collectives_follow_each_other_whatever_their_axes() {
    let parts = Parts::new();
    let [issue_a, wait_a] = &parts.collective(Axis::Y, 0);
    let [issue_b, wait_b] = &parts.collective(Axis::Y, 1);
    assert_eq!(parts.simulate(&[issue_a, issue_b, wait_a, wait_b]).step_seconds, 8.0);
    let [issue_x, wait_x] = &parts.collective(Axis::X, 0);
    assert_eq!(parts.simulate(&[issue_a, issue_x, wait_a, wait_x]).step_seconds, 8.0);
    // Behind a product of 10 s the second one is hidden as well.
    assert_eq!(parts.simulate(&[issue_a, issue_b, &parts.product, wait_a, wait_b]).step_seconds, 10.0);
}

/// What waits for a collective that waits for its stream waits for those that run there.
#[test]
fn waiting_counts_for_the_collective_that_runs() {
    let parts = Parts::new();
    let [issue_a, wait_a] = &parts.collective(Axis::Y, 0);
    let [issue_b, wait_b] = &parts.collective(Axis::Y, 1);
    let [issue, wait] = &parts.collective(Axis::X, 0);
    let product = &parts.product;
    let on = |ops: &[&Op]| {
        let Simulation { stages, .. } = parts.simulate(ops);
        assert!(close(
            stages[0].total_s(),
            stages[0].busy_s + stages[0].waiting_on_collectives_s.values().sum::<f64>()
        ));
        [Axis::X, Axis::Y].map(|axis| stages[0].waiting_on_collectives_s.get(&axis.only()).copied().unwrap_or(0.0))
    };
    assert_eq!(on(&[issue_a, issue_b, issue, wait, wait_a, wait_b]), [4.0, 8.0]);
    assert_eq!(on(&[issue_a, issue, issue_b, wait, wait_a, wait_b]), [4.0, 8.0]);
    // Under a product of 10 s lie two of them and a half of the third.
    assert_eq!(on(&[issue_a, issue_b, issue, product, wait, wait_a, wait_b]), [2.0, 0.0]);
    assert_eq!(on(&[issue, issue_a, issue_b, product, wait_b, wait_a, wait]), [0.0, 2.0]);
}

#[test]
fn overlap_passes_shorten_the_step() {
    let seconds = |overlap| {
        let program = program(2, "x=2,y=2,z=2", 2, |request| request.overlap = overlap);
        simulate(&program, &TenAndFour).unwrap().step_seconds
    };
    assert!(seconds(Overlap::ALL) < seconds(Overlap::NONE));
}

#[test]
fn without_overlap_every_collective_of_a_pass_is_waited_for() {
    let program = program(2, "x=2,y=2,z=2", 2, |request| request.overlap = Overlap::NONE);
    let simulation = simulate(&program, &TenAndFour).unwrap();
    let chunk = &program.stages[0].chunks[0];
    for axes in [Axis::X, Axis::Y, Axis::Z].map(Axis::only) {
        let issued = chunk.sections().into_iter().flat_map(|section| &section.ops);
        let issued = issued.filter(|op| matches!(op.operation, Operation::Issue(c) if c.axes == axes)).count();
        let times = &simulation.stages[0];
        assert_eq!(times.waiting_on_collectives_s[&axes], (2 * 4 * issued) as f64);
    }
}

#[test]
fn the_gather_of_updated_weights_is_waited_for_in_the_next_step() {
    let zero = |request: &mut LayoutRequest| request.zero = Zero::Optimizer;
    let program = program(1, "data=2", 1, zero);
    let simulation = simulate(&program, &TenAndFour).unwrap();
    let stage = &program.stages[0];
    let gathers = stage.update.ops.iter().filter(
        |op| matches!(op.operation, Operation::Issue(collective) if collective.kind == CollectiveKind::AllGather),
    );
    // Nothing but products takes time, so the last gather of the stream is waited for before the head's product at the
    // latest, and each weight's before its own.
    let waited = simulation.stages[0].waiting_on_collectives_s[&Axis::Data.only()];
    assert!(gathers.count() > 3);
    assert!(waited > 4.0 * 3.0, "{waited}");
    // In the step, some gathers begin and end behind its last operation.
    let late = simulation.events.iter().filter(|event| event.end_s > simulation.step_seconds);
    assert!(late.count() > 0);
    assert!(close(simulation.stages[0].total_s(), simulation.step_seconds));
}

#[test]
fn stages_meet_in_common_reductions() {
    let program = program(4, "pipe=2", 2, |_| {});
    let simulation = simulate(&program, &TenAndFour).unwrap();
    // The two gradients of the tied table, then loss and norm: both stages come out of each at the same time.
    let on = |stage: usize, axes: AxisSet| {
        let events = simulation.events.iter().filter(move |event| event.stage == stage);
        events.filter(move |event| event.lane == quadrille_cost::simulation::Lane::Axes(axes)).collect::<Vec<_>>()
    };
    let loss: AxisSet = [Axis::Z, Axis::Data, Axis::Pipe].into_iter().collect();
    for axes in [Axis::Pipe.only(), loss, AxisSet::WORLD] {
        let first = on(0, axes);
        let second = on(1, axes);
        assert_eq!((first.len(), second.len()), (1, 1), "{axes:?}");
        assert_eq!((first[0].start_s, first[0].end_s), (second[0].start_s, second[0].end_s));
        assert_eq!(first[0].end_s - first[0].start_s, 4.0);
    }
    // Stage 1 is done with its passes first and waits for stage 0.
    assert!(simulation.stages[1].waiting_on_stages_s > 0.0);
}

#[test]
fn every_second_of_every_kind_of_program_is_accounted_for() {
    type Change = fn(&mut LayoutRequest);
    let changes: [(&str, Change); 10] = [
        ("x=2,y=2,z=2,pipe=2", |request| request.schedule = Schedule::Gpipe),
        ("x=2,y=2,z=2,pipe=2", |request| request.schedule = Schedule::ZeroBubble),
        ("x=2,y=2,z=2,pipe=2", |request| request.schedule = Schedule::MessageDriven),
        ("x=2,data=2,pipe=2", |request| (request.schedule, request.chunks) = (Schedule::Interleaved, 2)),
        ("z=2,context=2,data=2,pipe=2", |request| request.zero = Zero::Optimizer),
        ("z=2,context=2,data=2", |request| request.zero = Zero::Gradients),
        ("x=2,z=2,pipe=2", |request| request.keep_weights = KeepWeights::Step),
        ("x=2,y=2,z=2", |request| request.recompute = Recompute::Full { every: 2 }),
        ("x=2,y=2,pipe=2", |request| request.linear = Linear::Summa),
        ("x=2,z=2,pipe=2", |request| {
            (request.overlap_chunks, request.microbatch) = (2, request.microbatch.map(|microbatch| 2 * microbatch));
        }),
    ];
    for (grid, change) in changes {
        let program = program(4, grid, 4, change);
        let simulation = simulate(&program, &TenAndFour).unwrap();
        for stage in &simulation.stages {
            // After the norm's reduction every step goes on alike.
            assert!(close(stage.total_s(), simulation.step_seconds), "{grid}: {stage:?}");
        }
        for pair in
            simulation.events.windows(2).filter(|pair| (pair[0].stage, pair[0].lane) == (pair[1].stage, pair[1].lane))
        {
            assert!(pair[0].end_s <= pair[1].start_s, "{grid}: {pair:?}");
        }
    }
}
