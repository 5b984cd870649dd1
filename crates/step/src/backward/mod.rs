//! The backward pass, generated from what the forward pass recorded.
//!
//! A gradient is complete when it is cut like its value and nowhere a partial sum. What a layer contributes may be
//! partial; [`Builder::contribute`] brings it into the complete sharding of the value from which the layer's input
//! was resharded, which gives exactly the conjugate collectives.

mod experts;
mod products;
mod tape;

use std::collections::BTreeMap;

use quadrille_spec::{Axis, AxisSet, Schedule};

use self::products::{HEAD, LINEAR, WHOLE, linear, open_tile, weight_gradient};
pub(crate) use self::tape::{HeadNormNode, JoinNode, Node, NormNode, RouteNode};
use crate::builder::Builder;
use crate::operation::{Scaled, Write};
use crate::program::{Boundaries, Boundary};
use crate::value::{Format, Home};
use crate::weights::reduce_weight;
use crate::{ParameterId, Sharding, StepError, ValueId, kind};

/// Gradients of parameters are summed over the microbatches of a step.
const MICROBATCHES: Write = Write::AccumulateMicrobatches;

/// Gradients that are known while the tape is walked.
#[derive(Default)]
struct Gradients {
    /// Complete gradients of forward values.
    of: BTreeMap<ValueId, ValueId>,
    /// For the result of one reshard, or of several, the value that it was made from.
    origin: BTreeMap<ValueId, ValueId>,
    /// By queries, keys and values that were split: their gradient, in which those of queries and keys are still to be put.
    joined: BTreeMap<ValueId, ValueId>,
    /// By values of two inputs for each output of an activation function: those outputs.
    gated: BTreeMap<ValueId, ValueId>,
    /// Gradient tiles of tied weights that wait for their second addend.
    open_tiles: BTreeMap<ParameterId, ValueId>,
    /// Whether the head's weight is the table of this tape's embedding.
    tied_in_tape: bool,
    /// What comes from the next piece and goes to the one before.
    boundaries: Boundaries,
}

impl Gradients {
    /// What a value was made from by reshards; itself, if it was not.
    fn origin_of(&self, value: ValueId) -> ValueId {
        self.origin.get(&value).copied().unwrap_or(value)
    }
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
        let origin = known.origin_of(value);
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
            known.origin.insert(output, known.origin_of(input));
        }
    }
    b.of_gradients = true;
    for (layer, node) in tape.into_iter().rev() {
        b.layer = layer;
        reverse(b, &mut known, node)?;
    }
    b.of_gradients = false;
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
        Node::Head { weight, input, logits } => linear(b, known, weight, [input; 2], logits, HEAD),
        Node::Linear { weight, input, kept, output } => linear(b, known, weight, [input, kept], output, LINEAR),
        Node::PatchHead { weight, input, output } => linear(b, known, weight, [input; 2], output, WHOLE),
        // Nobody asks for the gradient of data.
        Node::PatchEmbedding { weight, input, output } => {
            let gradient = known.of[&output];
            weight_gradient(b, known, weight, input, gradient, WHOLE)
        }
        Node::Norm(node) => norm(b, known, node),
        Node::Router { weight, input, output } => experts::router(b, known, weight, input, output),
        Node::Route(node) => experts::route(b, known, node),
        Node::Dispatch { block, input, routes, output } => experts::dispatch(b, known, block, [input, routes, output]),
        Node::Combine { block, input, routes, output } => experts::combine(b, known, block, [input, routes, output]),
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
            if function.inputs() > 1 {
                known.gated.insert(known.origin_of(input), activated);
            }
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
        Node::JoinLatent(node) => join_latent(b, known, node),
        Node::JoinHeads { block, queries, keys, beside, output } => {
            let gradient = known.of[&output];
            let [of_queries, of_keys] = [b.like("d queries", queries)?, b.like("d keys", keys)?];
            b.push(kind::SplitHeads { block, input: gradient, queries: of_queries, keys: of_keys });
            known.joined.insert(beside, gradient);
            b.contribute(known, queries, of_queries)?;
            b.contribute(known, keys, of_keys)
        }
        Node::SplitHeads { block, input, queries, keys } => {
            let output = b.in_place("d qkv", known.joined[&input]);
            let [queries, keys] = [queries, keys].map(|each| known.of[&each]);
            b.push(kind::JoinHeads { block, queries, keys, beside: None, output });
            b.contribute(known, input, output)
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
        Node::Scale { of, input, output } => {
            let gradient = known.of[&output];
            let scaled = match of {
                Scaled::Embedding => b.in_place("d embedded", gradient),
                // The gradient of what a branch is added to is the same one.
                Scaled::Branch(_) => b.like("d scaled", gradient)?,
            };
            b.push(kind::Scale { of, input: gradient, output: scaled });
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

/// The gradient of what all heads share is a sum over them: those of the rank, and of the others along x.
fn join_latent(b: &mut Builder, known: &mut Gradients, node: JoinNode) -> Result<(), StepError> {
    let JoinNode { block, queries, keys_values, shared, output } = node;
    let gradient = known.of[&output];
    let of_queries = b.like("d queries", queries)?;
    let of_pairs = b.like("d keys and values", keys_values)?;
    let partial = Sharding::new(&b.rows(), &[]).partial(Axis::X.only());
    let cut = Sharding { rows: b.sharding(gradient).rows, ..partial };
    let of_shared = b.value("d shared key", b.shape(shared), cut, Home::ACTIVATIONS)?;
    b.push(kind::SplitLatent { block, gradient, queries: of_queries, keys_values: of_pairs, shared: of_shared });
    b.contribute(known, queries, of_queries)?;
    b.contribute(known, keys_values, of_pairs)?;
    // The rows that y cuts are put together before x, which cuts those of the stream, sums them.
    let of_shared = b.transition(of_shared, &partial)?;
    b.contribute(known, shared, of_shared)
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
        None => {
            let name = format!("d {}", b.values[input.0].name);
            (b.like(name, input)?, Write::Overwrite)
        }
    };
    b.push(kind::NormBackward { of, input, sums, squares, gamma, gradient, reduced, output, write });
    if residual.is_none() {
        return b.contribute(known, input, output);
    }
    known.of.insert(input, output);
    Ok(())
}
