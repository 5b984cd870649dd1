//! When masks have settled: the early bird's rule (You et al., 2020), for weights.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Mask, Pruning};
use crate::{Checkpoint, CheckpointError};

/// How far the mask of a checkpoint is from those of the checkpoints before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distances {
    /// The checkpoint's step.
    pub step: u64,
    /// The part of weights of which one mask keeps what the other does not (the normalised Hamming distance), to the last
    /// checkpoints before it, the nearest first.
    pub to_those_before: Vec<f64>,
    /// Whether this mask and those, five in all, are near each other: a later mask would be much the same.
    pub settled: bool,
}

/// A mask that is held, a bit for each weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskOf {
    bits: Vec<u64>,
    weights: usize,
}

impl MaskOf {
    /// The mask that pruning would give a checkpoint.
    ///
    /// # Errors
    /// Damage.
    pub fn read(checkpoint: &Checkpoint, pruning: Pruning) -> Result<Self, CheckpointError> {
        let mut mask = Self { bits: Vec::new(), weights: 0 };
        Mask::of(checkpoint, pruning)?.rows(|_, _, kept| {
            kept.iter().for_each(|kept| mask.push(*kept));
            Ok(())
        })?;
        Ok(mask)
    }

    fn push(&mut self, kept: bool) {
        let bit = self.weights % 64;
        if bit == 0 {
            self.bits.push(0);
        }
        self.bits.iter_mut().next_back().into_iter().for_each(|bits| *bits |= u64::from(kept) << bit);
        self.weights += 1;
    }

    /// The part of weights that only one of two masks of a model keeps.
    pub fn distance(&self, other: &Self) -> f64 {
        let different: u64 = self.bits.iter().zip(&other.bits).map(|(a, b)| u64::from((a ^ b).count_ones())).sum();
        different as f64 / self.weights as f64
    }
}

/// Looks for masks that have settled.
#[derive(Debug, Default)]
pub struct EarlyBird {
    /// The last masks before the next one, the nearest first.
    last: VecDeque<MaskOf>,
    /// What was found of the last masks, the nearest first.
    distances: VecDeque<Vec<f64>>,
}

impl EarlyBird {
    /// So many masks in a row have to be near each other.
    pub const MASKS: usize = 5;
    /// How near: every two of them.
    pub const NEAR: f64 = 0.1;

    /// The distances of the masks that pruning would give the checkpoints of a run, each with its step, in this order.
    ///
    /// # Errors
    /// Checkpoints of several models; damage.
    pub fn look<'a>(
        checkpoints: impl IntoIterator<Item = (u64, &'a Checkpoint)>,
        pruning: Pruning,
    ) -> Result<Vec<Distances>, CheckpointError> {
        let mut bird = Self::default();
        let mut first = None;
        let see = |(step, checkpoint): (u64, &'a Checkpoint)| {
            let model = &checkpoint.about().model;
            if *first.get_or_insert(model) != model {
                return Err(CheckpointError::OtherModel(checkpoint.path().to_owned()));
            }
            Ok(bird.see(step, MaskOf::read(checkpoint, pruning)?))
        };
        checkpoints.into_iter().map(see).collect()
    }

    /// Takes in the next checkpoint's mask.
    pub fn see(&mut self, step: u64, mask: MaskOf) -> Distances {
        let to_those_before: Vec<f64> = self.last.iter().map(|before| mask.distance(before)).collect();
        self.last.push_front(mask);
        self.last.truncate(Self::MASKS - 1);
        self.distances.push_front(to_those_before.clone());
        self.distances.truncate(Self::MASKS);
        // Of each mask those to the ones before it that are among the last.
        let among = self.distances.iter().zip((0..Self::MASKS).rev()).flat_map(|(each, count)| each.iter().take(count));
        let settled = self.distances.len() == Self::MASKS && among.copied().all(|distance| distance <= Self::NEAR);
        Distances { step, to_those_before, settled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mask of a hundred weights that keeps all from `first` on.
    fn from(first: usize) -> MaskOf {
        let mut mask = MaskOf { bits: Vec::new(), weights: 0 };
        (0..100).for_each(|weight| mask.push(weight >= first));
        mask
    }

    #[test]
    fn masks_have_settled_when_every_two_of_five_are_near() {
        let mut bird = EarlyBird::default();
        let mut settled = |first| bird.see(0, from(first)).settled;
        // Neighbours are near, the first and the last of five are not.
        let drifting = [0, 4, 8, 12, 16, 20].map(&mut settled);
        assert_eq!(drifting, [false; 6]);
        let slowing = [21, 23, 23, 24, 25].map(&mut settled);
        assert_eq!(slowing, [false, false, true, true, true]);
        assert!(!settled(50));
    }

    #[test]
    fn distances_are_the_part_of_weights_that_differ() {
        let mut bird = EarlyBird::default();
        bird.see(1, from(0));
        bird.see(2, from(25));
        let third = bird.see(3, from(75));
        assert_eq!(third, Distances { step: 3, to_those_before: vec![0.5, 0.75], settled: false });
    }
}
