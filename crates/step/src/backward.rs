//! The backward pass, generated from what the forward pass recorded.
//!
//! A gradient is complete when it is cut like its value and nowhere a partial sum. What a layer contributes may be
//! partial; [`Builder::contribute`] brings it into the complete sharding of the value from which the layer's input
//! was resharded, which gives exactly the conjugate collectives.

use std::collections::BTreeMap;

use quadrille_spec::{Axis, AxisSet, CollectiveKind, MemoryClass};

use crate::builder::Builder;
use crate::operation::{GemmPass, GemmStorage, Operation, Reduction, Write};
use crate::{Layer, ParameterId, Sharding, StepError, ValueId};

/// What the forward pass did, with what its backward needs. `input` is the value as used, `output` the result.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Embed { table: ParameterId, output: ValueId },
    AddPositions { positions: ParameterId, input: ValueId, output: ValueId },
    Dropout { purpose: String, input: ValueId, output: ValueId },
    Norm(NormNode),
    Linear { weight: ParameterId, input: ValueId, output: ValueId },
    Bias { bias: ParameterId, input: ValueId, output: ValueId },
    BiasGelu { bias: Option<ParameterId>, input: ValueId, output: ValueId, activated: ValueId },
    Attention { qkv: ValueId, output: ValueId, statistics: ValueId, dropout: Option<String> },
    Residual { bias: Option<ParameterId>, input: ValueId, residual: ValueId, output: ValueId, dropout: Option<String> },
    Head { weight: ParameterId, input: ValueId, logits: ValueId },
    CrossEntropy { logits: ValueId, gradient: ValueId },
    Reshard { input: ValueId, output: ValueId },
}

/// What the backward of a layer norm needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NormNode {
    pub gamma: ParameterId,
    pub beta: ParameterId,
    pub input: ValueId,
    pub sums: ValueId,
    pub squares: ValueId,
    pub output: ValueId,
}

/// Gradients that are known while the tape is walked.
#[derive(Default)]
struct Gradients {
    /// Complete gradients of forward values.
    of: BTreeMap<ValueId, ValueId>,
    /// For the result of a reshard, the value that it was made from.
    origin: BTreeMap<ValueId, ValueId>,
    /// Gradient tiles of tied weights that wait for their second addend.
    open_tiles: BTreeMap<ParameterId, ValueId>,
}

impl Builder<'_> {
    /// `value` in another sharding; the backward pass does the conjugate.
    pub fn reshard(&mut self, value: ValueId, to: &Sharding) -> Result<ValueId, StepError> {
        let output = self.transition(value, to)?;
        self.record(Node::Reshard { input: value, output });
        Ok(output)
    }

    /// Brings a gradient of `value` into the complete sharding of the value's origin, as that one's gradient.
    fn contribute(&mut self, known: &mut Gradients, value: ValueId, gradient: ValueId) -> Result<(), StepError> {
        let origin = known.origin.get(&value).copied().unwrap_or(value);
        let complete = self.sharding(origin).of_gradient();
        let gradient = self.transition(gradient, &complete)?;
        // Only layer norms add to a gradient that is there already, and do so themselves.
        let before = known.of.insert(origin, gradient);
        debug_assert!(before.is_none(), "{} has two consumers", self.values[origin.0].name);
        Ok(())
    }

    /// The gradient value of a vector parameter, noting over which rows of `from` it is summed.
    fn vector_gradient(&mut self, parameter: ParameterId, from: ValueId) -> ValueId {
        let summed = self.sharding(from).rows.iter().copied().collect();
        let parameter = &mut self.parameters[parameter.0];
        parameter.unreduced = parameter.unreduced.union(summed);
        parameter.gradient
    }
}

/// Emits the backward pass of a microbatch.
pub(crate) fn backward(b: &mut Builder) -> Result<(), StepError> {
    let tape = std::mem::take(&mut b.tape);
    let mut known = Gradients::default();
    for (_, node) in &tape {
        if let Node::Reshard { input, output } = *node
            && input != output
        {
            known.origin.insert(output, input);
        }
    }
    for (layer, node) in tape.into_iter().rev() {
        b.layer = layer;
        reverse(b, &mut known, node)?;
    }
    Ok(())
}

fn reverse(b: &mut Builder, known: &mut Gradients, node: Node) -> Result<(), StepError> {
    match node {
        Node::Reshard { .. } => Ok(()),
        Node::CrossEntropy { logits, gradient } => {
            known.of.insert(logits, gradient);
            Ok(())
        }
        Node::Head { weight, input, logits } => linear(b, known, weight, input, logits, HEAD),
        Node::Linear { weight, input, output } => linear(b, known, weight, input, output, LINEAR),
        Node::Norm(node) => norm(b, known, node),
        Node::Bias { bias, input, output } => {
            let gradient = known.of[&output];
            let bias_gradient = b.vector_gradient(bias, gradient);
            b.push(Operation::BiasBackward { gradient, output: bias_gradient });
            b.contribute(known, input, gradient)
        }
        Node::BiasGelu { bias, input, output, activated } => {
            let gradient = known.of[&activated];
            let bias_gradient = bias.map(|bias| b.vector_gradient(bias, gradient));
            let before = b.in_place("d up pre-activation", gradient);
            b.push(Operation::GeluBackward { input: output, gradient, output: before, bias_gradient });
            b.contribute(known, input, before)
        }
        Node::Attention { qkv, output: result, statistics, dropout } => {
            let gradient = known.of[&result];
            let output = b.like("d qkv", qkv)?;
            b.push(Operation::AttentionBackward { qkv, result, statistics, gradient, output, dropout });
            b.contribute(known, qkv, output)
        }
        Node::Residual { bias, input, residual, output, dropout } => {
            let gradient = known.of[&output];
            b.contribute(known, residual, gradient)?;
            let mut branch = gradient;
            if let Some(purpose) = dropout {
                branch = b.like("d dropout", gradient)?;
                b.push(Operation::Dropout { purpose, input: gradient, output: branch });
            }
            if let Some(bias) = bias {
                let bias_gradient = b.vector_gradient(bias, branch);
                b.push(Operation::BiasBackward { gradient: branch, output: bias_gradient });
            }
            b.contribute(known, input, branch)
        }
        Node::Dropout { purpose, input, output } => {
            let gradient = known.of[&output];
            let before = b.in_place("d embedded", gradient);
            b.push(Operation::Dropout { purpose, input: gradient, output: before });
            b.contribute(known, input, before)
        }
        Node::AddPositions { positions, input, output } => {
            let gradient = known.of[&output];
            let positions = b.vector_gradient(positions, gradient);
            b.push(Operation::PositionsBackward { gradient, output: positions });
            b.contribute(known, input, gradient)
        }
        Node::Embed { table, output } => {
            let gradient = known.of[&output];
            let (tile, write) = weight_tile(b, known, table)?;
            b.push(Operation::EmbedBackward { gradient, output: tile, write });
            let rows = b.sharding(gradient).rows.clone();
            reduce_weight(b, table, tile, &rows)
        }
    }
}

/// How the operands of the two backward products are stored, and where the weight's inputs and outputs lie.
struct Products {
    input_gradient: GemmStorage,
    /// Whether the weight is stored `[outputs, inputs]`, as a vocabulary table is.
    transposed_weight: bool,
}

const LINEAR: Products = Products { input_gradient: GemmStorage::Nt, transposed_weight: false };
const HEAD: Products = Products { input_gradient: GemmStorage::Nn, transposed_weight: true };

/// Input gradient first, so that its reduction can run under the weight gradient.
fn linear(
    b: &mut Builder,
    known: &mut Gradients,
    weight: ParameterId,
    input: ValueId,
    output: ValueId,
    products: Products,
) -> Result<(), StepError> {
    let gradient = known.of[&output];
    let rows = b.sharding(gradient).rows.clone();
    let stored = b.sharding(b.parameters[weight.0].value).clone();
    let (inputs, outputs) =
        if products.transposed_weight { (stored.cols, stored.rows) } else { (stored.rows, stored.cols) };

    let gathered = b.gather_weight(weight)?;
    let partial = Sharding::new(&rows, &inputs).partial(outputs.into_iter().collect());
    let name = format!("d {}", b.values[input.0].name);
    let input_gradient = b.value(name, b.shape(input), partial, MemoryClass::Activations)?;
    b.push(Operation::Gemm {
        pass: GemmPass::InputGradient,
        storage: products.input_gradient,
        left: gradient,
        right: gathered,
        output: input_gradient,
        write: Write::Overwrite,
    });
    b.contribute(known, input, input_gradient)?;

    let (tile, write) = weight_tile(b, known, weight)?;
    let (left, right) = if products.transposed_weight { (gradient, input) } else { (input, gradient) };
    b.push(Operation::Gemm {
        pass: GemmPass::WeightGradient,
        storage: GemmStorage::Tn,
        left,
        right,
        output: tile,
        write,
    });
    if b.model.tied_head && b.layer == Layer::Head {
        known.open_tiles.insert(weight, tile);
        return Ok(());
    }
    reduce_weight(b, weight, tile, &rows)
}

/// Where the gradient of a whole weight tile is summed: a buffer if z cuts the stored shard, else the gradient.
fn weight_tile(b: &mut Builder, known: &mut Gradients, weight: ParameterId) -> Result<(ValueId, Write), StepError> {
    if let Some(tile) = known.open_tiles.remove(&weight) {
        return Ok((tile, Write::Accumulate));
    }
    let gradient = b.parameters[weight.0].gradient;
    if b.axis_size(Axis::Z) == 1 {
        return Ok((gradient, Write::AccumulateMicrobatches));
    }
    let stored = b.sharding(gradient).clone();
    let name = format!("{} tile", b.values[gradient.0].name);
    let whole = Sharding::new(&stored.rows, &stored.cols);
    let tile = b.value(name, b.shape(gradient), whole, MemoryClass::Buffers)?;
    Ok((tile, Write::Overwrite))
}

/// Reduce-scatters the tile over z and adds the shard to the gradient; data is reduced once per step.
fn reduce_weight(b: &mut Builder, weight: ParameterId, tile: ValueId, summed: &[Axis]) -> Result<(), StepError> {
    let unreduced = summed.iter().copied().collect::<AxisSet>().without(Axis::Z.only());
    let parameter = &mut b.parameters[weight.0];
    parameter.unreduced = parameter.unreduced.union(unreduced);
    let gradient = parameter.gradient;
    if b.axis_size(Axis::Z) == 1 {
        return Ok(());
    }
    let stored = b.sharding(gradient).clone();
    let name = format!("{} shard", b.values[gradient.0].name);
    let shard = b.value(name, b.shape(gradient), stored, MemoryClass::Buffers)?;
    b.collective(CollectiveKind::ReduceScatter, Axis::Z.only(), Reduction::Sum, tile, shard);
    b.push(Operation::Accumulate { input: shard, output: gradient, write: Write::AccumulateMicrobatches });
    Ok(())
}

fn norm(b: &mut Builder, known: &mut Gradients, node: NormNode) -> Result<(), StepError> {
    let NormNode { gamma, beta, input, sums, squares, output } = node;
    let gradient = known.of[&output];
    let cut = b.sharding(input).clone();
    let complete = Sharding::new(&cut.rows, &[]);
    let partial = complete.clone().partial(cut.cols.iter().copied().collect());
    let [rows, _] = b.shape(input);
    let row_sums = b.value("norm backward sums", [rows, 2], partial, MemoryClass::Buffers)?;
    let gamma_gradient = b.vector_gradient(gamma, gradient);
    let beta_gradient = b.vector_gradient(beta, gradient);
    let gamma = b.parameters[gamma.0].value;
    b.push(Operation::NormBackwardSums {
        input,
        sums,
        squares,
        gamma,
        gradient,
        output: row_sums,
        gamma_gradient,
        beta_gradient,
    });
    let reduced = b.transition(row_sums, &complete)?;
    // The residual stream's gradient is there already: the norm's is added to it in place.
    let (output, write) = match known.of.get(&input).copied() {
        Some(residual) => (b.in_place("d residual", residual), Write::Accumulate),
        None => (b.like("d residual", input)?, Write::Overwrite),
    };
    b.push(Operation::NormBackward { input, sums, squares, gamma, gradient, reduced, output, write });
    known.of.insert(input, output);
    Ok(())
}
