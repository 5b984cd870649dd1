//! The forward pass: transformer blocks as declarations of shardings.
//!
//! Source: the dataflow tables of AxoNN's 3D multiplication (SC24, Algorithm 1) with replicated activations, and
//! their scattered form (sequence parallelism over two axes). A normal layer contracts over y and gives columns
//! over x; a transposed one contracts over x and gives columns over y.

use quadrille_spec::{
    Attention, Axis, Block, FeedForward, Linear, Norm, Normalization, NormedOver, Perceptron, QueryKeyNorm, Residual,
    ResidualOrder,
};

use crate::all_heads::all_heads_normed;
use crate::backward::{HeadNormNode, Node, NormNode};
use crate::builder::{Builder, PARTIAL};
use crate::ends::{embedding, head};
use crate::experts::experts;
use crate::latent;
use crate::operation::{DropoutSite, GemmPass, GemmStorage, NormOf, Scaled, Write};
use crate::program::{Boundaries, Boundary};
use crate::value::{Format, Home};
use crate::{
    AxisList, Extent, Initial, Layer, ParameterId, Purpose, Sharding, StepError, ValueId, generation, kind, summa,
};

type Built<T> = Result<T, StepError>;

/// GPT-2's standard deviation of initial weights.
pub(crate) const INIT_STD: f64 = 0.02;

/// A normal layer: inputs over y, outputs over x.
pub(crate) const NORMAL: [Axis; 2] = [Axis::Y, Axis::X];
/// A transposed layer: inputs over x, outputs over y.
pub(crate) const TRANSPOSED: [Axis; 2] = [Axis::X, Axis::Y];

/// Emits the forward pass of a microbatch through a piece of layers; returns what it receives and sends.
pub(crate) fn forward(b: &mut Builder, piece: usize) -> Built<Boundaries> {
    let blocks = b.layout.blocks_of(piece);
    let last = b.layout.pieces() - 1;
    let mut boundaries = Boundaries::default();
    let (table, mut x) = if piece == 0 {
        embedding(b)?
    } else {
        b.layer = if blocks.is_empty() { Layer::Head } else { Layer::Block(blocks.start) };
        let (received, x) = receive(b)?;
        boundaries.receives = Some(Boundary { value: received, layer: b.layer });
        (None, x)
    };
    for index in blocks {
        b.layer = Layer::Block(index);
        let middle = attention_half(b, index, x)?;
        let read = match b.model.blocks[index].residual.order {
            ResidualOrder::Sequential => middle,
            ResidualOrder::Parallel => x,
        };
        x = feed_forward_half(b, index, read, middle)?;
    }
    if piece == last {
        b.layer = Layer::Head;
        match b.purpose {
            Purpose::Generation(generation) => generation::collect(b, generation, table, x)?,
            _ => head(b, table, x)?,
        }
    } else {
        boundaries.sends = Some(Boundary { value: send(b, x)?, layer: b.layer });
    }
    Ok(boundaries)
}

/// The residual stream at the beginning of a piece. Where it is replicated over x, each x rank receives its share
/// of the rows, and the shares are gathered (scatter-gather: Megatron-LM PTD-P, section 4.1).
fn receive(b: &mut Builder) -> Built<(ValueId, ValueId)> {
    let shape = [Extent::Tokens, b.model.hidden.into()];
    let received = b.value("received", shape, boundary_sharding(b), Home::ACTIVATIONS)?;
    let x = b.transition(received, &b.residual_sharding())?;
    b.record(Node::Receive { received, x });
    Ok((received, x))
}

/// The residual stream as it is sent to the next piece.
fn send(b: &mut Builder, x: ValueId) -> Built<ValueId> {
    let sent = b.transition(x, &boundary_sharding(b))?;
    b.record(Node::Send { x, sent });
    Ok(sent)
}

/// How the residual stream lies between pieces: nowhere replicated. The few rows of a pass of generation, which x may not
/// divide, are sent by every rank as it has them.
fn boundary_sharding(b: &Builder) -> Sharding {
    let mut sharding = b.residual_sharding();
    if matches!(b.purpose, Purpose::Generation(_)) {
        return sharding;
    }
    if !sharding.sharded().contains(Axis::X) {
        sharding.rows.push(Axis::X);
    }
    sharding
}

/// `x + projection(attention(qkv(norm1(x))))`.
fn attention_half(b: &mut Builder, index: usize, x: ValueId) -> Built<ValueId> {
    let Block { attention, .. } = b.model.blocks[index];
    let name = |what: &str| format!("block.{index}.{what}");
    let normed = norm_before(b, &name("norm1"), index, x)?;
    let qkv = match attention.latent_layers(b.model.hidden) {
        None => queries_keys_values(b, index, attention, normed)?,
        Some(layers) => latent::queries_keys_values(b, index, layers, normed)?,
    };
    let qkv = head_norms(b, index, qkv)?;
    let qkv = rotate(b, &name("qkv"), index, qkv);

    let output = match b.purpose {
        Purpose::Generation(generation) => generation::attention(b, generation, index, qkv)?,
        _ => self::attention(b, index, attention, qkv)?,
    };
    let shape = [attention.width().into(), b.model.hidden.into()];
    let weight = weight(b, &name("projection"), shape, TRANSPOSED, added_std(b))?;
    let projected = linear(b, &name("projection"), output, weight)?;
    let bias = bias_parameter(b, &name("projection"), attention.projection_bias, projected)?;
    branch(b, index, "norm1_after", DropoutSite::Projection(index), bias, projected, x)
}

/// Queries, keys and values of the normed stream, by one product.
fn queries_keys_values(b: &mut Builder, index: usize, attention: Attention, normed: ValueId) -> Built<ValueId> {
    let name = format!("block.{index}.qkv");
    let shape = [b.model.hidden.into(), b.keys_values_extent(index, true)];
    let weight = weight(b, &name, shape, NORMAL, INIT_STD)?;
    let qkv = linear(b, &name, normed, weight)?;
    let bias = bias_parameter(b, &name, attention.qkv_bias, qkv)?;
    Ok(add_bias(b, &name, bias, qkv))
}

/// The deviation of weights whose results are added to the residual stream, as often as there are such layers.
pub(crate) fn added_std(b: &Builder) -> f64 {
    INIT_STD / (2.0 * b.model.layers() as f64).sqrt()
}

/// Attention among the tokens of the pass.
fn attention(b: &mut Builder, index: usize, described: Attention, qkv: ValueId) -> Built<ValueId> {
    let rows = Extent::Tokens;
    let sharding = Sharding::new(&b.rows_with(Axis::Y), &[Axis::X]);
    let output = b.value("attention", [rows, described.width().into()], sharding, Home::ACTIVATIONS)?;
    let statistics = b.value("attention statistics", [rows, described.heads.into()], sharding, Home::STATISTICS)?;
    let dropout = dropout(b, DropoutSite::Attention(index));
    let keys_values = b.gather_keys_values(index, qkv)?;
    let block = b.block_kind(index);
    b.push(kind::Attention { block, dropout, qkv, keys_values, output, statistics });
    b.keep("scores", Format::Scores, output, Some(b.scores_extent(index)))?;
    b.record(Node::Attention { block: index, qkv, output, statistics, dropout });
    Ok(output)
}

/// Queries and keys normed, if they are. Each head over its own columns: queries first, into a storage of its own, since
/// the backward pass wants what was there before; then keys in that.
fn head_norms(b: &mut Builder, block: usize, raw: ValueId) -> Built<ValueId> {
    let Attention { qk_norm, head_dim, .. } = b.model.blocks[block].attention;
    let Some(QueryKeyNorm { rule, over }) = qk_norm else { return Ok(raw) };
    if over == NormedOver::AllHeads {
        return all_heads_normed(b, block, raw);
    }
    let mut input = raw;
    for keys in [false, true] {
        let name = format!("block.{block}.{}", if keys { "key_norm" } else { "query_norm" });
        // One for all heads: no axis cuts it, whichever cuts the heads.
        let (gamma, beta) = norm_vectors(b, &name, rule, head_dim.into(), Sharding::default())?;
        let output = if keys { b.in_place(name, input) } else { b.like(name, input)? };
        let gamma_value = b.parameter_value(gamma);
        let beta_value = beta.map(|beta| b.parameter_value(beta));
        b.push(kind::HeadNorm {
            block: b.block_kind(block),
            keys,
            input,
            gamma: gamma_value,
            beta: beta_value,
            output,
        });
        b.record(Node::HeadNorm(HeadNormNode { block, keys, gamma, beta, raw, input, output }));
        input = output;
    }
    Ok(input)
}

/// Gamma and, of a layer norm, beta of so many columns.
fn norm_vectors(
    b: &mut Builder,
    name: &str,
    rule: Normalization,
    cols: Extent,
    sharding: Sharding,
) -> Built<(ParameterId, Option<ParameterId>)> {
    let mut vector = |part: &str, value: f64| {
        b.parameter(format!("{name}.{part}"), [1.into(), cols], sharding, Initial::Constant(value), false)
    };
    let gamma = vector("gamma", rule.initial_gamma())?;
    let beta = (rule.kind == Norm::Layer).then(|| vector("beta", 0.0)).transpose()?;
    Ok((gamma, beta))
}

/// Queries and keys turned by their positions, if that is how attention knows them. An operation of its own, before keys
/// are gathered over context: each key is turned once, where its position is known.
fn rotate(b: &mut Builder, name: &str, block: usize, input: ValueId) -> ValueId {
    if b.model.blocks[block].attention.rotary.is_none() {
        return input;
    }
    let output = b.in_place(name, input);
    b.push(kind::Rotate { block: b.block_kind(block), back: false, input, output });
    b.record(Node::Rotate { block, input, output });
    output
}

/// `residual + down(activation(up(norm2(read))))`, or with experts in the place of the perceptron.
fn feed_forward_half(b: &mut Builder, index: usize, read: ValueId, residual: ValueId) -> Built<ValueId> {
    let normed = norm_before(b, &format!("block.{index}.norm2"), index, read)?;
    let (given, bias) = match b.model.blocks[index].feed_forward {
        FeedForward::Dense(described) => perceptron(b, index, ["up", "down"], described, normed)?,
        FeedForward::Experts(described) => (experts(b, index, &described, normed)?, None),
    };
    branch(b, index, "norm2_after", DropoutSite::Down(index), bias, given, residual)
}

/// A perceptron of a block; returns the result of its second layer, and that layer's bias, which is still to be added.
pub(crate) fn perceptron(
    b: &mut Builder,
    index: usize,
    names: [&str; 2],
    described: Perceptron,
    input: ValueId,
) -> Built<(ValueId, Option<ParameterId>)> {
    let [up_name, down_name] = names.map(|name| format!("block.{index}.{name}"));
    let h = b.model.hidden;
    let weight = weight(b, &up_name, [h.into(), described.up_width().into()], NORMAL, INIT_STD)?;
    let up = linear(b, &up_name, input, weight)?;
    let bias = bias_parameter(b, &up_name, described.up_bias, up)?;
    let activated = activation(b, described, bias, up)?;
    let weight = self::weight(b, &down_name, [described.width.into(), h.into()], TRANSPOSED, added_std(b))?;
    let down = linear(b, &down_name, activated, weight)?;
    let bias = bias_parameter(b, &down_name, described.down_bias, down)?;
    Ok((down, bias))
}

/// The function of a perceptron, of its first layer's result and bias.
pub(crate) fn activation(
    b: &mut Builder,
    described: Perceptron,
    bias: Option<ParameterId>,
    up: ValueId,
) -> Built<ValueId> {
    let Perceptron { width, activation: function, .. } = described;
    let pre = b.in_place("up pre-activation", up);
    let rows = b.shape(up)[0];
    let sharding = *b.sharding(pre);
    let activated = b.value(function.to_string(), [rows, width.into()], sharding, Home::ACTIVATIONS)?;
    let bias_value = bias.map(|bias| b.parameter_value(bias));
    b.push(kind::BiasActivation { function, bias: bias_value, input: up, output: pre, activated });
    if function.inputs() > 1 {
        b.keep("gates", Format::Gates, pre, Some(width.into()))?;
    }
    b.record(Node::Activation { function, bias, input: up, output: pre, activated });
    Ok(activated)
}

/// A norm whose statistics are reduced over the axes that shard the columns: sums and centered squares of a layer
/// norm, squares of an RMS norm.
pub(crate) fn norm(b: &mut Builder, name: &str, of: NormOf, input: ValueId) -> Built<ValueId> {
    let rule = of.rule(b.model);
    let [rows, cols] = b.shape(input);
    let cut = *b.sharding(input);
    let vector = Sharding::new(&[], &cut.cols);
    let (gamma, beta) = norm_vectors(b, name, rule, cols, vector)?;

    let complete = Sharding::new(&cut.rows, &[]);
    let partial = complete.partial(cut.cols.iter().copied().collect());
    let statistics = |b: &mut Builder, name| b.value(name, [rows, 1.into()], partial, Home::buffer(Format::Sums));
    let (sums, squares) = match rule.kind {
        Norm::Layer => {
            let sums = statistics(b, "row sums")?;
            b.push(kind::RowSums { input, output: sums });
            let sums = b.transition(sums, &complete)?;
            let squares = statistics(b, "centered squares")?;
            b.push(kind::CenteredSquares { input, sums, output: squares });
            (Some(sums), squares)
        }
        Norm::Rms => {
            let squares = statistics(b, "row squares")?;
            b.push(kind::RowSquares { input, output: squares });
            (None, squares)
        }
    };
    let squares = b.transition(squares, &complete)?;
    let output = b.like(name, input)?;
    let gamma_value = b.parameter_value(gamma);
    let beta_value = beta.map(|beta| b.parameter_value(beta));
    b.push(kind::Norm { of, input, sums, squares, gamma: gamma_value, beta: beta_value, output });
    b.keep(name, Format::Norms, input, Some(cols))?;
    b.record(Node::Norm(NormNode { of, gamma, beta, input, sums, squares, output }));
    Ok(output)
}

/// The weight of a linear layer, `[inputs, outputs]`, cut over `axes`; SUMMA cuts every weight alike.
pub(crate) fn weight(b: &mut Builder, name: &str, shape: [Extent; 2], axes: [Axis; 2], std: f64) -> Built<ParameterId> {
    let [inputs, outputs] = if b.layout.linear == Linear::Summa { summa::WEIGHT } else { axes };
    let stored = Sharding::new(&[inputs], &[outputs]).flat(&[Axis::Z]);
    b.parameter(format!("{name}.weight"), shape, stored, Initial::Normal(std), true)
}

/// A product with a weight. The input's rows are gathered over what cuts the weight's outputs; the result's partial sums over
/// what cuts its inputs are reduced.
pub(crate) fn linear(b: &mut Builder, name: &str, input: ValueId, weight: ParameterId) -> Built<ValueId> {
    if b.layout.linear == Linear::Summa {
        return summa_linear(b, name, input, weight);
    }
    let stored = *b.sharding(b.parameters[weight.0].value);
    let rows: AxisList = b.rows().into_iter().filter(|axis| !stored.blocks.contains(axis)).collect();
    let cut = Sharding::new(&rows, &stored.rows).blocks(&stored.blocks);
    let [input, kept] = operands(b, input, &cut)?;
    let output = product(b, name, input, weight)?;
    b.record(Node::Linear { weight, input, kept, output });
    let of_experts = b.values[b.parameters[weight.0].value.0].blocks > 1;
    let dropped = |axis: &Axis| of_experts && *axis == Axis::X && b.layout.scatters_places();
    let scattered = stored.rows.into_iter().filter(|axis| b.layout.scatters_rows() || dropped(axis));
    let rows: AxisList = rows.into_iter().chain(scattered).collect();
    b.reshard(output, &Sharding::new(&rows, &stored.cols).blocks(&stored.blocks))
}

/// The input of a product in the sharding `to`, and what is kept of it for the weight gradient: itself, or a copy of other numbers if
/// the practice keeps such. Rows that are gathered, and will be again, are gathered from that copy; of experts' rows, and where columns
/// are gathered, from the input.
fn operands(b: &mut Builder, input: ValueId, to: &Sharding) -> Built<[ValueId; 2]> {
    let from = *b.sharding(input);
    let is_gathered =
        |from: &AxisList, to: &AxisList| from.iter().any(|axis| !to.contains(axis) && b.layout.grid.size(*axis) > 1);
    let [rows, cols] = [is_gathered(&from.rows, &to.rows), is_gathered(&from.cols, &to.cols)];
    if !(b.practice.gathers_inputs_again && (rows || cols)) {
        let whole = b.reshard(input, to)?;
        let copy = b.hold("kept operand", Format::KeptOperands, whole, None)?;
        return Ok([whole, copy.unwrap_or(whole)]);
    }
    let has_copy = !cols && b.shape(input)[0].blocks() == 1;
    let copy = if has_copy { b.hold("kept operand", Format::KeptOperands, input, None)? } else { None };
    let whole = b.transition(copy.unwrap_or(input), to)?;
    b.record(Node::Reshard { input, output: whole });
    Ok([whole; 2])
}

/// The product of an input, as it lies, with a weight whose inputs are cut like the input's columns: a partial sum over
/// the axes that cut them.
pub(crate) fn product(b: &mut Builder, name: &str, input: ValueId, weight: ParameterId) -> Built<ValueId> {
    let stored = b.parameters[weight.0].value;
    let [_, outputs] = b.shape(stored);
    let columns = b.sharding(stored).cols;
    let gathered = b.gather_weight(weight)?;
    let rows = b.shape(input)[0];
    let cut = *b.sharding(input);
    let partial = Sharding { cols: columns, partial: cut.cols.into_iter().collect(), ..cut };
    let is_partial = b.layout.grid.size_of(partial.partial) > 1;
    let name = if is_partial { format!("{name}{PARTIAL}") } else { name.to_owned() };
    let output = b.value(name, [rows, outputs], partial, Home::ACTIVATIONS)?;
    b.push(kind::Gemm {
        pass: GemmPass::Forward,
        storage: GemmStorage::Nn,
        left: input,
        right: gathered,
        output,
        write: Write::Overwrite,
    });
    Ok(output)
}

/// A product with a weight whose inputs are cut over y and outputs over x, on activations cut over both.
fn summa_linear(b: &mut Builder, name: &str, input: ValueId, weight: ParameterId) -> Built<ValueId> {
    let [_, outputs] = b.shape(b.parameters[weight.0].value);
    let gathered = b.gather_weight(weight)?;
    let [rows, columns] = summa::WEIGHT;
    let sharding = Sharding::new(&b.rows_with(rows), &[columns]);
    let output = b.value(name, [Extent::Tokens, outputs], sharding, Home::ACTIVATIONS)?;
    b.summa_forward(input, gathered, output)?;
    b.record(Node::Linear { weight, input, kept: input, output });
    Ok(output)
}

/// The bias of the linear layer `name` whose output is `output`, if it has one.
pub(crate) fn bias_parameter(b: &mut Builder, name: &str, has: bool, output: ValueId) -> Built<Option<ParameterId>> {
    if !has {
        return Ok(None);
    }
    let [_, cols] = b.shape(output);
    let sharding = Sharding::new(&[], &b.sharding(output).cols.clone());
    b.parameter(format!("{name}.bias"), [1.into(), cols], sharding, Initial::Constant(0.0), false).map(Some)
}

pub(crate) fn add_bias(b: &mut Builder, name: &str, bias: Option<ParameterId>, input: ValueId) -> ValueId {
    let Some(bias) = bias else { return input };
    let output = b.in_place(name, input);
    let value = b.parameter_value(bias);
    b.push(kind::Bias { bias: value, input, output });
    b.record(Node::Bias { bias, input, output });
    output
}

/// The norms of the stream in a block.
fn of_stream(b: &Builder, block: usize) -> NormOf {
    NormOf::Stream(b.block_kind(block))
}

/// What attention and perceptron read of the stream, normed if they norm it before.
fn norm_before(b: &mut Builder, name: &str, block: usize, x: ValueId) -> Built<ValueId> {
    if b.model.blocks[block].norm_place.is_before() { norm(b, name, of_stream(b, block), x) } else { Ok(x) }
}

/// What attention or perceptron gives, added to the residual stream: with its bias, normed, times a factor.
fn branch(
    b: &mut Builder,
    index: usize,
    after: &str,
    site: DropoutSite,
    bias: Option<ParameterId>,
    input: ValueId,
    stream: ValueId,
) -> Built<ValueId> {
    let Block { norm_place, residual: Residual { scale, .. }, .. } = b.model.blocks[index];
    if !norm_place.is_after() && scale == 1.0 {
        return residual(b, site, bias, input, stream);
    }
    let name = b.values[input.0].name.clone();
    let mut given = add_bias(b, &name, bias, input);
    if norm_place.is_after() {
        given = norm(b, &format!("block.{index}.{after}"), of_stream(b, index), given)?;
    }
    if scale != 1.0 {
        given = scaled(b, Scaled::Branch(b.block_kind(index)), given);
    }
    residual(b, site, None, given, stream)
}

/// Times the factor of the model, in place.
pub(crate) fn scaled(b: &mut Builder, of: Scaled, input: ValueId) -> ValueId {
    let output = b.in_place("scaled", input);
    b.push(kind::Scale { of, input, output });
    b.record(Node::Scale { of, input, output });
    output
}

/// Bias, dropout and the addition to the residual stream.
fn residual(
    b: &mut Builder,
    site: DropoutSite,
    bias: Option<ParameterId>,
    input: ValueId,
    residual: ValueId,
) -> Built<ValueId> {
    let dropout = dropout(b, site);
    let output = b.in_place("residual", input);
    let bias_value = bias.map(|bias| b.parameter_value(bias));
    b.push(kind::Residual { bias: bias_value, input, residual, output, dropout });
    if dropout.is_some() {
        // With the stream: the sum may be on its way to the next stage.
        b.keep("mask", Format::Masks, residual, None)?;
    }
    b.record(Node::Residual { bias, input, residual, output, dropout });
    Ok(output)
}

/// The site, if the model drops elements at all.
fn dropout(b: &Builder, site: DropoutSite) -> Option<DropoutSite> {
    (b.model.dropout > 0.0).then_some(site)
}
