//! Passes that are repeated as a whole take what they take operation by operation.

use quadrille_cost::simulation::{
    Communication, Event, Machine, PassSpan, Simulation, simulate, simulate_passes, simulate_times,
};
use quadrille_spec::{KeepWeights, LayoutRequest, Recompute, Schedule, Zero};
use quadrille_step::schedule::Action;
use quadrille_step::{At, Op, StageProgram};

use crate::common::{close, program};

/// Everything takes time. Passes that are slowed down, by however little, are never repeated as a whole.
#[derive(Clone, Copy)]
struct Busy {
    slowdown: f64,
    /// Beside collectives.
    share: f64,
    by_group: bool,
}

impl Machine for Busy {
    fn operation_seconds(&self, stage: &StageProgram, op: &Op) -> f64 {
        let work = op.operation.work(At::first(stage));
        1.0 + work.flops() as f64 / 1e3 + work.moved as f64 / 1e2
    }

    fn collective_seconds(&self, collective: &Communication) -> f64 {
        7.0 + collective.wire_bytes as f64 / 10.0
    }

    fn message_seconds(&self, bytes: u64) -> f64 {
        3.0 + bytes as f64 / 10.0
    }

    fn slowdown(&self, _: usize, _: Option<Action>) -> f64 {
        self.slowdown
    }

    fn share_beside_collectives(&self) -> f64 {
        self.share
    }

    fn streams_by_group(&self) -> bool {
        self.by_group
    }
}

fn assert_equal(text: &str, repeated: &Simulation, followed: &Simulation) {
    let near = |a: f64, b: f64| assert!(close(a, b) || (a - b).abs() < 1e-6, "{text}: {a} is not {b}");
    near(repeated.step_seconds, followed.step_seconds);
    for (a, b) in repeated.stages.iter().zip(&followed.stages) {
        near(a.busy_s, b.busy_s);
        near(a.waiting_on_stages_s, b.waiting_on_stages_s);
        near(a.waiting_on_collectives_s.values().sum(), b.waiting_on_collectives_s.values().sum());
        near(a.update_s, b.update_s);
    }
    let pass = |span: &PassSpan| (span.stage, span.action);
    assert_eq!(
        repeated.passes.iter().map(pass).collect::<Vec<_>>(),
        followed.passes.iter().map(pass).collect::<Vec<_>>(),
        "{text}"
    );
    let event = |event: &Event| (event.stage, event.lane, event.name, event.layer, event.action);
    assert_eq!(repeated.events.len(), followed.events.len(), "{text}");
    for (a, b) in repeated.events.iter().zip(&followed.events) {
        assert_eq!(event(a), event(b), "{text}");
        near(a.start_s, b.start_s);
        near(a.end_s, b.end_s);
    }
}

#[test]
fn repeated_passes_take_what_their_operations_take() {
    let change = |change: fn(&mut LayoutRequest)| change;
    let cases = [
        ("x=2,z=2", 5, change(|_| {})),
        ("x=2,data=2", 4, change(|request| request.zero = Zero::Gradients)),
        ("z=2,data=2,pipe=2", 6, change(|request| request.zero = Zero::Optimizer)),
        ("z=2,pipe=2", 4, change(|request| request.keep_weights = KeepWeights::Step)),
        ("x=2,pipe=3", 7, change(|request| request.schedule = Schedule::Gpipe)),
        ("x=2,pipe=2", 6, change(|request| request.schedule = Schedule::ZeroBubble)),
        ("y=2,pipe=2", 6, change(|request| request.schedule = Schedule::MessageDriven)),
        (
            "x=2,data=2,pipe=2",
            6,
            change(|request| {
                (request.schedule, request.chunks, request.zero) = (Schedule::Interleaved, 2, Zero::Optimizer);
            }),
        ),
        (
            "x=2,z=2,pipe=2",
            5,
            change(|request| {
                (request.recompute, request.keep_communicated) = (Recompute::Full { every: 1 }, true);
            }),
        ),
    ];
    for (grid, microbatches, change) in cases {
        let program = program(6, grid, microbatches, change);
        let mut seconds = Vec::new();
        for (share, by_group) in [(1.0, false), (0.7, false), (0.7, true)] {
            let text = format!("{grid}, {}, {share} by group {by_group}", program.layout.schedule);
            let busy = Busy { slowdown: 1.0, share, by_group };
            let [repeated, followed] =
                [busy, Busy { slowdown: 1.0 + 1e-13, ..busy }].map(|machine| simulate(&program, &machine).unwrap());
            assert_equal(&text, &repeated, &followed);
            seconds.push(repeated.step_seconds);
            let passes = simulate_passes(&program, &busy, &|| false).unwrap();
            assert_eq!(passes, Simulation { events: Vec::new(), ..repeated }, "{text}");
            let times = simulate_times(&program, &busy, &|| false).unwrap();
            assert_eq!(times, Simulation { passes: Vec::new(), ..passes }, "{text}");
        }
        assert!(seconds[1] > seconds[0] && seconds[2] <= seconds[1], "{grid}: {seconds:?}");
    }
}
