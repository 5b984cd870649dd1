//! What ranks tell each other beside their data: signs of life, failures, questions and answers about who waits for whom.

use std::collections::BTreeSet;
use std::sync::Mutex;

use quadrille_comm::transport::Job;
use quadrille_comm::{Activity, Call, Cause, Group, JobFailure, Label, Reduction};
use quadrille_panics::lock;
use quadrille_spec::CollectiveKind;
use serde::{Deserialize, Serialize};

/// The largest packet.
pub(super) const PACKET_BYTES: usize = 16 << 10;

/// The longest text of a failure; a panic's backtrace may be longer.
const TEXT_BYTES: usize = 12 << 10;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Packet {
    /// The sender is there.
    Alive,
    /// The sender's job is aborted, and it was the first that knew.
    Failed(FailureText),
    /// What do you do?
    Ask(Question),
    /// This.
    Answer { number: u64, answer: Answer },
}

impl Packet {
    /// Its bytes; `None` if it is too long to be sent.
    pub(super) fn encoded(&self) -> Option<Vec<u8>> {
        let bytes = postcard::to_stdvec(self).ok()?;
        // Names of groups and layers are short, and a failure's text is cut: only a program with names of thousands of
        // letters gets here, and its packet is left out.
        (bytes.len() <= PACKET_BYTES).then_some(bytes)
    }

    pub(super) fn decoded(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

/// Asks how far a rank has come on a group, or on a channel of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Question {
    pub(super) number: u64,
    pub(super) job: u64,
    pub(super) group: u64,
    /// Of messages; as the one who is asked sees it.
    pub(super) channel: Option<ChannelKey>,
}

/// One direction of one tag between a rank and another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ChannelKey {
    pub(super) job: u64,
    pub(super) group: u64,
    /// The other rank.
    pub(super) other: usize,
    pub(super) sends: bool,
    pub(super) tag: u32,
}

impl ChannelKey {
    /// The channel of a message, as the group's own member sees it; `None`: the call is a collective.
    pub(super) fn of(job: &Job, group: &Group, call: &Call) -> Option<Self> {
        let tag = call.tag?;
        let other = group.members()[call.peer?];
        let sends = call.operation == CollectiveKind::Send;
        Some(Self { job: job.number(), group: group.key(), other, sends, tag })
    }
}

/// How far a rank has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) job: u64,
    /// It has returned from the job's body, and all that it issued is done.
    pub(super) left: bool,
    pub(super) activity: ActivityText,
    /// Collectives issued on the group, or messages on the channel.
    pub(super) issued: u64,
    /// What its communication works on, and for how long it has waited in it: the group's name and the call.
    pub(super) busy_with: Option<(String, CallText)>,
    /// The group and number of the collective that it has waited in for long.
    pub(super) waits_in: Option<(u64, u64)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ActivityText {
    layer: String,
    index: Option<u32>,
    operation: String,
}

impl ActivityText {
    pub(super) fn of(activity: &Activity) -> Self {
        let name = activity.layer.name();
        let index = activity.layer.index();
        Self { layer: name.into(), index, operation: activity.operation.into() }
    }

    pub(super) fn read(&self, names: &Names) -> Activity {
        let name = names.keep(&self.layer);
        let layer = self.index.map_or(Label::new(name), |index| Label::indexed(name, index));
        Activity { layer, operation: names.keep(&self.operation) }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CallText {
    operation: CollectiveKind,
    maximum: Option<bool>,
    peer: Option<usize>,
    tag: Option<u32>,
    element: String,
    element_bytes: usize,
    input: usize,
    output: usize,
    chunks: Option<u64>,
    activity: ActivityText,
}

impl CallText {
    pub(super) fn of(call: &Call) -> Self {
        Self {
            operation: call.operation,
            maximum: call.reduction.map(|reduction| reduction == Reduction::Max),
            peer: call.peer,
            tag: call.tag,
            element: call.element.into(),
            element_bytes: call.element_bytes,
            input: call.input,
            output: call.output,
            chunks: call.chunks,
            activity: ActivityText::of(&call.activity),
        }
    }

    /// The call for reports. Its element type is known by name only.
    pub(super) fn read(&self, names: &Names) -> Call {
        Call {
            operation: self.operation,
            reduction: self.maximum.map(|maximum| if maximum { Reduction::Max } else { Reduction::Sum }),
            peer: self.peer,
            tag: self.tag,
            element: names.keep(&self.element),
            input: self.input,
            output: self.output,
            chunks: self.chunks,
            activity: self.activity.read(names),
            kind: None,
            element_bytes: self.element_bytes,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct FailureText {
    rank: usize,
    activity: ActivityText,
    text: String,
}

impl FailureText {
    pub(super) fn of(failure: &JobFailure) -> Self {
        let mut text = failure.to_string();
        let cut = (0..=TEXT_BYTES.min(text.len())).rev().find(|cut| text.is_char_boundary(*cut));
        text.truncate(cut.unwrap_or(0));
        Self { rank: failure.rank, activity: ActivityText::of(&failure.activity), text }
    }

    pub(super) fn read(&self, names: &Names) -> JobFailure {
        let cause = Cause::Told(self.text.clone());
        JobFailure { rank: self.rank, activity: self.activity.read(names), cause }
    }
}

/// Names from other processes, each kept once for as long as this process runs: what a program calls its layers and
/// operations is a small fixed set.
#[derive(Default)]
pub(super) struct Names(Mutex<BTreeSet<&'static str>>);

impl Names {
    fn keep(&self, name: &str) -> &'static str {
        let mut known = lock(&self.0);
        if let Some(known) = known.get(name) {
            return known;
        }
        let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
        known.insert(name);
        name
    }
}

/// The answer of a rank that was not heard of.
pub(super) fn no_answer() -> Activity {
    Activity { layer: Label::new("an unknown place"), operation: "it gave no answer" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_as_they_went_in() {
        let activity = Activity { layer: Label::indexed("block", 3), operation: "forward" };
        let call =
            Call { input: 7, output: 7, chunks: Some(5), ..Call::new::<f64>(CollectiveKind::AllReduce, activity) };
        let answer = Answer {
            job: 2,
            left: false,
            activity: ActivityText::of(&activity),
            issued: 9,
            busy_with: Some(("x".into(), CallText::of(&call))),
            waits_in: Some((1, 2)),
        };
        let packet = Packet::Answer { number: 5, answer };
        assert_eq!(packet.encoded().and_then(|bytes| Packet::decoded(&bytes)), Some(packet.clone()));
        let names = Names::default();
        let Packet::Answer { answer, .. } = packet else { unreachable!("made above") };
        assert_eq!(answer.activity.read(&names), activity);
        let read = answer.busy_with.map(|(_, call)| call.read(&names)).expect("it was there");
        assert_eq!(read.to_string(), call.to_string());
    }

    #[test]
    fn a_long_failure_is_cut() {
        let cause = Cause::Panic("é".repeat(TEXT_BYTES));
        let failure = JobFailure { rank: 1, activity: Activity::START, cause };
        let packet = Packet::Failed(FailureText::of(&failure));
        let Some(Packet::Failed(text)) = packet.encoded().and_then(|bytes| Packet::decoded(&bytes)) else {
            panic!("another packet")
        };
        let read = text.read(&Names::default());
        assert_eq!((read.rank, read.activity), (1, Activity::START));
        assert!(failure.to_string().starts_with(&read.to_string()));
    }
}
