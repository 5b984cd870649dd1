//! Keys and values over the context axis: every rank has the queries of its tokens, and for the attention gathers the
//! keys and values of all tokens (the sequence-parallel attention of LBNL's 2D tensor parallelism).
//!
//! Context cuts rows outside y, so gathering it leaves the nested order of rows: the gathered value lies as one block
//! of this rank's sequences per member, which only the attention reads.

use quadrille_spec::{Axis, CollectiveKind};

use crate::builder::Builder;
use crate::operation::Reduction;
use crate::value::{Format, Home};
use crate::{Extent, Sharding, StepError, ValueId, kind};

impl Builder<'_> {
    /// The keys and values of whole sequences, if context cuts sequences.
    pub fn gather_keys_values(&mut self, block: usize, qkv: ValueId) -> Result<Option<ValueId>, StepError> {
        if self.axis_size(Axis::Context) == 1 {
            return Ok(None);
        }
        let local = self.keys_values("keys and values", block, qkv, false)?;
        self.push(kind::PackKeysValues { block: self.block_kind(block), input: qkv, output: local });
        let gathered = self.keys_values("keys and values gathered", block, qkv, true)?;
        self.collective(CollectiveKind::AllGather, Axis::Context.only(), Reduction::Sum, local, gathered);
        Ok(Some(gathered))
    }

    /// A place for the gradients of gathered keys and values.
    pub fn keys_values_gradient(&mut self, block: usize, qkv: ValueId) -> Result<ValueId, StepError> {
        self.keys_values("d keys and values gathered", block, qkv, true)
    }

    /// Sums the gradients of keys and values over context, the conjugate of the gather, and puts this rank's into
    /// `gradient`, that of q, k and v.
    pub fn scatter_keys_values(
        &mut self,
        block: usize,
        whole: ValueId,
        gradient: ValueId,
    ) -> Result<ValueId, StepError> {
        let local = self.keys_values("d keys and values", block, gradient, false)?;
        self.collective(CollectiveKind::ReduceScatter, Axis::Context.only(), Reduction::Sum, whole, local);
        let complete = self.in_place("d qkv", gradient);
        self.push(kind::UnpackKeysValues { block: self.block_kind(block), input: local, output: complete });
        Ok(complete)
    }

    /// Columns of a block's keys and values, with those of queries or without.
    pub fn keys_values_extent(&self, block: usize, with_queries: bool) -> Extent {
        let attention = &self.model.blocks[block].attention;
        let beside = if with_queries { attention.queries_width() } else { 0 };
        Extent::KeysValues { beside, heads: attention.kv_heads, each: attention.pair_width() }
    }

    /// Scores of a query of a block: with the keys of a sequence, of every head.
    pub fn scores_extent(&self, block: usize) -> Extent {
        (self.model.blocks[block].attention.heads * self.layout.seq_len).into()
    }

    /// A value of keys and values for the tokens of `qkv`: of this rank, or of whole sequences.
    fn keys_values(&mut self, name: &str, block: usize, qkv: ValueId, whole: bool) -> Result<ValueId, StepError> {
        let [rows, _] = self.shape(qkv);
        let cols = self.keys_values_extent(block, false);
        let cut = *self.sharding(qkv);
        let kept = cut.rows.into_iter().filter(|axis| !whole || *axis != Axis::Context);
        let sharding = Sharding::new(&kept.collect::<Vec<_>>(), &cut.cols);
        self.value(name, [rows, cols], sharding, Home::buffer(Format::Values))
    }
}
