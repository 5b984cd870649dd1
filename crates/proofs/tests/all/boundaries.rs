//! What stages send each other: the residual stream once, cut over x where it is replicated (scatter-gather: Megatron-LM
//! PTD-P, section 4.1), and nothing arrives at the wrong place.

use quadrille_proofs::{Traffic, assert_stopped, edited_stage, model, program_with, prove};
use quadrille_spec::CollectiveKind::{AllGather, AllReduce, Receive, Send};
use quadrille_spec::{Activations, Axis, Schedule};
use quadrille_step::schedule::Step;
use quadrille_step::{StepProgram, predict};

fn staged(grid: &str, activations: Activations, schedule: Schedule, chunks: usize) -> StepProgram {
    program_with(&model(4), grid, 16, |request| {
        (request.activations, request.schedule) = (activations, schedule);
        (request.chunks, request.microbatch) = (chunks, Some(4));
    })
}

const GRIDS: [&str; 5] = ["pipe=2", "x=2,pipe=4", "x=2,y=2,pipe=2", "y=2,z=2,pipe=2", "x=4,pipe=3"];

/// `m (h/y) / x` elements over every boundary in every microbatch, there and back, in both layouts. Where the stream is
/// replicated, `m h/y` are gathered over x on either side; where it is scattered nothing is added.
#[test]
fn the_residual_stream_is_sent_once() {
    for grid in GRIDS {
        for activations in [Activations::Replicated, Activations::Scattered] {
            let program = staged(grid, activations, Schedule::OneForwardOneBackward, 1);
            let layout = &program.layout;
            let size = |axis| layout.grid.size(axis);
            let whole = layout.rows() * (program.model.hidden / size(Axis::Y));
            let passes = layout.microbatches();
            for ledger in predict(&program).ranks {
                let stage = layout.grid.coordinate(ledger.rank).on(Axis::Pipe);
                let sides = usize::from(stage > 0) + usize::from(stage + 1 < size(Axis::Pipe));
                let mut expected = Traffic::default();
                for kind in [Send, Receive] {
                    expected.add(
                        &layout.grid,
                        Axis::Pipe,
                        kind,
                        sides * passes,
                        sides * passes * (whole / size(Axis::X)),
                    );
                }
                if sides == 1 {
                    // The tied table's gradient, between the first and the last.
                    let table = layout.padded_vocab(&program.model) / size(Axis::X) / size(Axis::Y);
                    expected.add(&layout.grid, Axis::Pipe, AllReduce, 1, table * program.model.hidden / size(Axis::Z));
                }
                let total = Traffic::of(&ledger.axes, 8);
                assert_eq!(total.clone().over(Axis::Pipe), expected, "{grid}, {activations}, stage {stage}");
                if activations == Activations::Replicated && size(Axis::X) > 1 {
                    let gathered = total.get(Axis::X, AllGather);
                    assert_eq!(gathered, [(sides * passes) as u64, (sides * passes * whole) as u64], "{grid}, {stage}");
                }
                let wire = ledger.axes["pipe"][&Send];
                assert_eq!(wire.wire_bytes, wire.payload_bytes);
            }
        }
    }
}

/// With `v` chunks a microbatch passes `p v - 1` boundaries instead of `p - 1`.
#[test]
fn chunks_multiply_the_messages() {
    for (chunks, boundaries) in [(1, 1), (2, 3)] {
        let program = staged("x=2,pipe=2", Activations::Scattered, Schedule::Interleaved, chunks);
        let ranks = predict(&program).ranks;
        let calls: u64 = ranks.iter().map(|rank| rank.axes["pipe"][&Send].calls).sum();
        // Both ranks of x, there and back.
        assert_eq!(calls as usize, 2 * 2 * boundaries * program.layout.microbatches());
        assert!(prove(&program, 1).unwrap().ok);
    }
}

/// A receiver that asks for the messages of another boundary, or from another stage, gets none.
#[test]
fn a_message_from_elsewhere_is_never_taken() {
    let program = staged("x=2,pipe=4", Activations::Scattered, Schedule::OneForwardOneBackward, 1);
    let other_tag = edited_stage(&program, 2, |stage| stage.chunks[0].forward.receives[0].tag += 1);
    assert_stopped(&other_tag, &["has waited", "pipe"], "stage 2 receives gradients as activations");
    let other_peer = edited_stage(&program, 2, |stage| stage.chunks[0].forward.receives[0].peer = 0);
    assert_stopped(&other_peer, &["has waited", "pipe"], "stage 2 receives from stage 0");
}

/// Two chunks that take each other's messages: each may wait for the other, or compute with the wrong ones.
#[test]
fn chunks_take_their_own_messages() {
    let program = staged("pipe=2", Activations::Scattered, Schedule::Interleaved, 2);
    let swapped = edited_stage(&program, 1, |stage| {
        let tags = [0, 1].map(|chunk: usize| stage.chunks[chunk].forward.receives[0].tag);
        (0..2).for_each(|chunk| stage.chunks[chunk].forward.receives[0].tag = tags[1 - chunk]);
    });
    assert_stopped(&swapped, &["has waited", "pipe"], "the chunks of stage 1 wait for each other's messages");
    // On the sending side as well nobody waits, but the layers are passed in another order.
    let both = edited_stage(&swapped, 0, |stage| {
        let tags = [0, 1].map(|chunk: usize| stage.chunks[chunk].forward.sends[0].tag);
        (0..2).for_each(|chunk| stage.chunks[chunk].forward.sends[0].tag = tags[1 - chunk]);
    });
    assert!(prove(&both, 1).unwrap().ok, "tags are only names");
}

/// A receive that is not posted, and a buffer that is not given back.
#[test]
fn posts_and_releases_are_needed() {
    let program = staged("pipe=2", Activations::Scattered, Schedule::Gpipe, 1);
    let no_post = edited_stage(&program, 1, |stage| {
        let at = stage.steps.iter().position(|step| matches!(step, Step::Post(_))).unwrap();
        stage.steps.remove(at);
    });
    assert_stopped(&no_post, &["received"], "a receive that nobody posts");
    let no_release = edited_stage(&program, 0, |stage| {
        stage.steps.retain(|step| !matches!(step, Step::Release(_)));
    });
    // The second step finds their buffers still away.
    assert_stopped(&no_release, &["residual"], "sends are never released");
}
