//! The program of a kind of stages as priced tasks: every operation is priced once, however many microbatches run it.

use quadrille_spec::{Axis, AxisSet, CollectiveKind, Route};
use quadrille_step::schedule::{Action, Pass};
use quadrille_step::{
    BlockKind, Collective, Format, Group, Layer, Members, Message, Op, Operation, Scalar, Section, StageProgram, When,
    decision_axes, kind, most_elements, moved_to_host, wire_bytes,
};

use super::{Communication, Machine, SimulationError};

/// Something that a rank does.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Task {
    pub layer: Layer,
    /// Which microbatches do it.
    pub when: When,
    pub name: &'static str,
    /// The number of its operation in the section; `None`: what the ranks agree on before it.
    pub number: Option<usize>,
    pub kind: TaskKind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TaskKind {
    /// Occupies the compute stream: so many kernels.
    Compute { seconds: f64, kernels: f64 },
    /// Puts a collective at the end of the stream of its axes; `flight` connects it with its wait.
    Issue { flight: usize, axes: AxisSet, seconds: f64, meeting: Option<Meeting> },
    /// Blocks the compute stream until the collective is done; `carried`: one of the update before this step.
    Wait { flight: usize, axes: AxisSet, carried: bool },
    /// Puts a copy at the end of the stream to and from the host's memory; its number connects it with its wait.
    Copy { number: usize, seconds: f64 },
    /// Blocks the compute stream until the copy is done.
    AwaitCopy { number: usize },
}

/// A collective in which several stages take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meeting {
    /// Whether only the first and the last stage take part.
    pub ends: bool,
    pub stages: usize,
}

/// A message of a section.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PricedMessage {
    pub message: Message,
    /// Tells the messages of one tag and microbatch apart.
    pub position: usize,
    pub seconds: f64,
}

/// A section with the times of all that it does.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct PricedSection {
    pub receives: Vec<PricedMessage>,
    pub tasks: Vec<Task>,
    pub sends: Vec<PricedMessage>,
    /// Whether several stages take part in one of its collectives.
    pub meets: bool,
    /// Whether the first microbatch does more than others.
    pub begins: bool,
    /// Whether the last one does.
    pub ends: bool,
}

/// The sections of a kind of stages.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PricedStage {
    /// By chunk and pass.
    chunks: Vec<[PricedSection; 3]>,
    update: PricedSection,
}

impl PricedStage {
    pub fn new(program: &StageProgram, machine: &dyn Machine) -> Result<Self, SimulationError> {
        let mut pricing = Pricing { program, machine, flights: program.storages.len() };
        let chunks = program.chunks.iter().map(|chunk| {
            let [forward, backward, weight_gradient] = chunk.sections();
            Ok([pricing.pass(forward)?, pricing.pass(backward)?, pricing.pass(weight_gradient)?])
        });
        Ok(Self { chunks: chunks.collect::<Result<_, _>>()?, update: pricing.section(&program.update)? })
    }

    /// What is done for an action, or without one in the update.
    pub fn section(&self, action: Option<Action>) -> &PricedSection {
        match action {
            Some(Action { pass, chunk, .. }) => match (&self.chunks[chunk], pass) {
                ([forward, _, _], Pass::Forward) => forward,
                ([_, backward, _], Pass::Backward) => backward,
                ([_, _, weight_gradient], Pass::WeightGradient) => weight_gradient,
            },
            None => &self.update,
        }
    }
}

struct Pricing<'a> {
    program: &'a StageProgram,
    machine: &'a dyn Machine,
    /// The next number of a flight that has no storage; lower ones are storages.
    flights: usize,
}

impl Pricing<'_> {
    /// A pass; in a message-driven program the ranks of the stage agree on it first.
    fn pass(&mut self, section: &Section) -> Result<PricedSection, SimulationError> {
        let mut priced = self.section(section)?;
        let axes = decision_axes(self.program);
        if self.program.is_message_driven() {
            let decision = self.scalar(Layer::Step, CollectiveKind::Broadcast, axes, 1)?;
            priced.tasks.splice(0..0, decision);
        }
        Ok(priced)
    }

    fn section(&mut self, section: &Section) -> Result<PricedSection, SimulationError> {
        let mut tasks = Vec::new();
        // What is priced is a step of which nothing is repeated or taken back.
        for (number, op) in section.ops.iter().enumerate().filter(|(_, op)| op.times(1) > 0) {
            let before = tasks.len();
            self.operation(op, &mut tasks)?;
            tasks[before..].iter_mut().for_each(|task| task.number = Some(number));
        }
        let meets = tasks.iter().any(|task| matches!(task.kind, TaskKind::Issue { meeting: Some(_), .. }));
        let [begins, ends] = [When::First, When::Last].map(|when| tasks.iter().any(|task| task.when == when));
        let receives = self.messages(&section.receives)?;
        let sends = self.messages(&section.sends)?;
        Ok(PricedSection { receives, tasks, sends, meets, begins, ends })
    }

    fn messages(&self, messages: &[Message]) -> Result<Vec<PricedMessage>, SimulationError> {
        let priced = messages.iter().enumerate().map(|(position, message)| {
            let bytes = self.program.local_bytes(message.value);
            let seconds = self.check(message.layer, "message", self.machine.message_seconds(bytes))?;
            Ok(PricedMessage { message: *message, position, seconds })
        });
        priced.collect()
    }

    fn operation(&mut self, op: &Op, tasks: &mut Vec<Task>) -> Result<(), SimulationError> {
        let Op { layer, when, .. } = *op;
        match &op.operation {
            Operation::Issue(collective) => {
                if let Some(call) = self.communication(collective, layer) {
                    let kind = self.issue(layer, call, collective.members, self.flight(collective))?;
                    tasks.push(Task { layer, when, name: call.kind.name(), number: None, kind });
                }
            }
            Operation::Wait(collective) | Operation::WaitCarried(collective)
                if collective.size(self.program.grid()) > 1 =>
            {
                let carried = matches!(op.operation, Operation::WaitCarried(_));
                let kind = TaskKind::Wait { flight: self.flight(collective), axes: collective.axes, carried };
                tasks.push(Task { layer, when, name: collective.kind.name(), number: None, kind });
            }
            Operation::ReduceScalar(kind::ReduceScalar { axes, scalar }) => {
                tasks.extend(self.scalar(layer, CollectiveKind::AllReduce, *axes, scalar.elements())?);
            }
            Operation::Fetch(_) | Operation::Store(_) | Operation::AwaitFetch(_) | Operation::AwaitStore(_) => {
                tasks.extend(self.copy(op)?);
            }
            _ if op.operation.group().computes() => self.compute(op, tasks)?,
            _ => {}
        }
        Ok(())
    }

    /// A copy to or from the host's memory, or the wait for one.
    fn copy(&self, op: &Op) -> Result<Option<Task>, SimulationError> {
        let Op { layer, when, .. } = *op;
        let (kind, bucket) = match op.operation {
            Operation::Fetch(kind::Fetch { bucket, .. }) | Operation::AwaitFetch(kind::AwaitFetch { bucket }) => {
                (0, bucket)
            }
            Operation::Store(kind::Store { bucket }) | Operation::AwaitStore(kind::AwaitStore { bucket }) => {
                (1, bucket)
            }
            _ => return Ok(None),
        };
        let number = 2 * bucket.0 + kind;
        let name = op.operation.name();
        let kind = match moved_to_host(self.program, &op.operation) {
            Some((_, bytes)) => {
                let seconds = self.check(layer, name, self.machine.host_copy_seconds(bytes))?;
                TaskKind::Copy { number, seconds }
            }
            None => TaskKind::AwaitCopy { number },
        };
        Ok(Some(Task { layer, when, name, number: None, kind }))
    }

    /// Neighbours of one name and layer become one task.
    fn compute(&self, op: &Op, tasks: &mut Vec<Task>) -> Result<(), SimulationError> {
        let Op { layer, when, .. } = *op;
        let (added, more) = self.machine.operation(self.program, op);
        let added = self.check(layer, op.operation.name(), added)?;
        let name = event_name(&op.operation);
        if let Some(Task { kind: TaskKind::Compute { seconds, kernels }, .. }) =
            tasks.last_mut().filter(|last| (last.name, last.layer, last.when) == (name, layer, when))
        {
            *seconds += added;
            *kernels += more;
        } else if added > 0.0 {
            let kind = TaskKind::Compute { seconds: added, kernels: more };
            tasks.push(Task { layer, when, name, number: None, kind });
        }
        Ok(())
    }

    /// Scalars that are sent and waited for at once; nothing in a group of one.
    fn scalar(
        &mut self,
        layer: Layer,
        kind: CollectiveKind,
        axes: AxisSet,
        elements: usize,
    ) -> Result<Vec<Task>, SimulationError> {
        let members = self.program.grid().size_of(axes);
        if members == 1 {
            return Ok(Vec::new());
        }
        let call = communication(kind, axes, members, elements, Scalar::BYTES, Format::Sums);
        let flight = self.flights;
        self.flights += 1;
        let issue = self.issue(layer, call, Members::All, flight)?;
        let wait = TaskKind::Wait { flight, axes, carried: false };
        Ok([issue, wait]
            .into_iter()
            .map(|kind| Task { layer, when: When::Always, name: call.kind.name(), number: None, kind })
            .collect())
    }

    fn issue(
        &self,
        layer: Layer,
        call: Communication,
        members: Members,
        flight: usize,
    ) -> Result<TaskKind, SimulationError> {
        let seconds = self.check(layer, call.kind.name(), self.machine.collective_seconds(&call))?;
        let stages = if call.axes.contains(Axis::Pipe) { self.program.grid().size(Axis::Pipe) } else { 1 };
        let ends = members == Members::Ends;
        let meeting = (stages > 1).then_some(Meeting { ends, stages: if ends { 2 } else { stages } });
        Ok(TaskKind::Issue { flight, axes: call.axes, seconds, meeting })
    }

    fn flight(&self, collective: &Collective) -> usize {
        self.program.value(collective.output).storage.0
    }

    /// What a collective moves; `None` in a group of one.
    fn communication(&self, collective: &Collective, layer: Layer) -> Option<Communication> {
        let Collective { kind, axes, .. } = *collective;
        let members = collective.size(self.program.grid());
        let elements = most_elements(self.program, collective);
        let bytes = self.program.sent_element_bytes(collective);
        let format = self.program.format(collective.output);
        let block = BlockKind::at(&self.program.model, layer);
        (members > 1).then(|| Communication { block, ..communication(kind, axes, members, elements, bytes, format) })
    }

    fn check(&self, layer: Layer, what: &'static str, seconds: f64) -> Result<f64, SimulationError> {
        SimulationError::check_seconds(self.program.stage, layer, what, seconds)
    }
}

/// A collective whose payload has `elements` elements. In a ring the first member stands for all, whose chunks differ by
/// an element at most; in a chain all but the last member send the whole.
fn communication(
    kind: CollectiveKind,
    axes: AxisSet,
    members: usize,
    elements: usize,
    element_bytes: u64,
    format: Format,
) -> Communication {
    let payload_bytes = elements as u64 * element_bytes;
    let wire_bytes = match kind {
        CollectiveKind::Broadcast | CollectiveKind::Reduce => payload_bytes,
        _ => wire_bytes(&Route::Ring, kind, elements, members, 0, 0, element_bytes),
    };
    Communication { kind, axes, members, payload_bytes, wire_bytes, format, block: None }
}

/// Products, attention and the optimizer under their own names, all else together.
fn event_name(operation: &Operation) -> &'static str {
    match operation.group() {
        Group::ElementWise => "element-wise",
        _ => operation.name(),
    }
}
