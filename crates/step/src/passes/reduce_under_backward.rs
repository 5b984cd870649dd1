//! Reductions of gradients that come once a step begin under the last microbatch's backward pass, each as soon as its
//! gradient is complete.

use std::collections::HashMap;

use quadrille_spec::MemoryClass;

use crate::builder::Builder;
use crate::program::{ChunkProgram, Section};
use crate::{Members, Op, Operation, StorageId, When};

/// Moves the issue of each gradient's first reduction out of the update to behind the last operation that touches the
/// gradient; the update waits for it. Reductions that only some ranks of other stages take part in, or that need what is
/// packed in the update, stay there.
pub(crate) fn reduce_under_backward(b: &Builder, chunks: &mut [ChunkProgram], update: &mut Vec<Op>) {
    let mut last = last_touches(b, chunks);
    let mut moved: HashMap<Place, Vec<Op>> = HashMap::new();
    update.retain(|op| {
        let Operation::Issue(collective) = op.operation else {
            // What the update packs of a gradient it packs before the reductions.
            for value in op.operation.operands().all() {
                last.remove(&b.values[value.0].storage);
            }
            return true;
        };
        // What has been reduced before is reduced further in the update.
        let place = last.remove(&b.values[collective.input.0].storage);
        match place.filter(|_| collective.members == Members::All) {
            None => true,
            Some(place) => {
                moved.entry(place).or_default().push(Op { when: When::Last, ..*op });
                false
            }
        }
    });
    for (at, chunk) in chunks.iter_mut().enumerate() {
        for (pass, section) in later_sections(chunk).into_iter().enumerate() {
            let ops = std::mem::take(&mut section.ops);
            for (index, op) in ops.into_iter().enumerate() {
                section.ops.push(op);
                section.ops.extend(moved.remove(&(at, pass, index)).into_iter().flatten());
            }
        }
    }
}

/// Chunk, pass of [`later_sections`], and operation.
type Place = (usize, usize, usize);

/// The passes in which gradients come about, in order.
fn later_sections(chunk: &mut ChunkProgram) -> [&mut Section; 2] {
    [&mut chunk.backward, &mut chunk.weight_gradient]
}

/// The last operation that touches each gradient.
fn last_touches(b: &Builder, chunks: &mut [ChunkProgram]) -> HashMap<StorageId, Place> {
    let mut last = HashMap::new();
    for (at, chunk) in chunks.iter_mut().enumerate() {
        for (pass, section) in later_sections(chunk).into_iter().enumerate() {
            for (index, op) in section.ops.iter().enumerate() {
                for value in op.operation.operands().all() {
                    let storage = b.values[value.0].storage;
                    if b.storages[storage.0].class == MemoryClass::Gradients {
                        last.insert(storage, (at, pass, index));
                    }
                }
            }
        }
    }
    last
}
