//! Collectives on chunks of different lengths: what ranks get, and how tables that do not fit end them.

use std::process::ExitCode;

use quadrille_comm::{Element, Group, RankContext};
use quadrille_spec::Algorithm;

use crate::faults::{NEVER, options};
use crate::work::{Done, everyone, job, passed};
use crate::{Case, Outcome};

/// Bytes of the segments in which data pass.
const SEGMENT: usize = 128 << 10;

pub(crate) fn cases() -> Vec<Case> {
    let refused = |name, body, check| Case { name, ranks: 2, body, check };
    vec![
        Case { name: "chunks_native_4", ranks: 4, body: || chunks(Algorithm::Native), check: passed },
        Case { name: "chunks_ring_3", ranks: 3, body: || chunks(Algorithm::Ring), check: passed },
        Case { name: "chunks_hierarchical_6", ranks: 6, body: || chunks(Algorithm::Hierarchical), check: passed },
        Case { name: "tables_that_differ_are_both_named", ranks: 3, body: tables, check: differ },
        refused("a_chunk_that_is_too_short_is_an_error", || unequal(8, 12), |it| came(it, 8, 12)),
        refused("a_chunk_that_is_too_long_is_an_error", || unequal(12, 8), too_long),
        refused("a_chunk_that_should_be_empty_is_an_error", || unequal(4, 0), too_long),
        refused("a_chunk_that_is_empty_is_an_error", || unequal(0, 4), |it| came(it, 0, 4)),
        refused("a_chunk_one_segment_longer_is_an_error", || unequal(SEGMENT + 4, SEGMENT), too_long),
        refused("a_chunk_one_segment_shorter_is_an_error", || unequal(SEGMENT, 2 * SEGMENT), |it| came(it, 0, SEGMENT)),
    ]
}

fn chunks(algorithm: Algorithm) -> ExitCode {
    job(options(NEVER, algorithm), |context| {
        let group = everyone(context)?;
        for unit in [0, 1, 13, 4_099, SEGMENT / 4, SEGMENT / 2] {
            all::<f32>(context, &group, unit, |value| value as f32)?;
        }
        for unit in [3, SEGMENT / 2] {
            all::<f64>(context, &group, unit, |value| value as f64)?;
            all::<half::bf16>(context, &group, unit, |value| half::bf16::from_f32(value as f32))?;
            all::<half::f16>(context, &group, unit, |value| half::f16::from_f32(value as f32))?;
        }
        Ok(())
    })
}

/// All three, with chunks of none to three units and small whole numbers: sums are exact.
fn all<T: Element + std::fmt::Debug>(
    context: &RankContext,
    group: &Group,
    unit: usize,
    number: fn(usize) -> T,
) -> Done {
    let g = group.size();
    let me = group.index();
    let value = |member: usize, i: usize| (member * 7 + i * 3) % 11;
    let values = |member: usize, range: std::ops::Range<usize>| range.map(move |i| number(value(member, i)));
    let own = |n: usize| values(me, 0..n).collect::<Vec<T>>();
    let blank = |n: usize| vec![number(0); n];
    let lengths: Vec<usize> = (0..g).map(|member| unit * ((member + 1) % 3)).collect();
    let n = lengths.iter().sum();
    let mine = lengths[me];
    let before = lengths[..me].iter().sum::<usize>();

    let gathered = context.all_gather_chunks(group, &lengths, own(mine), blank(n));
    let scattered = context.reduce_scatter_chunks(group, &lengths, own(n), blank(mine));
    let everyones: Vec<T> = (0..g).flat_map(|member| values(member, 0..lengths[member])).collect();
    assert_eq!(gathered.wait()?.1, everyones, "all-gather by {unit}");
    let sum = |i: usize| number((0..g).map(|member| value(member, i)).sum());
    assert_eq!(scattered.wait()?.1, (before..before + mine).map(sum).collect::<Vec<T>>(), "reduce-scatter by {unit}");

    let between = |from: usize, to: usize| unit * ((from + 2 * to) % 4);
    let sent = |from: usize| (0..g).map(|to| between(from, to)).collect::<Vec<usize>>();
    let received: Vec<usize> = (0..g).map(|from| between(from, me)).collect();
    let input = own(sent(me).iter().sum());
    let output = blank(received.iter().sum());
    let exchanged = context.all_to_all_chunks(group, &sent(me), &received, input, output).wait()?.1;
    let chunk = |from: usize| {
        let start = sent(from)[..me].iter().sum::<usize>();
        values(from, start..start + between(from, me))
    };
    assert_eq!(exchanged, (0..g).flat_map(chunk).collect::<Vec<T>>(), "all-to-all by {unit}");
    Ok(())
}

fn tables() -> ExitCode {
    job(options(NEVER, Algorithm::Native), |context| {
        let group = everyone(context)?;
        let lengths = if group.index() == 1 { [3, 1, 2] } else { [3, 2, 1] };
        let own = vec![0f32; lengths[group.index()]];
        context.all_gather_chunks(&group, &lengths, own, vec![0f32; 6]).wait()?;
        Ok(())
    })
}

fn differ(outcome: &Outcome) {
    outcome.fails_saying(&[" into 6 f32 in chunks by table ", "#1 on group \"world\""]);
    outcome.within(10);
}

/// Rank 0 sends so many bytes where rank 1 expects others.
fn unequal(sent: usize, expected: usize) -> ExitCode {
    job(options(NEVER, Algorithm::Ring), move |context| {
        let group = everyone(context)?;
        let (sent, received) = match group.index() {
            0 => ([1, sent / 4], [1, 1]),
            _ => ([1, 1], [expected / 4, 1]),
        };
        let [input, output] = [sent, received].map(|table| vec![0f32; table.iter().sum()]);
        context.all_to_all_chunks(&group, &sent, &received, input, output).wait()?;
        Ok(())
    })
}

fn came(outcome: &Outcome, sent: usize, expected: usize) {
    outcome.fails_saying(&[&format!("{sent} bytes came from rank 0 where {expected} were expected")]);
    outcome.within(5);
}

/// What the library says of a message that is longer than its place.
fn too_long(outcome: &Outcome) {
    outcome.fails_saying(&["all-to-all of ", "#1 on group \"world\": ", "truncated"]);
    outcome.within(5);
}
