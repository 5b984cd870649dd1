//! The forward pass: embedding, transformer blocks, head and loss as declarations of shardings.
//!
//! Source: the dataflow tables of AxoNN's 3D multiplication (SC24, Algorithm 1) with replicated activations, and
//! their scattered form (sequence parallelism over two axes). A normal layer contracts over y and gives columns
//! over x; a transposed one contracts over x and gives columns over y.

use quadrille_spec::{Axis, AxisSet, MemoryClass};

use crate::backward::{Node, NormNode};
use crate::builder::{Builder, PARTIAL};
use crate::operation::{GemmPass, GemmStorage, Operation, Reduction, Write};
use crate::{Initial, Layer, ParameterId, Sharding, StepError, ValueId};

type Built<T> = Result<T, StepError>;

/// GPT-2's standard deviation of initial weights.
const INIT_STD: f64 = 0.02;

/// A normal layer: inputs over y, outputs over x.
const NORMAL: [Axis; 2] = [Axis::Y, Axis::X];
/// A transposed layer: inputs over x, outputs over y.
const TRANSPOSED: [Axis; 2] = [Axis::X, Axis::Y];

/// Emits the forward pass of a microbatch.
pub(crate) fn forward(b: &mut Builder) -> Built<()> {
    let (table, mut x) = embedding(b)?;
    for index in 0..b.model.layers {
        b.layer = Layer::Block(index);
        x = attention_half(b, index, x)?;
        x = perceptron_half(b, index, x)?;
    }
    b.layer = Layer::Head;
    head(b, table, x)
}

/// Tokens to the residual stream `[B s, h]`.
fn embedding(b: &mut Builder) -> Built<(ParameterId, ValueId)> {
    b.layer = Layer::Embedding;
    let model = b.model;
    let h = model.hidden;
    let table = vocabulary_table(b, "embedding.table")?;
    let positions = b.parameter(
        "embedding.positions".to_owned(),
        [model.seq_len, h],
        model.seq_len,
        Sharding::new(&[], &[Axis::Y]),
        Initial::Normal(INIT_STD),
        true,
    )?;

    let weight = b.gather_weight(table)?;
    let partial = Sharding::new(&[Axis::Data, Axis::Z], &[]).partial(xy());
    let looked_up = b.value("token rows", [b.pass_rows(), h], partial, MemoryClass::Activations)?;
    b.push(Operation::Embed { table: weight, output: looked_up });
    b.record(Node::Embed { table, output: looked_up });

    let x = b.reshard(looked_up, &b.residual_sharding())?;
    let output = b.in_place("embedded", x);
    let value = b.parameters[positions.0].value;
    b.push(Operation::AddPositions { positions: value, input: x, output });
    b.record(Node::AddPositions { positions, input: x, output });
    if model.dropout == 0.0 {
        return Ok((table, output));
    }
    let purpose = "embedding".to_owned();
    let dropped = b.in_place("embedded dropout", output);
    b.push(Operation::Dropout { purpose: purpose.clone(), input: output, output: dropped });
    b.record(Node::Dropout { purpose, input: output, output: dropped });
    Ok((table, dropped))
}

/// `x + projection(attention(qkv(norm1(x))))`.
fn attention_half(b: &mut Builder, index: usize, x: ValueId) -> Built<ValueId> {
    let h = b.model.hidden;
    let name = |what: &str| format!("block.{index}.{what}");
    let normed = norm(b, &name("norm1"), x)?;
    let qkv = linear(b, &name("qkv"), normed, [h, 3 * h], NORMAL, INIT_STD)?;
    let qkv = bias(b, &name("qkv"), qkv)?;

    let (rows, heads) = (b.pass_rows(), b.model.heads);
    let sharding = Sharding::new(&b.rows_with(Axis::Y), &[Axis::X]);
    let output = b.value("attention", [rows, h], sharding.clone(), MemoryClass::Activations)?;
    let statistics = b.value("attention statistics", [rows, heads], sharding, MemoryClass::Activations)?;
    let dropout = dropout_purpose(b, index, "attention");
    b.push(Operation::Attention { qkv, output, statistics, dropout: dropout.clone() });
    b.record(Node::Attention { qkv, output, statistics, dropout });

    let std = INIT_STD / (2.0 * b.model.layers as f64).sqrt();
    let projected = linear(b, &name("projection"), output, [h, h], TRANSPOSED, std)?;
    residual(b, index, "projection", projected, x)
}

/// `x + down(gelu(up(norm2(x))))`.
fn perceptron_half(b: &mut Builder, index: usize, x: ValueId) -> Built<ValueId> {
    let (h, f) = (b.model.hidden, b.model.ffn);
    let name = |what: &str| format!("block.{index}.{what}");
    let normed = norm(b, &name("norm2"), x)?;
    let up = linear(b, &name("up"), normed, [h, f], NORMAL, INIT_STD)?;

    let bias = bias_parameter(b, &name("up"), up)?;
    let pre = b.in_place("up pre-activation", up);
    let activated = b.like("gelu", pre)?;
    let bias_value = bias.map(|bias| b.parameters[bias.0].value);
    b.push(Operation::BiasGelu { bias: bias_value, input: up, output: pre, activated });
    b.record(Node::BiasGelu { bias, input: up, output: pre, activated });

    let std = INIT_STD / (2.0 * b.model.layers as f64).sqrt();
    let down = linear(b, &name("down"), activated, [f, h], TRANSPOSED, std)?;
    residual(b, index, "down", down, x)
}

/// Final norm, logits over the vocabulary shards, and cross-entropy.
fn head(b: &mut Builder, table: ParameterId, x: ValueId) -> Built<()> {
    let normed = norm(b, "final_norm", x)?;
    let weight = if b.model.tied_head { table } else { vocabulary_table(b, "head.weight")? };
    let rows = [Axis::Data, Axis::Z];
    let hidden = b.reshard(normed, &Sharding::new(&rows, &[]))?;

    let gathered = b.gather_weight(weight)?;
    let vocab = b.layout.padded_vocab(b.model);
    let cut = Sharding::new(&rows, &[Axis::Y, Axis::X]);
    let logits = b.value("logits", [b.pass_rows(), vocab], cut, MemoryClass::Activations)?;
    b.push(Operation::Gemm {
        pass: GemmPass::Forward,
        storage: GemmStorage::Nt,
        left: hidden,
        right: gathered,
        output: logits,
        write: Write::Overwrite,
    });
    b.record(Node::Head { weight, input: hidden, logits });
    cross_entropy(b, logits)
}

/// Vocabulary-parallel cross-entropy: one maximum and one fused sum of two per row over x and y.
fn cross_entropy(b: &mut Builder, logits: ValueId) -> Built<()> {
    let complete = Sharding::new(&[Axis::Data, Axis::Z], &[]);
    let partial = complete.clone().partial(xy());
    let rows = b.pass_rows();
    let maxima = b.value("row maxima", [rows, 1], partial.clone(), MemoryClass::Buffers)?;
    b.push(Operation::CrossEntropyMax { logits, output: maxima });
    let maxima = b.transition_with(maxima, &complete, Reduction::Max)?;
    let sums = b.value("exponential sums", [rows, 2], partial, MemoryClass::Buffers)?;
    b.push(Operation::CrossEntropySums { logits, maxima, output: sums });
    let sums = b.transition(sums, &complete)?;
    let gradient = b.in_place("d logits", logits);
    b.push(Operation::CrossEntropyGradient { logits, maxima, sums, output: gradient });
    b.record(Node::CrossEntropy { logits, gradient });
    Ok(())
}

/// A layer norm whose statistics are reduced over the axes that shard the columns.
fn norm(b: &mut Builder, name: &str, input: ValueId) -> Built<ValueId> {
    let [rows, cols] = b.shape(input);
    let cut = b.sharding(input).clone();
    let vector = Sharding::new(&[], &cut.cols);
    let gamma = b.parameter(format!("{name}.gamma"), [1, cols], 1, vector.clone(), Initial::Constant(1.0), false)?;
    let beta = b.parameter(format!("{name}.beta"), [1, cols], 1, vector, Initial::Constant(0.0), false)?;

    let complete = Sharding::new(&cut.rows, &[]);
    let partial = complete.clone().partial(cut.cols.iter().copied().collect());
    let sums = b.value("row sums", [rows, 1], partial.clone(), MemoryClass::Buffers)?;
    b.push(Operation::RowSums { input, output: sums });
    let sums = b.transition(sums, &complete)?;
    let squares = b.value("centered squares", [rows, 1], partial, MemoryClass::Buffers)?;
    b.push(Operation::CenteredSquares { input, sums, output: squares });
    let squares = b.transition(squares, &complete)?;
    let output = b.like(name, input)?;
    let [gamma_value, beta_value] = [gamma, beta].map(|parameter| b.parameters[parameter.0].value);
    b.push(Operation::Norm { input, sums, squares, gamma: gamma_value, beta: beta_value, output });
    b.record(Node::Norm(NormNode { gamma, beta, input, sums, squares, output }));
    Ok(output)
}

/// A product with a weight whose inputs are cut over `axes[0]` and outputs over `axes[1]`. The input's rows are
/// gathered over `axes[1]`; the result's partial sums over `axes[0]` are reduced.
fn linear(b: &mut Builder, name: &str, input: ValueId, shape: [usize; 2], axes: [Axis; 2], std: f64) -> Built<ValueId> {
    let [contracted, produced] = axes;
    let stored = Sharding::new(&[contracted], &[produced]).flat(&[Axis::Z]);
    let weight = b.parameter(format!("{name}.weight"), shape, shape[0], stored, Initial::Normal(std), true)?;

    let rows = [Axis::Data, Axis::Z];
    let input = b.reshard(input, &Sharding::new(&rows, &[contracted]))?;
    let gathered = b.gather_weight(weight)?;
    let partial = Sharding::new(&rows, &[produced]).partial(contracted.only());
    let output_name = if b.axis_size(contracted) > 1 { format!("{name}{PARTIAL}") } else { name.to_owned() };
    let output = b.value(output_name, [b.pass_rows(), shape[1]], partial, MemoryClass::Activations)?;
    b.push(Operation::Gemm {
        pass: GemmPass::Forward,
        storage: GemmStorage::Nn,
        left: input,
        right: gathered,
        output,
        write: Write::Overwrite,
    });
    b.record(Node::Linear { weight, input, output });
    let rows = b.rows_with(contracted);
    b.reshard(output, &Sharding::new(&rows, &[produced]))
}

/// The bias of the linear layer `name` whose output is `output`, if the model has biases.
fn bias_parameter(b: &mut Builder, name: &str, output: ValueId) -> Built<Option<ParameterId>> {
    if !b.model.biases {
        return Ok(None);
    }
    let [_, cols] = b.shape(output);
    let sharding = Sharding::new(&[], &b.sharding(output).cols.clone());
    b.parameter(format!("{name}.bias"), [1, cols], 1, sharding, Initial::Constant(0.0), false).map(Some)
}

fn bias(b: &mut Builder, name: &str, input: ValueId) -> Built<ValueId> {
    let Some(bias) = bias_parameter(b, name, input)? else { return Ok(input) };
    let output = b.in_place(name, input);
    let value = b.parameters[bias.0].value;
    b.push(Operation::Bias { bias: value, input, output });
    b.record(Node::Bias { bias, input, output });
    Ok(output)
}

/// Bias, dropout and the addition to the residual stream.
fn residual(b: &mut Builder, index: usize, what: &str, input: ValueId, residual: ValueId) -> Built<ValueId> {
    let bias = bias_parameter(b, &format!("block.{index}.{what}"), input)?;
    let dropout = dropout_purpose(b, index, what);
    let output = b.in_place("residual", input);
    let bias_value = bias.map(|bias| b.parameters[bias.0].value);
    b.push(Operation::Residual { bias: bias_value, input, residual, output, dropout: dropout.clone() });
    b.record(Node::Residual { bias, input, residual, output, dropout });
    Ok(output)
}

/// A `[vocab, h]` table: rows over y and x, flat over z.
fn vocabulary_table(b: &mut Builder, name: &str) -> Built<ParameterId> {
    let (vocab, h) = (b.model.vocab, b.model.hidden);
    let sharding = Sharding::new(&[Axis::Y, Axis::X], &[]).flat(&[Axis::Z]);
    let padded = b.layout.padded_vocab(b.model);
    b.parameter(name.to_owned(), [vocab, h], padded, sharding, Initial::Normal(INIT_STD), true)
}

fn dropout_purpose(b: &Builder, index: usize, what: &str) -> Option<String> {
    (b.model.dropout > 0.0).then(|| format!("block {index} {what}"))
}

fn xy() -> AxisSet {
    Axis::X.only().union(Axis::Y.only())
}
