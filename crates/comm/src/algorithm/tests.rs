//! Every plan, simulated: members that wait for each other as ranks do, sums of tokens that tell who contributed.

use std::collections::BTreeMap;

use quadrille_spec::{Algorithm, Choice, CollectiveKind, Nodes, Route, Routing};
use quadrille_step::wire_bytes;

use super::plan as plan_of;
use super::plan::{Action, Piece, Plan, Space};
use super::ring::SEGMENT;
use crate::activity::Activity;
use crate::call::Call;
use crate::element::Reduction;

/// A member's buffers. Elements are integers in f64: sums are exact.
struct Member {
    plan: Plan,
    input: Vec<f64>,
    output: Vec<f64>,
    scratch: Vec<f64>,
    in_place: bool,
    next: usize,
}

impl Member {
    fn read(&self, piece: Piece) -> Vec<f64> {
        let space = match piece.space {
            Space::Input if self.in_place => &self.output,
            Space::Input => &self.input,
            Space::Output => &self.output,
            Space::Scratch => &self.scratch,
        };
        space[piece.start..piece.start + piece.len].to_vec()
    }

    fn write(&mut self, piece: Piece, values: &[f64]) {
        let space = if piece.space == Space::Output { &mut self.output } else { &mut self.scratch };
        assert_ne!(piece.space, Space::Input, "inputs are only read");
        space[piece.start..piece.start + piece.len].copy_from_slice(values);
    }
}

/// Runs all members' plans; a member's step ends when its partners have come to theirs. Panics if nobody can go on.
fn simulate(members: &mut [Member]) {
    loop {
        for member in members.iter_mut() {
            while let Some(Action::Copy { from, to }) = member.plan.actions.get(member.next).copied() {
                let values = member.read(from);
                member.write(to, &values);
                member.next += 1;
            }
        }
        let current: Vec<Option<Action>> =
            members.iter().map(|member| member.plan.actions.get(member.next).copied()).collect();
        if current.iter().all(Option::is_none) {
            return;
        }
        let ready = ready(&current);
        assert!(!ready.is_empty(), "members wait for each other in {current:?}");
        let sent: BTreeMap<usize, Vec<f64>> = ready
            .iter()
            .filter_map(|index| match current[*index] {
                Some(Action::Exchange { send: Some((_, piece)), .. }) => Some((*index, members[*index].read(piece))),
                _ => None,
            })
            .collect();
        for index in ready {
            if let Some(Action::Exchange { receive: Some(arrival), .. }) = current[index] {
                let mut values = sent[&arrival.from].clone();
                assert_eq!(values.len(), arrival.into.len, "both sides mean the same elements");
                if let Some(with) = arrival.with {
                    values.iter_mut().zip(members[index].read(with)).for_each(|(value, own)| *value += own);
                }
                members[index].write(arrival.into, &values);
            }
            members[index].next += 1;
        }
    }
}

/// The largest set of members whose exchanges complete together: partners are in it, and mean each other.
fn ready(current: &[Option<Action>]) -> Vec<usize> {
    let partners = |index: usize| match current[index] {
        Some(Action::Exchange { send, receive }) => Some((send.map(|(to, _)| to), receive.map(|arrival| arrival.from))),
        _ => None,
    };
    let mut ready: Vec<bool> = (0..current.len()).map(|index| partners(index).is_some()).collect();
    loop {
        let before = ready.clone();
        for (index, ready) in ready.iter_mut().enumerate() {
            let Some((to, from)) = partners(index) else { continue };
            let receives = to.is_none_or(|to| before[to] && partners(to).is_some_and(|(_, from)| from == Some(index)));
            let sends = from.is_none_or(|from| before[from] && partners(from).is_some_and(|(to, _)| to == Some(index)));
            *ready &= receives && sends;
        }
        if ready == before {
            return (0..current.len()).filter(|index| ready[*index]).collect();
        }
    }
}

/// Element `i` of member `m`'s input: sums and places are told apart.
fn token(member: usize, element: usize) -> f64 {
    ((member + 1) * 1000 + element) as f64
}

struct Case {
    kind: CollectiveKind,
    members: usize,
    /// Elements of a chunk, or of the buffer where there are no equal chunks.
    elements: usize,
    root: usize,
}

impl Case {
    fn call(&self) -> Call {
        let each = self.elements;
        let all = self.elements * self.members;
        let (input, output) = match self.kind {
            CollectiveKind::AllGather => (each, all),
            CollectiveKind::ReduceScatter => (all, each),
            CollectiveKind::AllToAll => (all, all),
            _ => (each, each),
        };
        let rooted = matches!(self.kind, CollectiveKind::Broadcast | CollectiveKind::Reduce);
        let peer = rooted.then_some(self.root);
        Call { input, output, peer, reduction: Some(Reduction::Sum), ..Call::new::<f64>(self.kind, Activity::START) }
    }

    fn expected(&self, member: usize) -> Vec<f64> {
        let g = self.members;
        let each = self.elements;
        let sum = |element: usize| (0..g).map(|member| token(member, element)).sum();
        match self.kind {
            CollectiveKind::AllReduce => (0..each).map(sum).collect(),
            CollectiveKind::ReduceScatter => (0..each).map(|element| sum(member * each + element)).collect(),
            CollectiveKind::AllGather => (0..g * each).map(|at| token(at / each, at % each)).collect(),
            CollectiveKind::Broadcast => (0..each).map(|element| token(self.root, element)).collect(),
            CollectiveKind::Reduce if member == self.root => (0..each).map(sum).collect(),
            CollectiveKind::Reduce => (0..each).map(|element| token(member, element)).collect(),
            CollectiveKind::AllToAll => (0..g * each).map(|at| token(at / each, member * each + at % each)).collect(),
            _ => Vec::new(),
        }
    }

    fn check(&self, route: &Route) {
        let call = self.call();
        let in_place =
            matches!(self.kind, CollectiveKind::AllReduce | CollectiveKind::Broadcast | CollectiveKind::Reduce);
        let mut members: Vec<Member> = (0..self.members)
            .map(|index| {
                let plan = plan_of(&call, route, self.members, index);
                let input: Vec<f64> = (0..call.input).map(|element| token(index, element)).collect();
                let output = if in_place { input.clone() } else { vec![f64::NAN; call.output] };
                Member { scratch: vec![f64::NAN; plan.scratch], plan, input, output, in_place, next: 0 }
            })
            .collect();
        let sent: Vec<usize> = members.iter().map(|member| member.plan.elements_sent()).collect();
        simulate(&mut members);
        for (index, member) in members.iter().enumerate() {
            let what =
                format!("{} of {} on {} members by {route:?}", call.operation.name(), self.elements, self.members);
            if self.kind != CollectiveKind::Barrier {
                assert_eq!(member.output, self.expected(index), "{what}: member {index}");
            }
            let predicted =
                wire_bytes(route, self.kind, call.payload_elements(), self.members, index, self.root, 1) as usize;
            assert_eq!(sent[index], predicted, "{what}: member {index} sends");
        }
    }
}

const KINDS: [CollectiveKind; 7] = [
    CollectiveKind::AllReduce,
    CollectiveKind::ReduceScatter,
    CollectiveKind::AllGather,
    CollectiveKind::Broadcast,
    CollectiveKind::Reduce,
    CollectiveKind::AllToAll,
    CollectiveKind::Barrier,
];

fn route(algorithm: Algorithm, nodes: Nodes, members: &[usize]) -> Route {
    let routing = Routing { nodes, choice: Choice::Always(algorithm), grid: None };
    routing.route(CollectiveKind::AllReduce, 0, &routing.formation(members))
}

#[test]
fn flat_algorithms_are_right_and_send_what_is_predicted() {
    for members in 2..=16 {
        for algorithm in [Algorithm::Ring, Algorithm::Recursive] {
            let ranks: Vec<usize> = (0..members).collect();
            let route = route(algorithm, Nodes::equal(members, members), &ranks);
            for kind in KINDS {
                for elements in [0, 1, 3, members - 1, members, 37] {
                    Case { kind, members, elements, root: elements % members }.check(&route);
                }
            }
        }
    }
}

#[test]
fn two_levels_are_right_wherever_the_members_lie() {
    for (nodes, per_node) in [(2, 2), (2, 3), (3, 2), (4, 4), (2, 8), (8, 2), (5, 3)] {
        let members = nodes * per_node;
        let by_node = Nodes::equal(members, per_node);
        let round_robin = Nodes::new((0..members).map(|rank| rank % nodes).collect());
        for placed in [by_node, round_robin] {
            let ranks: Vec<usize> = (0..members).collect();
            let route = route(Algorithm::Hierarchical, placed, &ranks);
            assert!(matches!(route, Route::Hierarchical(_)));
            for kind in KINDS {
                for elements in [0, 1, 5, 29] {
                    for root in [0, members - 1, members / 2] {
                        Case { kind, members, elements, root }.check(&route);
                    }
                }
            }
        }
    }
}

#[test]
fn a_two_level_all_to_all_sends_every_other_node_one_message() {
    for (nodes, per_node) in [(2, 2), (3, 2), (2, 5), (4, 4)] {
        let members = nodes * per_node;
        let placed = Nodes::new((0..members).map(|rank| rank % nodes).collect());
        let ranks: Vec<usize> = (0..members).collect();
        let route = route(Algorithm::Hierarchical, placed, &ranks);
        let call = Case { kind: CollectiveKind::AllToAll, members, elements: 3, root: 0 }.call();
        for index in ranks {
            let exchanges =
                plan_of(&call, &route, members, index).actions.into_iter().filter_map(|action| match action {
                    Action::Exchange { send, .. } => send,
                    Action::Copy { .. } => None,
                });
            let (outside, inside): (Vec<_>, Vec<_>) = exchanges.partition(|(to, _)| to % nodes != index % nodes);
            assert!(outside.iter().all(|(to, piece)| to / nodes == index / nodes && piece.len == 3 * per_node));
            assert!(inside.iter().all(|(_, piece)| piece.len == 3 * nodes));
            assert_eq!((outside.len(), inside.len()), (nodes - 1, per_node - 1));
        }
    }
}

#[test]
fn large_buffers_stay_in_order() {
    for members in 2..=9 {
        // Just below, there, and with chunks of an all-reduce of which some are longer than others.
        for elements in [super::IN_ORDER - 1, super::IN_ORDER, super::IN_ORDER + members - 1] {
            Case { kind: CollectiveKind::AllReduce, members, elements, root: 0 }.check(&Route::Recursive);
        }
        for kind in [CollectiveKind::ReduceScatter, CollectiveKind::AllGather] {
            let first = super::IN_ORDER.div_ceil(members);
            for elements in [first - 1, first] {
                Case { kind, members, elements, root: 0 }.check(&Route::Recursive);
            }
        }
    }
}

#[test]
fn long_chains_are_cut_into_segments() {
    for kind in [CollectiveKind::Broadcast, CollectiveKind::Reduce] {
        for members in [2, 3, 5] {
            for elements in [SEGMENT - 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT, 100_000] {
                Case { kind, members, elements, root: 1 }.check(&Route::Ring);
            }
        }
    }
}

#[test]
fn groups_that_nodes_hold_unequally_take_rings() {
    let nodes = Nodes::equal(8, 4);
    assert_eq!(route(Algorithm::Hierarchical, nodes.clone(), &[0, 1, 4]), Route::Ring);
    assert_eq!(route(Algorithm::Hierarchical, nodes.clone(), &[0, 1, 2]), Route::Ring);
    assert_eq!(route(Algorithm::Hierarchical, nodes, &[0, 4]), Route::Recursive);
}
