//! Imported models compute what torch computes of them: losses, logits and the gradients of all parameters, in several
//! layouts. The numbers of torch, and how they were made: `crates/hugging-face/tests/data/make_fixtures.py`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quadrille_checkpoint::{Checkpoint, Number as _};
use quadrille_comm::{JobOptions, run_job};
use quadrille_engine::{
    Backend, Cpu, ForwardOptions, InitialValues, RankEngine, Restore, Samples, Weights, assemble, logits,
    logits_program,
};
use quadrille_hugging_face::{Source, import};
use quadrille_proofs::{hyper, program_with};
use quadrille_spec::{Axis, ElementType, Model};
use quadrille_step::StepProgram;
use quadrille_tensor::Element;
use safetensors::SafeTensors;
use safetensors::tensor::serialize_to_file;
use tempfile::TempDir;

/// Of every tensor: the largest difference over the largest number.
const TOLERANCE: f64 = 1e-5;

const MODELS: [&str; 19] = [
    "gemma",
    "gemma2",
    "gemma3",
    "gpt2",
    "llama",
    "llama-tied",
    "llama-biases",
    "llama-bf16",
    "llama-3.1",
    "mistral",
    "mistral-window",
    "gpt-neox",
    "gpt-neox-parallel",
    "olmo2",
    "phi3",
    "pythia",
    "qwen2",
    "qwen3",
    "starcoder2",
];

const MIXTURES: [&str; 3] = ["mixtral", "qwen3-moe", "olmoe"];

/// One rank; both tensor axes, which cut heads, keys and the vocabulary (97 tokens, padded); two stages, where a tied table has
/// two copies; the others.
const GRIDS: [&str; 4] = ["x=1", "x=2,y=2", "pipe=2", "z=2,context=2,data=2"];

/// Experts on the ranks of several axes, too.
const GRIDS_OF_MIXTURES: [&str; 4] = ["x=1", "x=2,y=2", "expert=4,pipe=2", "x=2,expert=2,context=2"];

/// Every model with the grids that it is tried on.
fn cases() -> impl Iterator<Item = (&'static str, [&'static str; 4])> {
    let mixtures = MIXTURES.into_iter().map(|name| (name, GRIDS_OF_MIXTURES));
    MODELS.into_iter().map(|name| (name, GRIDS)).chain(mixtures)
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../hugging-face/tests/data").join(name)
}

/// What torch computed of a model.
struct Expected {
    inputs: Vec<u32>,
    targets: Vec<u32>,
    sequences: usize,
    seq_len: usize,
    loss: f64,
    logits: Vec<f64>,
}

impl Expected {
    fn read(name: &str) -> Self {
        let bytes = fs::read(fixture(name).join("expected.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let floats = |name: &str| -> Vec<f64> {
            let quads = tensors.tensor(name).unwrap().data().as_chunks::<4>().0;
            quads.iter().map(|quad| f64::from(f32::from_le_bytes(*quad))).collect()
        };
        let tokens = |name: &str| -> Vec<u32> {
            let eights = tensors.tensor(name).unwrap().data().as_chunks::<8>().0;
            eights.iter().map(|eight| u32::try_from(i64::from_le_bytes(*eight)).unwrap()).collect()
        };
        let inputs = tensors.tensor("inputs").unwrap();
        let [sequences, seq_len] = inputs.shape().try_into().unwrap();
        Self {
            inputs: tokens("inputs"),
            targets: tokens("targets"),
            sequences,
            seq_len,
            loss: floats("loss")[0],
            logits: floats("logits"),
        }
    }
}

/// A checkpoint of a folder of the library.
struct Imported {
    model: Model,
    checkpoint: Arc<Checkpoint>,
    _folder: TempDir,
}

impl Imported {
    fn of(from: &Path) -> Self {
        Self::with(from, &[])
    }

    /// With other fields of the model.
    fn with(from: &Path, set: &[(String, String)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut source = Source::open(from, set).unwrap();
        let checkpoint = import(&mut source, &folder.path().join("checkpoints")).unwrap().checkpoint;
        Self {
            model: source.model().clone(),
            checkpoint: Arc::new(Checkpoint::open(&checkpoint).unwrap()),
            _folder: folder,
        }
    }
}

/// Torch's gradients by the names of this program: read as if they were the model's weights.
fn gradients(name: &str) -> BTreeMap<String, Vec<f32>> {
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in [("config.json", "config.json"), ("gradients.safetensors", "model.safetensors")] {
        fs::copy(fixture(name).join(from), folder.path().join(to)).unwrap();
    }
    let mut source = Source::open(folder.path(), &[]).unwrap();
    let names: Vec<String> = source.tensors().iter().map(|tensor| tensor.name.clone()).collect();
    names.into_iter().enumerate().map(|(index, name)| (name, source.read(index).unwrap())).collect()
}

fn program(imported: &Imported, expected: &Expected, grid: &str) -> StepProgram {
    program_with(&imported.model, grid, expected.sequences, |request| {
        (request.dtype, request.seq_len) = (ElementType::F32, Some(expected.seq_len));
    })
}

/// Loss and gradients of one training step from the checkpoint's weights.
fn step(program: &StepProgram, checkpoint: &Checkpoint, expected: &Expected) -> (f64, BTreeMap<String, Vec<f64>>) {
    let seq_len = expected.seq_len;
    let batch = |_: u64, first: usize, samples: Samples| {
        let (inputs, targets) = samples.tokens()?;
        let range = first * seq_len..first * seq_len + inputs.len();
        inputs.copy_from_slice(&expected.inputs[range.clone()]);
        targets.copy_from_slice(&expected.targets[range]);
        Ok(())
    };
    let grid = program.layout.grid;
    let ranks = run_job(&JobOptions::new(grid.ranks()), |context| {
        let mut engine = RankEngine::<Cpu<f32>>::new(program, context, 1, hyper(None), 1, InitialValues::Training)?;
        engine.load(checkpoint, Restore::Values)?;
        let outcome = engine.step(&batch)?;
        Ok((outcome.loss, engine.gradients()?))
    })
    .unwrap();
    let mut whole = BTreeMap::new();
    for stage in &program.stages {
        let of_stage: Vec<usize> =
            (0..grid.ranks()).filter(|rank| grid.coordinate(*rank).on(Axis::Pipe) == stage.stage).collect();
        for (index, parameter) in stage.parameters.iter().enumerate().filter(|(_, parameter)| !parameter.copy) {
            let tensor = assemble(parameter, of_stage.iter().map(|rank| (*rank, &ranks[*rank].1[index]))).unwrap();
            whole.insert(parameter.name.clone(), tensor);
        }
    }
    (ranks[0].0, whole)
}

/// The largest difference over the largest number.
fn difference(ours: impl IntoIterator<Item = f64>, theirs: &[f64]) -> f64 {
    let ours: Vec<f64> = ours.into_iter().collect();
    assert_eq!(ours.len(), theirs.len());
    let largest = theirs.iter().fold(0.0_f64, |most, number| most.max(number.abs()));
    ours.iter().zip(theirs).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs() / largest))
}

/// A folder of the library in which two tensors have changed names.
fn exchanged(name: &str, one: &str, other: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(fixture(name).join("config.json"), folder.path().join("config.json")).unwrap();
    let bytes = fs::read(fixture(name).join("model.safetensors")).unwrap();
    let renamed = |name: String| match name {
        name if name == one => other.to_owned(),
        name if name == other => one.to_owned(),
        name => name,
    };
    let tensors = SafeTensors::deserialize(&bytes).unwrap().tensors();
    let tensors = tensors.into_iter().map(|(name, view)| (renamed(name), view));
    serialize_to_file(tensors, None, &folder.path().join("model.safetensors")).unwrap();
    folder
}

/// Two tensors of the same shape in each other's place: a mapping that confused them would not go unnoticed.
#[test]
fn exchanged_tensors_change_the_loss() {
    let llama = |name: &str| format!("model.layers.1.{name}.weight");
    let gpt2 = |name: &str| format!("transformer.h.0.{name}");
    let mixtral = |name: &str| format!("model.layers.0.block_sparse_moe.{name}.weight");
    let olmoe = |name: &str| format!("model.layers.0.self_attn.{name}.weight");
    let olmoe1 = |name: &str| format!("model.layers.1.self_attn.{name}.weight");
    let first = |name: &str| format!("model.layers.0.{name}.weight");
    let second = |name: &str| format!("model.layers.1.{name}.weight");
    let neox = |name: &str| format!("gpt_neox.layers.0.{name}.bias");
    for (name, one, other) in [
        ("llama", llama("self_attn.k_proj"), llama("self_attn.v_proj")),
        ("llama", llama("self_attn.q_proj"), llama("self_attn.o_proj")),
        ("llama", llama("mlp.gate_proj"), llama("mlp.up_proj")),
        ("llama", llama("input_layernorm"), llama("post_attention_layernorm")),
        ("llama", "lm_head.weight".to_owned(), "model.embed_tokens.weight".to_owned()),
        ("gpt2", gpt2("ln_1.bias"), gpt2("ln_2.bias")),
        ("gpt2", gpt2("attn.c_proj.bias"), gpt2("mlp.c_proj.bias")),
        ("gpt2", gpt2("attn.c_attn.bias"), "transformer.h.1.attn.c_attn.bias".to_owned()),
        ("mixtral", mixtral("experts.0.w1"), mixtral("experts.0.w3")),
        ("mixtral", mixtral("experts.1.w2"), mixtral("experts.2.w2")),
        ("olmoe", olmoe("q_norm"), olmoe1("q_norm")),
        ("olmoe", olmoe("k_norm"), olmoe1("k_norm")),
        ("olmo2", first("post_attention_layernorm"), first("post_feedforward_layernorm")),
        ("qwen2", "model.layers.0.self_attn.k_proj.bias".to_owned(), "model.layers.0.self_attn.v_proj.bias".to_owned()),
        ("gemma2", first("post_attention_layernorm"), first("pre_feedforward_layernorm")),
        ("gemma2", first("pre_feedforward_layernorm"), first("post_feedforward_layernorm")),
        ("gemma3", first("self_attn.k_norm"), second("self_attn.k_norm")),
        ("qwen3", first("self_attn.q_norm"), first("self_attn.k_norm")),
        ("phi3", first("self_attn.qkv_proj"), second("self_attn.qkv_proj")),
        ("phi3", first("mlp.gate_up_proj"), second("mlp.gate_up_proj")),
        ("starcoder2", first("mlp.c_fc"), second("mlp.c_fc")),
        ("gpt-neox-parallel", neox("input_layernorm"), neox("post_attention_layernorm")),
        ("mixtral", mixtral("gate"), "model.layers.1.block_sparse_moe.gate.weight".to_owned()),
    ] {
        let imported = Imported::of(exchanged(name, &one, &other).path());
        let expected = Expected::read(name);
        let (loss, _) = step(&program(&imported, &expected, "x=1"), &imported.checkpoint, &expected);
        let apart = difference([loss], &[expected.loss]);
        assert!(apart > 20.0 * TOLERANCE, "{name}: {one} and {other} exchanged change the loss by {apart:.1e}");
    }
}

#[test]
fn losses_and_gradients_are_those_of_torch() {
    for (name, grids) in cases() {
        let imported = Imported::of(&fixture(name));
        let expected = Expected::read(name);
        let gradients = gradients(name);
        for grid in grids {
            let (loss, ours) = step(&program(&imported, &expected, grid), &imported.checkpoint, &expected);
            let apart = difference([loss], &[expected.loss]);
            assert!(apart < TOLERANCE, "{name} on {grid}: loss {loss} instead of {}", expected.loss);
            assert_eq!(ours.len(), gradients.len(), "{name} on {grid}");
            for (parameter, theirs) in &gradients {
                let theirs: Vec<f64> = theirs.iter().map(|number| f64::from(*number)).collect();
                let apart = difference(ours[parameter].iter().copied(), &theirs);
                assert!(apart < TOLERANCE, "{name} on {grid}: gradient of {parameter} differs by {apart:.1e}");
            }
        }
    }
}

/// The logits of all sequences, each in passes of three tokens that attend to cached keys and values.
fn all_logits<B: Backend>(imported: &Imported, expected: &Expected, grid: &str) -> Vec<f64> {
    let layout = program(imported, expected, grid).layout.stored_in(B::Real::TYPE.into());
    let program = logits_program(&imported.model, &layout, expected.seq_len, 3).unwrap();
    let weights = Weights::Checkpoint(imported.checkpoint.clone());
    let of_sequence =
        |tokens: &[u32]| logits::<B>(&program, &ForwardOptions::default(), &weights, tokens).unwrap().values;
    expected.inputs.chunks(expected.seq_len).flat_map(of_sequence).map(Element::to_f64).collect()
}

#[test]
fn logits_are_those_of_torch() {
    for (name, grids) in cases() {
        let imported = Imported::of(&fixture(name));
        let expected = Expected::read(name);
        for grid in grids {
            for (precision, ours) in [
                ("f32", all_logits::<Cpu<f32>>(&imported, &expected, grid)),
                ("f64", all_logits::<Cpu<f64>>(&imported, &expected, grid)),
            ] {
                let apart = difference(ours, &expected.logits);
                assert!(apart < TOLERANCE, "{name} on {grid} in {precision}: logits differ by {apart:.1e}");
            }
        }
    }
}

/// Each property that a configuration says, left out or exchanged: torch's logits are others then.
#[test]
fn properties_that_are_left_out_change_the_logits() {
    for (name, field, value) in [
        ("gemma", "embedding_scale", "1"),
        ("gemma", "embedding_scale", "4.9"),
        ("gemma", "activation", "swiglu"),
        ("gemma2", "embedding_scale", "1"),
        ("gemma2", "logit_cap", "0"),
        ("gemma2", "logit_cap", "3.01"),
        ("gemma2", "attention_cap", "0"),
        ("gemma2", "score_scale", "1"),
        ("gemma2", "blocks.1.window", "3"),
        ("gemma2", "window", "0"),
        ("gemma3", "rotary_base", "500"),
        ("gemma3", "blocks.1.rotary_scaling", "none"),
        ("gemma3", "blocks.1.rotary_base", "100"),
        ("gemma3", "logit_cap", "3"),
        ("gpt-neox-parallel", "residual", "sequential"),
        ("gpt-neox-parallel", "rotary_dim", "0"),
        ("llama-3.1", "rotary_scaling", "none"),
        ("llama-3.1", "rotary_factor", "4"),
        ("mistral-window", "window", "0"),
        ("mistral-window", "window", "4"),
        ("phi3", "rotary_dim", "0"),
        ("phi3", "window", "0"),
        ("pythia", "activation", "gelu"),
        ("qwen2", "blocks.1.window", "0"),
        ("qwen2", "blocks.0.window", "3"),
        ("starcoder2", "window", "0"),
    ] {
        let imported = Imported::with(&fixture(name), &[(field.to_owned(), value.to_owned())]);
        let expected = Expected::read(name);
        let apart = difference(all_logits::<Cpu<f64>>(&imported, &expected, "x=1"), &expected.logits);
        assert!(apart > 10.0 * TOLERANCE, "{name}: {field} = {value} changes the logits by {apart:.1e}");
    }
}
