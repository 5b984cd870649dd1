//! Kernels of attention.

use quadrille_tensor::{AttentionShape, CacheShape, GroupShape, LatentShape};

use super::{AttentionMask, Done, Positions, RankMemory, Swept};
use crate::EngineError;

/// Kernels of attention, with the turning of queries and keys and the cache of generation.
pub trait AttentionKernels: RankMemory {
    /// The table of angles of some positions, for heads of `head_dim` columns whose pairs turn by `frequencies`.
    fn angles(
        &self,
        head_dim: usize,
        frequencies: &[f64],
        positions: impl Iterator<Item = usize>,
    ) -> Result<Self::Angles, EngineError>;

    /// See [`quadrille_tensor::join_latent`].
    fn join_latent(
        &self,
        shape: LatentShape,
        queries: Self::View<'_>,
        pairs: Self::View<'_>,
        shared: Self::View<'_>,
        qkv: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::split_latent`].
    fn split_latent(
        &self,
        shape: LatentShape,
        dqkv: Self::View<'_>,
        dqueries: &mut Self::ViewMut<'_>,
        dpairs: &mut Self::ViewMut<'_>,
        dshared: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::rotate`].
    fn rotate(
        &self,
        shape: GroupShape,
        angles: &Self::Angles,
        at: Positions<'_>,
        x: &mut Self::ViewMut<'_>,
        back: bool,
    ) -> Swept;

    /// See [`quadrille_tensor::attention_forward`].
    fn attention_forward(
        &self,
        shape: AttentionShape,
        qkv: Self::View<'_>,
        keys_values: Option<Self::View<'_>>,
        out: &mut Self::ViewMut<'_>,
        log_sum_exp: &mut Self::ViewMut<'_>,
        mask: Option<&AttentionMask>,
    ) -> Done;

    /// See [`quadrille_tensor::attention_backward`].
    fn attention_backward(
        &self,
        shape: AttentionShape,
        qkv: Self::View<'_>,
        keys_values: Option<(Self::View<'_>, &mut Self::ViewMut<'_>)>,
        out: Self::View<'_>,
        log_sum_exp: Self::View<'_>,
        dout: Self::View<'_>,
        dqkv: &mut Self::ViewMut<'_>,
        mask: Option<&AttentionMask>,
    ) -> Done;

    /// See [`quadrille_tensor::split_heads`].
    fn split_heads(
        &self,
        shape: GroupShape,
        qkv: Self::View<'_>,
        queries: &mut Self::ViewMut<'_>,
        keys: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::join_heads`].
    fn join_heads(
        &self,
        shape: GroupShape,
        queries: Self::View<'_>,
        keys: Self::View<'_>,
        beside: Option<Self::View<'_>>,
        qkv: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::pack_keys_values`].
    fn pack_keys_values(&self, shape: GroupShape, qkv: Self::View<'_>, kv: &mut Self::ViewMut<'_>) -> Done;

    /// See [`quadrille_tensor::unpack_keys_values`].
    fn unpack_keys_values(&self, shape: GroupShape, kv: Self::View<'_>, qkv: &mut Self::ViewMut<'_>) -> Done;

    /// See [`quadrille_tensor::store_keys_values`].
    fn store_keys_values(
        &self,
        shape: CacheShape,
        starts: &[usize],
        qkv: Self::View<'_>,
        cache: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::cached_attention`].
    fn cached_attention(
        &self,
        shape: CacheShape,
        starts: &[usize],
        qkv: Self::View<'_>,
        cache: Self::View<'_>,
        out: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::newest_rows`].
    fn newest_rows(
        &self,
        cols: usize,
        tokens: usize,
        newest: &[usize],
        x: Self::View<'_>,
        y: &mut Self::ViewMut<'_>,
    ) -> Done;
}
