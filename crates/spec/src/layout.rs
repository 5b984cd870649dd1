//! A layout: all that a user may choose about how a step is spread over ranks.

use crate::error::greatest_common_divisor;
use crate::remedy::{Broken, Change, Values, Way};
use crate::rules::Kept;
use crate::{
    Activations, Attention, Axis, AxisSet, Coordinate, Dispatch, ElementType, EvenPieces, Field, Grid, KeepWeights,
    Linear, Model, Offload, Overlap, Recompute, Schedule, SpecError, Zero,
};
use std::borrow::Cow;

/// The largest multiple of rows of a vocabulary accepted.
const MAX_VOCAB_MULTIPLE: usize = 1 << 12;

/// The largest global batch accepted: keeps every product of sizes far from overflow.
pub(crate) const MAX_GLOBAL_BATCH: usize = 1 << 24;

/// What was typed about a layout, not yet held against the model.
#[derive(Debug, Clone, PartialEq)]
pub struct LayoutRequest {
    /// Sizes of the axes and their order.
    pub grid: Grid,
    /// Ranks that share a node; `None`: all.
    pub per_node: Option<usize>,
    /// How activations lie.
    pub activations: Activations,
    /// How linear layers are multiplied.
    pub linear: Linear,
    /// Panels of a SUMMA product; `None`: the fewest possible.
    pub summa_panels: Option<usize>,
    /// Overlap passes.
    pub overlap: Overlap,
    /// Parts of a microbatch whose computation and communication interleave.
    pub overlap_chunks: usize,
    /// The order of passes over microbatches.
    pub schedule: Schedule,
    /// Pieces of layers that each stage owns.
    pub chunks: usize,
    /// Microbatches that pass a chunk together, in the interleaved schedule; `None`: as many as stages.
    pub microbatch_group: Option<usize>,
    /// Blocks of each piece of layers, in the order of the model; `None`: as equal as possible.
    pub stage_blocks: Option<Vec<usize>>,
    /// What the backward pass computes again.
    pub recompute: Recompute,
    /// Whether recomputation keeps the outputs of collectives (communication-aware).
    pub keep_communicated: bool,
    /// What is sharded over the axes that replicate weights: data, expert and context.
    pub zero: Zero,
    /// How long weights gathered over z are kept.
    pub keep_weights: KeepWeights,
    /// Where the optimizer's states lie.
    pub offload: Offload,
    /// Elements of a bucket of offloaded states; `None`: [`Layout::BUCKET`].
    pub bucket: Option<usize>,
    /// Whether buckets are updated while the gradients of others are reduced.
    pub optimizer_overlap: bool,
    /// The axes over which experts are spread, as far as they are above 1; `None`: expert, in a model with experts.
    pub experts_over: Option<AxisSet>,
    /// What ranks with the same tokens send to experts.
    pub dispatch: Dispatch,
    /// Rows that a rank's buffers have room for where experts drop nothing, in rows that equal loads bring; 0: all that can come
    /// if that is up to 4 times as many, else 2.
    pub expert_rows: usize,
    /// What each rank's rows of the vocabulary, padding included, are a multiple of.
    pub vocab_multiple: usize,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Sequences of one (data, expert) rank in one pass; `None`: all of its share, or with a pipeline the fewest possible.
    pub microbatch: Option<usize>,
    /// Tokens in a sequence; `None`: as many as the model takes.
    pub seq_len: Option<usize>,
    /// Tokens of a step in place of `global_batch`, which they decide with the length of sequences ([`Self::in_sequences`]).
    pub batch_tokens: Option<usize>,
    /// Type of the values.
    pub dtype: ElementType,
    /// Type of the gradients of weights; `None`: that which values are computed in.
    pub gradients: Option<ElementType>,
}

impl LayoutRequest {
    /// A grid and a batch; scattered activations, every overlap pass, 1F1B, nothing recomputed or sharded, f32.
    pub fn new(grid: Grid, global_batch: usize) -> Self {
        Self {
            grid,
            per_node: None,
            activations: Activations::Scattered,
            linear: Linear::Pmm,
            summa_panels: None,
            overlap: Overlap::ALL,
            overlap_chunks: 1,
            schedule: Schedule::OneForwardOneBackward,
            chunks: 1,
            microbatch_group: None,
            stage_blocks: None,
            recompute: Recompute::None,
            keep_communicated: false,
            zero: Zero::Off,
            keep_weights: KeepWeights::Use,
            offload: Offload::None,
            bucket: None,
            optimizer_overlap: false,
            experts_over: None,
            dispatch: Dispatch::Dropped,
            expert_rows: 0,
            vocab_multiple: 1,
            global_batch,
            microbatch: None,
            seq_len: None,
            batch_tokens: None,
            dtype: ElementType::F32,
            gradients: None,
        }
    }

    /// The type of the gradients of weights.
    pub fn gradient_type(&self) -> ElementType {
        self.gradients.unwrap_or(self.dtype.real().into())
    }

    /// The same request with as many sequences as its tokens make, if it counts tokens.
    ///
    /// # Errors
    /// Tokens that are no whole sequences: names the nearest that are.
    pub fn in_sequences(&self, model: &Model) -> Result<Cow<'_, Self>, SpecError> {
        let Some(tokens) = self.batch_tokens else { return Ok(Cow::Borrowed(self)) };
        let global_batch = sequences_of(tokens, self.seq_len.unwrap_or(model.seq_len))?;
        Ok(Cow::Owned(Self { global_batch, batch_tokens: None, ..self.clone() }))
    }

    /// Refuses numbers of what the layout does not have.
    ///
    /// # Errors
    /// Names the number that nothing would read.
    pub fn check_used(&self) -> Result<(), SpecError> {
        self.keeps_used().map_err(|broken| broken.refuse(self, Self::keeps_used))
    }

    fn keeps_used(&self) -> Kept {
        if let Some(panels) = self.summa_panels.filter(|_| self.linear != Linear::Summa) {
            let ways = [Change::Leave(Field::SummaPanels), Change::to(Field::Linear, Linear::Summa)];
            return Err(Broken::new(
                Field::SummaPanels,
                panels,
                "only SUMMA has panels",
                ways.map(Way::Choice).to_vec(),
            ));
        }
        if let Some(group) = self.microbatch_group.filter(|_| self.schedule != Schedule::Interleaved) {
            let ways = [Change::Leave(Field::MicrobatchGroup), Change::to(Field::Schedule, Schedule::Interleaved)];
            let rule = "only the interleaved schedule has groups of microbatches";
            return Err(Broken::new(Field::MicrobatchGroup, group, rule, ways.map(Way::Choice).to_vec()));
        }
        if let Some(bucket) = self.bucket.filter(|_| self.offload == Offload::None) {
            let ways = [Change::Leave(Field::Bucket), Change::to(Field::Offload, Offload::Host)];
            let rule = "only states outside the device are updated in buckets";
            return Err(Broken::new(Field::Bucket, bucket, rule, ways.map(Way::Choice).to_vec()));
        }
        if self.optimizer_overlap && self.offload == Offload::None {
            let ways = [Change::Leave(Field::OptimizerOverlap), Change::to(Field::Offload, Offload::Host)];
            let rule = "only states outside the device are updated before the norm of the gradient is known";
            return Err(Broken::new(Field::OptimizerOverlap, true, rule, ways.map(Way::Choice).to_vec()));
        }
        if let Some(over) = self.experts_over.filter(|over| !over.without(Axis::SPREADING).is_empty()) {
            let rule = "experts are spread over axes that cut the rows of tokens: x, z, context or expert";
            let ways = vec![Way::Choice(Change::Leave(Field::ExpertsOver))];
            return Err(Broken::new(Field::ExpertsOver, over, rule, ways));
        }
        if self.dispatch == Dispatch::Duplicated && self.activations == Activations::Scattered {
            let ways = [Change::Leave(Field::Dispatch), Change::to(Field::Activations, Activations::Replicated)];
            let rule = "scattered activations have no duplicates: each rank sends its own tokens";
            return Err(Broken::new(Field::Dispatch, self.dispatch, rule, ways.map(Way::Choice).to_vec()));
        }
        let possible = [self.dtype, self.dtype.real().into()];
        if let Some(gradients) = self.gradients.filter(|gradients| !possible.contains(gradients)) {
            let rule = format!("values in {} have gradients in {}", self.dtype, one_of(&possible));
            let ways = vec![Way::Choice(Change::Leave(Field::Gradients))];
            return Err(Broken::new(Field::Gradients, gradients, rule, ways));
        }
        Ok(())
    }

    /// The rules that depend on the number of ranks alone: what breaks one breaks it on every grid of `ranks` ranks.
    ///
    /// # Errors
    /// Names the rule that is broken and what would keep it.
    pub fn check_without_grid(&self, model: &Model, ranks: usize) -> Result<(), SpecError> {
        let check = |request: &Self| request.keeps_without_grid(model, ranks);
        let request = self.in_sequences(model)?;
        check(&request).map_err(|broken| broken.refuse(&request, check))
    }

    fn keeps_without_grid(&self, model: &Model, ranks: usize) -> Kept {
        let no_vocabulary = model.patch_values.is_some();
        let most_padding = if no_vocabulary { 1 } else { MAX_VOCAB_MULTIPLE };
        let padding =
            if no_vocabulary { "the model has no vocabulary to pad" } else { "rows of the vocabulary of each rank" };
        let positions = format!("the model has {} positions (`model.seq_len` gives it others)", model.seq_len);
        // The first piece of layers may have only the embedding, and the last only the head.
        let limits = [
            (Field::PerNode, self.per_node, usize::MAX, "ranks share a node"),
            (Field::GlobalBatch, Some(self.global_batch), MAX_GLOBAL_BATCH, "sequences of a step"),
            (Field::SeqLen, self.seq_len, model.seq_len, &positions),
            (Field::Microbatch, self.microbatch, usize::MAX, "sequences of a data rank in a pass"),
            (
                Field::Chunks,
                Some(self.chunks),
                model.layers() + 2,
                "pieces of a stage, at most as many as layers, and 2",
            ),
            (Field::Bucket, self.bucket, usize::MAX, "elements whose states are on the device together"),
            (Field::OverlapChunks, Some(self.overlap_chunks), self.global_batch, "each has a sequence of the batch"),
            (Field::VocabMultiple, Some(self.vocab_multiple), most_padding, padding),
        ];
        for (field, value, most, what) in limits {
            if let Some(value) = value.filter(|value| !(1..=most).contains(value)) {
                let range = match most {
                    1 => "1".to_owned(),
                    usize::MAX => "at least 1".to_owned(),
                    most => format!("1 to {most}"),
                };
                let ways = vec![Way::sizes(field, value, Values::Multiples(1, most))];
                return Err(Broken::new(field, value, format!("it must be {range}: {what}"), ways));
            }
        }
        match self.per_node {
            Some(per_node) if per_node < ranks => {
                let cut = [("the number of ranks", ranks)];
                let divides = ranks.is_multiple_of(per_node);
                if divides { Ok(()) } else { Err(Broken::indivisible(Field::PerNode, per_node, &cut)) }
            }
            _ => Ok(()),
        }
    }
}

/// The types, each once.
fn one_of([first, second]: &[ElementType; 2]) -> String {
    if first == second { first.to_string() } else { format!("{first} or {second}") }
}

/// A layout that the model can be trained with.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// Sizes of the axes and their order.
    pub grid: Grid,
    /// Ranks that share a node.
    pub per_node: usize,
    /// How activations lie.
    pub activations: Activations,
    /// How linear layers are multiplied.
    pub linear: Linear,
    /// Panels of a SUMMA product.
    pub summa_panels: usize,
    /// Overlap passes.
    pub overlap: Overlap,
    /// Parts of a microbatch whose computation and communication interleave.
    pub overlap_chunks: usize,
    /// The order of passes over microbatches.
    pub schedule: Schedule,
    /// Pieces of layers that each stage owns.
    pub chunks: usize,
    /// Microbatches that pass a chunk together, in the interleaved schedule.
    pub microbatch_group: usize,
    /// Blocks of each piece of layers, in the order of the model: piece `c * pipe + stage` is chunk `c` of `stage`.
    pub stage_blocks: Vec<usize>,
    /// What the backward pass computes again.
    pub recompute: Recompute,
    /// Whether recomputation keeps the outputs of collectives.
    pub keep_communicated: bool,
    /// What is sharded over the axes that replicate weights: data, expert and context.
    pub zero: Zero,
    /// How long weights gathered over z are kept.
    pub keep_weights: KeepWeights,
    /// Where the optimizer's states lie.
    pub offload: Offload,
    /// Elements of a bucket of offloaded states: what of a rank's shards, in the order of the parameters, is fetched, updated and
    /// stored at a time. Nothing reads it where none are.
    pub bucket: usize,
    /// Whether buckets are updated while the gradients of others are reduced, as if none was clipped, and again where one is
    /// (dissertation, ch. 3). There are two versions of the states then, and masters of all weights among them.
    pub optimizer_overlap: bool,
    /// The axes above 1 over which experts are spread: each of their ranks has whole experts. Other axes cut them as they cut
    /// any weight.
    pub experts_over: AxisSet,
    /// What ranks with the same tokens send to experts. Nothing reads it where activations are scattered.
    pub dispatch: Dispatch,
    /// Where experts drop nothing: how many times as many rows as equal loads bring the buffers of a rank have room for, but
    /// never more than can come; 0: all that can come if that is up to 4 times as many, else 2. More end the step.
    pub expert_rows: usize,
    /// What each rank's rows of the vocabulary, padding included, are a multiple of.
    pub vocab_multiple: usize,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Sequences of one (data, expert) rank in one pass, split over z.
    pub microbatch: usize,
    /// Tokens in a sequence.
    pub seq_len: usize,
    /// Type of the values.
    pub dtype: ElementType,
    /// Type in which gradients of weights are summed and sent: that of the values, or that in which they are computed.
    pub gradients: ElementType,
}

/// Sequences of a step of so many tokens.
///
/// # Errors
/// Tokens that are no whole sequences, or none.
pub fn sequences_of(tokens: usize, seq_len: usize) -> Result<usize, SpecError> {
    if tokens > 0 && seq_len > 0 && tokens.is_multiple_of(seq_len) {
        return Ok(tokens / seq_len);
    }
    if seq_len == 0 {
        return Err(SpecError::invalid("seq-len", 0, "it must be at least 1", "give a positive number"));
    }
    let below = tokens / seq_len;
    let near = |sequences: usize| {
        let plural = if sequences == 1 { "" } else { "s" };
        sequences.checked_mul(seq_len).map(|tokens| format!("\"{tokens} tokens\" ({sequences} sequence{plural})"))
    };
    let remedy = match below {
        0 => format!("give at least {seq_len} tokens, or a plain number of sequences, e.g. `layout.global_batch` 1"),
        below => {
            let nearest = [near(below), near(below + 1)].into_iter().flatten().collect::<Vec<_>>().join(" or ");
            format!("give {nearest}, or another `layout.seq_len`")
        }
    };
    let rule = format!("a step has whole sequences, of {seq_len} tokens each");
    Err(SpecError::invalid("global-batch", format!("{tokens} tokens"), rule, remedy))
}

impl Layout {
    /// Elements of a bucket of offloaded states where nobody says how many: as many as AxoNN's.
    pub const BUCKET: usize = 16_000_000;

    /// Holds a request against the model's sizes.
    ///
    /// # Errors
    /// Names the rule that is broken and the nearest sizes that keep it.
    pub fn new(model: &Model, request: &LayoutRequest) -> Result<Self, SpecError> {
        Self::completed(model, request, LayoutRequest::clone)
    }

    /// As [`Layout::new`], where `complete` adds to what was asked for what follows from it, such as nodes from the number
    /// of ranks: a remedy changes what was asked for, and what follows with it.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn completed(
        model: &Model,
        request: &LayoutRequest,
        complete: impl Fn(&LayoutRequest) -> LayoutRequest,
    ) -> Result<Self, SpecError> {
        let legal = |request: &LayoutRequest| Self::legal(model, &complete(request));
        let request = &*request.in_sequences(model)?;
        legal(request).map_err(|broken| broken.refuse(request, |other| legal(other).map(drop)))
    }

    /// [`Layout::new`] where nobody asks why not: no remedies are looked for, which takes many times as long.
    pub fn if_legal(model: &Model, request: &LayoutRequest) -> Option<Self> {
        Self::legal(model, &*request.in_sequences(model).ok()?).ok()
    }

    fn legal(model: &Model, request: &LayoutRequest) -> Result<Self, Broken> {
        let grid = request.grid;
        request.keeps_without_grid(model, grid.ranks())?;
        request.keeps_used()?;
        let size = |axis| grid.size(axis);
        let mesh = size(Axis::X) * size(Axis::Y) / greatest_common_divisor(size(Axis::X), size(Axis::Y));
        let usual = if model.has_experts() { Axis::Expert.only() } else { AxisSet::EMPTY };
        let mut layout = Self {
            grid,
            per_node: request.per_node.unwrap_or(usize::MAX).min(grid.ranks()),
            activations: request.activations,
            linear: request.linear,
            summa_panels: request.summa_panels.unwrap_or(mesh),
            overlap: request.overlap,
            overlap_chunks: request.overlap_chunks,
            schedule: request.schedule,
            chunks: request.chunks,
            microbatch_group: request.microbatch_group.unwrap_or(size(Axis::Pipe)),
            stage_blocks: Vec::new(),
            recompute: request.recompute,
            keep_communicated: request.keep_communicated,
            zero: request.zero,
            keep_weights: request.keep_weights,
            offload: request.offload,
            bucket: request.bucket.unwrap_or(Self::BUCKET),
            optimizer_overlap: request.optimizer_overlap,
            experts_over: request.experts_over.unwrap_or(usual).iter().filter(|axis| size(*axis) > 1).collect(),
            dispatch: request.dispatch,
            expert_rows: request.expert_rows,
            vocab_multiple: request.vocab_multiple,
            global_batch: request.global_batch,
            microbatch: 0,
            seq_len: request.seq_len.unwrap_or(model.seq_len),
            dtype: request.dtype,
            gradients: request.gradient_type(),
        };
        layout.check_pieces(model)?;
        let even = || EvenPieces::new(model.layers(), size(Axis::Pipe), request.chunks).blocks().collect();
        layout.stage_blocks = request.stage_blocks.clone().unwrap_or_else(even);
        layout.microbatch = request.microbatch.unwrap_or_else(|| layout.default_microbatch());
        layout.check(model)?;
        Ok(layout)
    }

    /// The same with values of this type, and gradients of weights in that which values are computed in.
    #[must_use]
    pub fn stored_in(self, dtype: ElementType) -> Self {
        Self { dtype, gradients: dtype.real().into(), ..self }
    }

    fn default_microbatch(&self) -> usize {
        let share = self.global_batch / self.grid.batch_shares();
        let unit = self.sequence_unit();
        if self.grid.size(Axis::Pipe) > 1 && share.is_multiple_of(unit) { unit } else { share }
    }

    /// The number that the sequences of a microbatch must be a multiple of: what cuts them.
    pub(crate) fn sequence_unit(&self) -> usize {
        let whole = if self.scatters_rows() { self.grid.size(Axis::Y) } else { 1 };
        self.grid.size(Axis::Z) * whole * self.overlap_chunks
    }

    /// Whether y cuts the rows inside a block.
    pub fn scatters_rows(&self) -> bool {
        self.linear == Linear::Summa || self.activations == Activations::Scattered
    }

    /// Places at one expert for the tokens of one rank, of which each group of so many has so many: along x too, where each rank
    /// has its own. Ranks along x that share their tokens have as many each: some of the last ones' may be nobody's.
    pub fn places_of_rank(&self, group: usize, slots: usize) -> usize {
        let x = if self.scatters_places() { self.grid.size(Axis::X) } else { 1 };
        (self.rows() / self.overlap_chunks / group * slots).div_ceil(x)
    }

    /// Whether each rank along x has places at experts of its own.
    pub fn scatters_places(&self) -> bool {
        self.scatters_rows() || self.dispatch == Dispatch::Dropped
    }

    /// Passes over microbatches in a step.
    pub fn microbatches(&self) -> usize {
        self.global_batch / self.grid.batch_shares() / self.microbatch
    }

    /// Passes of all stages in a step.
    pub fn passes(&self) -> usize {
        self.schedule.passes(self.grid.size(Axis::Pipe), self.chunks, self.microbatches())
    }

    /// Token rows that one (data, expert, z, context) rank holds in a pass: `m` of the dataflow tables.
    pub fn rows(&self) -> usize {
        self.microbatch / self.grid.size(Axis::Z) * (self.seq_len / self.grid.size(Axis::Context))
    }

    /// The first sequence, in the global batch, of the share of the (data, expert) rank at a place.
    pub fn first_of_share(&self, place: Coordinate) -> usize {
        self.global_batch / self.grid.batch_shares() * self.grid.shard_index(place, &Axis::BATCH)
    }

    /// The model's vocabulary, padded.
    pub fn padded_vocab(&self, model: &Model) -> usize {
        self.padded(model.vocab)
    }

    /// So many rows of a vocabulary, padded to a multiple of x*y and of [`Self::vocab_multiple`] for each of its parts; padding
    /// counts in shapes, FLOPs, bytes and memory only.
    pub fn padded(&self, rows: usize) -> usize {
        rows.next_multiple_of(self.grid.size(Axis::X) * self.grid.size(Axis::Y) * self.vocab_multiple)
    }

    /// Heads of keys and values that the ranks along x hold together, each as many: those of the model, or, where x is
    /// larger, one for each rank, so that several hold the same.
    pub fn kv_heads(&self, attention: &Attention) -> usize {
        attention.kv_heads.max(self.grid.size(Axis::X))
    }

    /// Ranks, following each other along x, that hold the same key and value.
    pub fn kv_copies(&self, attention: &Attention) -> usize {
        self.kv_heads(attention) / attention.kv_heads
    }

    /// Heads of queries that share a key and value on the rank that holds them.
    pub fn group_heads(&self, attention: &Attention) -> usize {
        attention.heads / self.kv_heads(attention)
    }

    /// Columns of queries, keys and values, on all ranks along x together: with copies of keys.
    pub fn qkv_width(&self, attention: &Attention) -> usize {
        attention.queries_width() + self.kv_heads(attention) * attention.pair_width()
    }

    /// Target tokens, or patches, of a step.
    pub fn tokens_per_step(&self) -> usize {
        self.global_batch * self.seq_len
    }

    /// What a step predicts at most, and the loss is divided by where none is [`crate::IGNORED`]: target tokens, or all
    /// numbers of all patches.
    pub fn targets_per_step(&self, model: &Model) -> usize {
        self.tokens_per_step() * model.patch_values.unwrap_or(1)
    }

    /// Pieces of layers in the order of the model: stages times chunks.
    pub fn pieces(&self) -> usize {
        self.grid.size(Axis::Pipe) * self.chunks
    }

    /// The blocks of a piece of layers.
    pub fn blocks_of(&self, piece: usize) -> std::ops::Range<usize> {
        let first = self.stage_blocks[..piece].iter().sum();
        first..first + self.stage_blocks[piece]
    }

    /// The axes that cut the rows of every activation, outermost first: data, expert, z and context. Expert and context are
    /// there where they are above 1.
    pub fn row_axes(&self) -> impl Iterator<Item = Axis> {
        let always = [Axis::Data, Axis::Z];
        let axes = Axis::BATCH.into_iter().chain([Axis::Z, Axis::Context]);
        axes.filter(move |axis| always.contains(axis) || self.grid.size(*axis) > 1)
    }

    /// The axes that replicate a weight whose blocks are cut over `blocks`, over which ZeRO shards: those of data, expert and
    /// context that are above 1. Data is named with them whatever its size, as in [`row_axes`](Self::row_axes): what is
    /// summed over rows and what is sharded are then the same groups, by one name.
    pub fn replicating(&self, blocks: AxisSet) -> AxisSet {
        let several = |axis: &Axis| self.grid.size(*axis) > 1 && !blocks.contains(*axis);
        let axes: AxisSet = Axis::BATCH.into_iter().chain([Axis::Context]).filter(several).collect();
        if axes.is_empty() { axes } else { axes.union(Axis::Data.only()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_are_no_whole_sequences_are_refused_with_numbers_that_are() {
        assert_eq!(sequences_of(4096, 1024), Ok(4));
        let message = |tokens, seq_len| sequences_of(tokens, seq_len).unwrap_err().to_string();
        assert!(message(1000, 300).contains("\"900 tokens\" (3 sequences) or \"1200 tokens\" (4 sequences)"));
        assert!(message(299, 300).contains("give at least 300 tokens"));
        assert!(message(400, 300).contains("\"300 tokens\" (1 sequence) or"));
        assert!(message(4096, 0).contains("seq-len = 0: it must be at least 1"));
        // The next whole number of sequences has more tokens than can be counted.
        let most = message(usize::MAX, 1024);
        assert!(most.contains("18446744073709550592 tokens") && !most.contains(" or \"0 tokens\""), "{most}");
    }
}
