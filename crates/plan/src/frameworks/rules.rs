//! Rules that a layout must keep to start in a framework, beside the rules of all layouts.
//!
//! Exports, searches and prices of one layout ask them, so that they give the same answer.

use quadrille_cost::native::Moments;
use quadrille_spec::{Axis, Layout, Model, Offload, Schedule, SpecError, Zero};

use super::{Capability, Support};
use crate::export::{Framework, keeps_order};

/// Sizes that a rule depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The axes and the sequence.
    Grid,
    /// The schedule with its microbatches.
    Schedule,
}

/// A rule of frameworks, with the source file that raises the error.
struct Check {
    frameworks: &'static [Framework],
    scope: Scope,
    source: &'static str,
    rule: &'static str,
    check: fn(Framework, &Model, &Layout) -> Result<(), SpecError>,
}

const CHECKS: [Check; 7] = [
    Check {
        frameworks: &[Framework::Torchtitan, Framework::DeepSpeed],
        scope: Scope::Grid,
        source: "torchtitan/models/common/decoder.py, deepspeed/module_inject/tp_shard.py",
        rule: "tensor parallelism divides the heads of keys and values",
        check: key_heads,
    },
    Check {
        frameworks: &[Framework::Megatron, Framework::Nemo],
        scope: Scope::Grid,
        source: "megatron/core/transformer/transformer_config.py",
        rule: "tensor parallelism divides the heads of keys and values, or is a multiple of them",
        check: query_groups,
    },
    Check {
        frameworks: &[Framework::DeepSpeed],
        scope: Scope::Grid,
        source: "deepspeed/sequence/layer.py",
        rule: "context parallelism (Ulysses) divides the heads, and those of keys and values, of a rank of tensor parallelism",
        check: ulysses_heads,
    },
    Check {
        frameworks: &[Framework::Torchtitan],
        scope: Scope::Grid,
        source: "torchtitan/models/llama3/infra/parallelize.py",
        rule: "tensor parallelism times twice context parallelism divides the sequence",
        check: sequence_parts,
    },
    Check {
        frameworks: &[Framework::Torchtitan],
        scope: Scope::Schedule,
        source: "torch/distributed/pipelining/schedules.py (PipelineScheduleSingle)",
        rule: "1F1B and GPipe have at least as many microbatches as stages",
        check: single_stages,
    },
    Check {
        frameworks: &[Framework::Torchtitan],
        scope: Scope::Schedule,
        source: "torch/distributed/pipelining/schedules.py (ScheduleInterleaved1F1B)",
        rule: "microbatches of interleaved 1F1B are a multiple of their rounds, each at least as long as the pipeline",
        check: interleaved_rounds,
    },
    Check {
        frameworks: &[Framework::Megatron, Framework::Nemo],
        scope: Scope::Grid,
        source: "megatron/core/transformer/transformer_config.py",
        rule: "beside experts tensor parallelism divides the sequence of a context rank (sequence parallelism)",
        check: sequence_beside_experts,
    },
];

/// Ranks of tensor parallelism: x and y, which all but AxoNN take for one axis.
fn tensor(layout: &Layout) -> usize {
    layout.grid.size(Axis::X) * layout.grid.size(Axis::Y)
}

/// The name of the axes that tensor parallelism has in a layout.
fn tensor_name(layout: &Layout) -> &'static str {
    if layout.grid.size(Axis::Y) > 1 { "x*y" } else { "x" }
}

/// Heads of keys and values of every kind of block.
fn key_heads_of(model: &Model) -> impl Iterator<Item = usize> {
    model.blocks.kinds().iter().map(|block| block.attention.kv_heads)
}

fn key_heads(framework: Framework, model: &Model, layout: &Layout) -> Result<(), SpecError> {
    check_key_heads(framework, tensor_name(layout), tensor(layout), model)
}

/// Checks that so many ranks along `axes` have equal numbers of heads of keys and values, in every block.
fn check_key_heads(framework: Framework, axes: &str, ranks: usize, model: &Model) -> Result<(), SpecError> {
    let Some(heads) = key_heads_of(model).find(|heads| !heads.is_multiple_of(ranks)) else { return Ok(()) };
    let title = framework.title();
    let rule =
        format!("{title} gives each of these ranks as many heads of keys and values, of which there are {heads}");
    let fewer: Vec<_> =
        quadrille_spec::nearest_divisors(heads, ranks).iter().map(|size| format!("{axes}={size}")).collect();
    Err(SpecError::invalid(axes, ranks, rule, format!("try {}", fewer.join(" or "))))
}

fn query_groups(framework: Framework, model: &Model, layout: &Layout) -> Result<(), SpecError> {
    let tensor = tensor(layout);
    let is_kept = |groups: usize| tensor.is_multiple_of(groups) || groups.is_multiple_of(tensor);
    if key_heads_of(model).all(is_kept) { Ok(()) } else { key_heads(framework, model, layout) }
}

fn ulysses_heads(framework: Framework, model: &Model, layout: &Layout) -> Result<(), SpecError> {
    let context = layout.grid.size(Axis::Context);
    if context == 1 {
        return Ok(());
    }
    let tensor = tensor(layout);
    let (name, parts) = if tensor == 1 { ("context", context) } else { ("context*x*y", context * tensor) };
    let kinds = model.blocks.kinds();
    kinds.iter().try_for_each(|block| SpecError::check_divides(name, parts, "heads", block.attention.heads))?;
    check_key_heads(framework, name, parts, model)
}

fn sequence_parts(framework: Framework, _: &Model, layout: &Layout) -> Result<(), SpecError> {
    check_sequence(framework, tensor(layout) * 2 * layout.grid.size(Axis::Context), layout)
}

/// Checks that a sequence has so many equal parts.
fn check_sequence(framework: Framework, parts: usize, layout: &Layout) -> Result<(), SpecError> {
    if layout.seq_len.is_multiple_of(parts) {
        return Ok(());
    }
    let rule = format!("{} cuts sequences into {parts} equal parts here", framework.title());
    Err(SpecError::invalid(
        "seq_len",
        layout.seq_len,
        rule,
        format!("use a multiple of {parts}, or fewer ranks of x and context"),
    ))
}

/// torchtitan runs other schedules as 1F1B, which has the same rule.
fn single_stages(_: Framework, _: &Model, layout: &Layout) -> Result<(), SpecError> {
    let stages = layout.grid.size(Axis::Pipe);
    let microbatches = layout.microbatches();
    let interleaved = layout.schedule == Schedule::Interleaved && layout.chunks > 1;
    if stages == 1 || interleaved || microbatches >= stages {
        return Ok(());
    }
    let rule =
        format!("torch's {} has at least pipe={stages} microbatches, and here are {microbatches}", layout.schedule);
    let smaller = (1..layout.microbatch).rev().find(|size| {
        let share = layout.global_batch / layout.grid.batch_shares();
        size.is_multiple_of(layout.grid.size(Axis::Z)) && share.is_multiple_of(*size) && share / size >= stages
    });
    let remedy = match smaller {
        Some(size) => format!("use microbatch = {size}, or fewer stages"),
        None => "use a larger global_batch, or fewer stages".to_owned(),
    };
    Err(SpecError::invalid("microbatch", layout.microbatch, rule, remedy))
}

fn interleaved_rounds(_: Framework, _: &Model, layout: &Layout) -> Result<(), SpecError> {
    let stages = layout.grid.size(Axis::Pipe);
    let microbatches = layout.microbatches();
    let rounds = (microbatches / stages).max(1);
    if stages == 1
        || layout.schedule != Schedule::Interleaved
        || layout.chunks == 1
        || microbatches.is_multiple_of(rounds)
    {
        return Ok(());
    }
    let rule = format!("torch runs {microbatches} microbatches in {rounds} rounds of equal length");
    let remedy = format!("use a multiple of pipe={stages} microbatches, or 1f1b");
    Err(SpecError::invalid("schedule", layout.schedule, rule, remedy))
}

fn sequence_beside_experts(framework: Framework, model: &Model, layout: &Layout) -> Result<(), SpecError> {
    if !model.has_experts() || tensor(layout) == 1 {
        return Ok(());
    }
    check_sequence(framework, tensor(layout) * layout.grid.size(Axis::Context), layout)
}

impl Framework {
    /// Checks the rules that decide if a layout starts in the framework; the order of ranks is no such rule, since layouts of
    /// other orders start, with other neighbors in a node.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(self, model: &Model, layout: &Layout) -> Result<(), SpecError> {
        self.checks().try_for_each(|check| (check.check)(self, model, layout))
    }

    /// The rules as text, each with its source file.
    pub fn rules(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.checks().map(|check| (check.rule, check.source))
    }

    fn checks(self) -> impl Iterator<Item = &'static Check> {
        CHECKS.iter().filter(move |check| check.frameworks.contains(&self))
    }

    /// True if a layout keeps the rules of its axes and sequence.
    pub(crate) fn keeps_grid(self, model: &Model, layout: &Layout) -> bool {
        self.keeps(Scope::Grid, model, layout)
    }

    /// True if a layout keeps the rules of its schedule.
    pub(crate) fn keeps_schedule(self, model: &Model, layout: &Layout) -> bool {
        self.keeps(Scope::Schedule, model, layout)
    }

    fn keeps(self, scope: Scope, model: &Model, layout: &Layout) -> bool {
        self.checks().filter(|check| check.scope == scope).all(|check| (check.check)(self, model, layout).is_ok())
    }

    /// True if the framework can number ranks as a layout does, with experts on the same ranks.
    pub(crate) fn keeps_order(self, model: &Model, layout: &Layout) -> bool {
        keeps_order(self, model.has_experts(), layout)
    }

    /// Checks that moments of a type can be stored with the layout's states.
    ///
    /// # Errors
    /// States that are replicated, where the framework stores such moments with sharded ones only, and states on the host, whose
    /// optimizer keeps moments in f32 (`megatron/core/optimizer/__init__.py`).
    pub fn check_moments(self, moments: Option<Moments>, layout: &Layout) -> Result<(), SpecError> {
        let Some(moments) = moments.filter(|moments| *moments != Moments::F32) else { return Ok(()) };
        if !self.keeps_moments(layout.offload != Offload::None) {
            let rule = format!("{}'s optimizer on the host keeps them in f32", self.title());
            return Err(SpecError::invalid("moments", moments, rule, "use moments = f32, or offload = none"));
        }
        let replicas = layout.grid.batch_shares() * layout.grid.size(Axis::Context);
        if self.keeps_narrow_moments(layout.zero, layout.grid.size(Axis::Z), replicas) {
            return Ok(());
        }
        let rule = format!("{} stores such moments in its distributed optimizer", self.title());
        Err(SpecError::invalid("moments", moments, rule, "shard states: zero = 1"))
    }

    /// True if the framework can keep states of the optimizer in the host's memory at all.
    pub(crate) fn offloads_states(self) -> bool {
        !matches!(self.support(Capability::Offload), Support::Absent(_))
    }

    /// True if a layout's states of the optimizer can lie in the host's memory: sharded ones (Megatron-LM, DeepSpeed), or with the
    /// parameters that FSDP shards (torchtitan).
    pub fn offloads(self, layout: &Layout) -> bool {
        let replicas = layout.grid.batch_shares() * layout.grid.size(Axis::Context);
        self.keeps_offload(layout.zero, layout.grid.size(Axis::Z), replicas)
    }

    pub(crate) fn keeps_offload(self, zero: Zero, z: usize, replicas: usize) -> bool {
        match self {
            Self::Megatron | Self::Nemo => self.keeps_narrow_moments(zero, z, replicas),
            Self::Torchtitan => z > 1,
            Self::DeepSpeed => zero != Zero::Off || z > 1,
            Self::Axonn => false,
        }
    }

    /// Checks that the framework can keep a layout's states of the optimizer in the host's memory, if they lie there and it offloads
    /// states at all.
    ///
    /// # Errors
    /// States that the framework does not offload.
    pub fn check_offload(self, layout: &Layout) -> Result<(), SpecError> {
        if layout.offload == Offload::None || !self.offloads_states() || self.offloads(layout) {
            return Ok(());
        }
        let (rule, remedy) = match self {
            Self::Torchtitan => ("torchtitan offloads what FSDP shards", "use z above 1, or offload = none"),
            _ => ("states are offloaded where they are sharded", "use zero = 1, or offload = none"),
        };
        Err(SpecError::invalid("offload", layout.offload, rule, remedy))
    }

    /// True if moments of a narrow type can be stored where states are `offloaded` to the host, or are not.
    pub(crate) fn keeps_moments(self, offloaded: bool) -> bool {
        !(offloaded && self.is_of_megatron())
    }

    fn is_of_megatron(self) -> bool {
        [Self::Megatron, Self::Nemo].contains(&self)
    }

    /// True if narrow moments can be stored where ZeRO and z shard so: Megatron-LM's are the distributed optimizer's.
    pub(crate) fn keeps_narrow_moments(self, zero: Zero, z: usize, replicas: usize) -> bool {
        !self.is_of_megatron() || zero != Zero::Off || z > 1 || replicas == 1
    }
}
