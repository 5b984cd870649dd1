//! Which sequence stands where in a run.

use quadrille_data::Permutation;
use quadrille_spec::RandomStream;

use crate::refusal::{Refusal, Setting};

/// A sequence of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sequence {
    /// A document of the buckets, by its number over all of them.
    Document(usize),
    /// A sample of the other text, by its number.
    Other(u64),
}

/// First the steps of the warm-up, with other text; then every document as often as its bucket says, and other text where
/// there is room, in random order.
#[derive(Debug, Clone)]
pub struct Order {
    global_batch: u64,
    /// Sequences of the warm-up.
    warmup: u64,
    documents_per_bucket: u64,
    /// By bucket: the sequences of the buckets up to and with it.
    until: Vec<u64>,
    /// Of the sequences after the warm-up.
    order: Permutation,
    /// Steps in all.
    pub steps: u64,
}

impl Order {
    /// The order by `seed` for buckets that are seen `epochs` times, in `steps` steps after the warm-up, or in as many as the
    /// documents fill.
    ///
    /// # Errors
    /// Fewer steps than the documents fill; buckets that nobody sees, or two that are alike.
    pub fn new(
        epochs: &[u32],
        documents_per_bucket: u32,
        warmup_steps: u64,
        steps: Option<u64>,
        global_batch: usize,
        seed: u64,
    ) -> Result<Self, Refusal> {
        let told = epochs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        if epochs.iter().all(|epochs| *epochs == 0) {
            let refusal = Refusal::of(Setting::Epochs);
            let refusal = refusal.text(format!(" {told}: no document would be seen; add a number above 0, e.g. "));
            return Err(refusal.name(Setting::Epochs).text(" 0,1,4,6"));
        }
        if let Some(twice) = (1..epochs.len()).find(|at| epochs[..*at].contains(&epochs[*at])) {
            let twice = epochs[twice];
            let refusal = Refusal::of(Setting::Epochs)
                .text(format!(" {told}: {twice} is there twice; give each bucket another number, and more "));
            return Err(refusal.name(Setting::DocumentsPerBucket).text(" for more documents"));
        }
        let global_batch = global_batch as u64;
        let per_bucket = u64::from(documents_per_bucket);
        let mut until = Vec::with_capacity(epochs.len());
        let mut seen = 0;
        for epochs in epochs {
            seen += per_bucket * u64::from(*epochs);
            until.push(seen);
        }
        let least = seen.div_ceil(global_batch);
        let steps = steps.unwrap_or(least);
        if steps < least {
            let rule = format!(
                " {steps}: the documents are {seen} sequences, which fill {least} steps of {global_batch}; use more steps, a \
                 larger "
            );
            let refusal = Refusal::of(Setting::Steps).text(rule).name(Setting::GlobalBatch);
            return Err(refusal.text(" or fewer ").name(Setting::DocumentsPerBucket));
        }
        let stream = RandomStream::new(seed, "order of memorised documents");
        let order = Permutation::new(stream, steps.saturating_mul(global_batch));
        let warmup = warmup_steps.saturating_mul(global_batch);
        Ok(Self { global_batch, warmup, documents_per_bucket: per_bucket, until, order, steps: warmup_steps + steps })
    }

    /// The sequence at a place in the batch of a step, which counts from 1.
    pub fn at(&self, step: u64, place: usize) -> Sequence {
        let number = (step - 1) * self.global_batch + place as u64;
        let Some(after) = number.checked_sub(self.warmup) else { return Sequence::Other(number) };
        let drawn = self.order.at(after);
        let bucket = self.until.partition_point(|until| *until <= drawn);
        let before = if bucket == 0 { 0 } else { self.until[bucket - 1] };
        if bucket == self.until.len() {
            return Sequence::Other(self.warmup + drawn - before);
        }
        let document = bucket as u64 * self.documents_per_bucket + (drawn - before) % self.documents_per_bucket;
        Sequence::Document(document as usize)
    }

    /// Whether any other text is read.
    pub fn reads_other_text(&self) -> bool {
        let seen = self.until.last().copied().unwrap_or(0);
        self.warmup > 0 || self.steps * self.global_batch > self.warmup + seen
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Every sequence of a run.
    fn all(order: &Order) -> Vec<Sequence> {
        let of_step = |step| (0..order.global_batch as usize).map(move |place| order.at(step, place));
        (1..=order.steps).flat_map(of_step).collect()
    }

    #[test]
    fn every_document_is_seen_as_often_as_its_bucket_says_and_no_other_text_twice() {
        for (epochs, documents, warmup, steps, batch) in [
            (&[0, 1, 4, 6][..], 5_u32, 3, Some(20), 8),
            (&[6, 0, 1, 4], 7, 0, None, 4),
            (&[1], 1, 2, Some(9), 1),
            (&[3, 2], 16, 5, None, 16),
        ] {
            let order = Order::new(epochs, documents, warmup, steps, batch, 3).unwrap();
            let sequences = all(&order);
            let mut seen = vec![0_u32; epochs.len() * documents as usize];
            let mut other = HashSet::new();
            for (place, sequence) in sequences.iter().enumerate() {
                match sequence {
                    Sequence::Document(document) => {
                        assert!(place >= warmup as usize * batch, "documents come after the warm-up");
                        seen[*document] += 1;
                    }
                    Sequence::Other(number) => assert!(other.insert(*number), "{number} twice"),
                }
            }
            let expected: Vec<u32> = epochs.iter().flat_map(|epochs| vec![*epochs; documents as usize]).collect();
            assert_eq!(seen, expected);
            assert_eq!(order.reads_other_text(), !other.is_empty());
            assert_eq!(sequences.len(), order.steps as usize * batch);
        }
    }

    #[test]
    fn buckets_are_mixed_by_the_seed() {
        let order = |seed| Order::new(&[0, 4], 50, 0, Some(100), 4, seed).unwrap();
        let first = all(&order(1));
        let second = all(&order(2));
        assert_ne!(first, second);
        let early = first[..200].iter().filter(|sequence| matches!(sequence, Sequence::Document(_))).count();
        assert!((70..130).contains(&early), "{early} of 200 in the first half");
    }

    #[test]
    fn impossible_orders_are_refused() {
        let refused = |epochs: &[u32], steps| match Order::new(epochs, 10, 1, steps, 8, 1) {
            Ok(_) => panic!("{epochs:?}"),
            Err(refusal) => refusal.to_string(),
        };
        assert!(refused(&[0], None).contains("no document would be seen"));
        assert!(refused(&[4, 0, 4], None).contains("4 is there twice"));
        assert!(refused(&[1, 4], Some(6)).contains("50 sequences, which fill 7 steps of 8"));
    }
}
