//! The fields of a layout, each written once: what users call it, what they write there, and where a request and a layout
//! hold it.
//!
//! Flags, layout files, documents, the constraints of a search and remedies are made from this table. A new field is a row
//! here, a place in [`LayoutRequest`] and [`Layout`], and the code to which it means something.

use crate::field_value::{FieldValue, Holds, Kind, Length, Place, Typed, underscored};
use crate::quantities::BatchSize;
use crate::{
    Activations, AxisOrder, AxisSet, Dispatch, ElementType, Grid, KeepWeights, Layout, LayoutRequest, Linear, Offload,
    Overlap, Recompute, Schedule, SpecError, Zero,
};

/// What is known of a field.
struct Row {
    name: &'static str,
    key: &'static str,
    value_name: &'static str,
    heading: Option<&'static str>,
    help: &'static str,
    kind: Kind,
    parse: fn(&str) -> Result<FieldValue, SpecError>,
    of: fn(&Layout) -> FieldValue,
    set: fn(&mut LayoutRequest, &FieldValue) -> Result<(), SpecError>,
    leave: fn(&mut LayoutRequest, LayoutRequest),
}

/// Makes [`Field`] and its table of rows `help, field "name" <what is written> its type in its place`, under the heading
/// that help has them under.
macro_rules! fields {
    ($($heading:expr => {
        $($(#[doc = $help:literal])+ $field:ident $name:literal <$value_name:literal> $type:ty, in $place:ident;)+
    })+) => {
        /// A field of a layout: a choice that users make.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Field {
            $($($(#[doc = $help])+ $field),+),+
        }

        impl Field {
            /// Every field, in the order of documents.
            pub const ALL: [Self; [$($($name),+),+].len()] = [$($(Self::$field),+),+];
            /// [`Field::key`] of every field.
            pub const KEYS: [&'static str; Self::ALL.len()] = [$($({
                const KEY: [u8; $name.len()] = underscored($name);
                match str::from_utf8(&KEY) {
                    Ok(key) => key,
                    Err(_) => $name,
                }
            }),+),+];

            fn row(self) -> &'static Row {
                &ROWS[self as usize]
            }
        }

        static ROWS: [Row; Field::ALL.len()] = [$($(Row {
            name: $name,
            key: Field::KEYS[Field::$field as usize],
            value_name: $value_name,
            heading: $heading,
            help: concat!($($help),+),
            kind: <$type as Typed>::KIND,
            parse: |text| Ok(<$type as Typed>::parse(text)?.value()),
            of: |layout| Holds::<$type>::held(&layout.$place),
            set: |request, value| {
                Place::put(&mut request.$place, <$type as Typed>::parse(&value.to_string())?);
                Ok(())
            },
            leave: |request, usual| request.$place = usual.$place,
        }),+),+];
    };
}

fields! {
    None => {
        /// Sizes of the axes x, y, z, context, expert, data, pipe; axes left out are 1
        Grid "grid" <"GRID"> Grid, in grid;
        /// Order of the axes in the numbering of ranks, innermost first; context, expert and pipe may be left out
        /// [default: the framework's own: quadrille x,y,z,context,expert,data,pipe, axonn x,y,z,pipe,context,expert,data, others x,y,context,expert,z,data,pipe]
        Order "order" <"AXES"> AxisOrder, in grid;
        /// Ranks that share a node [default: the cluster's, or all]
        PerNode "per-node" <"N"> usize, in per_node;
        /// Activations between linear layers: scattered or replicated [default: scattered]
        Activations "activations" <"LAYOUT"> Activations, in activations;
        /// Linear layers over x and y: pmm (AxoNN's, partial sums reduced) or summa (panels broadcast), e.g. --linear summa
        /// [default: pmm]
        Linear "linear" <"ALGORITHM"> Linear, in linear;
        /// Panels that SUMMA cuts every contraction into, a multiple of x and y, e.g. --summa-panels 4 [default: the fewest]
        SummaPanels "summa-panels" <"N"> usize, in summa_panels;
        /// Axes each of whose ranks has whole experts, of x, z, context and expert, or none; others cut every expert, e.g.
        /// --experts-over z,expert [default: expert]
        ExpertsOver "experts-over" <"AXES"> AxisSet, in experts_over;
        /// What ranks along x, which hold the same tokens where activations are replicated, send to experts: dropped (each its
        /// part) or duplicated (each all), e.g. --activations replicated --dispatch duplicated [default: dropped]
        Dispatch "dispatch" <"dropped|duplicated"> Dispatch, in dispatch;
        /// Rows that a rank's experts have room for where they drop nothing, as a multiple of what equal loads bring; more end
        /// the step; 0: all that can come if that is up to 4, else 2, e.g. --expert-rows 3 [default: 0]
        ExpertRows "expert-rows" <"N"> usize, in expert_rows;
        /// Pad the vocabulary so that each rank's rows of it are a multiple of this: fast kernels of a GPU want 64 or 128, e.g.
        /// --vocab-multiple 128 [default: 1, with --device cuda and for Megatron-LM 128]
        VocabMultiple "vocab-multiple" <"N"> usize, in vocab_multiple;
    }
    Some("Pipeline") => {
        /// Order of the passes over microbatches: gpipe, 1f1b, interleaved, zb-h1 or message-driven, e.g. --schedule zb-h1
        /// [default: 1f1b]
        Schedule "schedule" <"NAME"> Schedule, in schedule;
        /// Pieces of layers that each stage owns in the interleaved schedule, e.g. --chunks 2 [default: 1]
        Chunks "chunks" <"V"> usize, in chunks;
        /// Microbatches that pass a chunk together in the interleaved schedule, e.g. --microbatch-group 4 [default: as many
        /// as stages]
        MicrobatchGroup "microbatch-group" <"N"> usize, in microbatch_group;
        /// Transformer blocks of each piece of layers, in the order of the model, e.g. --stage-blocks 2,3,3 [default: as
        /// equal as possible]
        StageBlocks "stage-blocks" <"N,..."> Vec<usize>, in stage_blocks;
    }
    Some("Memory and overlap") => {
        /// What the backward pass computes again: none, selective (outputs of norms and of the activation function), full
        /// (all but the inputs of blocks) or full:K (all but those of every K-th block), e.g. --recompute full:2; where a layout
        /// is run or explained, full:auto takes the K with which the fullest rank allocates the least
        /// [default: none]
        Recompute "recompute" <"WHAT"> Recompute, in recompute;
        /// Keep the outputs of collectives, so that recomputation repeats none (communication-aware checkpointing), e.g.
        /// --recompute full --cac
        Cac "cac" <"true|false"> bool, in keep_communicated;
        /// Sharded over data, expert and context: 0 nothing, 1 the optimizer's states, 2 gradients as well, e.g. --zero 1
        /// [default: 0]
        Zero "zero" <"STAGE"> Zero, in zero;
        /// Keep weights gathered over z for one use or for the whole step, e.g. --keep-weights step [default: use]
        KeepWeights "keep-weights" <"use|step"> KeepWeights, in keep_weights;
        /// Where the optimizer's states lie: none (on the device) or host (in the host's memory, from which they come in
        /// buckets), e.g. --offload host [default: none]
        Offload "offload" <"none|host"> Offload, in offload;
        /// Elements of a bucket of offloaded states, two of which are on the device, e.g. --bucket 1000000
        /// [default: 16000000]
        Bucket "bucket" <"N"> usize, in bucket;
        /// Update buckets of offloaded states while the gradients of others are still reduced, as if none was clipped; where one
        /// is, they are updated again, e.g. --offload host --optimizer-overlap
        OptimizerOverlap "optimizer-overlap" <"true|false"> bool, in optimizer_overlap;
        /// Overlap passes: all, none, or a list of oar, ors, oag, oaa [default: all]
        Overlap "overlap" <"PASSES"> Overlap, in overlap;
        /// Parts of a microbatch, one of which computes while another communicates, e.g. --overlap-chunks 2 [default: 1]
        OverlapChunks "overlap-chunks" <"N"> usize, in overlap_chunks;
    }
    None => {
        /// Sequences in a step as a plain number, e.g. 512; with k, M or G (powers of 1024) its tokens, a multiple of --seq-len, e.g.
        /// --global-batch 4M; "4000000 tokens" counts exactly [default: 2 x ranks]
        GlobalBatch "global-batch" <"N|TOKENS"> BatchSize, in global_batch;
        /// Sequences of one data (and expert) rank in one pass [default: all of its share; with a pipeline the fewest possible]
        Microbatch "microbatch" <"N"> usize, in microbatch;
        /// Tokens in a sequence, e.g. 8192 or 8k (8 x 1024) [default: as many as the model takes]
        SeqLen "seq-len" <"N"> Length, in seq_len;
        /// Type of the values: f32, f64, or bf16 or f16 with masters in f32
        Dtype "dtype" <"TYPE"> ElementType, in dtype;
        /// Type in which gradients of weights are summed and sent, e.g. --dtype bf16 --gradients bf16 [default: f32, of
        /// --dtype f64 f64]
        Gradients "gradients" <"TYPE"> ElementType, in gradients;
    }
}

impl Field {
    /// As users write it: its flag is `--` and this.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// As files and documents write it.
    pub fn key(self) -> &'static str {
        self.row().key
    }

    /// What help shows in place of a value.
    pub fn value_name(self) -> &'static str {
        self.row().value_name
    }

    /// What help shows it under; `None`: the usual heading.
    pub fn heading(self) -> Option<&'static str> {
        self.row().heading
    }

    /// What help says of it.
    pub fn help(self) -> &'static str {
        self.row().help.trim_start()
    }

    /// What a file holds for it.
    pub fn kind(self) -> Kind {
        self.row().kind
    }

    /// Reads what a user wrote.
    ///
    /// # Errors
    /// Text that is no value of the field.
    pub fn parse(self, text: &str) -> Result<FieldValue, SpecError> {
        (self.row().parse)(text)
    }

    /// What a layout has.
    pub fn of(self, layout: &Layout) -> FieldValue {
        (self.row().of)(layout)
    }

    /// Asks for a value.
    ///
    /// # Errors
    /// A choice that is not known.
    pub fn set(self, request: &mut LayoutRequest, value: &FieldValue) -> Result<(), SpecError> {
        if self == Self::GlobalBatch {
            request.batch_tokens = match value {
                FieldValue::Tokens(tokens) => Some(*tokens),
                _ => None,
            };
        }
        (self.row().set)(request, value)
    }

    /// Asks for the usual value. Grid and batch have none, and stay.
    pub fn leave(self, request: &mut LayoutRequest) {
        let grid = request.grid.with_order(AxisOrder::default());
        (self.row().leave)(request, LayoutRequest::new(grid, request.global_batch));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    #[test]
    fn rows_are_those_of_their_fields() {
        for (index, field) in Field::ALL.into_iter().enumerate() {
            assert_eq!(field as usize, index);
            assert_eq!(field.key(), field.name().replace('-', "_"));
            assert!(!field.help().is_empty() && !field.help().ends_with('.'), "{}", field.help());
        }
    }

    /// Whatever a layout has can be said, as text too, and a request that says it all is that layout's.
    #[test]
    fn every_field_is_read_as_it_is_written() {
        let model = Model::gpt(8, 48, 4, 101, 32);
        let request = LayoutRequest {
            per_node: Some(4),
            activations: Activations::Replicated,
            overlap: Overlap { all_gather: false, ..Overlap::ALL },
            overlap_chunks: 2,
            schedule: Schedule::Interleaved,
            chunks: 2,
            stage_blocks: Some(vec![3, 2, 2, 1]),
            recompute: Recompute::Full { every: 2 },
            keep_communicated: true,
            zero: Zero::Gradients,
            keep_weights: KeepWeights::Step,
            offload: Offload::Host,
            bucket: Some(1000),
            optimizer_overlap: true,
            vocab_multiple: 4,
            dtype: ElementType::F64,
            ..LayoutRequest::new("z=2,data=2,pipe=2".parse().unwrap(), 32)
        };
        let order = "pipe,z,x,y,data".parse().unwrap();
        let request = LayoutRequest { grid: request.grid.with_order(order), ..request };
        let layout = Layout::new(&model, &request).unwrap();
        let mut said = LayoutRequest::new("x=1".parse().unwrap(), 1);
        for field in Field::ALL.into_iter().filter(|field| *field != Field::SummaPanels) {
            let value = field.of(&layout);
            assert_eq!(field.parse(&value.to_string()).unwrap(), value);
            field.set(&mut said, &value).unwrap();
        }
        assert_eq!(Layout::new(&model, &said).unwrap(), layout);
        for field in [Field::Order, Field::StageBlocks, Field::Cac] {
            field.leave(&mut said);
        }
        assert_eq!(said.grid, "z=2,data=2,pipe=2".parse().unwrap());
        assert_eq!((said.stage_blocks, said.keep_communicated, said.chunks), (None, false, 2));
    }
}
