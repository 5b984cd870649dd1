//! The table of operations, and what follows from the types of elements.

use std::collections::BTreeSet;

use quadrille_spec::{Axis, CollectiveKind, ElementType, Layout, LayoutFile, Model, RankLedger};
use quadrille_step::{
    At, Collective, Format, Group, Layer, Operation, StageProgram, StepProgram, ValueId, operation_names,
    payload_bytes, predict_rank,
};

fn program(layout: &str) -> StepProgram {
    let model = Model { dropout: 0.1, ..Model::gpt(2, 48, 4, 101, 16) };
    let layout: Layout = LayoutFile::from_toml(layout).unwrap().validate(&model).unwrap();
    StepProgram::new(&model, &layout).unwrap()
}

fn operations(stage: &StageProgram) -> impl Iterator<Item = &Operation> {
    let sections = stage.chunks.iter().flat_map(|chunk| chunk.sections()).chain([&stage.update]);
    sections.flat_map(|section| &section.ops).map(|op| &op.operation)
}

const LAYOUTS: [&str; 3] = [
    "grid = 'x=2,y=2,z=2'\nglobal_batch = 8\nrecompute = 'selective'",
    "grid = 'x=2,context=2,data=2'\nglobal_batch = 8\nzero = 2",
    "grid = 'x=2,y=2'\nglobal_batch = 8\nlinear = 'summa'\nschedule = 'zb-h1'",
];

#[test]
fn a_name_has_one_entry_which_says_its_group() {
    let names: Vec<&str> = operation_names().collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    for layout in LAYOUTS {
        for operation in operations(&program(layout).stages[0]) {
            assert_eq!(Group::by_name(operation.name()), Some(operation.group()), "{operation:?}");
        }
    }
    assert_eq!(Group::by_name("receive"), None);
}

/// What tells blocks and parameters apart is forgotten, and nothing that work depends on: blocks alike have the same operations
/// then, whatever their values.
#[test]
fn operations_are_the_same_anywhere() {
    for layout in LAYOUTS {
        let stage = &program(layout).stages[0];
        for operation in operations(stage) {
            let anywhere = operation.anywhere();
            let work = |operation: &Operation| format!("{:?}", operation.work(At::first(stage)));
            assert_eq!(work(&anywhere), work(operation), "{operation:?}");
            assert_eq!(anywhere.operands(), operation.operands(), "{operation:?}");
        }
        let of_block = |block: usize, form: &dyn Fn(&Operation) -> Operation| -> BTreeSet<String> {
            let sections = stage.chunks.iter().flat_map(|chunk| chunk.sections()).chain([&stage.update]);
            let ops = sections.flat_map(|section| &section.ops).filter(|op| op.layer == Layer::Block(block));
            let computing = ops.filter(|op| op.operation.group().computes());
            computing.map(|op| format!("{:?}", form(&op.operation).with_values(|_| ValueId(0)))).collect()
        };
        assert_eq!(of_block(0, &Operation::anywhere), of_block(1, &Operation::anywhere), "{layout}");
        assert_ne!(of_block(0, &|operation| *operation), of_block(1, &|operation| *operation), "{layout}");
    }
}

/// Sums of the program's rows are of another type than the rest of it: memory, wire and traffic count each in its own.
#[test]
fn bytes_follow_the_type_of_what_holds_them() {
    let narrow = program("grid = 'x=1,y=2'\nglobal_batch = 8");
    let mut wide = narrow.clone();
    let stage = &mut wide.stages[0];
    stage.storages.iter_mut().filter(|storage| storage.format == Format::Sums).for_each(|storage| {
        storage.element_bytes = ElementType::F64.bytes();
    });
    stage.place_storages();
    let sums = |collective: &Collective| -> bool {
        let storage = narrow.stages[0].value(collective.input).storage;
        narrow.stages[0].storages[storage.0].format == Format::Sums
    };
    let y = Axis::Y.only();
    let mut added = 0;
    for operation in operations(&narrow.stages[0]) {
        let Operation::Issue(collective) = operation else { continue };
        let [before, after] = [&narrow, &wide].map(|program| payload_bytes(&program.stages[0], collective));
        assert_eq!(after, if sums(collective) { 2 * before } else { before });
        if sums(collective) && collective.axes == y {
            added += before;
        }
    }
    assert!(added > 0);
    let [narrow, wide] = [&narrow, &wide].map(|program| predict_rank(program, 0));
    let sent = |ledger: &RankLedger| ledger.axes[&y.key()][&CollectiveKind::AllReduce].payload_bytes;
    assert_eq!(sent(&wide), sent(&narrow) + added);
    assert!(wide.memory.allocated > narrow.memory.allocated);
    assert_eq!(wide.flops, narrow.flops);
}

/// The factor of embedded tokens and the cap of logits work in place: they are sweeps that are counted, and no memory.
#[test]
fn ends_are_scaled_and_capped_in_place() {
    let plain = program("grid = 'x=2,y=2'\nglobal_batch = 8");
    let model = Model { embedding_scale: 7.0, logit_cap: Some(30.0), ..plain.model.clone() };
    let ends = StepProgram::new(&model, &plain.layout).unwrap();
    let sweeps = |program: &StepProgram, name: &str| -> Vec<usize> {
        let stage = &program.stages[0];
        let named = operations(stage).filter(|operation| operation.name() == name);
        named.filter_map(|operation| operation.work(At::first(stage)).swept()).collect()
    };
    // Of 128 tokens a quarter of the stream and of 104 logits.
    assert_eq!((sweeps(&ends, "scale"), sweeps(&ends, "cap-logits")), (vec![128 * 12; 2], vec![128 * 26]));
    assert!(sweeps(&plain, "scale").is_empty() && sweeps(&plain, "cap-logits").is_empty());
    let gradients: Vec<_> = operations(&ends.stages[0]).filter(|it| it.name() == "cross-entropy-gradient").collect();
    let work = |program: &StepProgram| format!("{:?}", gradients[0].work(At::first(&program.stages[0])));
    assert_ne!(work(&ends), work(&plain));
    let [plain, ends] = [&plain, &ends].map(|program| predict_rank(program, 0));
    assert_eq!((&ends.memory, &ends.axes, &ends.flops), (&plain.memory, &plain.axes, &plain.flops));
}
