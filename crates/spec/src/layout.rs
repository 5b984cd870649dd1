//! A layout: all that a user may choose about how a step is spread over ranks, and the rules that it obeys.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Axis, Grid, Model, Overlap, SpecError};

/// The largest global batch accepted: keeps every product of sizes far from overflow.
const MAX_GLOBAL_BATCH: usize = 1 << 24;

/// How activations lie between the linear layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activations {
    /// Rows are cut over x outside and over y inside a block: sequence parallelism over two axes.
    Scattered,
    /// The residual stream is repeated over x and the inner stream over y, as in AxoNN and classic Megatron.
    Replicated,
}

impl fmt::Display for Activations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scattered => "scattered",
            Self::Replicated => "replicated",
        })
    }
}

impl FromStr for Activations {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text {
            "scattered" => Ok(Self::Scattered),
            "replicated" => Ok(Self::Replicated),
            _ => Err(SpecError::Unknown {
                what: "activation layout",
                name: text.to_owned(),
                known: vec!["scattered".to_owned(), "replicated".to_owned()],
            }),
        }
    }
}

/// The type of parameters, activations and gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ElementType {
    /// 32-bit floating point.
    F32,
    /// 64-bit floating point, for proofs.
    F64,
}

impl ElementType {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
        })
    }
}

impl FromStr for ElementType {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text {
            "f32" => Ok(Self::F32),
            "f64" => Ok(Self::F64),
            _ => Err(SpecError::Unknown {
                what: "element type",
                name: text.to_owned(),
                known: vec!["f32".to_owned(), "f64".to_owned()],
            }),
        }
    }
}

/// What was typed about a layout, not yet held against the model.
#[derive(Debug, Clone, PartialEq)]
pub struct LayoutRequest {
    /// Sizes of the axes and their order.
    pub grid: Grid,
    /// Ranks that share a node; `None`: all.
    pub per_node: Option<usize>,
    /// How activations lie.
    pub activations: Activations,
    /// Overlap passes.
    pub overlap: Overlap,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Sequences of one data rank in one pass; `None`: all of its share.
    pub microbatch: Option<usize>,
    /// Tokens in a sequence; `None`: as many as the model takes.
    pub seq_len: Option<usize>,
    /// Type of the values.
    pub dtype: ElementType,
}

impl LayoutRequest {
    /// The rules that depend on the number of ranks alone: what breaks one breaks it on every grid of `ranks` ranks.
    ///
    /// # Errors
    /// Names the rule that is broken and what would keep it.
    pub fn check_without_grid(&self, model: &Model, ranks: usize) -> Result<(), SpecError> {
        let sizes = [("per-node", self.per_node), ("global-batch", Some(self.global_batch)), ("seq-len", self.seq_len)];
        if let Some((field, _)) = sizes.into_iter().find(|(_, size)| *size == Some(0)) {
            return Err(SpecError::invalid(field, 0, "it must be at least 1", "give a positive number"));
        }
        if self.microbatch == Some(0) {
            let rule = "it must be at least 1 and divide the sequences of a data rank (global-batch / data)";
            return Err(SpecError::invalid("microbatch", 0, rule, "give a positive number, or leave it out"));
        }
        if self.global_batch > MAX_GLOBAL_BATCH {
            let rule = format!("a step has at most {MAX_GLOBAL_BATCH} sequences");
            return Err(SpecError::invalid("global-batch", self.global_batch, rule, "use a smaller one"));
        }
        if let Some(seq_len) = self.seq_len.filter(|seq_len| *seq_len > model.seq_len) {
            let rule = format!("the model has {} positions", model.seq_len);
            let remedy = format!("use at most {}, or --set seq_len={seq_len}", model.seq_len);
            return Err(SpecError::invalid("seq-len", seq_len, rule, remedy));
        }
        match self.per_node {
            Some(per_node) if per_node < ranks => {
                SpecError::check_divides("per-node", per_node, "the number of ranks", ranks)
            }
            _ => Ok(()),
        }
    }
}

/// A layout that the model can be trained with.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// Sizes of the axes and their order.
    pub grid: Grid,
    /// Ranks that share a node.
    pub per_node: usize,
    /// How activations lie.
    pub activations: Activations,
    /// Overlap passes.
    pub overlap: Overlap,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Sequences of one data rank in one pass, split over z.
    pub microbatch: usize,
    /// Tokens in a sequence.
    pub seq_len: usize,
    /// Type of the values.
    pub dtype: ElementType,
}

impl Layout {
    /// Holds a request against the model's sizes.
    ///
    /// # Errors
    /// Names the rule that is broken and the nearest sizes that keep it.
    pub fn new(model: &Model, request: &LayoutRequest) -> Result<Self, SpecError> {
        let grid = request.grid;
        request.check_without_grid(model, grid.ranks())?;
        let layout = Self {
            grid,
            per_node: request.per_node.unwrap_or(usize::MAX).min(grid.ranks()),
            activations: request.activations,
            overlap: request.overlap,
            global_batch: request.global_batch,
            microbatch: request.microbatch.unwrap_or(request.global_batch / grid.size(Axis::Data)),
            seq_len: request.seq_len.unwrap_or(model.seq_len),
            dtype: request.dtype,
        };
        layout.check_weights(model)?;
        layout.check_batch()?;
        layout.check_scattered_rows()?;
        Ok(layout)
    }

    /// Passes over microbatches in a step.
    pub fn microbatches(&self) -> usize {
        self.global_batch / self.grid.size(Axis::Data) / self.microbatch
    }

    /// Token rows that one (data, z) rank holds in a pass: `m` of the dataflow tables.
    pub fn rows(&self) -> usize {
        self.microbatch / self.grid.size(Axis::Z) * self.seq_len
    }

    /// The vocabulary padded to a multiple of x*y; padding counts in shapes, FLOPs, bytes and memory only.
    pub fn padded_vocab(&self, model: &Model) -> usize {
        model.vocab.next_multiple_of(self.grid.size(Axis::X) * self.grid.size(Axis::Y))
    }

    /// Target tokens of a step, what the loss is divided by.
    pub fn tokens_per_step(&self) -> usize {
        self.global_batch * self.seq_len
    }

    /// x cuts the heads and the perceptron, y the residual stream, and z every weight tile once more, flat.
    fn check_weights(&self, model: &Model) -> Result<(), SpecError> {
        let [x, y, z, _] = Axis::ALL.map(|axis| self.grid.size(axis));
        let (h, f) = (model.hidden, model.ffn);
        SpecError::check_divides_all("x", x, &[("heads", model.heads), ("the perceptron's width", f)], 0)?;
        SpecError::check_divides("y", y, "hidden", h)?;
        let tiles = [
            ("the tile of the qkv weight", (h / y) * (3 * h / x)),
            ("the tile of the projection weight", (h / x) * (h / y)),
            ("the tile of the up weight", (h / y) * (f / x)),
            ("the tile of the down weight", (f / x) * (h / y)),
            ("the tile of the embedding table", self.padded_vocab(model) / (x * y) * h),
        ];
        // What z cuts beside weights; a microbatch that y cannot cut is refused on its own.
        let sequences = match self.activations {
            Activations::Scattered if self.microbatch.is_multiple_of(y) => self.microbatch / y,
            _ => self.microbatch,
        };
        SpecError::check_divides_all("z", z, &tiles, sequences)
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
        let size = |axis| self.grid.size(axis);
        let unit = match self.activations {
            Activations::Scattered => size(Axis::Z) * size(Axis::Y),
            Activations::Replicated => size(Axis::Z),
        };
        let data = size(Axis::Data);
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

    /// Scattered activations cut the rows of a pass over x, and whole sequences over y.
    fn check_scattered_rows(&self) -> Result<(), SpecError> {
        if self.activations == Activations::Replicated {
            return Ok(());
        }
        let size = |axis| self.grid.size(axis);
        let (x, y, z) = (size(Axis::X), size(Axis::Y), size(Axis::Z));
        if !(self.microbatch / z).is_multiple_of(y) {
            return Err(SpecError::invalid(
                "microbatch",
                self.microbatch,
                format!("scattered activations split its sequences over z*y = {z}*{y}"),
                self.microbatch_remedy() + ", or --activations replicated",
            ));
        }
        if !self.rows().is_multiple_of(x) {
            return Err(SpecError::invalid(
                "microbatch",
                self.microbatch,
                format!("scattered activations split its {} token rows over x={x}", self.rows()),
                "use another microbatch or seq-len, or --activations replicated",
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

    fn model() -> Model {
        Model {
            name: "test".to_owned(),
            layers: 1,
            hidden: 12,
            heads: 6,
            ffn: 48,
            vocab: 17,
            seq_len: 6,
            tied_head: true,
            biases: true,
            dropout: 0.0,
            norm_epsilon: 1e-5,
        }
    }

    fn request(grid: &str, global_batch: usize) -> LayoutRequest {
        LayoutRequest {
            grid: grid.parse().unwrap(),
            per_node: None,
            activations: Activations::Scattered,
            overlap: Overlap::ALL,
            global_batch,
            microbatch: None,
            seq_len: None,
            dtype: ElementType::F32,
        }
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
}
