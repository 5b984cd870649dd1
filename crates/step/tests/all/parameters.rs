//! The parameters of step programs are those that the model says it has.

use std::collections::BTreeMap;

use quadrille_spec::{Activation, LayoutFile, Model, Norm, Positions};
use quadrille_step::{Initial, StepProgram};

/// Rows, columns, whether it decays, mean or constant, and deviation.
type Said = (usize, usize, bool, [f64; 2]);

fn of_model(model: &Model) -> BTreeMap<String, Said> {
    let said = model.all_parameters().map(|parameter| {
        let initial = match parameter.initial {
            quadrille_spec::Initial::Constant(value) => [value, 0.0],
            quadrille_spec::Initial::Normal(deviation) => [0.0, deviation],
        };
        (parameter.name(), (parameter.rows, parameter.cols, parameter.decay, initial))
    });
    said.collect()
}

fn of_program(program: &StepProgram) -> BTreeMap<String, Said> {
    let mut found = BTreeMap::new();
    for (_, parameter) in program.parameters().filter(|(_, parameter)| !parameter.copy) {
        let initial = match parameter.initial {
            Initial::Constant(value) => [value, 0.0],
            Initial::Normal(deviation) => [0.0, deviation],
        };
        let said = (parameter.rows, parameter.cols, parameter.decay, initial);
        assert_eq!(found.insert(parameter.name.clone(), said), None, "{} twice", parameter.name);
    }
    found
}

/// GPT, Llama with keys that several heads share, and a transformer of patches, each also with what others have.
fn models() -> Vec<Model> {
    let gpt = Model::gpt(4, 48, 4, 101, 16);
    let llama = gpt.reshaped(|m| {
        m.kv_heads = 2;
        m.ffn = 96;
        m.tied_head = false;
        m.biases = false;
        m.norm = Norm::Rms;
        m.positions = Positions::Rotary;
        m.activation = Activation::Swiglu;
    });
    let patches = gpt.reshaped(|m| {
        m.vocab = 0;
        m.patch_values = Some(6);
        m.tied_head = false;
        m.causal = false;
    });
    vec![
        patches.reshaped(|m| m.biases = false),
        llama.reshaped(|m| {
            m.biases = true;
            m.norm = Norm::Layer;
        }),
        Model { tied_head: false, ..gpt.clone() },
        gpt,
        llama,
        patches,
    ]
}

const LAYOUTS: [&str; 6] = [
    "grid = 'x=1'",
    "grid = 'x=2,y=2,z=2'\nkeep_weights = 'step'",
    "grid = 'x=4,data=2,pipe=2'\nzero = 2\nrecompute = 'full'",
    "grid = 'x=2,y=2'\nlinear = 'summa'",
    "grid = 'context=2,pipe=2'\nschedule = 'interleaved'\nchunks = 2",
    "grid = 'z=2,pipe=4'\nactivations = 'replicated'\nschedule = 'zb-h1'",
];

#[test]
fn programs_have_the_parameters_of_their_models() {
    for model in models() {
        let said = of_model(&model);
        let elements: u64 = said.values().map(|(rows, cols, ..)| (rows * cols) as u64).sum();
        assert_eq!(elements, model.parameters());
        for layout in LAYOUTS {
            let file = LayoutFile::from_toml(&format!("{layout}\nglobal_batch = 16")).unwrap();
            let layout = file.validate(&model).unwrap_or_else(|error| panic!("{layout}: {error}"));
            let program = StepProgram::new(&model, &layout).unwrap();
            assert_eq!(of_program(&program), said, "{model:?} on {}", layout.grid);
        }
    }
}
