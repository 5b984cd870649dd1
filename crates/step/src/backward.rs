//! The backward pass, generated from what the forward pass recorded.
//!
//! A gradient is complete when it is cut like its value and nowhere a partial sum. What a layer contributes may be
//! partial; [`Builder::contribute`] brings it into the complete sharding of the value from which the layer's input
//! was resharded, which gives exactly the conjugate collectives.

use std::collections::BTreeMap;

use quadrille_spec::{Activation, AxisSet, Linear, Schedule};

use crate::builder::Builder;
use crate::operation::{BlockKind, DropoutSite, GemmPass, GemmStorage, Write};
use crate::program::{Boundaries, Boundary};
use crate::value::{Format, Home};
use crate::weights::{reduce_weight, weight_tile};
use crate::{Layer, ParameterId, Sharding, StepError, ValueId, kind};

/// Gradients of parameters are summed over the microbatches of a step.
const MICROBATCHES: Write = Write::AccumulateMicrobatches;

/// What the forward pass did, with what its backward needs. `input` is the value as used, `output` the result.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Node {
    Embed {
        table: ParameterId,
        output: ValueId,
    },
    AddPositions {
        positions: ParameterId,
        input: ValueId,
        output: ValueId,
    },
    Dropout {
        site: DropoutSite,
        input: ValueId,
        output: ValueId,
    },
    Norm(NormNode),
    Linear {
        weight: ParameterId,
        input: ValueId,
        output: ValueId,
    },
    Bias {
        bias: ParameterId,
        input: ValueId,
        output: ValueId,
    },
    Activation {
        function: Activation,
        bias: Option<ParameterId>,
        input: ValueId,
        output: ValueId,
        activated: ValueId,
    },
    Scale {
        block: BlockKind,
        input: ValueId,
        output: ValueId,
    },
    HeadNorm(HeadNormNode),
    Rotate {
        block: usize,
        input: ValueId,
        output: ValueId,
    },
    Attention {
        block: usize,
        qkv: ValueId,
        output: ValueId,
        statistics: ValueId,
        dropout: Option<DropoutSite>,
    },
    Stream {
        input: ValueId,
        output: ValueId,
    },
    Receive {
        received: ValueId,
        x: ValueId,
    },
    Send {
        x: ValueId,
        sent: ValueId,
    },
    Residual {
        bias: Option<ParameterId>,
        input: ValueId,
        residual: ValueId,
        output: ValueId,
        dropout: Option<DropoutSite>,
    },
    Head {
        weight: ParameterId,
        input: ValueId,
        logits: ValueId,
    },
    PatchEmbedding {
        weight: ParameterId,
        input: ValueId,
        output: ValueId,
    },
    PatchHead {
        weight: ParameterId,
        input: ValueId,
        output: ValueId,
    },
    Router {
        weight: ParameterId,
        input: ValueId,
        output: ValueId,
    },
    Route(RouteNode),
    Dispatch {
        block: BlockKind,
        input: ValueId,
        routes: ValueId,
        output: ValueId,
    },
    Combine {
        block: BlockKind,
        input: ValueId,
        routes: ValueId,
        output: ValueId,
    },
    Sum {
        inputs: [ValueId; 2],
        output: ValueId,
    },
    Loss {
        predictions: ValueId,
        gradient: ValueId,
    },
    Reshard {
        input: ValueId,
        output: ValueId,
    },
    /// What is kept for the node that follows.
    Keep {
        kept: ValueId,
    },
}

/// What the backward of a norm needs; an RMS norm has neither beta nor sums.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NormNode {
    pub of: Option<BlockKind>,
    pub gamma: ParameterId,
    pub beta: Option<ParameterId>,
    pub input: ValueId,
    pub sums: Option<ValueId>,
    pub squares: ValueId,
    pub output: ValueId,
}

/// What the backward of a choice of experts needs. The gradient of `routes` is that of the weights among them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteNode {
    pub block: BlockKind,
    pub logits: ValueId,
    pub routes: ValueId,
    pub counts: Option<ValueId>,
}

/// What the backward of a norm of queries or keys needs: `raw` has them as they were before either norm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadNormNode {
    pub block: usize,
    pub keys: bool,
    pub gamma: ParameterId,
    pub beta: Option<ParameterId>,
    pub raw: ValueId,
    pub input: ValueId,
    pub output: ValueId,
}

/// Gradients that are known while the tape is walked.
#[derive(Default)]
struct Gradients {
    /// Complete gradients of forward values.
    of: BTreeMap<ValueId, ValueId>,
    /// For the result of one reshard, or of several, the value that it was made from.
    origin: BTreeMap<ValueId, ValueId>,
    /// Gradient tiles of tied weights that wait for their second addend.
    open_tiles: BTreeMap<ParameterId, ValueId>,
    /// Whether the head's weight is the table of this tape's embedding.
    tied_in_tape: bool,
    /// What comes from the next piece and goes to the one before.
    boundaries: Boundaries,
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
        let gradient = match known.of.get(&origin).copied() {
            None => gradient,
            Some(residual) => {
                let output = self.place_to_add(residual)?;
                self.push(kind::Accumulate { input: gradient, output, write: Write::Accumulate });
                output
            }
        };
        known.of.insert(origin, gradient);
        Ok(())
    }

    /// Where to add to a gradient of the residual stream that is there already: its own place. Where products of weights are
    /// put off they still read what it was before; then a copy.
    fn place_to_add(&mut self, residual: ValueId) -> Result<ValueId, StepError> {
        if self.layout.schedule != Schedule::ZeroBubble {
            return Ok(self.in_place("d residual", residual));
        }
        let copy = self.like("d residual", residual)?;
        self.push(kind::Accumulate { input: residual, output: copy, write: Write::Overwrite });
        Ok(self.in_place("d residual", copy))
    }

    /// The gradient value of a vector parameter, noting over what it is summed: the axes that cut `from` and do not cut
    /// the parameter, those of rows and, where all heads share it, those of heads.
    fn vector_gradient(&mut self, parameter: ParameterId, from: ValueId) -> ValueId {
        let own: AxisSet = self.sharding(self.parameters[parameter.0].value).cols.iter().copied().collect();
        let Sharding { rows, cols, .. } = self.sharding(from);
        let summed = rows.iter().chain(cols).copied().collect::<AxisSet>().without(own);
        let parameter = &mut self.parameters[parameter.0];
        parameter.unreduced = parameter.unreduced.union(summed);
        parameter.gradient
    }
}

/// Emits the backward pass of a microbatch through a piece; returns what it receives and sends.
pub(crate) fn backward(b: &mut Builder) -> Result<Boundaries, StepError> {
    let tape = std::mem::take(&mut b.tape);
    let embeds = tape.iter().any(|(_, node)| matches!(node, Node::Embed { .. }));
    let mut known = Gradients { tied_in_tape: b.model.tied_head && embeds, ..Gradients::default() };
    for (_, node) in &tape {
        if let Node::Reshard { input, output } = *node
            && input != output
        {
            let origin = known.origin.get(&input).copied().unwrap_or(input);
            known.origin.insert(output, origin);
        }
    }
    for (layer, node) in tape.into_iter().rev() {
        b.layer = layer;
        reverse(b, &mut known, node)?;
    }
    Ok(known.boundaries)
}

fn reverse(b: &mut Builder, known: &mut Gradients, node: Node) -> Result<(), StepError> {
    match node {
        Node::Reshard { .. } => Ok(()),
        Node::Keep { kept } => {
            b.release(Some(kept));
            Ok(())
        }
        Node::Send { x, sent } => {
            let received = b.like("received gradient", sent)?;
            known.boundaries.receives = Some(Boundary { value: received, layer: b.layer });
            let complete = *b.sharding(x);
            let gradient = b.transition(received, &complete)?;
            known.of.insert(x, gradient);
            Ok(())
        }
        // Where the residual stream begins, or rows that ranks share: the gradient is complete before it goes further back.
        Node::Stream { input, output } => {
            let complete = b.sharding(input).of_gradient();
            let gradient = b.transition(known.of[&output], &complete)?;
            b.contribute(known, input, gradient)
        }
        Node::Receive { received, x } => {
            let boundary = *b.sharding(received);
            let value = b.transition(known.of[&x], &boundary)?;
            known.boundaries.sends = Some(Boundary { value, layer: b.layer });
            Ok(())
        }
        Node::Loss { predictions, gradient } => b.contribute(known, predictions, gradient),
        Node::Head { weight, input, logits } => linear(b, known, weight, input, logits, HEAD),
        Node::Linear { weight, input, output } => linear(b, known, weight, input, output, LINEAR),
        Node::PatchHead { weight, input, output } => linear(b, known, weight, input, output, WHOLE),
        // Nobody asks for the gradient of data.
        Node::PatchEmbedding { weight, input, output } => {
            let gradient = known.of[&output];
            weight_gradient(b, known, weight, input, gradient, WHOLE)
        }
        Node::Norm(node) => norm(b, known, node),
        Node::Router { weight, input, output } => router(b, known, weight, input, output),
        Node::Route(RouteNode { block, logits, routes, counts }) => {
            let gradient = known.of[&routes];
            let output = b.in_place("d router", logits);
            b.push(kind::RouteBackward { block, logits, routes, counts, gradient, output });
            known.of.insert(logits, output);
            Ok(())
        }
        Node::Dispatch { block, input, routes, output } => {
            let gradient = known.of[&output];
            let before = b.like("d dispatched", input)?;
            b.push(kind::DispatchBackward { block, gradient, routes, output: before });
            b.contribute(known, input, before)
        }
        Node::Combine { block, input, routes, output } => combine(b, known, block, [input, routes, output]),
        Node::Sum { inputs, output } => {
            let gradient = known.of[&output];
            inputs.into_iter().try_for_each(|input| b.contribute(known, input, gradient))
        }
        Node::Bias { bias, input, output } => {
            let gradient = known.of[&output];
            let bias_gradient = b.vector_gradient(bias, gradient);
            b.push(kind::BiasBackward { gradient, output: bias_gradient, write: MICROBATCHES });
            b.contribute(known, input, gradient)
        }
        Node::Activation { function, bias, input, output, activated } => {
            let gradient = known.of[&activated];
            // With a gate there are two inputs for an output: their gradients take the place of the inputs.
            let place = if function.inputs() == 1 { gradient } else { output };
            let before = b.in_place("d up pre-activation", place);
            let bias_gradient = bias.map(|bias| b.vector_gradient(bias, before));
            b.push(kind::ActivationBackward {
                function,
                input: output,
                gradient,
                output: before,
                bias_gradient,
                write: MICROBATCHES,
            });
            b.contribute(known, input, before)
        }
        Node::HeadNorm(HeadNormNode { block, keys, gamma, beta, raw, input, output }) => {
            let gradient = known.of[&output];
            let before = b.in_place("d qkv", gradient);
            let gamma_gradient = b.vector_gradient(gamma, gradient);
            let beta_gradient = beta.map(|beta| b.vector_gradient(beta, gradient));
            let gamma = b.parameters[gamma.0].value;
            b.push(kind::HeadNormBackward {
                block: b.block_kind(block),
                keys,
                input: raw,
                gamma,
                gradient,
                output: before,
                gamma_gradient,
                beta_gradient,
                write: MICROBATCHES,
            });
            b.contribute(known, input, before)
        }
        Node::Rotate { block, input, output } => {
            let gradient = known.of[&output];
            let before = b.in_place("d qkv", gradient);
            b.push(kind::Rotate { block: b.block_kind(block), back: true, input: gradient, output: before });
            b.contribute(known, input, before)
        }
        Node::Attention { block, qkv, output: result, statistics, dropout } => {
            let gradient = known.of[&result];
            let keys_values = b.gather_keys_values(block, qkv)?;
            let keys_values_gradient = keys_values.map(|_| b.keys_values_gradient(block, qkv)).transpose()?;
            let mut output = b.like("d qkv", qkv)?;
            let scores = b.hold("d scores", Format::ScoresMeanwhile, result, Some(b.scores_extent(block)))?;
            b.push(kind::AttentionBackward {
                block: b.block_kind(block),
                qkv,
                keys_values,
                keys_values_gradient,
                result,
                statistics,
                gradient,
                output,
                dropout,
            });
            b.release(scores);
            if let Some(whole) = keys_values_gradient {
                output = b.scatter_keys_values(block, whole, output)?;
            }
            b.contribute(known, qkv, output)
        }
        Node::Residual { bias, input, residual, output, dropout } => {
            let gradient = known.of[&output];
            b.contribute(known, residual, gradient)?;
            let mut branch = gradient;
            if let Some(site) = dropout {
                branch = b.like("d dropout", gradient)?;
                b.push(kind::Dropout { site, input: gradient, output: branch });
            }
            if let Some(bias) = bias {
                let bias_gradient = b.vector_gradient(bias, branch);
                b.push(kind::BiasBackward { gradient: branch, output: bias_gradient, write: MICROBATCHES });
            }
            b.contribute(known, input, branch)
        }
        Node::Scale { block, input, output } => {
            let gradient = known.of[&output];
            let scaled = b.like("d scaled", gradient)?;
            b.push(kind::Scale { block, input: gradient, output: scaled });
            b.contribute(known, input, scaled)
        }
        Node::Dropout { site, input, output } => {
            let gradient = known.of[&output];
            let before = b.in_place("d embedded", gradient);
            b.push(kind::Dropout { site, input: gradient, output: before });
            b.contribute(known, input, before)
        }
        Node::AddPositions { positions, input, output } => {
            let gradient = known.of[&output];
            let positions = b.vector_gradient(positions, gradient);
            b.push(kind::PositionsBackward { gradient, output: positions, write: MICROBATCHES });
            b.contribute(known, input, gradient)
        }
        Node::Embed { table, output } => {
            let gradient = known.of[&output];
            let rows = b.sharding(gradient).rows;
            b.weight_gradient = true;
            let (tile, write) = open_tile(b, known, table)?;
            b.push(kind::EmbedBackward { gradient, output: tile, write });
            reduce_weight(b, table, tile, &rows)?;
            b.weight_gradient = false;
            Ok(())
        }
    }
}

/// How the operands of the two backward products are stored, and where the weight's inputs and outputs lie.
#[derive(Clone, Copy)]
struct Products {
    input_gradient: GemmStorage,
    /// Whether the weight is stored `[outputs, inputs]`, as a vocabulary table is.
    transposed_weight: bool,
    /// Whether SUMMA does them panel by panel.
    panels: bool,
}

/// A linear layer of a block.
const LINEAR: Products = Products { input_gradient: GemmStorage::Nt, transposed_weight: false, panels: true };
/// The head of tokens.
const HEAD: Products = Products { input_gradient: GemmStorage::Nn, transposed_weight: true, panels: false };
/// The ends of a model of patches.
const WHOLE: Products = Products { input_gradient: GemmStorage::Nt, transposed_weight: false, panels: false };

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
    let rows = b.sharding(gradient).rows;
    let summa = b.layout.linear == Linear::Summa && products.panels;
    let gathered = b.gather_weight(weight)?;
    let name = format!("d {}", b.values[input.0].name);
    if summa {
        let input_gradient = b.like(name, input)?;
        b.summa_input_gradient(gradient, gathered, input_gradient)?;
        b.contribute(known, input, input_gradient)?;
    } else {
        let stored = *b.sharding(b.parameters[weight.0].value);
        let (inputs, outputs) =
            if products.transposed_weight { (stored.cols, stored.rows) } else { (stored.rows, stored.cols) };
        let complete = Sharding::new(&rows, &inputs).blocks(&stored.blocks);
        let partial = complete.partial(outputs.into_iter().collect());
        let input_gradient = b.value(name, b.shape(input), partial, Home::ACTIVATIONS)?;
        b.push(kind::Gemm {
            pass: GemmPass::InputGradient,
            storage: products.input_gradient,
            left: gradient,
            right: gathered,
            output: input_gradient,
            write: Write::Overwrite,
        });
        b.contribute(known, input, input_gradient)?;
    }
    weight_gradient(b, known, weight, input, gradient, products)
}

/// The product that gives a weight's gradient, and its reduction over z.
fn weight_gradient(
    b: &mut Builder,
    known: &mut Gradients,
    weight: ParameterId,
    input: ValueId,
    gradient: ValueId,
    products: Products,
) -> Result<(), StepError> {
    let rows = b.sharding(gradient).rows;
    b.weight_gradient = true;
    let (tile, write) = open_tile(b, known, weight)?;
    if b.layout.linear == Linear::Summa && products.panels {
        b.summa_weight_gradient(input, gradient, tile, write)?;
    } else {
        let (left, right) = if products.transposed_weight { (gradient, input) } else { (input, gradient) };
        b.push(kind::Gemm {
            pass: GemmPass::WeightGradient,
            storage: GemmStorage::Tn,
            left,
            right,
            output: tile,
            write,
        });
    }
    if known.tied_in_tape && b.layer == Layer::Head {
        known.open_tiles.insert(weight, tile);
    } else {
        reduce_weight(b, weight, tile, &rows)?;
    }
    b.weight_gradient = false;
    Ok(())
}

/// The tile of a tied table that waits for its second addend, or a new one.
fn open_tile(b: &mut Builder, known: &mut Gradients, weight: ParameterId) -> Result<(ValueId, Write), StepError> {
    match known.open_tiles.remove(&weight) {
        Some(tile) => Ok((tile, Write::Accumulate)),
        None => weight_tile(b, weight),
    }
}

/// The gradients of what experts gave and of how it was weighted, `[input, routes, output]` of the sum.
fn combine(
    b: &mut Builder,
    known: &mut Gradients,
    block: BlockKind,
    [input, routes, output]: [ValueId; 3],
) -> Result<(), StepError> {
    let gradient = known.of[&output];
    let results = b.like("d results", input)?;
    let cut = *b.sharding(gradient);
    let complete = Sharding::new(&cut.rows, &[]);
    let partial = complete.partial(cut.cols.into_iter().collect());
    let [rows, kept] = b.shape(routes);
    let shape = [rows, (kept.of(b.layout) / 3).into()];
    let weights = b.value("d routes", shape, partial, Home::buffer(Format::Sums))?;
    b.push(kind::CombineBackward { block, gradient, input, routes, output: results, weights });
    let weights = b.transition(weights, &complete)?;
    known.of.insert(routes, weights);
    b.contribute(known, input, results)
}

/// The two products of a router, whose weight is whole but for y.
fn router(
    b: &mut Builder,
    known: &mut Gradients,
    weight: ParameterId,
    input: ValueId,
    output: ValueId,
) -> Result<(), StepError> {
    let (gradient, right) = (known.of[&output], b.parameters[weight.0].value);
    let before = b.like("d router", input)?;
    let (pass, write) = (GemmPass::InputGradient, Write::Overwrite);
    b.push(kind::Router { pass, left: gradient, right, output: before, write });
    b.contribute(known, input, before)?;
    let output = b.vector_gradient(weight, gradient);
    let (pass, write) = (GemmPass::WeightGradient, MICROBATCHES);
    b.push(kind::Router { pass, left: input, right: gradient, output, write });
    Ok(())
}

fn norm(b: &mut Builder, known: &mut Gradients, node: NormNode) -> Result<(), StepError> {
    let NormNode { of, gamma, beta, input, sums, squares, output } = node;
    let gradient = known.of[&output];
    let cut = *b.sharding(input);
    let complete = Sharding::new(&cut.rows, &[]);
    let partial = complete.partial(cut.cols.iter().copied().collect());
    let [rows, _] = b.shape(input);
    let sums_per_row: usize = if beta.is_some() { 2 } else { 1 };
    let row_sums = b.value("norm backward sums", [rows, sums_per_row.into()], partial, Home::buffer(Format::Sums))?;
    let gamma_gradient = b.vector_gradient(gamma, gradient);
    let beta_gradient = beta.map(|beta| b.vector_gradient(beta, gradient));
    let gamma = b.parameters[gamma.0].value;
    b.push(kind::NormBackwardSums {
        of,
        input,
        sums,
        squares,
        gamma,
        gradient,
        output: row_sums,
        gamma_gradient,
        beta_gradient,
        write: MICROBATCHES,
    });
    let reduced = b.transition(row_sums, &complete)?;
    // Where the residual stream's gradient is there already, the norm's is added to it in place.
    let residual = known.of.get(&input).copied();
    let (output, write) = match residual {
        Some(residual) => (b.place_to_add(residual)?, Write::Accumulate),
        None => (b.like("d residual", input)?, Write::Overwrite),
    };
    b.push(kind::NormBackward { of, input, sums, squares, gamma, gradient, reduced, output, write });
    if residual.is_none() {
        return b.contribute(known, input, output);
    }
    known.of.insert(input, output);
    Ok(())
}
