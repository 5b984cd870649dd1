//! The algorithms of collectives, written once for every transport: [`plan()`] says what a member does, [`run()`] does it.
//!
//! `n` elements of the full buffer, `g` members. Sums are taken in an order that the algorithm and the group alone fix.

mod hierarchical;
mod pairwise;
mod plan;
mod recursive;
mod ring;
mod run;
#[cfg(test)]
mod tests;

use quadrille_spec::{CollectiveKind, Route};

use crate::call::Call;
use crate::chunks::Chunks;
use crate::wire::chunk;
use hierarchical::Place;
use plan::{Arrival, Circle, Piece};
use recursive::{Ordered, Rotated};

pub(crate) use plan::Plan;
pub(crate) use run::run;

/// What the member at `index` of a group of `members` does for a call that is valid by itself. The native route has no plan
/// of its own: what it sends is counted as a ring's.
pub(crate) fn plan(call: &Call, route: &Route, members: usize, index: usize) -> Plan {
    let mut plan = Plan::default();
    let circle = Circle::new((0..members).collect(), index);
    match call.operation {
        CollectiveKind::AllReduce => all_reduce(&mut plan, route, &circle, call.input),
        CollectiveKind::ReduceScatter => reduce_scatter(&mut plan, route, &circle, call.output),
        CollectiveKind::AllGather => all_gather(&mut plan, route, &circle, call.input),
        CollectiveKind::Broadcast => broadcast(&mut plan, route, &circle, call),
        CollectiveKind::Reduce => reduce(&mut plan, route, &circle, call),
        CollectiveKind::AllToAll => all_to_all(&mut plan, route, &circle, call.input),
        CollectiveKind::Barrier => barrier(&mut plan, &circle),
        CollectiveKind::Send | CollectiveKind::Receive | CollectiveKind::Fetch | CollectiveKind::Store => {}
    }
    plan
}

/// What the member at `index` of a group of `members` does for a call on chunks of different lengths, both of which are
/// valid by themselves: rings, and pairwise exchanges, on every route.
pub(crate) fn plan_chunks(call: &Call, chunks: Chunks<'_>, members: usize, index: usize) -> Plan {
    let mut plan = Plan::default();
    let circle = Circle::new((0..members).collect(), index);
    let sent = starts(chunks.sent);
    let received = starts(chunks.received);
    let range = |starts: &[usize], chunk: usize| starts[chunk]..starts[chunk + 1];
    match call.operation {
        CollectiveKind::AllGather => {
            let part = |chunk: usize| Piece::output(range(&received, chunk));
            plan.copy(Piece::input(0..call.input), part(index));
            ring::all_gather(&mut plan, &circle, part);
        }
        CollectiveKind::ReduceScatter => {
            let part = |chunk: usize| Piece::input(range(&sent, chunk));
            ring::reduce_scatter(&mut plan, &circle, part, Piece::output(0..call.output));
        }
        CollectiveKind::AllToAll => {
            let from = |to| Piece::input(range(&sent, to));
            let into = |from| Piece::output(range(&received, from));
            pairwise::all_to_all(&mut plan, &circle, from, into);
        }
        other => unreachable!("{} has no chunks", other.name()),
    }
    plan
}

/// Where each chunk begins; one more at the end.
fn starts(lengths: &[usize]) -> Vec<usize> {
    let mut starts = vec![0];
    starts.extend(lengths.iter().scan(0, |end, length| {
        *end += length;
        Some(*end)
    }));
    starts
}

/// From this many elements of a full buffer on, the recursive algorithms leave blocks in their own order: copies into
/// rotated order and back would take longer than the exchanges by which a round may then become longer.
const IN_ORDER: usize = 32 << 10;

fn in_order(elements: usize) -> bool {
    elements >= IN_ORDER
}

fn all_reduce(plan: &mut Plan, route: &Route, circle: &Circle, n: usize) {
    let size = circle.size();
    let part = |index: usize| Piece::output(chunk(n, size, index));
    match route {
        Route::Ring | Route::Native => {
            ring::reduce_scatter(plan, circle, part, part(circle.me));
            ring::all_gather(plan, circle, part);
        }
        Route::Recursive => hierarchical::recursive_all_reduce(plan, circle, Piece::output(0..n)),
        Route::Hierarchical(levels) => hierarchical::all_reduce(plan, &Place::new(levels, circle.me), n),
    }
}

fn reduce_scatter(plan: &mut Plan, route: &Route, circle: &Circle, each: usize) {
    let part = |index: usize| Piece::input(index * each..(index + 1) * each);
    let output = Piece::output(0..each);
    match route {
        Route::Ring | Route::Native => ring::reduce_scatter(plan, circle, part, output),
        Route::Recursive if in_order(each * circle.size()) => {
            let blocks = Ordered::new(circle, |from, to| Piece::input(from * each..to * each));
            recursive::reduce_scatter_apart(plan, circle, &blocks, each, output);
        }
        Route::Recursive => {
            let blocks = rotated(plan, circle, each);
            for position in 0..circle.size() {
                plan.copy(part((circle.me + position) % circle.size()), blocks.position(position));
            }
            recursive::reduce_scatter(plan, circle, &blocks);
            plan.copy(blocks.position(0), output);
        }
        Route::Hierarchical(levels) => hierarchical::reduce_scatter(plan, &Place::new(levels, circle.me), each),
    }
}

fn all_gather(plan: &mut Plan, route: &Route, circle: &Circle, each: usize) {
    let part = |index: usize| Piece::output(index * each..(index + 1) * each);
    let own = Piece::input(0..each);
    match route {
        Route::Ring | Route::Native => {
            plan.copy(own, part(circle.me));
            ring::all_gather(plan, circle, part);
        }
        Route::Recursive if in_order(each * circle.size()) => {
            plan.copy(own, part(circle.me));
            let blocks = Ordered::new(circle, |from, to| Piece::output(from * each..to * each));
            recursive::all_gather_ordered(plan, circle, &blocks);
        }
        Route::Recursive => {
            let blocks = rotated(plan, circle, each);
            plan.copy(own, blocks.position(0));
            recursive::all_gather(plan, circle, &blocks);
            for position in 0..circle.size() {
                plan.copy(blocks.position(position), part((circle.me + position) % circle.size()));
            }
        }
        Route::Hierarchical(levels) => hierarchical::all_gather(plan, &Place::new(levels, circle.me), each),
    }
}

fn rotated(plan: &mut Plan, circle: &Circle, each: usize) -> Rotated {
    let start = plan.reserve(each * circle.size());
    Rotated::new(circle, start, |_| each)
}

fn broadcast(plan: &mut Plan, route: &Route, circle: &Circle, call: &Call) {
    let root = call.peer.unwrap_or(0);
    let buffer = Piece::output(0..call.input);
    match route {
        Route::Ring | Route::Native => ring::broadcast(plan, circle, root, buffer),
        Route::Recursive => recursive::broadcast(plan, circle, root, buffer),
        Route::Hierarchical(levels) => {
            hierarchical::broadcast(plan, &Place::new(levels, circle.me), root, buffer);
        }
    }
}

fn reduce(plan: &mut Plan, route: &Route, circle: &Circle, call: &Call) {
    let root = call.peer.unwrap_or(0);
    let own = Piece::output(0..call.input);
    let sum = |plan: &mut Plan| if circle.me == root { own } else { Piece::scratch(plan.reserve(own.len), own.len) };
    match route {
        Route::Ring | Route::Native => ring::reduce(plan, circle, root, own),
        Route::Recursive => {
            let sum = sum(plan);
            recursive::reduce(plan, circle, root, own, sum);
        }
        Route::Hierarchical(levels) => {
            let sum = sum(plan);
            hierarchical::reduce(plan, &Place::new(levels, circle.me), root, own, sum);
        }
    }
}

fn all_to_all(plan: &mut Plan, route: &Route, circle: &Circle, n: usize) {
    let each = n / circle.size();
    let range = |index: usize| index * each..(index + 1) * each;
    match route {
        Route::Ring | Route::Recursive | Route::Native => {
            pairwise::all_to_all(plan, circle, |to| Piece::input(range(to)), |from| Piece::output(range(from)));
        }
        Route::Hierarchical(levels) => hierarchical::all_to_all(plan, &Place::new(levels, circle.me), each),
    }
}

/// Dissemination: after round `k` a member has heard, directly or not, of `2^(k+1) - 1` others.
fn barrier(plan: &mut Plan, circle: &Circle) {
    let nothing = Piece::scratch(0, 0);
    let distances = std::iter::successors(Some(1), |distance| Some(2 * distance));
    for distance in distances.take_while(|distance| *distance < circle.size()) {
        let arrival = Arrival { from: circle.before(distance), into: nothing, with: None };
        plan.exchange(Some((circle.after(distance), nothing)), Some(arrival));
    }
}
