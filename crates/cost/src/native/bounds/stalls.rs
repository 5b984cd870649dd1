//! Collectives that a layer stands still for, whatever is beside it.

use std::collections::BTreeMap;

use quadrille_step::{Layer, Operation, Section, StageProgram, StorageId};
use rustc_hash::FxHashSet;

/// Places in a section where a layer waits for what it has just issued, of what it has made itself, to go on with it: nothing
/// that other layers do can come between.
pub(super) fn stalls(stage: &StageProgram, section: &Section) -> Vec<usize> {
    let storage = |value| stage.value(value).storage;
    // What layers have made; what they have issued of it, with nothing since; and what they have waited for, and where.
    let mut made: FxHashSet<(Layer, StorageId)> = FxHashSet::default();
    let mut just_issued: FxHashSet<StorageId> = FxHashSet::default();
    let mut waited: BTreeMap<StorageId, usize> = BTreeMap::new();
    let mut stalls = Vec::new();
    for (at, op) in section.ops.iter().enumerate() {
        let operands = op.operation.operands();
        match op.operation {
            Operation::Issue(collective) if collective.size(stage.grid()) > 1 => {
                if made.contains(&(op.layer, storage(collective.input))) {
                    just_issued.insert(storage(collective.output));
                }
            }
            Operation::Wait(collective) if collective.size(stage.grid()) > 1 => {
                if just_issued.remove(&storage(collective.output)) {
                    waited.insert(storage(collective.output), at);
                }
                just_issued.clear();
            }
            _ => just_issued.clear(),
        }
        // Weights' gradients may be used later, after other layers.
        if !matches!(op.operation, Operation::Wait(_)) && !op.weight_gradient {
            for value in operands.reads() {
                stalls.extend(waited.remove(&storage(*value)));
            }
        }
        made.extend(operands.writes().iter().map(|value| (op.layer, storage(*value))));
    }
    stalls
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{Layout, LayoutRequest, Linear, Model, Overlap};
    use quadrille_step::{ChunkProgram, StepProgram};

    use super::*;

    /// What a block of a GPT stands still for in a forward pass; `more` is said of the model.
    fn forward(grid: &str, more: &str) -> Vec<String> {
        stood(LayoutRequest::new(grid.parse().unwrap(), 8), more, |chunk| &chunk.forward)
    }

    fn stood(request: LayoutRequest, more: &str, pass: fn(&ChunkProgram) -> &Section) -> Vec<String> {
        let text = "name = \"m\"\nlayers = 1\nhidden = 24\nheads = 4\nvocab = 32\nseq_len = 8\n".to_owned() + more;
        let model = Model::from_toml(&text, &[]).unwrap();
        let layout = Layout::new(&model, &request).unwrap();
        let program = StepProgram::new(&model, &layout).unwrap();
        let stage = &program.stages[0];
        let section = pass(&stage.chunks[0]);
        let collective = |at: usize| match section.ops[at].operation {
            Operation::Wait(collective) => format!("{} {}", collective.kind.name(), collective.axes),
            other => panic!("{other:?}"),
        };
        let blocks = stalls(stage, section).into_iter().filter(|at| matches!(section.ops[*at].layer, Layer::Block(_)));
        blocks.map(collective).collect()
    }

    #[test]
    fn a_layer_stands_still_for_what_it_needs_at_once() {
        let product = ["all-gather x", "reduce-scatter x"];
        assert_eq!(forward("x=2", ""), [product, product].concat());
        // Weights may come while other layers compute, and rows of experts while the shared one does.
        assert!(forward("z=2", "").is_empty());
        let loads = "all-gather x,expert";
        let rows = "all-to-all expert";
        assert_eq!(forward("expert=2", "experts = 4\n"), [loads, rows, rows]);
        assert_eq!(forward("expert=2", "experts = 4\nshared_ffn = 24\n"), [loads, rows]);
        // Panels along x are of weights' gradients, which may be used later.
        let linear = Linear::Summa;
        let overlap = Overlap::NONE;
        let summa = LayoutRequest { linear, overlap, ..LayoutRequest::new("x=2".parse().unwrap(), 8) };
        let panels = stood(summa, "", |chunk| &chunk.backward);
        assert_eq!(panels, ["all-reduce x"; 2]);
    }
}
