//! Pieces of a stage that are like one before them: their programs are copies, with other numbers.

use crate::builder::Builder;
use crate::program::{ChunkProgram, Section};
use crate::{Layer, Message, Op, Parameter, Sized, StorageId, StorageInfo, Value, ValueId};

/// How many values, storages and parameters there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Made {
    values: usize,
    storages: usize,
    parameters: usize,
}

/// From the numbers of a piece to those of its copy.
struct Moved {
    from: Made,
    to: Made,
    /// Numbers of its first block.
    blocks: [usize; 2],
}

impl Builder<'_> {
    /// What there is now.
    pub fn made(&self) -> Made {
        Made { values: self.values.len(), storages: self.storages.len(), parameters: self.parameters.len() }
    }

    /// The program of a piece with the same operations as that of `chunk`, which lies between these numbers. Values keep
    /// their names.
    pub fn again(&mut self, chunk: &ChunkProgram, [from, end]: [Made; 2], piece: usize) -> ChunkProgram {
        let blocks = [chunk.piece, piece].map(|piece| self.layout.blocks_of(piece).start);
        let moved = Moved { from, to: self.made(), blocks };
        for at in from.values..end.values {
            let value = &self.values[at];
            let counts = value.counts.map(|counts| moved.value(counts));
            self.values.push(Value { storage: moved.storage(value.storage), counts, ..value.clone() });
        }
        for at in from.storages..end.storages {
            let info = &self.storages[at];
            self.storages.push(StorageInfo { sized: moved.sized(info.sized), ..info.clone() });
        }
        for at in from.parameters..end.parameters {
            let parameter = moved.parameter(&self.parameters[at]);
            self.add_parameter(parameter);
        }
        let pieces = [chunk.piece, piece];
        let [forward, backward, weight_gradient] = chunk.sections().map(|section| moved.section(section, pieces));
        ChunkProgram { piece, forward, backward, weight_gradient }
    }
}

impl Moved {
    fn value(&self, value: ValueId) -> ValueId {
        ValueId(value.0 - self.from.values + self.to.values)
    }

    fn storage(&self, storage: StorageId) -> StorageId {
        StorageId(storage.0 - self.from.storages + self.to.storages)
    }

    fn sized(&self, sized: Sized) -> Sized {
        match sized {
            Sized::By(value) => Sized::By(self.value(value)),
            Sized::ByShards(value) => Sized::ByShards(self.value(value)),
        }
    }

    fn layer(&self, layer: Layer) -> Layer {
        match layer {
            Layer::Block(block) => Layer::Block(block - self.blocks[0] + self.blocks[1]),
            layer => layer,
        }
    }

    fn parameter(&self, parameter: &Parameter) -> Parameter {
        Parameter {
            layer: self.layer(parameter.layer),
            value: self.value(parameter.value),
            gradient: self.value(parameter.gradient),
            reduced: self.value(parameter.reduced),
            updated: self.value(parameter.updated),
            compressed: parameter.compressed.map(|value| self.value(value)),
            ..parameter.clone()
        }
    }

    fn section(&self, section: &Section, pieces: [usize; 2]) -> Section {
        let op = |op: &Op| Op {
            layer: self.layer(op.layer),
            operation: op.operation.with_values(|value| self.value(value)),
            ..*op
        };
        let messages = |messages: &[Message]| {
            let message = |message: &Message| Message {
                value: self.value(message.value),
                tag: message.tag_moved(pieces),
                layer: self.layer(message.layer),
                ..*message
            };
            messages.iter().map(message).collect()
        };
        Section {
            ops: section.ops.iter().map(op).collect(),
            receives: messages(&section.receives),
            sends: messages(&section.sends),
            ..Section::default()
        }
    }
}
