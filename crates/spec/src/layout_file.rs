//! A whole layout as a TOML file.

use serde::{Deserialize, Serialize};

use crate::{Layout, LayoutRequest, Linear, Model, Schedule, SpecError, toml_text};

/// The fields of a layout file. Each is written as on the command line, and may be left out; unknown fields are
/// errors.
///
/// ```
/// let file = quadrille_spec::LayoutFile::from_toml(
///     "grid = \"x=2,pipe=2\"\nschedule = \"1f1b\"\nrecompute = \"full:2\"\nmicrobatch = 1\n",
/// )?;
/// assert_eq!(file.grid.as_deref(), Some("x=2,pipe=2"));
/// assert!(quadrille_spec::LayoutFile::from_toml("pipes = 2").is_err());
/// # Ok::<(), quadrille_spec::SpecError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LayoutFile {
    /// Sizes of the axes: `x=2,y=2,pipe=2`.
    pub grid: Option<String>,
    /// Order of the axes, innermost first.
    pub order: Option<String>,
    /// Ranks that share a node.
    pub per_node: Option<usize>,
    /// `scattered` or `replicated`.
    pub activations: Option<String>,
    /// `pmm` or `summa`.
    pub linear: Option<String>,
    /// Panels of a SUMMA product.
    pub summa_panels: Option<usize>,
    /// `all`, `none` or a list of `oar`, `ors`, `oag`.
    pub overlap: Option<String>,
    /// Parts of a microbatch that interleave.
    pub overlap_chunks: Option<usize>,
    /// `gpipe`, `1f1b`, `interleaved`, `zb-h1` or `message-driven`.
    pub schedule: Option<String>,
    /// Pieces of layers per stage.
    pub chunks: Option<usize>,
    /// Microbatches that pass a chunk together.
    pub microbatch_group: Option<usize>,
    /// Blocks of each piece of layers.
    pub stage_blocks: Option<Vec<usize>>,
    /// `none`, `selective`, `full` or `full:K`.
    pub recompute: Option<String>,
    /// Communication-aware recomputation.
    pub cac: Option<bool>,
    /// ZeRO stage: 0, 1 or 2.
    pub zero: Option<usize>,
    /// `use` or `step`.
    pub keep_weights: Option<String>,
    /// Sequences in a step.
    pub global_batch: Option<usize>,
    /// Sequences of one data rank in one pass.
    pub microbatch: Option<usize>,
    /// Tokens in a sequence.
    pub seq_len: Option<usize>,
    /// `f32` or `f64`.
    pub dtype: Option<String>,
}

impl LayoutFile {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Names the line that is no layout.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        toml_text::read("a layout", text)
    }

    /// All choices of a layout, but the type of its values.
    pub fn of(layout: &Layout) -> Self {
        let summa = layout.linear == Linear::Summa;
        let interleaved = layout.schedule == Schedule::Interleaved;
        Self {
            grid: Some(layout.grid.to_string()),
            order: Some(layout.grid.order().to_string()),
            per_node: Some(layout.per_node),
            activations: Some(layout.activations.to_string()),
            linear: Some(layout.linear.to_string()),
            summa_panels: summa.then_some(layout.summa_panels),
            overlap: Some(layout.overlap.to_string()),
            overlap_chunks: Some(layout.overlap_chunks),
            schedule: Some(layout.schedule.to_string()),
            chunks: Some(layout.chunks),
            microbatch_group: interleaved.then_some(layout.microbatch_group),
            stage_blocks: Some(layout.stage_blocks.clone()),
            recompute: Some(layout.recompute.to_string()),
            cac: Some(layout.keep_communicated),
            zero: Some(layout.zero as usize),
            keep_weights: Some(layout.keep_weights.to_string()),
            global_batch: Some(layout.global_batch),
            microbatch: Some(layout.microbatch),
            seq_len: Some(layout.seq_len),
            dtype: None,
        }
    }

    /// The layout that the file alone says, held against the model's sizes; what it leaves out has its usual value.
    ///
    /// # Errors
    /// No `grid` or `global_batch`, a choice that is not known, a rule of layouts that is broken.
    pub fn validate(&self, model: &Model) -> Result<Layout, SpecError> {
        let missing = |field| SpecError::invalid(field, "none", "a whole layout says it", "add it");
        let grid = self.grid.as_ref().ok_or_else(|| missing("grid"))?.parse()?;
        let mut request = LayoutRequest::new(grid, self.global_batch.ok_or_else(|| missing("global_batch"))?);
        self.apply(&mut request)?;
        Layout::new(model, &request)
    }

    /// The file's text.
    ///
    /// # Errors
    /// None that is known: every field is text, a number, a truth or a list of numbers.
    pub fn to_toml(&self) -> Result<String, SpecError> {
        let unwritable = |error: toml::ser::Error| SpecError::Syntax {
            what: "a layout file",
            text: self.grid.clone().unwrap_or_default(),
            reason: error.to_string(),
        };
        toml::to_string(self).map_err(unwritable)
    }

    /// Sets what the file says in `request`.
    ///
    /// # Errors
    /// Names the first choice that is not known.
    pub fn apply(&self, request: &mut LayoutRequest) -> Result<(), SpecError> {
        fn set<T: std::str::FromStr<Err = SpecError>>(field: &mut T, text: Option<&String>) -> Result<(), SpecError> {
            if let Some(text) = text {
                *field = text.parse()?;
            }
            Ok(())
        }
        set(&mut request.grid, self.grid.as_ref())?;
        if let Some(order) = &self.order {
            request.grid = request.grid.with_order(order.parse()?);
        }
        set(&mut request.activations, self.activations.as_ref())?;
        set(&mut request.linear, self.linear.as_ref())?;
        set(&mut request.overlap, self.overlap.as_ref())?;
        set(&mut request.schedule, self.schedule.as_ref())?;
        set(&mut request.recompute, self.recompute.as_ref())?;
        set(&mut request.zero, self.zero.map(|stage| stage.to_string()).as_ref())?;
        set(&mut request.keep_weights, self.keep_weights.as_ref())?;
        set(&mut request.dtype, self.dtype.as_ref())?;
        request.overlap_chunks = self.overlap_chunks.unwrap_or(request.overlap_chunks);
        request.chunks = self.chunks.unwrap_or(request.chunks);
        request.keep_communicated = self.cac.unwrap_or(request.keep_communicated);
        request.global_batch = self.global_batch.unwrap_or(request.global_batch);
        request.per_node = self.per_node.or(request.per_node);
        request.summa_panels = self.summa_panels.or(request.summa_panels);
        request.microbatch_group = self.microbatch_group.or(request.microbatch_group);
        request.stage_blocks = self.stage_blocks.clone().or(request.stage_blocks.take());
        request.microbatch = self.microbatch.or(request.microbatch);
        request.seq_len = self.seq_len.or(request.seq_len);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_read_as_it_was_written() {
        let model = Model::gpt(8, 48, 4, 101, 32);
        let lines = "grid = 'x=2,y=2,context=2,data=2,pipe=2'\norder = 'pipe,x,y,z,data'\nper_node = 4\n\
                     schedule = 'interleaved'\nchunks = 2\nrecompute = 'full:2'\ncac = true\nzero = 2\nmicrobatch = 2";
        let summa = "grid = 'x=2,y=2'\nlinear = 'summa'\nkeep_weights = 'step'\noverlap = 'oar'\nglobal_batch = 16";
        for text in [lines, summa] {
            let read = |text: &str| {
                let mut request = LayoutRequest::new("x=1".parse().unwrap(), 32);
                LayoutFile::from_toml(text).unwrap().apply(&mut request).unwrap();
                Layout::new(&model, &request).unwrap()
            };
            let layout = read(text);
            assert_eq!(read(&LayoutFile::of(&layout).to_toml().unwrap()), layout);
            assert_eq!(LayoutFile::of(&layout).validate(&model).unwrap(), layout);
        }
    }

    #[test]
    fn what_a_whole_layout_needs_is_named() {
        let model = Model::gpt(8, 48, 4, 101, 32);
        let message = |text| LayoutFile::from_toml(text).unwrap().validate(&model).unwrap_err().to_string();
        assert_eq!(message("global_batch = 4"), "grid = none: a whole layout says it; add it");
        assert_eq!(message("grid = 'x=2'"), "global_batch = none: a whole layout says it; add it");
        assert!(message("grid = 'x=5'\nglobal_batch = 4").contains("x=5 does not divide heads = 4"));
    }
}
