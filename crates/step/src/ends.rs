//! The ends of the model as declarations of shardings: embedding, and head with loss.
//!
//! Tokens: a vocabulary table that x, y and z cut, and vocabulary-parallel cross-entropy. Patches: two products on rows
//! as the residual stream lies, with weights that are cut like its columns and flat over z. So the embedding needs no
//! collective on activations and the head one reduction of as many numbers as are predicted; the weights' gradients are
//! summed over all axes that cut rows. Nothing is cut into the numbers of a patch, so any number of them will do.

use quadrille_spec::{Axis, AxisSet};

use crate::backward::Node;
use crate::blocks::{INIT_STD, add_bias, bias_parameter, norm, product, scaled};
use crate::builder::Builder;
use crate::operation::{DropoutSite, GemmPass, GemmStorage, NormOf, Reduction, Scaled, Write};
use crate::value::{Format, Home};
use crate::{Extent, Initial, Layer, ParameterId, Purpose, Sharding, StepError, ValueId, kind};

type Built<T> = Result<T, StepError>;

/// The residual stream `[B s, h]`; also the table of tokens, if there is one, which a tied head uses.
pub(crate) fn embedding(b: &mut Builder) -> Built<(Option<ParameterId>, ValueId)> {
    b.layer = Layer::Embedding;
    match b.model.patch_values {
        None => token_embedding(b).map(|(table, x)| (Some(table), x)),
        Some(values) => patch_embedding(b, values).map(|x| (None, x)),
    }
}

/// `patches weight + bias`, and positions.
fn patch_embedding(b: &mut Builder, values: usize) -> Built<ValueId> {
    let residual = b.residual_sharding();
    let stored = Sharding::new(&[], &residual.cols).flat(&[Axis::Z]);
    let shape = [values.into(), b.model.hidden.into()];
    let weight = b.parameter("embedding.weight".to_owned(), shape, stored, Initial::Normal(INIT_STD), true)?;
    let rows = Sharding::new(&residual.rows, &[]);
    let patches = b.value("patches", [Extent::Tokens, values.into()], rows, Home::ACTIVATIONS)?;
    b.push(kind::Patches { output: patches });
    let x = product(b, "embedding", patches, weight)?;
    b.record(Node::PatchEmbedding { weight, input: patches, output: x });
    let bias = bias_parameter(b, "embedding", b.model.patch_biases, x)?;
    let positions = positions_table(b)?;
    let x = add_bias(b, "embedding", bias, x);
    let x = add_positions(b, positions, x);
    dropout(b, x)
}

/// Rows of a table, times a factor.
fn token_embedding(b: &mut Builder) -> Built<(ParameterId, ValueId)> {
    let table = vocabulary_table(b, "embedding.table")?;
    let positions = positions_table(b)?;

    let weight = b.gather_weight(table)?;
    let partial = Sharding::new(&b.rows(), &[]).partial(xy());
    let shape = [Extent::Tokens, b.model.hidden.into()];
    let looked_up = b.value("token rows", shape, partial, Home::ACTIVATIONS)?;
    b.push(kind::Embed { table: weight, output: looked_up });
    b.record(Node::Embed { table, output: looked_up });

    let x = b.transition(looked_up, &b.residual_sharding())?;
    b.record(Node::Stream { input: looked_up, output: x });
    let x = if b.model.embedding_scale == 1.0 { x } else { scaled(b, Scaled::Embedding, x) };
    let x = add_positions(b, positions, x);
    Ok((table, dropout(b, x)?))
}

/// The table of learned positions, if the model has one.
fn positions_table(b: &mut Builder) -> Built<Option<ParameterId>> {
    if !b.model.learned_positions {
        return Ok(None);
    }
    let rows = b.model.seq_len;
    let sharding = Sharding::new(&[], &b.residual_sharding().cols);
    let name = "embedding.positions".to_owned();
    let initial = Initial::Normal(INIT_STD);
    b.parameter(name, [rows.into(), b.model.hidden.into()], sharding, initial, true).map(Some)
}

fn add_positions(b: &mut Builder, positions: Option<ParameterId>, input: ValueId) -> ValueId {
    let Some(positions) = positions else { return input };
    let output = b.in_place("embedded", input);
    let value = b.parameter_value(positions);
    b.push(kind::AddPositions { positions: value, input, output });
    b.record(Node::AddPositions { positions, input, output });
    output
}

fn dropout(b: &mut Builder, input: ValueId) -> Built<ValueId> {
    if b.model.dropout == 0.0 {
        return Ok(input);
    }
    let site = DropoutSite::Embedding;
    let output = b.in_place("embedded dropout", input);
    b.push(kind::Dropout { site, input, output });
    b.keep("mask", Format::Masks, output, None)?;
    b.record(Node::Dropout { site, input, output });
    Ok(output)
}

/// Final norm, predictions, and loss.
pub(crate) fn head(b: &mut Builder, table: Option<ParameterId>, x: ValueId) -> Built<()> {
    let normed = norm(b, "final_norm", NormOf::Final, x)?;
    match b.model.patch_values {
        None => {
            let logits = logits(b, table, normed)?;
            let capped = capped(b, logits);
            cross_entropy(b, logits, capped)
        }
        Some(values) => patch_head(b, values, normed),
    }
}

/// `normed weight + bias` and the squared error.
fn patch_head(b: &mut Builder, values: usize, normed: ValueId) -> Built<()> {
    let residual = b.residual_sharding();
    let stored = Sharding::new(&residual.cols, &[]).flat(&[Axis::Z]);
    let shape = [b.model.hidden.into(), values.into()];
    let initial = Initial::Normal(INIT_STD);
    let weight = b.parameter("head.weight".to_owned(), shape, stored, initial, true)?;
    let output = product(b, "predictions", normed, weight)?;
    b.record(Node::PatchHead { weight, input: normed, output });
    let predictions = b.reshard(output, &Sharding::new(&residual.rows, &[]))?;
    let bias = bias_parameter(b, "head", b.model.patch_biases, predictions)?;
    let predictions = add_bias(b, "predictions", bias, predictions);
    if b.purpose != Purpose::Training {
        b.push(kind::SquaredErrorLoss { predictions });
        return Ok(());
    }
    let gradient = b.in_place("d predictions", predictions);
    b.push(kind::SquaredError { predictions, output: gradient });
    b.record(Node::Loss { predictions, gradient });
    Ok(())
}

/// Logits over the vocabulary shards. A tied table that was used in another piece is there a second time.
pub(crate) fn logits(b: &mut Builder, table: Option<ParameterId>, normed: ValueId) -> Built<ValueId> {
    let weight = match table.filter(|_| b.model.tied_head) {
        Some(table) => table,
        None if b.model.tied_head => {
            let copy = vocabulary_table(b, "embedding.table")?;
            b.parameters[copy.0].copy = true;
            copy
        }
        None => vocabulary_table(b, "head.weight")?,
    };
    let rows = b.rows();
    let hidden = b.reshard(normed, &Sharding::new(&rows, &[]))?;

    let gathered = b.gather_weight(weight)?;
    let vocab = Extent::Padded(b.model.vocab);
    let [logical, _] = b.shape(hidden);
    let cut = Sharding::new(&rows, &[Axis::Y, Axis::X]);
    let logits = b.value("logits", [logical, vocab], cut, Home::LOGITS)?;
    b.push(kind::Gemm {
        pass: GemmPass::Forward,
        storage: GemmStorage::Nt,
        left: hidden,
        right: gathered,
        output: logits,
        write: Write::Overwrite,
    });
    b.record(Node::Head { weight, input: hidden, logits });
    Ok(logits)
}

/// Logits as they are read: with the soft cap of the model, if it has one, in place.
pub(crate) fn capped(b: &mut Builder, logits: ValueId) -> ValueId {
    if b.model.logit_cap.is_none() {
        return logits;
    }
    let output = b.in_place("capped logits", logits);
    b.push(kind::CapLogits { logits, output });
    output
}

/// Vocabulary-parallel cross-entropy: one maximum and one fused sum of two per row over x and y. The gradient takes the place of
/// the logits as they are read, and is that of the product's: so nothing is kept of these.
fn cross_entropy(b: &mut Builder, product: ValueId, logits: ValueId) -> Built<()> {
    let complete = Sharding::new(&b.rows(), &[]);
    let partial = complete.partial(xy());
    let rows = Extent::Tokens;
    let maxima = b.value("row maxima", [rows, 1.into()], partial, Home::buffer(Format::Sums))?;
    b.push(kind::CrossEntropyMax { logits, output: maxima });
    let maxima = b.transition_with(maxima, &complete, Reduction::Max)?;
    let sums = b.value("exponential sums", [rows, 2.into()], partial, Home::buffer(Format::Sums))?;
    b.push(kind::CrossEntropySums { logits, maxima, output: sums });
    let sums = b.transition(sums, &complete)?;
    if b.purpose != Purpose::Training {
        b.push(kind::CrossEntropyLoss { sums });
        return Ok(());
    }
    let gradient = b.in_place("d logits", logits);
    b.push(kind::CrossEntropyGradient { logits, maxima, sums, output: gradient });
    b.record(Node::Loss { predictions: product, gradient });
    Ok(())
}

/// A `[vocab, h]` table: rows over y and x, flat over z.
fn vocabulary_table(b: &mut Builder, name: &str) -> Built<ParameterId> {
    let vocab = b.model.vocab;
    let h = b.model.hidden;
    let sharding = Sharding::new(&[Axis::Y, Axis::X], &[]).flat(&[Axis::Z]);
    b.parameter(name.to_owned(), [Extent::Padded(vocab), h.into()], sharding, Initial::Normal(INIT_STD), true)
}

fn xy() -> AxisSet {
    Axis::X.only().union(Axis::Y.only())
}
