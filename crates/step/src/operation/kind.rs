//! The table of operations. A kind of operation is one entry: what it is, the names that it has in ledgers and reports, the
//! group it is reported under, what it carries, what it reads and writes, and what it computes. Printing, liveness, ledgers,
//! recomputation, simulation and the interpreter all ask this table.
//!
//! An entry reads
//!
//! ```text
//! Kind ["name", ...] Group { attributes } reads { operands } writes [by write] { operands },
//!     [which |op| index of the name,] [remade |op| what selective recomputation gives up,]
//!     work |op, at| what it computes on the rank `at`;
//! ```
//!
//! `by write` says that the operation may add to what it writes ([`Write`]). What works in place writes a value in the
//! storage of a value that it reads.
//!
//! Arithmetic operations per element are those of the LBNL model's layers (Subramanian et al. 2024, public code): 9 forward
//! and 12 backward for a layer norm, 8 and 13 for GELU, 1 for dropout and bias; spread over the operations of this program,
//! 0 for copies. RMS norm, rotary positions, SwiGLU, the loss and the optimizer are counted from their definitions.

use quadrille_spec::{Activation, Axis, AxisSet};

use super::entry::{Attribute, Kind, Operand, kinds};
use super::work::{At, Work};
use super::{
    BlockKind, DropoutSite, GemmPass, GemmStorage, Group, NormOf, Operands, Panel, Remade, Scalar, Scaled, Wanted,
    Write,
};
use crate::{BucketId, BucketRun, Collective, ParameterId, ValueId};

kinds! {
    /// Rows of the table for the tokens; zero for tokens of other ranks' vocabulary.
    Embed ["embed"] ElementWise of samples {} reads { table: ValueId } writes { output: ValueId },
        work |op, at| at.copies(op.output);

    /// The numbers of this rank's patches.
    Patches ["patches"] ElementWise of samples {} reads {} writes { output: ValueId },
        work |op, at| at.sweeps(op, op.output, 0.0);

    /// Adds position rows, in place.
    AddPositions ["add-positions"] ElementWise {} reads { positions: ValueId, input: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.input, 1.0);

    /// Zeroes masked elements and scales the others; in place if the storages are the same.
    Dropout ["dropout"] ElementWise { site: DropoutSite } reads { input: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.input, 1.0);

    /// Sum of each row's local columns.
    RowSums ["row-sums"] ElementWise {} reads { input: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.input, 1.0);

    /// Sum of squared distances from the mean over each row's local columns.
    CenteredSquares ["centered-squares"] ElementWise {}
        reads { input: ValueId, sums: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.input, 3.0);

    /// Sum of squares over each row's local columns.
    RowSquares ["row-squares"] ElementWise {} reads { input: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.input, 2.0);

    /// A norm with the reduced statistics: a layer norm has sums and beta, an RMS norm has neither.
    Norm ["norm"] ElementWise { of: NormOf }
        reads {
            input: ValueId, sums: Option<ValueId>, squares: ValueId, gamma: ValueId, beta: Option<ValueId>
        }
        writes { output: ValueId },
        remade |op| Remade::Always(op.output),
        work |op, at| at.sweeps(op, op.input, 5.0);

    /// `output (+)= left right`, operands stored as said.
    Gemm ["gemm", "gemm-input-gradient", "gemm-weight-gradient"] Product { pass: GemmPass, storage: GemmStorage }
        reads { left: ValueId, right: ValueId } writes by write { output: ValueId },
        which |op| op.pass as usize,
        work |op, at| at.multiplies(op);

    /// A product of a router, in the type that is computed in: logits from what is read, or one of the two gradients.
    Router ["router", "router-input-gradient", "router-weight-gradient"] Product { pass: GemmPass }
        reads { left: ValueId, right: ValueId } writes by write { output: ValueId },
        which |op| op.pass as usize,
        work |op, at| at.scores(op);

    /// The experts that each token chooses, the place that it has there, and how their results are weighted: `[rows, 3k]`,
    /// experts, then places (-1: it has none), then weights.
    Route ["route"] ElementWise of samples { block: BlockKind }
        reads { logits: ValueId, bias: Option<ValueId> } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.logits, 8.0);

    /// How often the tokens of each scope of the balance loss have chosen each expert.
    CountChoices ["count-choices"] ElementWise { block: BlockKind } reads { routes: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.routes, 1.0);

    /// How many tokens of the rank have chosen each expert.
    CountLoads ["count-loads"] ElementWise { block: BlockKind } reads { routes: ValueId } writes by write { output: ValueId },
        work |op, at| at.sweeps(op, op.routes, 1.0);

    /// Learns how many rows come to each expert, and ends the step if there is no room for them.
    Admit ["admit"] ElementWise { block: BlockKind } reads { counts: ValueId } writes {},
        work |op, at| at.reads(op.counts);

    /// Adds the losses of a router, its choices and those that found no place to the rank's sums.
    RouterLoss ["router-loss"] ElementWise { block: BlockKind }
        reads { logits: ValueId, routes: ValueId, counts: Option<ValueId> } writes {},
        work |op, at| at.sweeps(op, op.logits, 8.0);

    /// Copies of tokens' rows at the places that they have at experts; empty places are zero.
    Dispatch ["dispatch"] ElementWise { block: BlockKind }
        reads { input: ValueId, routes: ValueId } writes { output: ValueId },
        work |op, at| at.copies(op.output);

    /// Each token's sum of its experts' results, times their weights.
    Combine ["combine"] ElementWise { block: BlockKind }
        reads { input: ValueId, routes: ValueId } writes { output: ValueId },
        work |op, at| at.touches(op.input, at.chosen_rows(op.block, op.output), 2.0);

    /// The gradients of experts' results, and of the weights, `[rows, k]`; without `input`, the results, where the weights scaled
    /// what the products of the results were given ([`weighs_activations`](crate::Practice::weighs_activations)).
    CombineBackward ["combine-backward"] ElementWise { block: BlockKind }
        reads { gradient: ValueId, input: Option<ValueId>, routes: ValueId } writes { output: ValueId, weights: ValueId },
        work |op, at| at.sweeps(op, op.output, 3.0);

    /// The sum of the gradients of a token's copies.
    DispatchBackward ["dispatch-backward"] ElementWise { block: BlockKind }
        reads { gradient: ValueId, routes: ValueId } writes { output: ValueId },
        work |op, at| at.touches(op.gradient, at.chosen_rows(op.block, op.output), 1.0);

    /// The gradient of a router's logits, in their place: from that of the weights, and of its losses.
    RouteBackward ["route-backward"] ElementWise { block: BlockKind }
        reads { logits: ValueId, routes: ValueId, counts: Option<ValueId>, gradient: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.logits, 12.0);

    /// Adds a bias row, in place.
    Bias ["bias"] ElementWise {} reads { bias: ValueId, input: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.input, 1.0);

    /// Norms every head's query, or every key, over its own columns; in place if the storages are the same, else the other
    /// columns are copied.
    HeadNorm ["query-norm", "key-norm"] ElementWise { block: BlockKind, keys: bool }
        reads { input: ValueId, gamma: ValueId, beta: Option<ValueId> } writes { output: ValueId },
        which |op| usize::from(op.keys),
        work |op, at| at.touches(op.input, at.heads_normed(op.block, op.keys, op.input), 8.0);

    /// The queries of all heads one after the other, and their keys, out of queries, keys and values.
    SplitHeads ["split-heads"] ElementWise { block: BlockKind } reads { input: ValueId } writes { queries: ValueId, keys: ValueId },
        work |op, at| at.touches(op.input, at.queries_and_keys(op.block, op.input), 0.0);

    /// Queries and keys back at their places, between the values of `beside`; without it, as gradients are, into what is
    /// there.
    JoinHeads ["join-heads", "join-heads-backward"] ElementWise { block: BlockKind }
        reads { queries: ValueId, keys: ValueId, beside: Option<ValueId> } writes { output: ValueId },
        which |op| usize::from(op.beside.is_none()),
        work |op, at| at.joins(op);

    /// Turns queries and keys by the angles of their positions, or `back` by their negatives, as their gradients are;
    /// values stay. In place.
    Rotate ["rotate", "rotate-back"] ElementWise { block: BlockKind, back: bool } reads { input: ValueId } writes { output: ValueId },
        which |op| usize::from(op.back),
        work |op, at| at.touches(op.input, at.queries_and_keys(op.block, op.input), 3.0);

    /// Adds a bias row in place (`output`) and applies the activation function (`activated`).
    BiasActivation
        [
            "bias-gelu", "bias-swiglu", "bias-silu", "bias-relu", "bias-relu2", "bias-geglu", "bias-reglu", "bias-gelu-erf"
        ] ElementWise { function: Activation }
        reads { bias: Option<ValueId>, input: ValueId } writes { output: ValueId, activated: ValueId },
        which |op| op.function as usize,
        remade |op| Remade::Always(op.activated),
        work |op, at| at.sweeps(op, op.input, [9.0, 3.0, 5.0, 2.0, 3.0, 5.0, 1.5, 9.0][op.function as usize]);

    /// The activation function of a stored pre-activation: what recomputation needs of [`BiasActivation`].
    Activate ["gelu", "swiglu", "silu", "relu", "relu2", "geglu", "reglu", "gelu-erf"] ElementWise { function: Activation } reads { input: ValueId } writes { output: ValueId },
        which |op| op.function as usize,
        work |op, at| at.sweeps(op, op.input, [8.0, 3.0, 4.0, 1.0, 2.0, 4.5, 1.0, 8.0][op.function as usize]);

    /// Attention; keys and values of the whole sequence are those of `qkv`, or, where context cuts sequences, the
    /// gathered ones. `statistics` keeps the logarithms of the softmax sums.
    Attention ["attention"] Attention { block: BlockKind, dropout: Option<DropoutSite> }
        reads { qkv: ValueId, keys_values: Option<ValueId> } writes { output: ValueId, statistics: ValueId },
        work |op, at| at.attends(op, op.block, false, op.output);

    /// What becomes, or is added to, the residual stream, or its gradient, times what the model says; in place if the storages
    /// are the same.
    Scale ["scale"] ElementWise { of: Scaled } reads { input: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.input, 1.0);

    /// `residual + dropout(input + bias)`, in place of `input`.
    Residual ["residual"] ElementWise { dropout: Option<DropoutSite> }
        reads { bias: Option<ValueId>, input: ValueId, residual: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.input, 3.0);

    /// The soft cap of the rank's logits, in place.
    CapLogits ["cap-logits"] ElementWise {} reads { logits: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.logits, 6.0);

    /// Maximum of each row's local logits.
    CrossEntropyMax ["cross-entropy-max"] ElementWise {} reads { logits: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.logits, 1.0);

    /// Each row's sum of exponentials and target logit.
    CrossEntropySums ["cross-entropy-sums"] ElementWise of samples {}
        reads { logits: ValueId, maxima: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.logits, 3.0);

    /// Adds the loss to the rank's sum; turns the logits into their gradient, in place; those that were capped into that of
    /// what they were before.
    CrossEntropyGradient ["cross-entropy-gradient"] ElementWise of samples {}
        reads { logits: ValueId, maxima: ValueId, sums: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.logits, if at.program.model.logit_cap.is_some() { 7.0 } else { 3.0 });

    /// Adds the squared errors to the rank's sum; turns the predicted numbers into their gradient, in place.
    SquaredError ["squared-error"] ElementWise of samples {} reads { predictions: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.predictions, 4.0);

    /// Adds the loss of each row to the rank's sum, where no gradient is wanted.
    CrossEntropyLoss ["cross-entropy-loss"] ElementWise of samples {} reads { sums: ValueId } writes {},
        work |op, at| at.sweeps(op, op.sums, 2.0);

    /// Adds the squared errors to the rank's sum, where no gradient is wanted.
    SquaredErrorLoss ["squared-error-loss"] ElementWise of samples {} reads { predictions: ValueId } writes {},
        work |op, at| at.sweeps(op, op.predictions, 3.0);

    /// Puts the keys and values of a pass behind those of the same sequences that the cache has.
    StoreKeysValues ["store-keys-values"] ElementWise { block: BlockKind } reads { input: ValueId } writes { output: ValueId },
        work |op, at| at.touches(op.input, at.keys_and_values(op.block, op.input), 0.0);

    /// Attention of a pass's queries to the keys and values in the cache, their own among them.
    CachedAttention ["cached-attention"] Attention { block: BlockKind }
        reads { qkv: ValueId, cache: ValueId } writes { output: ValueId },
        work |op, at| at.attends(op, op.block, false, op.output);

    /// The wanted rows of a microbatch's sequences, at the microbatch's place among those of all microbatches.
    CollectRows ["collect-rows"] ElementWise { wanted: Wanted } reads { input: ValueId } writes { output: ValueId },
        work |op, at| at.touches(op.output, at.of_microbatch(op.output), 0.0);

    /// Adds rows of the gradient to the table rows of their tokens.
    EmbedBackward ["embed-backward"] ElementWise of samples {}
        reads { gradient: ValueId } writes by write { output: ValueId },
        work |op, at| at.adds_rows(op.gradient);

    /// Adds rows of the gradient to the rows of their positions.
    PositionsBackward ["positions-backward"] ElementWise {}
        reads { gradient: ValueId } writes by write { output: ValueId },
        work |op, at| at.sweeps(op, op.gradient, 1.0);

    /// The row sums of a norm's backward, two of a layer norm and one of an RMS norm, and the gradients of gamma and
    /// beta.
    NormBackwardSums ["norm-backward-sums"] ElementWise { of: NormOf }
        reads {
            input: ValueId, sums: Option<ValueId>, squares: ValueId, gamma: ValueId, gradient: ValueId
        }
        writes by write { output: ValueId, gamma_gradient: ValueId, beta_gradient: Option<ValueId> },
        work |op, at| at.sweeps(op, op.input, 6.0);

    /// The gradient of a norm's input, in `output` or added to it.
    NormBackward ["norm-backward"] ElementWise { of: NormOf }
        reads {
            input: ValueId, sums: Option<ValueId>, squares: ValueId, gamma: ValueId, gradient: ValueId,
            reduced: ValueId
        }
        writes by write { output: ValueId },
        work |op, at| at.sweeps(op, op.input, 6.0);

    /// The gradient of a [`HeadNorm`]'s `input`, in place of the one of its output, and those of gamma and beta, sums over
    /// rows and heads.
    HeadNormBackward ["query-norm-backward", "key-norm-backward"] ElementWise { block: BlockKind, keys: bool }
        reads { input: ValueId, gamma: ValueId, gradient: ValueId }
        writes by write { output: ValueId, gamma_gradient: ValueId, beta_gradient: Option<ValueId> },
        which |op| usize::from(op.keys),
        work |op, at| at.touches(op.input, at.heads_normed(op.block, op.keys, op.input), 12.0);

    /// Column sums of the gradient, into a bias gradient.
    BiasBackward ["bias-backward"] ElementWise {} reads { gradient: ValueId } writes by write { output: ValueId },
        work |op, at| at.sweeps(op, op.gradient, 1.0);

    /// The gradient before the activation function, and its column sums; in place of the one after it, or, where it is
    /// wider than that, of the pre-activation `input`.
    ActivationBackward
        [
            "gelu-backward", "swiglu-backward", "silu-backward", "relu-backward", "relu2-backward", "geglu-backward",
            "reglu-backward", "gelu-erf-backward"
        ] ElementWise { function: Activation }
        reads { input: ValueId, gradient: ValueId }
        writes by write { output: ValueId, bias_gradient: Option<ValueId> },
        which |op| op.function as usize,
        work |op, at| at.sweeps(op, op.input, [13.0, 6.0, 8.0, 1.0, 2.0, 8.0, 2.0, 13.0][op.function as usize]);

    /// The gradient of q, k and v; where keys and values were gathered, theirs in `keys_values_gradient`, of all
    /// tokens.
    AttentionBackward ["attention-backward"] Attention { block: BlockKind, dropout: Option<DropoutSite> }
        reads {
            qkv: ValueId, keys_values: Option<ValueId>, result: ValueId, statistics: ValueId, gradient: ValueId
        }
        writes { output: ValueId, keys_values_gradient: Option<ValueId> },
        work |op, at| at.attends(op, op.block, true, op.result);

    /// Queries, keys and values of heads beside each other: of each its query, the columns of a key that all heads share, the
    /// rest of its own and its value.
    JoinLatent ["join-latent"] ElementWise { block: BlockKind }
        reads { queries: ValueId, keys_values: ValueId, shared: ValueId } writes { output: ValueId },
        work |op, at| at.sweeps(op, op.output, 0.0);

    /// The gradients of queries, of what each head has of keys and values, and of what all share: the sum over the rank's heads.
    SplitLatent ["split-latent"] ElementWise { block: BlockKind }
        reads { gradient: ValueId } writes { queries: ValueId, keys_values: ValueId, shared: ValueId },
        work |op, at| at.sweeps(op, op.gradient, 0.0);

    /// Keys and values of q, k and v, one after the other.
    PackKeysValues ["pack-keys-values"] ElementWise { block: BlockKind } reads { input: ValueId } writes { output: ValueId },
        work |op, at| at.copies(op.output);

    /// Keys and values (their gradients) into q, k and v.
    UnpackKeysValues ["unpack-keys-values"] ElementWise { block: BlockKind } reads { input: ValueId } writes { output: ValueId },
        work |op, at| at.copies(op.input);

    /// On the rank along its axis that holds it, a panel of a tile.
    CopyPanel ["copy-panel"] ElementWise { panel: Panel } reads { input: ValueId } writes { output: ValueId },
        remade |_op| Remade::WithInputs,
        work |op, at| at.holds(op.panel, at.copies(op.output));

    /// On the rank along its axis that holds it, a panel back into its tile.
    StorePanel ["store-panel"] ElementWise { panel: Panel } reads { input: ValueId } writes by write { output: ValueId },
        work |op, at| at.holds(op.panel, at.touches(op.input, at.elements(op.input), 1.0));

    /// Column blocks of `axis` one after the other.
    Pack ["pack"] ElementWise { axis: Axis } reads { input: ValueId } writes { output: ValueId },
        remade |_op| Remade::WithInputs,
        work |op, at| at.sweeps(op, op.input, 0.0);

    /// Column blocks of `axis` side by side.
    Unpack ["unpack"] ElementWise { axis: Axis } reads { input: ValueId } writes { output: ValueId },
        remade |_op| Remade::WithInputs,
        work |op, at| at.sweeps(op, op.input, 0.0);

    /// This rank's rows of a value that is replicated over `axis`.
    SliceRows ["slice-rows"] ElementWise { axis: Axis } reads { input: ValueId } writes { output: ValueId },
        remade |_op| Remade::WithInputs,
        work |op, at| at.copies(op.output);

    /// This rank's columns of a value that is replicated over `axis`.
    SliceColumns ["slice-columns"] ElementWise { axis: Axis } reads { input: ValueId } writes { output: ValueId },
        remade |_op| Remade::WithInputs,
        work |op, at| at.copies(op.output);

    /// Adds `input` to `output`, or copies it.
    Accumulate ["accumulate"] ElementWise {} reads { input: ValueId } writes by write { output: ValueId },
        work |op, at| at.sweeps(op, op.input, 1.0);

    /// The kept elements of a pruned weight's tile, or of its gradient, of which `output` has a part; zeros behind them.
    Compress ["compress"] ElementWise { parameter: ParameterId } reads { input: ValueId } writes by write { output: ValueId },
        work |op, at| at.picks(op.output, op.input, [if op.write == Write::Overwrite { 1 } else { 2 }, 1]);

    /// Kept elements at their places in the tile of a pruned weight; the others stay.
    Expand ["expand"] ElementWise { parameter: ParameterId } reads { input: ValueId } writes { output: ValueId },
        work |op, at| at.picks(op.input, op.output, [1, 2]);

    /// Computes nothing: what it reads is held until here, and what it writes is kept from here on.
    Hold ["hold"] Wait {} reads { input: ValueId } writes { output: Option<ValueId> },
        remade |_op| Remade::WithInputs,
        work |_op, _at| Work::NONE;

    /// Adds the squares of a gradient shard to the rank's sum, if the rank owns the shard.
    SumSquares ["sum-squares"] ElementWise { parameter: ParameterId } reads { gradient: ValueId } writes {},
        work |op, at| at.reads(op.gradient);

    /// Sums a scalar over ranks.
    ReduceScalar ["reduce-scalar"] Wait { scalar: Scalar, axes: AxisSet } reads {} writes {},
        work |_op, _at| Work::NONE;

    /// Begins to bring the states of a bucket, or its masters alone, from the host's memory to the device; moves between the
    /// two follow each other.
    Fetch ["fetch", "fetch-masters"] Issue { bucket: BucketId, masters: bool } reads {} writes {},
        which |op| usize::from(op.masters),
        work |_op, _at| Work::NONE;

    /// Waits until they are there.
    AwaitFetch ["await-fetch"] Wait { bucket: BucketId } reads {} writes {},
        work |_op, _at| Work::NONE;

    /// Begins to bring the states of a bucket back.
    Store ["store"] Issue { bucket: BucketId } reads {} writes {},
        work |_op, _at| Work::NONE;

    /// Waits until they are in the host's memory.
    AwaitStore ["await-store"] Wait { bucket: BucketId } reads {} writes {},
        work |_op, _at| Work::NONE;

    /// Puts rounded masters in the place of the weights of a run.
    Restore ["restore"] Optimizer { parameter: ParameterId, run: BucketRun } reads {} writes { value: ValueId },
        work |op, at| at.restores(op);

    /// What was stored last becomes what is fetched from here on.
    Adopt ["adopt"] Wait {} reads {} writes {},
        work |_op, _at| Work::NONE;

    /// The optimizer's update of one parameter shard, or of a run of it, whose states are in a bucket.
    AdamW ["adamw"] Optimizer { parameter: ParameterId, run: Option<BucketRun> } reads { gradient: ValueId } writes { value: ValueId },
        work |op, at| at.updates(op);

    /// Moves the biases of a router toward equal loads of its experts.
    FollowLoads ["follow-loads"] Optimizer { block: BlockKind } reads { loads: ValueId } writes { bias: ValueId },
        work |op, at| at.follows(op);
}
