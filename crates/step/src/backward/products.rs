//! The products of the backward pass: a linear layer's input gradient, its weight gradient and the reduction of that.

use quadrille_spec::Linear;

use super::Gradients;
use crate::builder::Builder;
use crate::operation::{GemmPass, GemmStorage, Write};
use crate::value::Home;
use crate::weights::{reduce_weight, weight_tile};
use crate::{Layer, ParameterId, Sharding, StepError, Value, ValueId, kind};

/// How the operands of the two backward products are stored, and where the weight's inputs and outputs lie.
#[derive(Clone, Copy)]
pub(super) struct Products {
    input_gradient: GemmStorage,
    /// Whether the weight is stored `[outputs, inputs]`, as a vocabulary table is.
    transposed_weight: bool,
    /// Whether SUMMA does them panel by panel.
    panels: bool,
}

/// A linear layer of a block.
pub(super) const LINEAR: Products =
    Products { input_gradient: GemmStorage::Nt, transposed_weight: false, panels: true };
/// The head of tokens.
pub(super) const HEAD: Products = Products { input_gradient: GemmStorage::Nn, transposed_weight: true, panels: false };
/// The ends of a model of patches.
pub(super) const WHOLE: Products =
    Products { input_gradient: GemmStorage::Nt, transposed_weight: false, panels: false };

/// Input gradient first, so that its reduction can run under the weight gradient, which is made of what is kept of the input.
pub(super) fn linear(
    b: &mut Builder,
    known: &mut Gradients,
    weight: ParameterId,
    [input, kept]: [ValueId; 2],
    output: ValueId,
    products: Products,
) -> Result<(), StepError> {
    let gradient = known.of[&output];
    let rows = b.sharding(gradient).rows;
    let summa = b.layout.linear == Linear::Summa && products.panels;
    let gathered = b.gather_weight(weight)?;
    let name = format!("d {}", b.values[input.0].name);
    let halved = known.gated.get(&output).copied().filter(|_| b.practice.gates_apart && gives_apart(b, known, input));
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
        let operands = match halved {
            None => vec![[gradient, gathered]],
            Some(activated) => halves(b, activated, [gradient, gathered])?,
        };
        for [left, right] in operands {
            let input_gradient = b.value(name.clone(), b.shape(input), partial, Home::ACTIVATIONS)?;
            b.push(kind::Gemm {
                pass: GemmPass::InputGradient,
                storage: products.input_gradient,
                left,
                right,
                output: input_gradient,
                write: Write::Overwrite,
            });
            b.contribute(known, input, input_gradient)?;
        }
    }
    weight_gradient(b, known, weight, kept, gradient, products)
}

/// Whether a gated perceptron's halves give their input gradients apart: of rows that are neither scattered nor experts'.
fn gives_apart(b: &Builder, known: &Gradients, input: ValueId) -> bool {
    let is_scattered = b.values[known.origin_of(input).0].local_rows < b.values[input.0].local_rows;
    !is_scattered && b.shape(input)[0].blocks() == 1
}

/// The operands of the input gradients of both halves of a gated perceptron's first matrix: as wide as what is activated.
fn halves(b: &mut Builder, activated: ValueId, whole: [ValueId; 2]) -> Result<Vec<[ValueId; 2]>, StepError> {
    let width = b.shape(activated)[1];
    let mut half = |name: &str, of: ValueId| -> Result<ValueId, StepError> {
        let Value { extents, sharding, storage, chunk, .. } = b.values[of.0].clone();
        let view = b.view(name, [extents[0], width], sharding, storage)?;
        b.values[view.0].chunk = chunk;
        Ok(view)
    };
    let [left, right] = whole;
    ["gate", "up"].iter().map(|name| Ok([half(&format!("d {name}"), left)?, half(name, right)?])).collect()
}

/// The product that gives a weight's gradient, and its reduction over z.
pub(super) fn weight_gradient(
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
pub(super) fn open_tile(
    b: &mut Builder,
    known: &mut Gradients,
    weight: ParameterId,
) -> Result<(ValueId, Write), StepError> {
    match known.open_tiles.remove(&weight) {
        Some(tile) => Ok((tile, Write::Accumulate)),
        None => weight_tile(b, weight),
    }
}
