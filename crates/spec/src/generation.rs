//! The layout in which a layout's ranks generate tokens.

use crate::remedy::Broken;
use crate::{
    Activations, Axis, Dispatch, EvenPieces, KeepWeights, Layout, Linear, Model, Offload, Overlap, Recompute, Schedule,
    SpecError, Zero,
};

impl Layout {
    /// The layout in which these ranks generate: passes of `tokens` tokens of at least `sequences` sequences.
    ///
    /// x, y, z and pipe stay what they are, with z gathering weights for each use. Ranks along context and expert become data
    /// ranks, with sequences of their own: a pass of one token has nothing to cut. Activations are replicated and products of
    /// whole tiles, so that x and y need not divide the few rows of a pass. There are as many sequences as data and z
    /// divide, at least as many as asked for. In a pipeline they pass in as many microbatches as there are stages, or the
    /// next fewer that divide a rank's sequences. What concerns the backward pass and the optimizer is off.
    ///
    /// # Errors
    /// Sizes that the model does not allow, or too many sequences.
    pub fn for_generation(&self, model: &Model, sequences: usize, tokens: usize) -> Result<Self, SpecError> {
        let data = self.grid.size(Axis::Context) * self.grid.batch_shares();
        let grid = self.grid.with(Axis::Context, 1)?.with(Axis::Expert, 1)?.with(Axis::Data, data)?;
        let [data, z, pipe] = [Axis::Data, Axis::Z, Axis::Pipe].map(|axis| grid.size(axis));
        if sequences == 0 || sequences > 1 << 20 {
            let remedy = "give at least one prompt, and at most 1048576 at a time";
            return Err(SpecError::invalid("prompts", sequences, "each is a sequence of a pass", remedy));
        }
        if tokens == 0 || tokens > model.seq_len {
            let rule = format!("the model has {} positions", model.seq_len);
            return Err(SpecError::invalid("tokens of a pass", tokens, rule, "use 1 to as many"));
        }
        let global_batch = sequences.next_multiple_of(data * z);
        let of_rank = global_batch / data / z;
        let microbatches = (1..=pipe.min(of_rank)).rev().find(|count| of_rank.is_multiple_of(*count)).unwrap_or(1);
        let stage_blocks = match self.chunks {
            1 => self.stage_blocks.clone(),
            _ => EvenPieces::new(model.layers(), pipe, 1).blocks().collect(),
        };
        let layout = Self {
            grid,
            per_node: self.per_node,
            activations: Activations::Replicated,
            linear: Linear::Pmm,
            summa_panels: 1,
            overlap: Overlap { all_reduce: false, reduce_scatter: false, ..self.overlap },
            overlap_chunks: 1,
            schedule: Schedule::OneForwardOneBackward,
            chunks: 1,
            microbatch_group: pipe,
            stage_blocks,
            recompute: Recompute::None,
            keep_communicated: false,
            zero: Zero::Off,
            keep_weights: KeepWeights::Use,
            offload: Offload::None,
            bucket: Self::BUCKET,
            optimizer_overlap: false,
            expert_rows: 0,
            vocab_multiple: self.vocab_multiple,
            experts_over: self.experts_over.without(Axis::Context.only().union(Axis::Expert.only())),
            dispatch: Dispatch::Dropped,
            global_batch,
            microbatch: of_rank / microbatches * z,
            seq_len: tokens,
            dtype: self.dtype,
            gradients: self.gradients,
        };
        layout.check_sizes(model).map_err(Broken::untried)?;
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use crate::LayoutRequest;

    use super::*;

    fn generating(grid: &str, sequences: usize) -> Layout {
        let model = Model::gpt(4, 12, 6, 10, 6);
        let request = LayoutRequest::new(grid.parse().unwrap(), 48);
        Layout::new(&model, &request).unwrap().for_generation(&model, sequences, 1).unwrap()
    }

    #[test]
    fn ranks_stay_as_many_and_data_and_z_divide_the_sequences() {
        for (grid, sequences, batch, microbatches) in [
            ("x=2,y=2", 1, 1, 1),
            ("z=2,data=2", 3, 4, 1),
            ("context=3,data=2", 1, 6, 1),
            ("context=3,expert=2", 1, 6, 1),
            ("x=3,pipe=2", 4, 4, 2),
            ("pipe=2", 5, 5, 1),
            ("pipe=4", 6, 6, 3),
        ] {
            let layout = generating(grid, sequences);
            assert_eq!(layout.grid.ranks(), grid.parse::<crate::Grid>().unwrap().ranks());
            assert_eq!((layout.global_batch, layout.microbatches()), (batch, microbatches), "{grid}");
        }
    }
}
