//! All that a rank sends and receives in a step: what for, how much, and what is computed meanwhile.

use std::collections::BTreeMap;

use quadrille_spec::{Axis, AxisSet, CollectiveKind, HOST, Transfer};
use quadrille_step::schedule::{Pass, Step};
use quadrille_step::{
    Collective, Layer, Members, Op, Operation, Reasons, Section, StageProgram, decision_of, kind, moved_to_host,
    transfer_of,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hidden::Hidden;

/// A collective, a message, or a copy to or from the host, of layers that do the same. Counts are those of one of the layers, in a
/// whole step: times the number of layers they add up to the rank's ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Move {
    /// In which pass.
    pub pass: String,
    /// The layers that do the same: `block 0`.
    pub layers: Vec<String>,
    /// The number of its operation in the pass of the chosen or the first of them; messages come first or last.
    pub at: usize,
    /// What is moved, without numbers of blocks: `qkv`.
    pub value: String,
    /// Which collective.
    pub kind: CollectiveKind,
    /// Its axes, as in ledgers: `x+z+data`; `host`.
    pub key: String,
    /// Its axes of several ranks: `x+data`.
    pub axes: String,
    /// Ranks that take part together.
    pub members: usize,
    /// How the value lies before, over axes of several ranks.
    pub from: String,
    /// How it lies afterwards.
    pub to: String,
    /// Why it is there.
    pub reason: String,
    /// Calls.
    pub calls: u64,
    /// Bytes of the whole buffers.
    pub payload_bytes: u64,
    /// Bytes that the rank sends.
    pub wire_bytes: u64,
    /// What is computed between its begin and the wait for it.
    pub hidden: Hidden,
}

/// Something that moves, of one operation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub chunk: usize,
    pub pass: Option<Pass>,
    pub layer: Layer,
    pub place: Place,
    /// As it is told.
    pub told: Move,
}

/// What in a section moves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The operation of this number.
    Operation(usize),
    /// The message of this number among those that it sends.
    Sent(usize),
    /// A message that it receives.
    Received,
    /// The agreement before a pass.
    Decision,
}

/// The name of a pass.
pub(super) fn pass_name(pass: Option<Pass>) -> &'static str {
    match pass {
        Some(Pass::Forward) => "forward",
        Some(Pass::Backward) => "backward",
        Some(Pass::WeightGradient) => "weight gradients",
        None => "update",
    }
}

/// All that a rank of the stage moves in a step, one by one, in the order of passes and operations.
pub(super) fn found(stage: &StageProgram, rank: usize) -> Vec<Found> {
    let mut all = Vec::new();
    for (chunk, program) in stage.chunks.iter().enumerate() {
        for (pass, section) in [Pass::Forward, Pass::Backward, Pass::WeightGradient].into_iter().zip(program.sections())
        {
            Looked { stage, rank, chunk, section, pass: Some(pass) }.add_to(&mut all);
        }
    }
    Looked { stage, rank, chunk: 0, section: &stage.update, pass: None }.add_to(&mut all);
    let passes = stage.steps.iter().filter(|step| matches!(step, Step::Run(_))).count() as u64;
    all.extend(decision_of(stage, rank).map(|(axes, transfer)| decision(stage, axes, transfer, passes)));
    all
}

/// A section that is looked through.
struct Looked<'a> {
    stage: &'a StageProgram,
    rank: usize,
    chunk: usize,
    section: &'a Section,
    pass: Option<Pass>,
}

impl Looked<'_> {
    fn add_to(&self, all: &mut Vec<Found>) {
        let reasons = Reasons::of(self.stage, self.section, self.pass);
        let messages = |messages: &[_], is_sent: bool, all: &mut Vec<Found>| {
            all.extend(messages.iter().enumerate().map(|(number, message)| {
                let place = if is_sent { Place::Sent(number) } else { Place::Received };
                self.message(&reasons, message, place)
            }));
        };
        messages(&self.section.receives, false, all);
        for (index, op) in self.section.ops.iter().enumerate() {
            let times = op.times(self.times()) as u64;
            if times > 0
                && let Some(found) = self.operation(&reasons, index, op, times)
            {
                all.push(found);
            }
        }
        messages(&self.section.sends, true, all);
    }

    /// How often the section runs in a step.
    fn times(&self) -> usize {
        if self.pass.is_some() { self.stage.layout.microbatches() } else { 1 }
    }

    fn operation(&self, reasons: &Reasons, index: usize, op: &Op, times: u64) -> Option<Found> {
        let stage = self.stage;
        let sent = transfer_of(stage, self.rank, op).map(|(axes, kind, transfer)| (axes, axes.key(), kind, transfer));
        let (axes, key, kind, transfer) = sent.or_else(|| {
            let (kind, payload_bytes) = moved_to_host(stage, &op.operation)?;
            Some((AxisSet::EMPTY, HOST.to_owned(), kind, Transfer { calls: 1, payload_bytes, wire_bytes: 0 }))
        })?;
        let (value, members, [from, to]) = match &op.operation {
            Operation::Issue(collective) => {
                (stage.value(collective.output).short_name(), collective.size(stage.grid()), lies(stage, collective))
            }
            Operation::ReduceScalar(kind::ReduceScalar { scalar, axes }) => {
                (scalar.to_string(), stage.grid().size_of(*axes), Default::default())
            }
            _ => ("states".to_owned(), 1, Default::default()),
        };
        Some(Found {
            chunk: self.chunk,
            pass: self.pass,
            layer: op.layer,
            place: Place::Operation(index),
            told: Move {
                pass: pass_name(self.pass).to_owned(),
                layers: vec![op.layer.to_string()],
                at: index + 1,
                value,
                kind,
                axes: if key == HOST { key.clone() } else { stage.grid().key(axes) },
                key,
                members,
                from,
                to,
                reason: reasons.why(index)?,
                calls: times,
                payload_bytes: times * transfer.payload_bytes,
                wire_bytes: times * transfer.wire_bytes,
                hidden: Hidden::in_program(stage, self.section, index),
            },
        })
    }

    fn message(&self, reasons: &Reasons, message: &quadrille_step::Message, place: Place) -> Found {
        let is_sent = place != Place::Received;
        let stage = self.stage;
        let times = self.times() as u64;
        let value = stage.value(message.value);
        let bytes = stage.local_bytes(message.value);
        let lies = value.sharding.seen_on(stage.grid()).to_string();
        Found {
            chunk: self.chunk,
            pass: self.pass,
            layer: message.layer,
            place,
            told: Move {
                pass: pass_name(self.pass).to_owned(),
                layers: vec![message.layer.to_string()],
                at: if is_sent { self.section.ops.len() + 1 } else { 0 },
                value: value.short_name(),
                kind: if is_sent { CollectiveKind::Send } else { CollectiveKind::Receive },
                key: Axis::Pipe.only().key(),
                axes: Axis::Pipe.only().key(),
                members: 2,
                from: lies.clone(),
                to: lies,
                reason: reasons.of_message(message, is_sent),
                calls: times,
                payload_bytes: times * bytes,
                wire_bytes: if is_sent { times * bytes } else { 0 },
                hidden: Hidden::message(is_sent),
            },
        }
    }
}

fn decision(stage: &StageProgram, axes: AxisSet, transfer: Transfer, passes: u64) -> Found {
    Found {
        chunk: 0,
        pass: None,
        layer: Layer::Step,
        place: Place::Decision,
        told: Move {
            pass: "before each pass".to_owned(),
            layers: vec![Layer::Step.to_string()],
            at: 0,
            value: "the next pass".to_owned(),
            kind: CollectiveKind::Broadcast,
            key: axes.key(),
            axes: stage.grid().key(axes),
            members: stage.grid().size_of(axes),
            from: String::new(),
            to: String::new(),
            reason: Reasons::of_decision().to_owned(),
            calls: passes,
            payload_bytes: passes * transfer.payload_bytes,
            wire_bytes: passes * transfer.wire_bytes,
            hidden: Hidden::at_once(),
        },
    }
}

/// How a value lies before and after a collective, over axes of several ranks. Sums over ranks that are not in the sharding of
/// what holds them, such as gradients of parameters, are told by the collective.
fn lies(stage: &StageProgram, collective: &Collective) -> [String; 2] {
    let grid = stage.grid();
    let [mut from, to] = [collective.input, collective.output].map(|value| stage.value(value).sharding.seen_on(grid));
    let sums =
        matches!(collective.kind, CollectiveKind::AllReduce | CollectiveKind::ReduceScatter | CollectiveKind::Reduce);
    if sums && collective.members == Members::All {
        let cut = from.sharded();
        from.partial = from.partial.union(grid.several(collective.axes).without(cut));
    }
    [from, to].map(|sharding| sharding.to_string())
}

/// What makes two moves of one layer, or of two layers, the same.
type Key = (String, String, CollectiveKind, String, [String; 2], String);

fn key(told: &Move) -> Key {
    let Move { pass, value, kind, key, from, to, reason, .. } = told;
    (pass.clone(), value.clone(), *kind, key.clone(), [from.clone(), to.clone()], reason.clone())
}

/// Moves of equal kind in a pass of a layer as one, and layers that do the same as one; in the order of the first of each. Where
/// they stand and what hides them is told of the `chosen` layer, if it is among them.
pub(super) fn folded(found: &[Found], chosen: Layer) -> Vec<Move> {
    let chosen = chosen.to_string();
    let mut places: BTreeMap<(Layer, Key), usize> = BTreeMap::new();
    let mut of_layers: Vec<Move> = Vec::new();
    for Found { layer, told, .. } in found {
        let place = *places.entry((*layer, key(told))).or_insert(of_layers.len());
        match of_layers.get_mut(place) {
            None => of_layers.push(told.clone()),
            Some(before) => {
                before.calls += told.calls;
                before.payload_bytes += told.payload_bytes;
                before.wire_bytes += told.wire_bytes;
                before.hidden.add(&told.hidden);
            }
        }
    }
    let mut places: BTreeMap<(Key, [u64; 3]), usize> = BTreeMap::new();
    let mut folded: Vec<Move> = Vec::new();
    for told in of_layers {
        let counts = [told.calls, told.payload_bytes, told.wire_bytes];
        let place = *places.entry((key(&told), counts)).or_insert(folded.len());
        match folded.get_mut(place) {
            None => folded.push(told),
            Some(before) => {
                if told.layers.contains(&chosen) {
                    (before.at, before.hidden) = (told.at, told.hidden);
                }
                before.layers.extend(told.layers);
            }
        }
    }
    folded
}
