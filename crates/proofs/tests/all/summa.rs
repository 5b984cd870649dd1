//! SUMMA products equal whole-tile products and the serial model, and send what is published (LBNL, appendix,
//! Algorithm 1).
//!
//! Letters: `n` rows of a rank, `i` inputs and `o` outputs of a linear layer.

use quadrille_proofs::{Traffic, assert_caught, is_collective, operations, program_with, prove, replaced};
use quadrille_spec::CollectiveKind::{AllReduce, Broadcast, Reduce};
use quadrille_spec::{Axis, AxisSet, Classic, CollectiveKind, Linear, Model, Transfer};
use quadrille_step::{Members, Operation, StepProgram, predict};

/// Twelve and twenty-four divide by every mesh and number of panels here.
fn model() -> Model {
    quadrille_proofs::model(2).reshaped(|m| {
        m.hidden = 12;
        m.heads = 4;
        m.ffn = 24;
        m.seq_len = 3;
        m.dropout = 0.1;
    })
}

fn multiplied(grid: &str, linear: Linear, panels: Option<usize>) -> StepProgram {
    program_with(&model(), grid, 24, |request| {
        (request.linear, request.summa_panels, request.microbatch) = (linear, panels, Some(12));
    })
}

/// Square, wide and tall meshes, with z and pipe, and the fewest, twice and six times as many panels.
const MESHES: [(&str, &[usize]); 8] = [
    ("x=2,y=2", &[2, 4, 12]),
    ("x=2,y=1", &[2, 6]),
    ("x=1,y=3", &[3, 12]),
    ("x=2,y=3", &[6, 12]),
    ("x=4,y=2", &[4, 12]),
    ("x=1,y=1", &[1, 3]),
    ("x=2,y=2,z=2", &[2, 4]),
    ("x=2,y=3,pipe=2", &[6]),
];

#[test]
fn summa_and_whole_tiles_equal_the_serial_model() {
    for (grid, panels) in MESHES {
        let report = prove(&multiplied(grid, Linear::Pmm, None), 2).unwrap();
        assert!(report.ok, "{grid}, whole tiles: {report:?}");
        for panels in panels {
            let report = prove(&multiplied(grid, Linear::Summa, Some(*panels)), 2).unwrap();
            assert!(report.ok, "{grid}, {panels} panels: {report:?}");
        }
    }
}

/// Inputs and outputs of qkv, projection, up and down.
fn linears(model: &Model) -> [[usize; 2]; 4] {
    let Classic { hidden: h, ffn: f, .. } = model.classic();
    [[h, 3 * h], [h, h], [h, f], [f, h]]
}

/// LBNL 5.2. Forward `n i` over x and `i o/x` over y are broadcast; backward the same again, and as much is reduced.
/// Beside products, norms sum statistics over x: two numbers a row forward, two backward, twice.
#[test]
fn panels_travel_as_published() {
    for (grid, panels) in MESHES.iter().flat_map(|(grid, panels)| panels.iter().map(move |panels| (grid, *panels))) {
        let program = multiplied(grid, Linear::Summa, Some(panels));
        let StepProgram { model, layout, .. } = &program;
        let [x, y, passes] = [layout.grid.size(Axis::X), layout.grid.size(Axis::Y), layout.microbatches()];
        let n = layout.rows() / y;
        let inputs: usize = linears(model).iter().map(|[i, _]| n * i).sum();
        let weights: usize = linears(model).iter().map(|[i, o]| i * (o / x)).sum();
        let mut block = Traffic::default();
        for (axis, elements) in [(Axis::X, inputs), (Axis::Y, weights)] {
            block.add(&layout.grid, axis, Broadcast, 2 * 4 * panels, 2 * elements);
            block.add(&layout.grid, axis, Reduce, 4 * panels, elements);
        }
        block.add(&layout.grid, Axis::X, AllReduce, 2 * 3, 2 * 4 * n);
        let mut sent = Traffic::default();
        for rank in predict(&program).ranks {
            for index in 0..model.layers() {
                let layer = Traffic::of_layer(&rank, &format!("block {index}"), 8);
                sent = sent.plus(&layer.clone().over(Axis::X)).plus(&layer.over(Axis::Y));
            }
        }
        // Every rank has the blocks of its stage.
        let blocks_held = model.layers() * layout.grid.ranks() / layout.grid.size(Axis::Pipe);
        assert_eq!(sent, block.times(passes * blocks_held), "{grid}, {panels} panels");
    }
}

/// Chains: of `G` ranks all but the last pass a broadcast on, all but the root a reduction.
#[test]
fn chains_send_every_panel_once_per_link() {
    for grid in ["x=2,y=3", "x=4,y=2"] {
        let program = multiplied(grid, Linear::Summa, None);
        let ranks = predict(&program).ranks;
        for axis in [Axis::X, Axis::Y] {
            for kind in [Broadcast, Reduce] {
                let total = |of: fn(&Transfer) -> u64| -> u64 {
                    ranks.iter().map(|rank| of(&rank.axes[axis.name()][&kind])).sum()
                };
                let members = program.layout.grid.size(axis) as u64;
                let payload = total(|each| each.payload_bytes);
                let wire = total(|each| each.wire_bytes);
                assert_eq!(wire * members, payload * (members - 1), "{grid}, {axis}, {}", kind.name());
            }
        }
    }
}

#[test]
fn panels_add_no_work() {
    for (grid, panels) in MESHES {
        let flops = |linear, panels| {
            predict(&multiplied(grid, linear, panels)).ranks.iter().map(|r| r.flops).collect::<Vec<_>>()
        };
        for panels in panels {
            assert_eq!(flops(Linear::Summa, Some(*panels)), flops(Linear::Pmm, None), "{grid}, {panels} panels");
        }
    }
}

/// The panels of `kind` with the rank that holds them exchanged for the next.
fn with_another_root(program: &StepProgram, at: AxisSet, kind: CollectiveKind, which: usize) -> StepProgram {
    let issued = operations(program).into_iter().filter_map(|(_, op)| {
        is_collective(op).filter(|each| op.operation == Operation::Issue(*each) && each.kind == kind && each.axes == at)
    });
    let old = issued.clone().nth(which * issued.count() / 4).unwrap();
    replaced(program, |op| {
        let mut op = *op;
        if let Operation::Issue(collective) | Operation::Wait(collective) = &mut op.operation
            && *collective == old
            && let Members::Root(root) = &mut collective.members
        {
            *root = (*root + 1) % program.layout.grid.size_of(at);
        }
        vec![op]
    })
}

#[test]
fn every_panel_has_its_root() {
    let program = multiplied("x=2,y=3", Linear::Summa, None);
    for axis in [Axis::X, Axis::Y] {
        for kind in [Broadcast, Reduce] {
            for which in 0..4 {
                let broken = with_another_root(&program, axis.only(), kind, which);
                assert_ne!(broken, program);
                assert_caught(&broken, 1, &format!("another root of a {} over {axis}", kind.name()));
            }
        }
    }
}
