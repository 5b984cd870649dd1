//! Transitions between shardings, and the collectives that follow from them.
//!
//! partial -> replicated is an all-reduce, partial -> sharded a reduce-scatter, sharded -> replicated an all-gather,
//! replicated -> sharded a local slice, and axes that cut rows and come to cut blocks of rows, or the other way round, an
//! all-to-all. Columns are not contiguous in memory: they are packed before a
//! reduce-scatter and unpacked after an all-gather. Over axes of size 1 nothing happens but the change of name.

use quadrille_spec::{Axis, AxisSet, CollectiveKind};

use crate::builder::{Builder, PARTIAL};
use crate::operation::Reduction;
use crate::value::Home;
use crate::{AxisList, Format, Layer, Sharding, StepError, Value, ValueId, kind};

/// One transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    ReduceScatterColumns(Axis),
    ReduceScatterRows(Axis),
    SliceColumns(Axis),
    SliceRows(Axis),
    AllReduce(AxisSet),
    AllGatherRows(Axis),
    AllGatherColumns(Axis),
    /// Axes that cut rows come to cut blocks, or the other way round: what cuts either afterwards.
    AllToAll {
        rows: AxisList,
        blocks: AxisList,
    },
}

/// What becomes of a sharding whose rows are cut by some axes when these cut blocks instead.
fn exchanged(sharding: &Sharding, axes: AxisList) -> Result<Sharding, &'static str> {
    if !axes.iter().all(|axis| sharding.rows.contains(axis)) {
        return Err("only axes that cut rows can come to cut blocks");
    }
    let rows = sharding.rows.into_iter().filter(|axis| !axes.contains(axis)).collect();
    Ok(Sharding { rows, blocks: axes, ..*sharding })
}

/// The transitions from one sharding to another: what makes the value smaller first, columns before rows; then
/// what makes it larger, rows before columns.
fn steps(from: &Sharding, to: &Sharding) -> Result<Vec<Step>, &'static str> {
    if from.flat != to.flat {
        return Err("flat shards are gathered as weights");
    }
    if !to.partial.without(from.partial).is_empty() {
        return Err("a complete value cannot become a partial sum");
    }
    if from.blocks != to.blocks {
        let mut plan = Vec::new();
        if from.blocks.is_empty() {
            let middle = exchanged(from, to.blocks)?;
            plan.push(Step::AllToAll { rows: middle.rows, blocks: middle.blocks });
            plan.extend(steps(&middle, to)?);
        } else if to.blocks.is_empty() {
            plan.extend(steps(from, &exchanged(to, from.blocks)?)?);
            plan.push(Step::AllToAll { rows: to.rows, blocks: to.blocks });
        } else {
            return Err("blocks are whole between two ways of cutting them");
        }
        return Ok(plan);
    }
    let cut = |from: &[Axis], to: &[Axis]| {
        let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        (from[common..].to_vec(), to[common..].to_vec())
    };
    let (gather_rows, cut_rows) = cut(&from.rows, &to.rows);
    let (gather_cols, cut_cols) = cut(&from.cols, &to.cols);
    if (!gather_rows.is_empty() && !cut_rows.is_empty()) || (!gather_cols.is_empty() && !cut_cols.is_empty()) {
        return Err("only the innermost axes of a dimension can change");
    }
    if cut_rows.iter().chain(&cut_cols).any(|axis| gather_rows.contains(axis) || gather_cols.contains(axis)) {
        return Err("an axis cannot move between rows and columns");
    }
    let mut plan = Vec::new();
    for axis in cut_cols.iter().copied() {
        let reduce = from.partial.contains(axis);
        plan.push(if reduce { Step::ReduceScatterColumns(axis) } else { Step::SliceColumns(axis) });
    }
    for axis in cut_rows.iter().copied() {
        let reduce = from.partial.contains(axis);
        plan.push(if reduce { Step::ReduceScatterRows(axis) } else { Step::SliceRows(axis) });
    }
    let scattered: AxisSet = cut_rows.into_iter().chain(cut_cols).collect();
    let summed = from.partial.without(to.partial).without(scattered);
    if !summed.is_empty() {
        plan.push(Step::AllReduce(summed));
    }
    plan.extend(gather_rows.into_iter().rev().map(Step::AllGatherRows));
    plan.extend(gather_cols.into_iter().rev().map(Step::AllGatherColumns));
    Ok(plan)
}

impl Builder<'_> {
    /// `value` in another sharding; reductions are sums.
    pub fn transition(&mut self, value: ValueId, to: &Sharding) -> Result<ValueId, StepError> {
        self.transition_with(value, to, Reduction::Sum)
    }

    /// `value` in another sharding.
    pub fn transition_with(
        &mut self,
        value: ValueId,
        to: &Sharding,
        reduction: Reduction,
    ) -> Result<ValueId, StepError> {
        let from = *self.sharding(value);
        let plan = steps(&from, to).map_err(|reason| StepError::IllegalTransition {
            value: self.values[value.0].name.clone(),
            from: from.to_string(),
            to: to.to_string(),
            reason,
        })?;
        plan.into_iter().try_fold(value, |value, step| self.apply(value, step, reduction))
    }

    fn apply(&mut self, input: ValueId, step: Step, reduction: Reduction) -> Result<ValueId, StepError> {
        let Value { mut name, extents, mut sharding, storage, .. } = self.values[input.0].clone();
        let axes = step.apply_to(&mut sharding);
        if let Some(reduced) = name.strip_suffix(PARTIAL).filter(|_| sharding.partial.is_empty()) {
            name = reduced.to_owned();
        }
        if self.layout.grid.size_of(axes) == 1 {
            return self.view(name, extents, sharding, storage);
        }
        let home = self.home(input);
        match step {
            Step::AllReduce(axes) => {
                let output = self.view(name, extents, sharding, storage)?;
                self.collective(CollectiveKind::AllReduce, axes, reduction, input, output);
                Ok(output)
            }
            Step::ReduceScatterRows(_) => {
                let output = self.value(name, extents, sharding, home)?;
                self.collective(CollectiveKind::ReduceScatter, axes, reduction, input, output);
                Ok(output)
            }
            Step::ReduceScatterColumns(axis) => {
                let before = *self.sharding(input);
                let packed = self.value(format!("{name} packed"), extents, before, Home::buffer(home.format))?;
                self.push(kind::Pack { axis, input, output: packed });
                let output = self.value(name, extents, sharding, home)?;
                self.collective(CollectiveKind::ReduceScatter, axes, reduction, packed, output);
                Ok(output)
            }
            Step::AllToAll { .. } => {
                let output = self.value(name, extents, sharding, home)?;
                self.collective(CollectiveKind::AllToAll, axes, reduction, input, output);
                Ok(output)
            }
            Step::AllGatherRows(axis) => {
                let home = self.gathered_home(axis, input);
                let output = self.value(name, extents, sharding, home)?;
                self.collective(CollectiveKind::AllGather, axes, reduction, input, output);
                Ok(output)
            }
            Step::AllGatherColumns(axis) => {
                let packed = self.value(format!("{name} packed"), extents, sharding, Home::buffer(home.format))?;
                self.collective(CollectiveKind::AllGather, axes, reduction, input, packed);
                let output = self.value(name, extents, sharding, home)?;
                self.push(kind::Unpack { axis, input: packed, output });
                Ok(output)
            }
            Step::SliceRows(axis) => {
                let output = self.value(name, extents, sharding, home)?;
                self.push(kind::SliceRows { axis, input, output });
                Ok(output)
            }
            Step::SliceColumns(axis) => {
                let output = self.value(name, extents, sharding, home)?;
                self.push(kind::SliceColumns { axis, input, output });
                Ok(output)
            }
        }
    }
}

impl Builder<'_> {
    /// Where rows lie that are gathered over an axis. Of scattered activations of a block products alone read them, but for the key
    /// that all heads of latent attention share; rows of experts' tokens are gathered as they were sent.
    fn gathered_home(&self, axis: Axis, input: ValueId) -> Home {
        let home = self.home(input);
        let is_operand = matches!(axis, Axis::X | Axis::Y)
            && matches!(self.layer, Layer::Block(_))
            && self.layout.scatters_rows()
            && matches!(home.format, Format::Values | Format::KeptOperands)
            && self.shape(input)[0].blocks() == 1;
        let format = match (is_operand, self.of_gradients) {
            (false, _) => home.format,
            (true, false) => Format::Operands,
            (true, true) => Format::OperandGradients,
        };
        Home { format, ..home }
    }
}

impl Step {
    /// Changes the sharding as the step does; returns the axes that it spans.
    fn apply_to(self, sharding: &mut Sharding) -> AxisSet {
        match self {
            Self::AllReduce(axes) => {
                sharding.partial = sharding.partial.without(axes);
                return axes;
            }
            Self::AllToAll { rows, blocks } => {
                let axes = sharding.blocks.into_iter().chain(blocks).collect();
                (sharding.rows, sharding.blocks) = (rows, blocks);
                return axes;
            }
            Self::ReduceScatterColumns(axis) | Self::SliceColumns(axis) => sharding.cols.push(axis),
            Self::ReduceScatterRows(axis) | Self::SliceRows(axis) => sharding.rows.push(axis),
            Self::AllGatherRows(_) => {
                sharding.rows.pop();
            }
            Self::AllGatherColumns(_) => {
                sharding.cols.pop();
            }
        }
        let (Self::ReduceScatterColumns(axis)
        | Self::ReduceScatterRows(axis)
        | Self::SliceColumns(axis)
        | Self::SliceRows(axis)
        | Self::AllGatherRows(axis)
        | Self::AllGatherColumns(axis)) = self
        else {
            return AxisSet::EMPTY;
        };
        sharding.partial = sharding.partial.without(axis.only());
        axis.only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quadrille_spec::Axis::{Data, X, Y, Z};

    fn plan(from: Sharding, to: Sharding) -> Result<Vec<Step>, &'static str> {
        steps(&from, &to)
    }

    #[test]
    fn transitions_are_those_of_the_dataflow_tables() {
        let rows = || Sharding::new(&[Data, Z], &[]);
        let xy = X.only().union(Y.only());
        // Embedding, scattered: reduce-scatter columns over y, then rows over x.
        assert_eq!(
            plan(rows().partial(xy), Sharding::new(&[Data, Z, X], &[Y])),
            Ok(vec![Step::ReduceScatterColumns(Y), Step::ReduceScatterRows(X)])
        );
        // Replicated: the second is an all-reduce.
        assert_eq!(
            plan(rows().partial(xy), Sharding::new(&[Data, Z], &[Y])),
            Ok(vec![Step::ReduceScatterColumns(Y), Step::AllReduce(X.only())])
        );
        // Hidden states before the head: rows first, then columns.
        assert_eq!(
            plan(Sharding::new(&[Data, Z, X], &[Y]), rows()),
            Ok(vec![Step::AllGatherRows(X), Step::AllGatherColumns(Y)])
        );
        assert_eq!(plan(rows(), Sharding::new(&[Data, Z, X], &[])), Ok(vec![Step::SliceRows(X)]));
        assert_eq!(plan(rows(), rows()), Ok(vec![]));
    }

    #[test]
    fn experts_are_reached_by_an_all_to_all_next_to_where_rows_are_cut() {
        let tokens = Sharding::new(&[Data, Z, X], &[Y]);
        let rows = Sharding::new(&[Data], &[Y]);
        let whole = rows.blocks(&[Z]);
        let there = Step::AllToAll { rows: [Data, X].into_iter().collect(), blocks: whole.blocks };
        assert_eq!(plan(tokens, whole), Ok(vec![there, Step::AllGatherRows(X)]));
        let back = Step::AllToAll { rows: tokens.rows, blocks: AxisList::default() };
        assert_eq!(plan(whole.partial(X.only()), tokens), Ok(vec![Step::ReduceScatterRows(X), back]));
        assert!(plan(rows, whole).is_err(), "z does not cut rows");
        assert!(plan(whole, rows.blocks(&[X])).is_err(), "there is no way between two ways of cutting blocks");
    }

    #[test]
    fn impossible_transitions_are_errors() {
        let rows = || Sharding::new(&[Data, Z], &[]);
        assert!(plan(rows(), rows().partial(X.only())).is_err());
        assert!(plan(Sharding::new(&[Data, X], &[]), Sharding::new(&[Data, Z], &[])).is_err());
        assert!(plan(Sharding::new(&[X], &[]), Sharding::new(&[], &[X])).is_err());
        assert!(plan(rows().flat(&[Z]), rows()).is_err());
    }
}
