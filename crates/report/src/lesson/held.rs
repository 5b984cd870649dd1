//! The memory of a rank over a step: the most that each pass holds, and by name what lives when most does.

use quadrille_run::units::bytes;
use quadrille_spec::MemoryClass;
use quadrille_step::schedule::{Action, Step};
use quadrille_step::{Moment, StageProgram};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::moves::pass_name;
use crate::{Text, table};

/// Most passes whose memory is told; of more, the fullest of neighbours.
const PASSES: usize = 256;
/// Most names that are told.
const NAMES: usize = 32;

/// What a rank holds over a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// The most at any time: the peak of the ledger.
    pub peak_bytes: u64,
    /// When that is.
    pub moment: String,
    /// What lives then, by class and name, the largest first; together with `others_bytes` the peak.
    pub living: Vec<Named>,
    /// Bytes of what is too small to be named.
    pub others_bytes: u64,
    /// The most that each pass holds, in the order of the step; of many passes the fullest of neighbours.
    pub passes: Vec<Full>,
}

/// Values of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Named {
    /// What they are counted as: `activations`.
    pub class: String,
    /// Their name without numbers of blocks: `qkv`.
    pub name: String,
    /// How many, of all blocks and microbatches in flight.
    pub count: usize,
    /// Of all together.
    pub bytes: u64,
}

/// The most that is held in a pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Full {
    /// `forward of microbatch 0`, or `update`.
    pub pass: String,
    /// Of all classes together.
    pub bytes: u64,
}

/// The name of a pass of a microbatch.
fn told(action: Option<Action>, chunks: usize) -> String {
    match action {
        None => pass_name(None).to_owned(),
        Some(action) if chunks > 1 => action.to_string(),
        Some(Action { pass, microbatch, .. }) => format!("{pass} of microbatch {microbatch}"),
    }
}

/// The name of a step, after "in the".
fn told_step(step: Option<Step>, chunks: usize) -> String {
    let pass = |action| told(Some(action), chunks);
    match step {
        None => told(None, chunks),
        Some(Step::Run(action)) => pass(action),
        Some(Step::Post(action)) => format!("time before the {}, with room for what it receives", pass(action)),
        Some(Step::Release(action)) => format!("time after the {}, until what it sends is there", pass(action)),
    }
}

impl Memory {
    /// Of a rank of the stage.
    pub fn of(stage: &StageProgram) -> Self {
        let chunks = stage.chunks.len();
        let Moment { step, living } = stage.fullest_moment();
        let mut named: Vec<Named> = Vec::new();
        for held in &living {
            let name = held.value.map_or("optimizer states".to_owned(), |value| stage.value(value).short_name());
            match named.iter_mut().find(|known| known.class == held.class.name() && known.name == name) {
                Some(known) => (known.count, known.bytes) = (known.count + held.copies, known.bytes + held.bytes),
                None => named.push(Named {
                    class: held.class.name().to_owned(),
                    name,
                    count: held.copies,
                    bytes: held.bytes,
                }),
            }
        }
        named.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        let others_bytes = named.iter().skip(NAMES).map(|named| named.bytes).sum();
        named.truncate(NAMES);
        let passes = stage.held_by_passes();
        let each = passes.len().div_ceil(PASSES);
        let fullest = |passes: &[(Option<Action>, _, u64)]| {
            let (action, _, bytes) = passes.iter().max_by_key(|(_, _, bytes)| *bytes)?;
            Some(Full { pass: told(*action, chunks), bytes: *bytes })
        };
        Self {
            peak_bytes: living.iter().map(|held| held.bytes).sum(),
            moment: told_step(step, chunks),
            living: named,
            others_bytes,
            passes: passes.chunks(each).filter_map(fullest).collect(),
        }
    }

    /// For people, with so many of the largest names.
    pub fn text(&self, names: usize, width: usize) -> Text {
        let mut text =
            Text::heading(&format!("memory over the step: {} at most, in the {}", bytes(self.peak_bytes), self.moment));
        text += format!("  {}  most of each pass, in their order\n", self.bars(width.saturating_sub(40).clamp(10, 60)));
        let class = |class: &str| MemoryClass::ALL.into_iter().find(|each| each.name() == class).map_or("", short);
        let rows: Vec<Vec<String>> = self
            .living
            .iter()
            .take(names)
            .map(|named| {
                vec![named.name.clone(), class(&named.class).to_owned(), named.count.to_string(), bytes(named.bytes)]
            })
            .collect();
        let rest: u64 = self.others_bytes + self.living.iter().skip(names).map(|named| named.bytes).sum::<u64>();
        let rest = (rest > 0).then(|| vec!["all else".to_owned(), String::new(), String::new(), bytes(rest)]);
        text + table(
            &["lives then", "counted as", "how many", "bytes"],
            &rows.into_iter().chain(rest).collect::<Vec<_>>(),
        )
    }

    /// A bar for each pass, or for neighbours the fullest of them, in so many columns.
    fn bars(&self, width: usize) -> String {
        const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let each = self.passes.len().div_ceil(width).max(1);
        let level = |passes: &[Full]| {
            let most = passes.iter().map(|full| full.bytes).max().unwrap_or(0) as f64 / self.peak_bytes.max(1) as f64;
            LEVELS[((most * 8.0).ceil() as usize).clamp(1, 8) - 1]
        };
        self.passes.chunks(each).map(level).collect()
    }
}

fn short(class: MemoryClass) -> &'static str {
    match class {
        MemoryClass::Buffers => "buffers",
        class => class.name(),
    }
}
