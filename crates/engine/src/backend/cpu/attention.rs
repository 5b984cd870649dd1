//! The processor's kernels of attention.

use quadrille_tensor as kernels;
use quadrille_tensor::{AttentionShape, CacheShape, Element, GroupShape, LatentShape, Rotary};

use super::Cpu;
use crate::EngineError;
use crate::backend::kinds::of_either_kind;
use crate::backend::memory::{Numbers, NumbersMut};
use crate::backend::{AttentionKernels, AttentionMask, Done, Positions, Swept};

for_each_element! {
impl AttentionKernels for Cpu<S> {
    fn angles(
        &self,
        head_dim: usize,
        frequencies: &[f64],
        positions: impl Iterator<Item = usize>,
    ) -> Result<Rotary<Self::Real>, EngineError> {
        Ok(Rotary::new(head_dim, frequencies, positions))
    }

    fn join_latent(
        &self,
        shape: LatentShape,
        queries: Numbers<'_, S>,
        pairs: Numbers<'_, S>,
        shared: Numbers<'_, S>,
        qkv: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::join_latent(&self.pool, shape, queries.stored(), pairs.stored(), shared.stored(), qkv.stored());
        Ok(())
    }

    fn split_latent(
        &self,
        shape: LatentShape,
        dqkv: Numbers<'_, S>,
        dqueries: &mut NumbersMut<'_, S>,
        dpairs: &mut NumbersMut<'_, S>,
        dshared: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::split_latent(&self.pool, shape, dqkv.stored(), dqueries.stored(), dpairs.stored(), dshared.stored());
        Ok(())
    }

    fn rotate(
        &self,
        shape: GroupShape,
        angles: &Rotary<Self::Real>,
        at: Positions<'_>,
        x: &mut NumbersMut<'_, S>,
        back: bool,
    ) -> Swept {
        Ok(kernels::rotate(&self.pool, shape, angles, |row| at.angle(row), x.stored(), back))
    }

    fn attention_forward(
        &self,
        shape: AttentionShape,
        qkv: Numbers<'_, S>,
        keys_values: Option<Numbers<'_, S>>,
        out: &mut NumbersMut<'_, S>,
        log_sum_exp: &mut NumbersMut<'_, S>,
        mask: Option<&AttentionMask>,
    ) -> Done {
        let keep = mask.map(|mask| {
            (Self::Real::from_f64(mask.dropout.scale), |s, head, query, key| mask.keeps(s, head, query, key))
        });
        let dropout = keep.as_ref().map(|(scale, keep)| (*scale, keep as _));
        kernels::attention_forward(
            &self.pool,
            shape,
            qkv.stored(),
            keys_values.map(Numbers::stored),
            out.stored(),
            log_sum_exp.real(),
            dropout,
        );
        Ok(())
    }

    fn attention_backward(
        &self,
        shape: AttentionShape,
        qkv: Numbers<'_, S>,
        keys_values: Option<(Numbers<'_, S>, &mut NumbersMut<'_, S>)>,
        out: Numbers<'_, S>,
        log_sum_exp: Numbers<'_, S>,
        dout: Numbers<'_, S>,
        dqkv: &mut NumbersMut<'_, S>,
        mask: Option<&AttentionMask>,
    ) -> Done {
        let keep = mask.map(|mask| {
            (Self::Real::from_f64(mask.dropout.scale), |s, head, query, key| mask.keeps(s, head, query, key))
        });
        let dropout = keep.as_ref().map(|(scale, keep)| (*scale, keep as _));
        let keys_values = keys_values.map(|(kv, dkv)| (kv.stored(), dkv.stored()));
        kernels::attention_backward(
            &self.pool,
            shape,
            qkv.stored(),
            keys_values,
            out.stored(),
            log_sum_exp.real(),
            dout.stored(),
            dqkv.stored(),
            dropout,
        );
        Ok(())
    }

    fn split_heads(
        &self,
        shape: GroupShape,
        qkv: Numbers<'_, S>,
        queries: &mut NumbersMut<'_, S>,
        keys: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::split_heads(&self.pool, shape, qkv.stored(), queries.stored(), keys.stored());
        Ok(())
    }

    fn join_heads(
        &self,
        shape: GroupShape,
        queries: Numbers<'_, S>,
        keys: Numbers<'_, S>,
        beside: Option<Numbers<'_, S>>,
        qkv: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::join_heads(
            &self.pool,
            shape,
            queries.stored(),
            keys.stored(),
            beside.map(Numbers::stored),
            qkv.stored(),
        );
        Ok(())
    }

    fn pack_keys_values(&self, shape: GroupShape, qkv: Numbers<'_, S>, kv: &mut NumbersMut<'_, S>) -> Done {
        of_either_kind!(qkv, kv => kernels::pack_keys_values(&self.pool, shape, qkv, kv));
        Ok(())
    }

    fn unpack_keys_values(&self, shape: GroupShape, kv: Numbers<'_, S>, qkv: &mut NumbersMut<'_, S>) -> Done {
        of_either_kind!(kv, qkv => kernels::unpack_keys_values(&self.pool, shape, kv, qkv));
        Ok(())
    }

    fn store_keys_values(
        &self,
        shape: CacheShape,
        starts: &[usize],
        qkv: Numbers<'_, S>,
        cache: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::store_keys_values(&self.pool, shape, starts, qkv.stored(), cache.stored());
        Ok(())
    }

    fn cached_attention(
        &self,
        shape: CacheShape,
        starts: &[usize],
        qkv: Numbers<'_, S>,
        cache: Numbers<'_, S>,
        out: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::cached_attention(&self.pool, shape, starts, qkv.stored(), cache.stored(), out.stored());
        Ok(())
    }

    fn newest_rows(
        &self,
        cols: usize,
        tokens: usize,
        newest: &[usize],
        x: Numbers<'_, S>,
        y: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::newest_rows(cols, tokens, newest, x.stored(), y.stored());
        Ok(())
    }
}
}
