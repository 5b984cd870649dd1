//! The rules of a layout. Every refusal names the rule and what would keep it.

use crate::error::greatest_common_divisor;
use crate::{Activations, Axis, Layout, Linear, Model, Recompute, Schedule, SpecError};

impl Layout {
    /// Every rule.
    pub(crate) fn check(&self, model: &Model) -> Result<(), SpecError> {
        self.check_heads(model)?;
        self.check_linear(model)?;
        self.check_weights(model)?;
        self.check_context()?;
        self.check_batch()?;
        self.check_rows()?;
        self.check_pipeline(model)?;
        self.check_recompute(model)
    }

    /// The rules of a layout that no pass over rows of its own breaks: those of what cuts weights and the batch.
    pub(crate) fn check_sizes(&self, model: &Model) -> Result<(), SpecError> {
        self.check_heads(model)?;
        self.check_weights(model)?;
        self.check_batch()
    }

    /// x cuts the heads, the perceptron, and keys and values in whole heads: each rank holds several of them, or a copy
    /// of one.
    fn check_heads(&self, model: &Model) -> Result<(), SpecError> {
        let (x, keys) = (self.grid.size(Axis::X), model.kv_heads);
        let whole_keys = |x: usize| keys.is_multiple_of(x) || x.is_multiple_of(keys);
        let both = greatest_common_divisor(model.heads, model.ffn);
        // Next below and next above; both are below any x that is more than the heads.
        let fits = |size: &usize| both.is_multiple_of(*size) && whole_keys(*size);
        let below = (1..x.min(both + 1)).rev().find(fits);
        let possible: Vec<usize> = below.into_iter().chain((x.saturating_add(1)..=both).find(fits)).collect();
        let cut = [("heads", model.heads), ("the perceptron's width", model.ffn)];
        if let Some((dimension, value)) = cut.into_iter().find(|(_, value)| !value.is_multiple_of(x)) {
            let (axes, dimension) = ("x".to_owned(), dimension.to_owned());
            return Err(SpecError::Indivisible { axes, size: x, dimension, value, possible });
        }
        if whole_keys(x) {
            return Ok(());
        }
        let possible: Vec<String> = possible.iter().map(usize::to_string).collect();
        let rule = format!("it must divide kv_heads = {keys}, or be a multiple of it: each rank holds whole keys");
        Err(SpecError::invalid("x", x, rule, format!("try x={}", possible.join(" or "))))
    }

    /// SUMMA cuts activations over both axes, and every contraction into panels that lie on one rank of either.
    fn check_linear(&self, model: &Model) -> Result<(), SpecError> {
        if self.linear == Linear::Pmm {
            return Ok(());
        }
        if self.activations == Activations::Replicated {
            let rule = "SUMMA cuts activations over x and y";
            return Err(SpecError::invalid("activations", "replicated", rule, "use scattered, or --linear pmm"));
        }
        let [x, y] = [Axis::X, Axis::Y].map(|axis| self.grid.size(axis));
        let (hidden, ffn) = (("hidden", model.hidden), ("the perceptron's width", model.ffn));
        SpecError::check_divides_all("y", y, &[hidden, ffn], 0)?;
        let panels = self.summa_panels;
        if panels == 0 || !panels.is_multiple_of(x) || !panels.is_multiple_of(y) {
            let fewest = (1..=x * y).find(|n| n.is_multiple_of(x) && n.is_multiple_of(y)).unwrap_or(x * y);
            let rule = format!("a panel lies on one rank of x={x} and one of y={y}");
            return Err(SpecError::invalid("summa-panels", panels, rule, format!("use a multiple of {fewest}")));
        }
        SpecError::check_divides_all("summa-panels", panels, &[hidden, ffn], 0)
    }

    /// y cuts the residual stream, and z every weight tile once more, flat; where ranks hold copies of keys, z takes whole
    /// rows of them.
    fn check_weights(&self, model: &Model) -> Result<(), SpecError> {
        let [x, y, z] = [Axis::X, Axis::Y, Axis::Z].map(|axis| self.grid.size(axis));
        let (h, f) = (model.hidden, model.ffn);
        SpecError::check_divides("y", y, "hidden", h)?;
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
        // What z cuts beside weights; a microbatch that the others cannot cut is refused on its own.
        let others = self.sequence_unit() / z;
        let sequences = if self.microbatch.is_multiple_of(others) { self.microbatch / others } else { self.microbatch };
        SpecError::check_divides_all("z", z, &tiles, sequences)
    }

    /// Ranks that cut the columns of the residual stream.
    fn residual_cut(&self) -> usize {
        self.grid.size(if self.linear == Linear::Summa { Axis::X } else { Axis::Y })
    }

    /// Every rank of the context axis holds two equal chunks of a sequence, so that causal work is equal.
    fn check_context(&self) -> Result<(), SpecError> {
        let context = self.grid.size(Axis::Context);
        if context == 1 || self.seq_len.is_multiple_of(2 * context) {
            return Ok(());
        }
        let rule = format!("context={context} cuts a sequence into {} equal pieces, two for each rank", 2 * context);
        let remedy = match self.seq_len / (2 * context) {
            0 => format!("use a context of at most {}", self.seq_len / 2),
            _ => format!("try {}", nearest_multiples(self.seq_len, 2 * context)),
        };
        Err(SpecError::invalid("seq-len", self.seq_len, rule, remedy))
    }

    fn check_batch(&self) -> Result<(), SpecError> {
        let (data, z) = (self.grid.size(Axis::Data), self.grid.size(Axis::Z));
        if !self.global_batch.is_multiple_of(data) {
            return Err(SpecError::invalid(
                "global-batch",
                self.global_batch,
                format!("it must be a multiple of data={data}"),
                format!("try {}", nearest_multiples(self.global_batch, data)),
            ));
        }
        let share = self.global_batch / data;
        if !share.is_multiple_of(self.microbatch) {
            return Err(SpecError::invalid(
                "microbatch",
                self.microbatch,
                format!("it must divide the {share} sequences of a data rank (global-batch / data)"),
                self.microbatch_remedy(),
            ));
        }
        if !self.microbatch.is_multiple_of(z) {
            return Err(SpecError::invalid(
                "microbatch",
                self.microbatch,
                format!("it must be a multiple of z={z}, over which it is split"),
                self.microbatch_remedy() + ", or a z that divides it",
            ));
        }
        Ok(())
    }

    /// Microbatches near the wanted one that keep every rule; if there is none, batches that allow some.
    fn microbatch_remedy(&self) -> String {
        let unit = self.sequence_unit();
        let data = self.grid.size(Axis::Data);
        let share = self.global_batch / data;
        if share < unit || !share.is_multiple_of(unit) {
            let batches = nearest_multiples(self.global_batch, data * unit);
            return format!("try a global-batch of {batches}, of which each data rank takes a multiple of {unit}");
        }
        // Divisors of the share that are multiples of the unit, among them the wanted one if it is possible.
        let wanted = self.microbatch.div_ceil(unit);
        let mut possible = crate::nearest_divisors(share / unit, wanted);
        if (share / unit).is_multiple_of(wanted.max(1)) {
            possible.push(wanted);
        }
        possible.sort_unstable();
        format!("try {}", possible.iter().map(|each| (each * unit).to_string()).collect::<Vec<_>>().join(" or "))
    }

    /// What cuts the sequences of a pass beside z, and what cuts its rows over x.
    fn check_rows(&self) -> Result<(), SpecError> {
        let [x, y, z] = [Axis::X, Axis::Y, Axis::Z].map(|axis| self.grid.size(axis));
        let chunks = self.overlap_chunks;
        if !(self.microbatch / z).is_multiple_of(chunks) {
            let rule = format!("z={z} and {chunks} overlap chunks split its sequences");
            return Err(SpecError::invalid("microbatch", self.microbatch, rule, self.microbatch_remedy()));
        }
        if self.scatters_rows() && !(self.microbatch / z / chunks).is_multiple_of(y) {
            let (by, factors) = match chunks {
                1 => ("z*y", format!("{z}*{y}")),
                _ => ("z*y*overlap-chunks", format!("{z}*{y}*{chunks}")),
            };
            let remedy = match self.linear {
                Linear::Pmm => self.microbatch_remedy() + ", or --activations replicated",
                Linear::Summa => self.microbatch_remedy(),
            };
            let rule = format!("scattered activations split its sequences over {by} = {factors}");
            return Err(SpecError::invalid("microbatch", self.microbatch, rule, remedy));
        }
        let rows = self.rows() / chunks;
        let scattered = self.linear == Linear::Pmm && self.activations == Activations::Scattered;
        if (scattered || self.grid.size(Axis::Pipe) > 1) && self.linear == Linear::Pmm && !rows.is_multiple_of(x) {
            let (what, remedy) = match scattered {
                true => {
                    ("scattered activations split", "use another microbatch or seq-len, or --activations replicated")
                }
                false => ("the transfer between stages splits", "use another microbatch or seq-len"),
            };
            let rule = format!("{what} its {rows} token rows over x={x}");
            return Err(SpecError::invalid("microbatch", self.microbatch, rule, remedy));
        }
        Ok(())
    }

    /// Pieces of layers, and the microbatches that a schedule can order.
    fn check_pipeline(&self, model: &Model) -> Result<(), SpecError> {
        let (stages, pieces) = (self.grid.size(Axis::Pipe), self.pieces());
        let interleaved = self.schedule == Schedule::Interleaved;
        if self.chunks > 1 && (!interleaved || stages == 1) {
            let rule = "only the interleaved schedule on at least 2 stages has several chunks";
            let remedy = "use --schedule interleaved and pipe >= 2, or --chunks 1";
            return Err(SpecError::invalid("chunks", self.chunks, rule, remedy));
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
        if blocks.len() != pieces || blocks.iter().try_fold(0_usize, |sum, n| sum.checked_add(*n)) != Some(model.layers)
        {
            let rule = format!("it lists {pieces} pieces (pipe * chunks) that add up to {} layers", model.layers);
            return Err(SpecError::invalid("stage-blocks", listed, rule, "leave it out for equal pieces"));
        }
        // The first piece has the embedding, the last the head.
        if blocks.iter().skip(1).take(pieces.saturating_sub(2)).any(|blocks| *blocks == 0) {
            let rule = format!("every piece but the first and the last of {pieces} has at least one block");
            return Err(SpecError::invalid("stage-blocks", listed, rule, "use fewer stages or chunks"));
        }
        Ok(())
    }

    /// The last group of microbatches has to be as long as the pipeline (Megatron-LM's rule).
    fn check_interleaved(&self, stages: usize) -> Result<(), SpecError> {
        let (group, microbatches) = (self.microbatch_group, self.microbatches());
        if stages > microbatches {
            let rule =
                format!("the interleaved schedule needs at least pipe={stages} microbatches, and has {microbatches}");
            let remedy = "use a smaller microbatch, a larger global-batch, or --schedule 1f1b";
            return Err(SpecError::invalid("microbatch", self.microbatch, rule, remedy));
        }
        let rest = if group == 0 { 0 } else { microbatches % group };
        if group < stages || group > microbatches || (rest != 0 && rest < stages) {
            let legal = |n: &usize| microbatches % n == 0 || microbatches % n >= stages;
            let near = |n: &usize| (n.abs_diff(group), *n);
            let mut possible: Vec<usize> = (stages..=microbatches).filter(legal).collect();
            possible.sort_by_key(near);
            possible.truncate(4);
            possible.sort_unstable();
            let possible: Vec<String> = possible.into_iter().map(|n| n.to_string()).collect();
            let rule = format!("groups of {microbatches} microbatches, the last too, have at least pipe={stages}");
            return Err(SpecError::invalid("microbatch-group", group, rule, format!("try {}", possible.join(" or "))));
        }
        Ok(())
    }

    fn check_recompute(&self, model: &Model) -> Result<(), SpecError> {
        if let Recompute::Full { every } = self.recompute
            && every > model.layers
        {
            let rule = format!("it keeps the input of every {every}-th block, and the model has {}", model.layers);
            let remedy = format!("use at most full:{}", model.layers);
            return Err(SpecError::invalid("recompute", self.recompute, rule, remedy));
        }
        if self.keep_communicated && self.recompute == Recompute::None {
            let remedy = "use --recompute selective or full, or leave --cac out";
            return Err(SpecError::invalid(
                "cac",
                "on",
                "it says what recomputation keeps; nothing is recomputed",
                remedy,
            ));
        }
        Ok(())
    }
}

/// "6 or 8": the multiples of `unit` around `value`.
fn nearest_multiples(value: usize, unit: usize) -> String {
    let below = value / unit * unit;
    match below {
        0 => unit.to_string(),
        _ => format!("{below} or {}", below + unit),
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
        assert_eq!(message("y=5", 5), "y=5 does not divide hidden = 12; try y=4 or 6");
        assert!(message("data=3", 4).contains("multiple of data=3; try 3 or 6"));
        assert!(message("z=4", 6).contains("multiple of z=4, over which it is split; try a global-batch of 4 or 8"));
        assert!(message("y=2", 3).contains("z*y = 1*2; try a global-batch of 2 or 4, of which"));
        let long = LayoutRequest { seq_len: Some(7), ..request("x=1", 1) };
        assert!(Layout::new(&model(), &long).unwrap_err().to_string().contains("6 positions"));
        let odd = LayoutRequest { microbatch: Some(3), ..request("x=1", 8) };
        assert!(Layout::new(&model(), &odd).unwrap_err().to_string().contains("try 2 or 4"));
        // A share of 12 in multiples of z*y = 2: 2, 4, 6 and 12 are possible, 3 and 8 are not.
        for (microbatch, remedy) in [(3, "try 2 or 4 or 6"), (8, "try 6 or 12")] {
            let request = LayoutRequest { microbatch: Some(microbatch), ..request("z=2", 12) };
            let message = Layout::new(&model(), &request).unwrap_err().to_string();
            assert!(message.contains(remedy), "{message}");
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
        assert!(fault(|request| request.seq_len = Some(7)).starts_with("seq-len = 7: the model has 6 positions"));
        assert!(fault(|request| request.per_node = Some(0)).starts_with("per-node = 0"));
        let nodes = fault(|request| request.per_node = Some(3));
        assert_eq!(nodes, "per-node=3 does not divide the number of ranks = 8; try per-node=2 or 4");
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
        assert!(refused(&|r| r.grid = "pipe=16".parse().unwrap()).contains("use at most 10 pieces"));
        assert!(refused(&|r| r.stage_blocks = Some(vec![8])).contains("it lists 2 pieces"));
        for huge in [11, usize::MAX] {
            assert!(refused(&|r| (r.schedule, r.chunks) = (Schedule::Interleaved, huge)).contains("use 1 to 10"));
            assert!(refused(&|r| r.overlap_chunks = huge).contains("use 1 to 6"));
        }
        let interleaved = |group| {
            move |r: &mut LayoutRequest| {
                (r.schedule, r.chunks, r.microbatch_group) = (Schedule::Interleaved, 2, Some(group));
            }
        };
        // 6 microbatches on 2 stages: groups of 5 leave 1.
        assert!(refused(&interleaved(5)).ends_with("try 2 or 3 or 4 or 6"), "{}", refused(&interleaved(5)));
        assert!(refused(&interleaved(0)).contains("try 2 or"));
        assert!(refused(&|r| r.keep_communicated = true).starts_with("cac = on"));
    }

    #[test]
    fn context_and_panels_are_held_against_the_sizes() {
        let message = |request: &LayoutRequest| Layout::new(&model(), request).unwrap_err().to_string();
        assert!(message(&request("context=2", 2)).starts_with("seq-len = 6: context=2 cuts a sequence into 4"));
        assert!(Layout::new(&model(), &request("context=3", 2)).is_ok());
        let summa = |panels| LayoutRequest { linear: Linear::Summa, summa_panels: panels, ..request("x=3,y=2", 4) };
        assert_eq!(Layout::new(&model(), &summa(None)).unwrap().summa_panels, 6);
        assert!(message(&summa(Some(4))).contains("use a multiple of 6"));
        assert!(message(&summa(Some(18))).starts_with("summa-panels=18 does not divide hidden = 12"));
        let chunked = LayoutRequest { overlap_chunks: 4, microbatch: Some(6), ..request("x=1", 24) };
        assert!(message(&chunked).contains("overlap chunks split"));
    }
}
