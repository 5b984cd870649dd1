//! Flags that say how a step is spread over ranks, and the layout file beneath them.

use std::path::PathBuf;

use clap::Args;
use quadrille_spec::{
    Activations, AxisOrder, KeepWeights, LayoutFile, LayoutRequest, Linear, Overlap, Recompute, Schedule, Zero,
};

use crate::documents;
use crate::failure::Failure;

/// How a step is spread over ranks.
#[derive(Debug, Args)]
pub struct LayoutArguments {
    /// A whole layout as a TOML file, a line per flag of the layout, e.g. grid = "x=2,pipe=2" and stage_blocks = [3, 5];
    /// flags win over it
    #[arg(long, value_name = "FILE.toml")]
    pub layout: Option<PathBuf>,
    /// Sizes of the axes x, y, z, context, data, pipe, e.g. "x=2,y=2,data=2" or "x=2,context=2,pipe=2" (axes left out
    /// are 1), or "auto": the best of x, y, z, data by AxoNN's communication model [default: auto]
    #[arg(long, value_name = "GRID")]
    pub grid: Option<String>,
    /// Number of ranks; with a grid it must be the product of its sizes [default: the grid's, or 8]
    #[arg(long, value_name = "N")]
    pub ranks: Option<usize>,
    /// Order of the axes in the numbering of ranks, innermost first; context and pipe may be left out [default:
    /// x,y,z,data]
    #[arg(long, value_name = "AXES")]
    pub order: Option<AxisOrder>,
    /// Ranks that share a node [default: the cluster's, or all]
    #[arg(long, value_name = "N")]
    pub per_node: Option<usize>,
    /// Activations between linear layers: scattered or replicated [default: scattered]
    #[arg(long, value_name = "LAYOUT")]
    pub activations: Option<Activations>,
    /// Linear layers over x and y: pmm (AxoNN's, partial sums reduced) or summa (panels broadcast), e.g. --linear summa
    /// [default: pmm]
    #[arg(long, value_name = "ALGORITHM")]
    pub linear: Option<Linear>,
    /// Panels that SUMMA cuts every contraction into, a multiple of x and y, e.g. --summa-panels 4 [default: the fewest]
    #[arg(long, value_name = "N")]
    pub summa_panels: Option<usize>,
    /// Sequences in a step [default: 2 x ranks]
    #[arg(long, value_name = "N")]
    pub global_batch: Option<usize>,
    /// Sequences of one data rank in one pass [default: all of its share; with a pipeline the fewest possible]
    #[arg(long, value_name = "N")]
    pub microbatch: Option<usize>,
    /// Tokens in a sequence [default: as many as the model takes]
    #[arg(long, value_name = "N")]
    pub seq_len: Option<usize>,
    /// Cluster preset or TOML file: what a grid is chosen for [default: local]
    #[arg(long, value_name = "NAME|FILE")]
    pub cluster: Option<String>,
    #[command(flatten, next_help_heading = "Pipeline")]
    pub pipeline: PipelineArguments,
    #[command(flatten, next_help_heading = "Memory and overlap")]
    pub memory: MemoryArguments,
}

/// How microbatches pass the stages of the pipe axis.
#[derive(Debug, Args)]
pub struct PipelineArguments {
    /// Order of the passes over microbatches: gpipe, 1f1b, interleaved, zb-h1 or message-driven, e.g. --schedule zb-h1
    /// [default: 1f1b]
    #[arg(long, value_name = "NAME")]
    pub schedule: Option<Schedule>,
    /// Pieces of layers that each stage owns in the interleaved schedule, e.g. --chunks 2 [default: 1]
    #[arg(long, value_name = "V")]
    pub chunks: Option<usize>,
    /// Microbatches that pass a chunk together in the interleaved schedule, e.g. --microbatch-group 4 [default: as many
    /// as stages]
    #[arg(long, value_name = "N")]
    pub microbatch_group: Option<usize>,
    /// Transformer blocks of each piece of layers, in the order of the model, e.g. --stage-blocks 2,3,3 [default: as
    /// equal as possible]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub stage_blocks: Option<Vec<usize>>,
}

/// What is kept, computed again, sharded or hidden.
#[derive(Debug, Args)]
pub struct MemoryArguments {
    /// What the backward pass computes again: none, selective (outputs of norms and of the activation function), full
    /// (all but the inputs of blocks) or full:K (all but those of every K-th block), e.g. --recompute full:2
    /// [default: none]
    #[arg(long, value_name = "WHAT")]
    pub recompute: Option<Recompute>,
    /// Keep the outputs of collectives, so that recomputation repeats none (communication-aware checkpointing), e.g.
    /// --recompute full --cac
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub cac: Option<bool>,
    /// Sharded over data and context: 0 nothing, 1 the optimizer's states, 2 gradients as well, e.g. --zero 1
    /// [default: 0]
    #[arg(long, value_name = "STAGE")]
    pub zero: Option<Zero>,
    /// Keep weights gathered over z for one use or for the whole step, e.g. --keep-weights step [default: use]
    #[arg(long, value_name = "use|step")]
    pub keep_weights: Option<KeepWeights>,
    /// Overlap passes: all, none, or a list of oar, ors, oag [default: all]
    #[arg(long, value_name = "PASSES")]
    pub overlap: Option<Overlap>,
    /// Parts of a microbatch, one of which computes while another communicates, e.g. --overlap-chunks 2 [default: 1]
    #[arg(long, value_name = "N")]
    pub overlap_chunks: Option<usize>,
}

/// The cluster where none is named.
pub const DEFAULT_CLUSTER: &str = "local";

impl LayoutArguments {
    /// The cluster's preset or file.
    pub fn cluster(&self) -> &str {
        self.cluster.as_deref().unwrap_or(DEFAULT_CLUSTER)
    }

    /// Reads `--layout`; without it a file that says nothing.
    pub fn file(&self) -> Result<LayoutFile, Failure> {
        let Some(path) = &self.layout else { return Ok(LayoutFile::default()) };
        let name = path.display();
        let text = documents::LAYOUT.text(path)?;
        let file = LayoutFile::from_toml(&text).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        let mut request = LayoutRequest::new("x=1".parse()?, 1);
        file.apply(&mut request).map_err(|error| {
            let line = unknown_choice(&text).map_or(String::new(), |number| format!(", line {number}"));
            Failure::usage(format!("{name}{line}: {error}"))
        })?;
        Ok(file)
    }

    /// Sets what was typed in `request`; grid, batch and type of values are the caller's.
    pub fn apply(&self, request: &mut LayoutRequest) {
        set(&mut request.activations, self.activations);
        set(&mut request.linear, self.linear);
        request.summa_panels = self.summa_panels.or(request.summa_panels);
        request.per_node = self.per_node.or(request.per_node);
        request.microbatch = self.microbatch.or(request.microbatch);
        request.seq_len = self.seq_len.or(request.seq_len);
        let PipelineArguments { schedule, chunks, microbatch_group, stage_blocks } = &self.pipeline;
        set(&mut request.schedule, *schedule);
        set(&mut request.chunks, *chunks);
        request.microbatch_group = microbatch_group.or(request.microbatch_group);
        request.stage_blocks = stage_blocks.clone().or(request.stage_blocks.take());
        let MemoryArguments { recompute, cac, zero, keep_weights, overlap, overlap_chunks } = self.memory;
        set(&mut request.recompute, recompute);
        set(&mut request.keep_communicated, cac);
        set(&mut request.zero, zero);
        set(&mut request.keep_weights, keep_weights);
        set(&mut request.overlap, overlap);
        set(&mut request.overlap_chunks, overlap_chunks);
    }
}

fn set<T>(field: &mut T, typed: Option<T>) {
    if let Some(typed) = typed {
        *field = typed;
    }
}

/// The number of the first line that names a choice which is not known.
fn unknown_choice(text: &str) -> Option<usize> {
    let known = |line: &str| {
        let mut request = LayoutRequest::new("x=1".parse()?, 1);
        LayoutFile::from_toml(line).map_or(Ok(()), |alone| alone.apply(&mut request))
    };
    text.lines().position(|line| known(line).is_err()).map(|index| index + 1)
}
