//! What a GPU sends for rows at experts, by how they get there; sections 7.1 and 7.3.

/// How rows of tokens get to experts and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dispatch {
    /// All rows from every GPU of a tensor parallel group, which have the same: the baseline of section 7.1.
    Duplicated,
    /// A part from each of them, gathered at the experts: duplicate token dropping as section 7.3.1 has it, with the
    /// all-reduce after the experts.
    Dropped,
    /// The same with a reduce-scatter in the place of the all-reduce, since each GPU sends back its part alone: not in the
    /// dissertation.
    DroppedAndScattered,
}

/// Elements that a GPU sends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sent {
    /// By all-to-alls, to its expert parallel group.
    pub all_to_all: f64,
    /// By all-gathers, all-reduces and reduce-scatters of rows at experts, to its tensor parallel group.
    pub tensor: f64,
}

impl Sent {
    /// To both groups.
    pub fn all(&self) -> f64 {
        self.all_to_all + self.tensor
    }

    /// What is sent in so many passes.
    pub fn times(self, passes: f64) -> Self {
        Self { all_to_all: passes * self.all_to_all, tensor: passes * self.tensor }
    }
}

/// The part of a buffer that a ring of so many GPUs sends of it.
fn ring(gpus: usize) -> f64 {
    1.0 - 1.0 / gpus as f64
}

impl Dispatch {
    /// Elements that a GPU sends in one pass through a block's experts: the forward pass or the backward one, which send
    /// equally much. `elements` are those of all experts' rows from a tensor parallel group, padding of empty places
    /// included: `E C M` in GShard's letters, `C` places of an expert and `M` columns.
    ///
    /// There are two all-to-alls, of `E C M` or with tokens dropped of `E C M/G_t`, each `r(E)` of them. Then an all-reduce
    /// is `2 r(G_t) E C M`, an all-gather or a reduce-scatter half of it. With tokens dropped rows are gathered before the
    /// experts and, on their way back, behind the second all-to-all.
    pub fn sent(self, elements: f64, tensor: usize, expert: usize) -> Sent {
        let (kept, rings) = match self {
            Self::Duplicated => (1.0, 2.0),
            Self::Dropped => (1.0 / tensor as f64, 1.0 + 2.0 + 1.0),
            Self::DroppedAndScattered => (1.0 / tensor as f64, 1.0 + 1.0 + 1.0),
        };
        Sent { all_to_all: 2.0 * ring(expert) * elements * kept, tensor: rings * ring(tensor) * elements }
    }
}

/// Passes of a step that communicate, section 7.3.2: forward, backward and, where activations are `recomputed`, forward
/// again. Communication-aware checkpointing (CAC) has `kept` what the first one received.
pub fn passes(recomputed: bool, kept: bool) -> f64 {
    if recomputed && !kept { 3.0 } else { 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of 4, forward and backward, where `E C M` is 192: a ring of 4 sends 144 of a buffer.
    #[test]
    fn small_groups_by_hand() {
        let sent = |dispatch: Dispatch| {
            let Sent { all_to_all, tensor } = dispatch.sent(192.0, 4, 4).times(passes(false, false));
            [all_to_all, tensor]
        };
        assert_eq!(sent(Dispatch::Duplicated), [576.0, 576.0]);
        assert_eq!(sent(Dispatch::Dropped), [144.0, 1152.0]);
        assert_eq!(sent(Dispatch::DroppedAndScattered), [144.0, 864.0]);
        assert_eq!(Dispatch::Dropped.sent(192.0, 4, 4).all(), 648.0);
    }

    #[test]
    fn without_tensor_groups_there_is_nothing_to_drop() {
        for dispatch in [Dispatch::Duplicated, Dispatch::Dropped, Dispatch::DroppedAndScattered] {
            assert_eq!(dispatch.sent(64.0, 1, 2), Sent { all_to_all: 64.0, tensor: 0.0 });
            assert_eq!(dispatch.sent(64.0, 2, 1).all_to_all, 0.0, "an expert parallel group of one");
        }
    }

    /// A third of what recomputation sends; with tokens dropped `2/(3 G_t)` of all-to-alls are left.
    #[test]
    fn kept_outputs_are_not_sent_again() {
        assert_eq!(
            [passes(false, false), passes(false, true), passes(true, true), passes(true, false)],
            [2.0, 2.0, 2.0, 3.0]
        );
        let all_to_all = |dispatch: Dispatch, kept| dispatch.sent(1.0, 4, 4).times(passes(true, kept)).all_to_all;
        let left = all_to_all(Dispatch::Dropped, true) / all_to_all(Dispatch::Duplicated, false);
        assert!((left - 2.0 / (3.0 * 4.0)).abs() < 1e-12);
    }
}
