//! The sentences. Axes with one rank are not named.

use quadrille_spec::{Axis, AxisSet, CollectiveKind, Grid};

use super::is_forward;
use crate::operation::{GemmPass, GemmStorage, Members, Operation, Reduction, Scalar};
use crate::{Collective, Format, Op, Sharding, StageProgram, Value};

/// A collective with what stands around it.
pub(super) struct Collected<'a> {
    pub program: &'a StageProgram,
    pub collective: &'a Collective,
    /// What made what each rank gives; `None`: it comes from outside the section.
    pub source: Option<&'a Op>,
    /// What first reads what each rank gets.
    pub read_by: Option<&'a Operation>,
    /// Whether what each rank gives came from another stage.
    pub is_received: bool,
}

impl Collected<'_> {
    /// Whether the forward pass does the same: it serves an operation of that pass, or gathers keys and values once more.
    pub fn is_of_the_forward_pass(&self) -> bool {
        let source = self.source.map(|op| &op.operation);
        match (self.collective.kind, self.read_by) {
            (CollectiveKind::AllGather, Some(Operation::AttentionBackward(_))) => {
                self.is_of_tokens() && !self.is_gradient()
            }
            (CollectiveKind::AllGather, read_by) => self.is_of_tokens() && read_by.is_some_and(is_forward),
            // Of a panel the operand may be a weight, which nothing makes.
            (CollectiveKind::Broadcast, read_by) => read_by.is_some_and(is_forward),
            _ => source.is_some_and(is_forward),
        }
    }

    pub fn reason(&self) -> String {
        match self.collective.members {
            Members::Ends => {
                "the table is used on the first and the last stage: their two gradients are terms of one sum".to_owned()
            }
            Members::Blocks(size) => {
                let along = self.along();
                format!(
                    "{size} ranks next to each other along {along} hold the same keys and values: their gradients are terms of one sum"
                )
            }
            Members::Root(_) => self.of_root(),
            Members::All => match self.collective.kind {
                CollectiveKind::AllGather => self.gather(),
                CollectiveKind::AllToAll => self.exchange(),
                CollectiveKind::ReduceScatter => format!("{}; {}", self.terms(), self.scattered()),
                _ => format!("{}; {}", self.terms(), self.summed()),
            },
        }
    }

    fn input(&self) -> &Value {
        self.program.value(self.collective.input)
    }

    fn output(&self) -> &Value {
        self.program.value(self.collective.output)
    }

    fn along(&self) -> String {
        along(self.program.grid(), self.collective.axes)
    }

    fn is_of_tokens(&self) -> bool {
        self.input().chunk.is_some()
    }

    fn is_gradient(&self) -> bool {
        let name = &self.input().name;
        name.starts_with("d ") || name.contains("gradient")
    }

    /// Whether it is no gradient but the loads that the bias of a router follows.
    fn is_of_loads(&self) -> bool {
        self.program.parameters.iter().any(|each| each.gradient == self.collective.input && !each.is_trained())
    }

    fn of_root(&self) -> String {
        let along = self.along();
        match self.collective.kind {
            CollectiveKind::Broadcast if self.program.trains() => {
                format!("one rank along {along} holds this panel, and all multiply with it (SUMMA)")
            }
            CollectiveKind::Broadcast => format!("one rank along {along} has it, and all want it"),
            _ => format!("each rank along {along} has a term of this panel, and one of them holds it (SUMMA)"),
        }
    }

    fn exchange(&self) -> String {
        let along = self.along();
        let rows = if self.is_gradient() { "gradients of rows" } else { "rows" };
        if self.output().sharding.blocks.is_empty() {
            format!("each rank along {along} has whole experts: {rows} come back to where their tokens are")
        } else {
            format!("each rank along {along} has whole experts: {rows} go to those that have their experts")
        }
    }

    fn gather(&self) -> String {
        let along = self.along();
        let format = self.program.format(self.collective.output);
        if format == Format::Gathered {
            return match self.read_by {
                Some(Operation::Embed(_)) => {
                    format!(
                        "each rank along {along} stores a part of the table, and tokens look up rows of the whole tile"
                    )
                }
                _ => {
                    format!("each rank along {along} stores a part of the weight, and its product wants the whole tile")
                }
            };
        }
        if !self.is_of_tokens() {
            return format!("each rank along {along} has updated its part (ZeRO), and all compute with the whole");
        }
        let part = gathered_part(&self.input().sharding, &self.output().sharding);
        if self.is_received {
            return format!(
                "the ranks along {along} have received each a part of the {part}, so that nothing is sent twice"
            );
        }
        let cut = format!("{part} are cut over {along}");
        match self.read_by {
            Some(Operation::Attention(_) | Operation::AttentionBackward(_)) => {
                format!("sequences are cut over {along}, and queries attend to all keys and values of theirs")
            }
            Some(Operation::EmbedBackward(_)) => {
                format!("{cut}, and a rank adds up the gradients of all tokens of its part of the table")
            }
            Some(Operation::Admit(_)) => {
                format!("every rank must know how many rows all along {along} send to its experts")
            }
            Some(Operation::Gemm(gemm)) if gemm.pass == GemmPass::Forward => {
                let weight = &self.program.value(gemm.right).sharding;
                let outputs = if gemm.storage == GemmStorage::Nt { weight.rows } else { weight.cols };
                if self.collective.axes.iter().all(|axis| outputs.contains(&axis)) {
                    format!("{cut}, and so are the weight's outputs: the product wants all {part} on each rank")
                } else {
                    format!("{cut}, and the product wants all of them")
                }
            }
            Some(Operation::Gemm(gemm)) if gemm.pass == GemmPass::WeightGradient && !self.is_gradient() => {
                format!("{cut}, as they were kept, and the weight's gradient is a sum over all of them")
            }
            Some(Operation::Gemm(_)) => {
                format!("{cut}, as the result was, and the backward products want all {part} of its gradient")
            }
            Some(operation) => format!("{cut}, and {} wants all of them", operation.name()),
            None => format!("{cut}, and a later pass wants all of them"),
        }
    }

    /// Why each rank has a term of a sum.
    fn terms(&self) -> String {
        let along = self.along();
        if self.collective.reduction == Reduction::Max {
            return format!("the vocabulary is cut over {along}: each rank has the largest of its own logits");
        }
        match self.source.map(|op| &op.operation) {
            Some(Operation::Gemm(gemm)) if self.is_of_tokens() && gemm.pass != GemmPass::WeightGradient => {
                let contracted = match gemm.pass {
                    GemmPass::Forward => "inputs",
                    _ => "outputs",
                };
                format!(
                    "the product contracts over the weight's {contracted}, which {along} cuts: each rank has a term"
                )
            }
            Some(Operation::Router(_)) if self.is_of_tokens() => {
                format!("the router's product contracts over columns, which {along} cuts: each rank has a term")
            }
            Some(Operation::Embed(_)) => {
                format!("the table's rows are cut over {along}: a rank has the rows of its own tokens, else zeros")
            }
            Some(
                Operation::RowSums(_)
                | Operation::CenteredSquares(_)
                | Operation::RowSquares(_)
                | Operation::NormBackwardSums(_)
                | Operation::CombineBackward(_),
            ) if self.is_of_tokens() => {
                format!("a row's columns are cut over {along}: each rank has a term of the row's sums")
            }
            Some(Operation::CrossEntropySums(_)) => {
                format!("the vocabulary is cut over {along}: each rank has a term of the row's sum of exponentials")
            }
            Some(Operation::AttentionBackward(_)) => {
                format!(
                    "queries of all ranks along {along} attend to these keys and values: each has a term of their gradient"
                )
            }
            Some(Operation::SplitLatent(_)) => {
                format!("heads are cut over {along} and share this key: each rank has a term of its gradient")
            }
            Some(Operation::CountChoices(_) | Operation::CountLoads(_)) => {
                format!("tokens are cut over {along}: each rank has counted the choices of its own")
            }
            _ if self.is_of_loads() => {
                format!("ranks along {along} have counted the loads that their own tokens bring")
            }
            _ if !self.is_of_tokens() => {
                format!("{}: each has a term of the gradient", self.others())
            }
            _ => format!("each rank along {along} has a term of the sum"),
        }
    }

    /// What ranks have different ones of, for which they use the same parameter.
    fn others(&self) -> String {
        let grid = self.program.grid();
        let axes = self.collective.axes;
        let is_over_heads = axes.contains(Axis::X) && self.is_of_each_head();
        let heads = if is_over_heads { grid.several(Axis::X.only()) } else { AxisSet::EMPTY };
        let tokens = axes.without(heads);
        let of_heads = format!("ranks along {} have other heads", along(grid, heads));
        let of_tokens = format!("ranks along {} have other {}", along(grid, tokens), other_tokens(grid, tokens));
        match (heads, grid.several(tokens)) {
            (AxisSet::EMPTY, _) => of_tokens,
            (_, AxisSet::EMPTY) => of_heads,
            _ => format!("{of_heads}, and {of_tokens}"),
        }
    }

    /// Whether it is the gradient of a norm of each head, which all heads share.
    fn is_of_each_head(&self) -> bool {
        let norms = self
            .program
            .parameters
            .iter()
            .filter(|each| [".query_norm.", ".key_norm."].iter().any(|norm| each.name.contains(norm)));
        let storage = |value| self.program.value(value).storage;
        norms.into_iter().any(|each| {
            [each.gradient, each.reduced].into_iter().any(|value| storage(value) == storage(self.collective.input))
        })
    }

    /// What becomes of the sum.
    fn scattered(&self) -> String {
        if !self.is_of_tokens() {
            return "each keeps the sum of the part that it stores or updates".to_owned();
        }
        // What is scattered lies before as what a gather gives lies after.
        let part = gathered_part(&self.output().sharding, &self.input().sharding);
        format!("each keeps the sum of its part of the {part}")
    }

    fn summed(&self) -> &'static str {
        match self.collective.reduction {
            Reduction::Max => "all want the largest",
            Reduction::Sum if self.is_of_tokens() => "all want the sum",
            Reduction::Sum => "all update with the sum",
        }
    }
}

/// What is cut of the one and not of the other.
fn gathered_part(cut: &Sharding, whole: &Sharding) -> &'static str {
    if cut.cols.len() > whole.cols.len() { "columns" } else { "rows" }
}

/// What ranks along these axes have different ones of.
fn other_tokens(grid: &Grid, axes: AxisSet) -> &'static str {
    let named = axes.iter().filter(|axis| grid.size(*axis) > 1);
    let of_batch = |axis: Axis| Axis::BATCH.contains(&axis) || axis == Axis::Z;
    if named.into_iter().all(of_batch) { "sequences" } else { "tokens" }
}

pub(super) fn scalar(grid: &Grid, scalar: Scalar, axes: AxisSet) -> String {
    let pipe = Axis::Pipe.only();
    let tokens = grid.several(axes.without(pipe));
    let is_piped = grid.several(axes).contains(Axis::Pipe);
    let joined = |of_tokens: &str, of_stages: &str| {
        let of_tokens = (tokens != AxisSet::EMPTY).then(|| format!("ranks along {} {of_tokens}", along(grid, tokens)));
        of_tokens.into_iter().chain(is_piped.then(|| of_stages.to_owned())).collect::<Vec<_>>().join(", and ")
    };
    match scalar {
        Scalar::Loss => {
            let who = joined("have the losses of other tokens", "along pipe only the last stage has losses");
            format!("{who}: the loss of the step is the sum")
        }
        Scalar::GradientNormSquared => format!(
            "of ranks along {} each element of the gradient is counted by one: clipping wants the norm of all",
            along(grid, axes)
        ),
        Scalar::Batch => {
            let who = joined("have other tokens", "stages along pipe have the same tokens");
            format!("{who}: the losses of routers are means over the tokens of the step")
        }
        Scalar::Routers { .. } => {
            let who = joined("have routed other tokens", "stages along pipe have the routers of other layers");
            format!("{who}: their losses and loads are summed")
        }
    }
}

/// `x`, `x and y`, `x, y and data`.
fn along(grid: &Grid, axes: AxisSet) -> String {
    let names: Vec<&str> = axes.iter().filter(|axis| grid.size(*axis) > 1).map(Axis::name).collect();
    match names.as_slice() {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
