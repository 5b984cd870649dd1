//! A device's kernels of attention.

use quadrille_engine::{AttentionKernels, AttentionMask, EngineError, Positions, Values};
use quadrille_tensor::{AttentionShape, CacheShape, GroupShape, LatentShape, Rotary};

use super::{Done, R, Swept, W};
use crate::array::Number;
use crate::backend::convert::{attention_mask, read, written};
use crate::backend::{Cuda, DeviceAngles};
use crate::ops::{Saved, attention_scratch, cached_scratch};

impl<S: Values + Number> AttentionKernels for Cuda<S>
where
    S::Real: Number,
{
    fn angles(
        &self,
        head_dim: usize,
        frequencies: &[f64],
        positions: impl Iterator<Item = usize>,
    ) -> Result<DeviceAngles, EngineError> {
        let rotary = Rotary::<S::Real>::new(head_dim, frequencies, positions);
        let len = rotary.table().len();
        let memory = self.lanes.take(size_of_val(rotary.table()))?;
        self.up(rotary.table(), memory.array(S::Real::ELEMENT).part(0..len))?;
        Ok(DeviceAngles { memory, pairs: frequencies.len(), len })
    }

    fn join_latent(&self, shape: LatentShape, queries: R<'_>, pairs: R<'_>, shared: R<'_>, qkv: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.join_latent(shape, queries.array, pairs.array, shared.array, qkv.array)?)
    }

    fn split_latent(
        &self,
        shape: LatentShape,
        dqkv: R<'_>,
        dqueries: &mut W<'_>,
        dpairs: &mut W<'_>,
        dshared: &mut W<'_>,
    ) -> Done {
        Ok(self.queue(0)?.split_latent(shape, dqkv.array, dqueries.array, dpairs.array, dshared.array)?)
    }

    fn rotate(&self, shape: GroupShape, angles: &DeviceAngles, at: Positions<'_>, x: &mut W<'_>, back: bool) -> Swept {
        let table = angles.memory.array(S::Real::ELEMENT).part(0..angles.len);
        let at = self.placed(at)?;
        self.queue(0)?.rotate(shape, angles.pairs, table, at, x.array, back)?;
        Ok(shape.rows * shape.groups * (shape.heads + 1) * shape.head_dim)
    }

    fn attention_forward(
        &self,
        shape: AttentionShape,
        qkv: R<'_>,
        keys_values: Option<R<'_>>,
        out: &mut W<'_>,
        log_sum_exp: &mut W<'_>,
        mask: Option<&AttentionMask>,
    ) -> Done {
        let mask = mask.map(attention_mask);
        Ok(self.queue(0)?.attention_forward(
            shape,
            qkv.array,
            read(keys_values),
            out.array,
            log_sum_exp.array,
            mask.as_ref(),
        )?)
    }

    fn attention_backward(
        &self,
        shape: AttentionShape,
        qkv: R<'_>,
        keys_values: Option<(R<'_>, &mut W<'_>)>,
        out: R<'_>,
        log_sum_exp: R<'_>,
        dout: R<'_>,
        dqkv: &mut W<'_>,
        mask: Option<&AttentionMask>,
    ) -> Done {
        let mask = mask.map(attention_mask);
        let (keys_values, dkv) = keys_values.unzip();
        let qkv = qkv.array;
        let keys_values = read(keys_values);
        let out = out.array;
        let log_sum_exp = log_sum_exp.array;
        let dout = dout.array;
        let queue = self.queue(attention_scratch(shape, qkv.element))?;
        Ok(queue.attention_backward(
            shape,
            Saved { qkv, keys_values, out, log_sum_exp, dout },
            dqkv.array,
            written(dkv),
            mask.as_ref(),
        )?)
    }

    fn split_heads(&self, shape: GroupShape, qkv: R<'_>, queries: &mut W<'_>, keys: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.split_heads(shape, qkv.array, queries.array, keys.array)?)
    }

    fn join_heads(
        &self,
        shape: GroupShape,
        queries: R<'_>,
        keys: R<'_>,
        beside: Option<R<'_>>,
        qkv: &mut W<'_>,
    ) -> Done {
        Ok(self.queue(0)?.join_heads(shape, queries.array, keys.array, read(beside), qkv.array)?)
    }

    fn pack_keys_values(&self, shape: GroupShape, qkv: R<'_>, kv: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.pack_keys_values(shape, qkv.array, kv.array)?)
    }

    fn unpack_keys_values(&self, shape: GroupShape, kv: R<'_>, qkv: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.unpack_keys_values(shape, kv.array, qkv.array)?)
    }

    fn store_keys_values(&self, shape: CacheShape, starts: &[usize], qkv: R<'_>, cache: &mut W<'_>) -> Done {
        let starts = self.uploads.put_numbers(starts.iter().copied())?;
        Ok(self.queue(0)?.store_keys_values(shape, starts, qkv.array, cache.array)?)
    }

    fn cached_attention(&self, shape: CacheShape, starts: &[usize], qkv: R<'_>, cache: R<'_>, out: &mut W<'_>) -> Done {
        let first = starts.iter().all(|start| *start == 0);
        let starts = self.uploads.put_numbers(starts.iter().copied())?;
        let queue = self.queue(cached_scratch(shape, qkv.array.element))?;
        Ok(queue.cached_attention(shape, starts, first, qkv.array, cache.array, out.array)?)
    }

    fn newest_rows(&self, cols: usize, tokens: usize, newest: &[usize], x: R<'_>, y: &mut W<'_>) -> Done {
        let newest = self.uploads.put_numbers(newest.iter().copied())?;
        Ok(self.queue(0)?.newest_rows(cols, tokens, newest, x.array, y.array)?)
    }
}
