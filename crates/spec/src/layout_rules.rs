//! The rules of a layout. Every refusal names the rule; what would keep it is found by trying (`remedy.rs`).

use crate::error::common_divisor;
use crate::layout::MAX_GLOBAL_BATCH;
use crate::remedy::{Broken, Change, Values, Way};
use crate::{Activations, Axis, Field, Layout, Linear, Model, Recompute, Schedule};

/// Nothing, or the rule that is broken.
pub(crate) type Kept = Result<(), Broken>;

impl Layout {
    /// Every rule.
    pub(crate) fn check(&self, model: &Model) -> Kept {
        self.check_heads(model)?;
        self.check_linear(model)?;
        self.check_weights(model)?;
        self.check_context(model)?;
        self.check_batch()?;
        self.check_rows(model)?;
        self.check_pipeline(model)?;
        self.check_recompute(model)
    }

    /// The rules of a layout that no pass over rows of its own breaks: those of what cuts weights and the batch.
    pub(crate) fn check_sizes(&self, model: &Model) -> Kept {
        self.check_heads(model)?;
        self.check_weights(model)?;
        self.check_batch()
    }

    /// x cuts the heads, the perceptron, and keys and values in whole heads: each rank holds several of them, or a copy
    /// of one.
    fn check_heads(&self, model: &Model) -> Kept {
        let (x, keys) = (self.grid.size(Axis::X), model.kv_heads);
        let cut = [("heads", model.heads), ("the perceptron's width", model.ffn)];
        Broken::check_divides(Axis::X, x, &cut)?;
        if keys.is_multiple_of(x) || x.is_multiple_of(keys) {
            return Ok(());
        }
        let rule = format!("it must divide kv_heads = {keys}, or be a multiple of it: each rank holds whole keys");
        let ways = vec![Way::sizes(Axis::X, x, Values::Divisors(common_divisor(&cut)))];
        Err(Broken::new(Axis::X, x, rule, ways))
    }

    /// SUMMA cuts activations over both axes, and every contraction into panels that lie on one rank of either.
    fn check_linear(&self, model: &Model) -> Kept {
        if self.linear == Linear::Pmm {
            return Ok(());
        }
        if self.activations == Activations::Replicated {
            let ways = [Change::to(Field::Activations, Activations::Scattered), Change::to(Field::Linear, Linear::Pmm)];
            let rule = "SUMMA cuts activations over x and y";
            return Err(Broken::new(Field::Activations, "replicated", rule, ways.map(Way::Choice).to_vec()));
        }
        let [x, y] = [Axis::X, Axis::Y].map(|axis| self.grid.size(axis));
        let cut = [("hidden", model.hidden), ("the perceptron's width", model.ffn)];
        Broken::check_divides(Axis::Y, y, &cut)?;
        let panels = self.summa_panels;
        if panels == 0 || !panels.is_multiple_of(x) || !panels.is_multiple_of(y) {
            let rule = format!("a panel lies on one rank of x={x} and one of y={y}");
            let near = Way::sizes(Field::SummaPanels, panels, Values::Divisors(common_divisor(&cut)));
            return Err(Broken::new(Field::SummaPanels, panels, rule, vec![near]));
        }
        Broken::check_divides(Field::SummaPanels, panels, &cut)
    }

    /// y cuts the residual stream, and z every weight tile once more, flat; where ranks hold copies of keys, z takes whole
    /// rows of them.
    fn check_weights(&self, model: &Model) -> Kept {
        let [x, y, z] = [Axis::X, Axis::Y, Axis::Z].map(|axis| self.grid.size(axis));
        let (h, f) = (model.hidden, model.ffn);
        Broken::check_divides(Axis::Y, y, &[("hidden", h)])?;
        let mut tiles = vec![
            ("the tile of the qkv weight", (h / y) * (self.qkv_width(model) / x)),
            ("the tile of the projection weight", (h / x) * (h / y)),
            ("the tile of the up weight", (h / y) * (model.up_width() / x)),
            ("the tile of the down weight", (f * h) / (x * y)),
        ];
        tiles.push(match model.patch_values {
            None => ("the tile of the embedding table", self.padded_vocab(model) / (x * y) * h),
            // Cut like the residual stream's columns; the head's is as large.
            Some(values) => ("the tile of the embedding weight", values * (h / self.residual_cut())),
        });
        if self.kv_copies(model) > 1 {
            tiles.push(("the rows of the qkv weight's tile (x copies keys)", h / y));
        }
        Broken::check_divides(Axis::Z, z, &tiles)
    }

    /// Ranks that cut the columns of the residual stream.
    fn residual_cut(&self) -> usize {
        self.grid.size(if self.linear == Linear::Summa { Axis::X } else { Axis::Y })
    }

    /// Every rank of the context axis holds two equal chunks of a sequence, so that causal work is equal.
    fn check_context(&self, model: &Model) -> Kept {
        let context = self.grid.size(Axis::Context);
        if context == 1 || self.seq_len.is_multiple_of(2 * context) {
            return Ok(());
        }
        let rule = format!("context={context} cuts a sequence into {} equal pieces, two for each rank", 2 * context);
        let ways = vec![
            Way::sizes(Field::SeqLen, self.seq_len, Values::Multiples(2 * context, model.seq_len)),
            Way::sizes(Axis::Context, context, Values::Divisors(self.seq_len)),
        ];
        Err(Broken::new(Field::SeqLen, self.seq_len, rule, ways))
    }

    fn check_batch(&self) -> Kept {
        let (data, z) = (self.grid.size(Axis::Data), self.grid.size(Axis::Z));
        let batch = self.global_batch;
        if !batch.is_multiple_of(data) {
            let ways = vec![self.batches(data), Way::sizes(Axis::Data, data, Values::Divisors(batch))];
            return Err(Broken::new(Field::GlobalBatch, batch, format!("it must be a multiple of data={data}"), ways));
        }
        let share = batch / data;
        if !share.is_multiple_of(self.microbatch) {
            let rule = format!("it must divide the {share} sequences of a data rank (global-batch / data)");
            return Err(self.cut_unevenly(rule, vec![]));
        }
        if !self.microbatch.is_multiple_of(z) {
            let rule = format!("it must be a multiple of z={z}, over which it is split");
            let divisors = Way::sizes(Axis::Z, z, Values::Divisors(self.microbatch));
            return Err(self.cut_unevenly(rule, vec![divisors]));
        }
        Ok(())
    }

    /// Batches near the present one that so many sequences divide.
    fn batches(&self, unit: usize) -> Way {
        Way::sizes(Field::GlobalBatch, self.global_batch, Values::Multiples(unit, MAX_GLOBAL_BATCH))
    }

    /// A microbatch that something does not divide: other microbatches, batches of which each data rank takes as many
    /// sequences as are cut, or of whole microbatches, then other ways.
    fn cut_unevenly(&self, rule: String, others: Vec<Way>) -> Broken {
        let data = self.grid.size(Axis::Data);
        let mut ways = vec![
            Way::sizes(Field::Microbatch, self.microbatch, Values::Divisors(self.global_batch / data)),
            self.batches(data * self.sequence_unit()),
            self.batches(data.saturating_mul(self.microbatch)),
        ];
        ways.extend(others);
        Broken::new(Field::Microbatch, self.microbatch, rule, ways)
    }

    /// What cuts the sequences of a pass beside z, and what cuts its rows over x.
    fn check_rows(&self, model: &Model) -> Kept {
        let [x, y, z] = [Axis::X, Axis::Y, Axis::Z].map(|axis| self.grid.size(axis));
        let chunks = self.overlap_chunks;
        let replicated = Way::Choice(Change::to(Field::Activations, Activations::Replicated));
        let fewer_chunks = Way::sizes(Field::OverlapChunks, chunks, Values::Divisors(chunks));
        if !(self.microbatch / z).is_multiple_of(chunks) {
            let rule = format!("z={z} and {chunks} overlap chunks split its sequences");
            return Err(self.cut_unevenly(rule, vec![fewer_chunks]));
        }
        if self.scatters_rows() && !(self.microbatch / z / chunks).is_multiple_of(y) {
            let (by, factors) = match chunks {
                1 => ("z*y", format!("{z}*{y}")),
                _ => ("z*y*overlap-chunks", format!("{z}*{y}*{chunks}")),
            };
            let rule = format!("scattered activations split its sequences over {by} = {factors}");
            return Err(self.cut_unevenly(rule, vec![replicated, fewer_chunks]));
        }
        let rows = self.rows() / chunks;
        let scattered = self.activations == Activations::Scattered;
        if self.linear == Linear::Pmm && (scattered || self.grid.size(Axis::Pipe) > 1) && !rows.is_multiple_of(x) {
            let what = if scattered { "scattered activations split" } else { "the transfer between stages splits" };
            let rule = format!("{what} its {rows} token rows over x={x}");
            let context = self.grid.size(Axis::Context);
            let pieces = if context == 1 { 1 } else { 2 * context };
            let whole = self.batches(self.grid.size(Axis::Data) * self.sequence_unit() * x);
            let shorter = Way::sizes(Field::SeqLen, self.seq_len, Values::Multiples(pieces, model.seq_len));
            let fewer = Way::sizes(Axis::X, x, Values::Divisors(x));
            return Err(self.cut_unevenly(rule, vec![replicated, whole, shorter, fewer]));
        }
        Ok(())
    }

    /// Pieces of layers, and the microbatches that a schedule can order.
    fn check_pipeline(&self, model: &Model) -> Kept {
        let (stages, pieces) = (self.grid.size(Axis::Pipe), self.pieces());
        let interleaved = self.schedule == Schedule::Interleaved;
        if self.chunks > 1 && (!interleaved || stages == 1) {
            let rule = "only the interleaved schedule on at least 2 stages has several chunks";
            let ways = [Change::to(Field::Schedule, Schedule::Interleaved), Change::Set(Field::Chunks, 1.into())];
            return Err(Broken::new(Field::Chunks, self.chunks, rule, ways.map(Way::Choice).to_vec()));
        }
        if interleaved {
            self.check_interleaved(stages)?;
        }
        let blocks = &self.stage_blocks;
        let shown = 32.min(blocks.len());
        let mut listed = blocks[..shown].iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        if shown < blocks.len() {
            listed += ",...";
        }
        let even = vec![Way::Choice(Change::Leave(Field::StageBlocks))];
        if blocks.len() != pieces || blocks.iter().try_fold(0_usize, |sum, n| sum.checked_add(*n)) != Some(model.layers)
        {
            let rule = format!("it lists {pieces} pieces (pipe * chunks) that add up to {} layers", model.layers);
            return Err(Broken::new(Field::StageBlocks, listed, rule, even));
        }
        // The first piece has the embedding, the last the head.
        if blocks.iter().skip(1).take(pieces.saturating_sub(2)).any(|blocks| *blocks == 0) {
            let rule = format!("every piece but the first and the last of {pieces} has at least one block");
            return Err(Broken::new(Field::StageBlocks, listed, rule, even));
        }
        Ok(())
    }

    /// The last group of microbatches has to be as long as the pipeline (Megatron-LM's rule).
    fn check_interleaved(&self, stages: usize) -> Kept {
        let (group, microbatches) = (self.microbatch_group, self.microbatches());
        if stages > microbatches {
            let rule =
                format!("the interleaved schedule needs at least pipe={stages} microbatches, and has {microbatches}");
            let plain = Way::Choice(Change::to(Field::Schedule, Schedule::OneForwardOneBackward));
            return Err(self.cut_unevenly(rule, vec![plain]));
        }
        let rest = if group == 0 { 0 } else { microbatches % group };
        if group < stages || group > microbatches || (rest != 0 && rest < stages) {
            let rule = format!("groups of {microbatches} microbatches, the last too, have at least pipe={stages}");
            let near = Way::sizes(Field::MicrobatchGroup, group, Values::Multiples(1, microbatches));
            let ways = vec![near, Way::Choice(Change::to(Field::Schedule, Schedule::OneForwardOneBackward))];
            return Err(Broken::new(Field::MicrobatchGroup, group, rule, ways));
        }
        Ok(())
    }

    fn check_recompute(&self, model: &Model) -> Kept {
        if let Recompute::Full { every } = self.recompute
            && every > model.layers
        {
            let rule = format!("it keeps the input of every {every}-th block, and the model has {}", model.layers);
            let longest = Change::to(Field::Recompute, Recompute::Full { every: model.layers });
            return Err(Broken::new(Field::Recompute, self.recompute, rule, vec![Way::Choice(longest)]));
        }
        if self.keep_communicated && self.recompute == Recompute::None {
            let ways = [Change::to(Field::Recompute, Recompute::Selective), Change::Leave(Field::Cac)];
            let rule = "it says what recomputation keeps; nothing is recomputed";
            return Err(Broken::new(Field::Cac, "on", rule, ways.map(Way::Choice).to_vec()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LayoutRequest;

    fn model() -> Model {
        Model::gpt(1, 12, 6, 17, 6)
    }

    fn request(grid: &str, global_batch: usize) -> LayoutRequest {
        LayoutRequest::new(grid.parse().unwrap(), global_batch)
    }

    #[test]
    fn sizes_that_are_no_powers_of_two_are_possible() {
        let layout = Layout::new(&model(), &request("x=3,y=2,data=2", 8)).unwrap();
        assert_eq!((layout.rows(), layout.microbatches(), layout.padded_vocab(&model())), (24, 1, 18));
    }

    #[test]
    fn refusals_name_rule_and_remedy() {
        let message = |grid, batch| Layout::new(&model(), &request(grid, batch)).unwrap_err().to_string();
        assert_eq!(message("x=4", 4), "x=4 does not divide heads = 6; try x=3 or 6");
        assert_eq!(message("y=5", 60), "y=5 does not divide hidden = 12; try y=4 or 6");
        assert!(message("data=3", 4).ends_with("multiple of data=3; try --global-batch 3 or 6"));
        assert!(message("z=4", 6).contains("multiple of z=4, over which it is split; try --global-batch 4 or 8"));
        assert!(message("y=2", 3).ends_with("z*y = 1*2; try --global-batch 2 or 4"));
        let long = LayoutRequest { seq_len: Some(7), ..request("x=1", 1) };
        assert!(Layout::new(&model(), &long).unwrap_err().to_string().contains("6 positions"));
        let odd = LayoutRequest { microbatch: Some(3), ..request("x=1", 8) };
        assert!(Layout::new(&model(), &odd).unwrap_err().to_string().ends_with("try --microbatch 2 or 4"));
        // A share of 12 in multiples of z*y = 2: 2, 4, 6 and 12 are possible, 3 and 8 are not.
        for (microbatch, remedy) in [(3, "try --microbatch 2 or 4"), (8, "try --microbatch 6 or 12")] {
            let request = LayoutRequest { microbatch: Some(microbatch), ..request("z=2", 12) };
            let message = Layout::new(&model(), &request).unwrap_err().to_string();
            assert!(message.ends_with(remedy), "{message}");
        }
        let none = LayoutRequest { microbatch: Some(0), ..request("x=1", 8) };
        assert!(
            Layout::new(&model(), &none).unwrap_err().to_string().starts_with("microbatch = 0: it must be at least 1")
        );
    }

    #[test]
    fn remedies_keep_all_rules_of_their_axis() {
        // 6 divides the heads, too, but not the perceptron.
        let narrow = Model { ffn: 15, ..model() };
        let message =
            |model: &Model, grid: &str, batch| Layout::new(model, &request(grid, batch)).unwrap_err().to_string();
        assert_eq!(message(&narrow, "x=4", 4), "x=4 does not divide heads = 6; try x=3");
        assert_eq!(message(&narrow, "x=2", 4), "x=2 does not divide the perceptron's width = 15; try x=1 or 3");
        // z: 432, 144, 576 and 17 * 12 = 204 have the divisors of 12 in common, those with 20 sequences are 1, 2, 4.
        assert_eq!(message(&model(), "z=5", 20), "z=5 does not divide the tile of the qkv weight = 432; try z=4");
        assert_eq!(message(&model(), "z=5", 24), "z=5 does not divide the tile of the qkv weight = 432; try z=4 or 6");
        // y = 2 takes half of the sequences: z = 4 would leave 6 of 24 for it, 2 * 4 does not divide 20.
        assert!(message(&model(), "y=2,z=5", 20).ends_with("try z=2"), "{}", message(&model(), "y=2,z=5", 20));
        assert!(Layout::new(&model(), &request("y=2,z=2", 20)).is_ok());
    }

    #[test]
    fn keys_are_held_whole_or_copied_whole() {
        let grouped = Model { heads: 12, kv_heads: 4, ffn: 48, ..model() };
        let message = |grid: &str| Layout::new(&grouped, &request(grid, 12)).unwrap_err().to_string();
        let rule = "it must divide kv_heads = 4, or be a multiple of it: each rank holds whole keys";
        assert_eq!(message("x=3"), format!("x = 3: {rule}; try x=2 or 4"));
        assert_eq!(message("x=6"), format!("x = 6: {rule}; try x=4 or 12"));
        assert_eq!(message("x=5"), "x=5 does not divide heads = 12; try x=4 or 12");
        let layout = |grid: &str| Layout::new(&grouped, &request(grid, 12)).unwrap();
        let held =
            |layout: &Layout| (layout.kv_heads(&grouped), layout.kv_copies(&grouped), layout.group_heads(&grouped));
        assert_eq!((held(&layout("x=2")), layout("x=2").qkv_width(&grouped)), ((4, 1, 3), 20));
        assert_eq!((held(&layout("x=12")), layout("x=12").qkv_width(&grouped)), ((12, 3, 1), 36));
        // A tile of 12 rows and (1 + 2) columns: 4 rows for each z rank.
        assert!(Layout::new(&grouped, &request("x=12,z=3", 12)).is_ok());
        let message =
            Layout::new(&Model { kv_heads: 1, ..model() }, &request("x=2,y=4,z=2", 16)).unwrap_err().to_string();
        let rows = "z=2 does not divide the rows of the qkv weight's tile (x copies keys) = 3; try z=1";
        assert_eq!(message, rows);
    }

    #[test]
    fn some_faults_do_not_depend_on_the_grid() {
        let fault = |change: fn(&mut LayoutRequest)| {
            let mut request = request("x=1", 8);
            change(&mut request);
            request.check_without_grid(&model(), 8).unwrap_err().to_string()
        };
        assert!(fault(|request| request.global_batch = 0).starts_with("global-batch = 0"));
        assert!(
            fault(|request| request.seq_len = Some(7))
                .starts_with("seq-len = 7: it must be 1 to 6: the model has 6 positions")
        );
        assert!(fault(|request| request.per_node = Some(0)).starts_with("per-node = 0"));
        let nodes = fault(|request| request.per_node = Some(3));
        assert_eq!(nodes, "per-node=3 does not divide the number of ranks = 8; try --per-node 2 or 4");
        assert_eq!(request("x=5", 3).check_without_grid(&model(), 5), Ok(()));
    }

    #[test]
    fn pipelines_split_layers_and_order_microbatches() {
        let model = Model { layers: 8, ..model() };
        let layout = Layout::new(&model, &request("pipe=3", 8)).unwrap();
        assert_eq!((layout.stage_blocks.as_slice(), layout.microbatch), (&[3, 3, 2][..], 1));
        assert_eq!(layout.blocks_of(1), 3..6);
        let refused = |change: &dyn Fn(&mut LayoutRequest)| {
            let mut request = request("pipe=2", 6);
            change(&mut request);
            Layout::new(&model, &request).unwrap_err().to_string()
        };
        assert!(refused(&|r| r.chunks = 2).starts_with("chunks = 2: only the interleaved schedule"));
        assert!(refused(&|r| r.stage_blocks = Some(vec![5, 4])).contains("add up to 8 layers"));
        assert!(refused(&|r| r.grid = "pipe=16".parse().unwrap()).contains("at most 10 pieces"));
        assert!(refused(&|r| r.stage_blocks = Some(vec![8])).contains("it lists 2 pieces"));
        for huge in [11, usize::MAX] {
            assert!(
                refused(&|r| (r.schedule, r.chunks) = (Schedule::Interleaved, huge)).contains("it must be 1 to 10")
            );
            assert!(refused(&|r| r.overlap_chunks = huge).contains("it must be 1 to 6"));
        }
        let interleaved = |group| {
            move |r: &mut LayoutRequest| {
                (r.schedule, r.chunks, r.microbatch_group) = (Schedule::Interleaved, 2, Some(group));
            }
        };
        // 6 microbatches on 2 stages: groups of 5 leave 1.
        assert!(refused(&interleaved(5)).ends_with("try --microbatch-group 4 or 6"), "{}", refused(&interleaved(5)));
        assert!(refused(&interleaved(0)).ends_with("try --microbatch-group 2"));
        assert!(refused(&|r| r.keep_communicated = true).starts_with("cac = on"));
    }

    #[test]
    fn context_and_panels_are_held_against_the_sizes() {
        let message = |request: &LayoutRequest| Layout::new(&model(), request).unwrap_err().to_string();
        assert!(message(&request("context=2", 2)).starts_with("seq-len = 6: context=2 cuts a sequence into 4"));
        assert!(Layout::new(&model(), &request("context=3", 2)).is_ok());
        let summa = |panels| LayoutRequest { linear: Linear::Summa, summa_panels: panels, ..request("x=3,y=2", 4) };
        assert_eq!(Layout::new(&model(), &summa(None)).unwrap().summa_panels, 6);
        assert!(message(&summa(Some(4))).ends_with("try --summa-panels 6"));
        assert!(message(&summa(Some(18))).starts_with("summa-panels=18 does not divide hidden = 12"));
        let chunked = LayoutRequest { overlap_chunks: 4, microbatch: Some(6), ..request("x=1", 24) };
        assert!(message(&chunked).contains("overlap chunks split"));
    }
}
