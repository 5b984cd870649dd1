//! Folders of the library to checkpoints and back.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use quadrille_checkpoint::{About, Checkpoint, Draft, Quantity, TensorShape, Tile};
use quadrille_hugging_face::{
    ExportOptions, Family, HuggingFaceError, Imported, Source, StoredType, export, import, tensors,
};
use quadrille_spec::{Activation, Grid, Layout, LayoutRequest, Model, Norm, Positions, RealType};
use serde_json::{Value, json};

use crate::common::{FOLDERS, config, fixture, folder, raw};

fn imported(from: &Path, to: &Path) -> Result<Imported, HuggingFaceError> {
    import(&mut Source::open(from, &[])?, to)
}

#[test]
fn every_folder_comes_back_bit_by_bit_by_way_of_a_checkpoint() {
    for name in FOLDERS {
        let out = tempfile::tempdir().unwrap();
        let [checkpoints, model] = ["checkpoints", "model"].map(|name| out.path().join(name));
        let done = imported(&fixture(name), &checkpoints).unwrap();
        let checkpoint = Checkpoint::find(&checkpoints).unwrap();
        assert_eq!((checkpoint.path(), checkpoint.about().step), (done.checkpoint.as_path(), 0), "{name}");
        assert!(!checkpoint.has(Quantity::FirstMoment) && checkpoint.about().dtype == RealType::F32);
        let parameters: usize = checkpoint.tensors().iter().map(|shape| shape.rows * shape.cols).sum();
        assert_eq!(parameters as u64, done.parameters, "{name}");
        let (exported, notes) = export(checkpoint, &model, ExportOptions::default()).unwrap();
        assert!(notes.is_empty() && exported.rounded == 0, "{name}: {notes:?}");
        assert!(raw(&model) == raw(&fixture(name)), "{name}");
        assert_eq!(config(&model), config(&fixture(name)), "{name}");
    }
}

#[test]
fn companions_go_to_the_checkpoints_and_back() {
    let from = folder(&config(&fixture("llama")), &raw(&fixture("llama")));
    fs::write(from.path().join("tokenizer.json"), "{}").unwrap();
    fs::write(from.path().join("generation_config.json"), "[]").unwrap();
    let out = tempfile::tempdir().unwrap();
    let run = out.path().join("run");
    let done = imported(from.path(), &run.join("checkpoints")).unwrap();
    assert_eq!(done.copied, ["tokenizer.json", "generation_config.json"]);
    let again =
        |to: &str| export(Checkpoint::find(&run).unwrap(), &out.path().join(to), ExportOptions::default()).unwrap().0;
    assert_eq!(again("beside").copied, done.copied);
    // Beside the folder of checkpoints, where a run has them.
    for name in &done.copied {
        fs::rename(run.join("checkpoints").join(name), run.join(name)).unwrap();
    }
    assert_eq!(again("around").copied, done.copied);
    assert_eq!(fs::read_to_string(out.path().join("around/generation_config.json")).unwrap(), "[]");
}

#[test]
fn nothing_is_replaced_and_a_failure_leaves_nothing() {
    let out = tempfile::tempdir().unwrap();
    let checkpoints = out.path().join("checkpoints");
    imported(&fixture("llama"), &checkpoints).unwrap();
    let message = imported(&fixture("llama"), &checkpoints).unwrap_err().to_string();
    assert!(message.contains("none is replaced"), "{message}");

    let from = folder(&config(&fixture("llama")), &raw(&fixture("llama")));
    fs::write(from.path().join("tokenizer.json"), "{}").unwrap();
    let mut source = Source::open(from.path(), &[]).unwrap();
    // The file is cut after it was opened.
    let file = fs::OpenOptions::new().write(true).open(from.path().join("model.safetensors")).unwrap();
    file.set_len(50_000).unwrap();
    let other = out.path().join("other");
    let message = import(&mut source, &other).unwrap_err().to_string();
    assert!(message.contains("model.safetensors is damaged: it has become shorter"), "{message}");
    assert!(!other.exists());
}

/// Writes a checkpoint of these weights, in one tile for each tensor.
fn write<T: quadrille_checkpoint::Number>(
    model: &Model,
    folder: &Path,
    hugging_face: Option<Value>,
    number: impl Fn(usize) -> T,
) {
    let family = if model.classic().norm == Norm::Rms { Family::Llama } else { Family::Gpt2 };
    let tensors = tensors(model, family, true);
    let mut at = 0;
    let mut tile = |tensor: &quadrille_hugging_face::Tensor| {
        let (tensor, rows, cols) = (tensor.name.clone(), tensor.rows, tensor.cols);
        let numbers: Vec<T> = (at..at + rows * cols).map(&number).collect();
        at += rows * cols;
        (Tile { tensor, quantity: Quantity::Value, row: 0, col: 0, rows, cols }, Cow::Owned(numbers))
    };
    let tiles: Vec<(Tile, Cow<[T]>)> = tensors.iter().map(&mut tile).collect();
    let shapes: Vec<TensorShape> = tensors
        .iter()
        .map(|tensor| TensorShape { name: tensor.name.clone(), rows: tensor.rows, cols: tensor.cols })
        .collect();
    let layout = Layout::new(model, &LayoutRequest::new(Grid::new(1, 1, 1, 1).unwrap(), 1)).unwrap();
    let about = About {
        model: model.clone(),
        layout,
        dtype: T::TYPE,
        step: 7,
        samples: 0,
        tokens: 0,
        seed: 0,
        hyper: Value::Null,
        data: Value::Null,
        run: Value::Null,
        hugging_face,
    };
    let draft = Draft::begin(folder, 7).unwrap();
    draft.write(0, &tiles).unwrap();
    draft.commit(&about, &shapes, &[0]).unwrap();
}

/// A model of this program, in double precision, that was never imported.
#[test]
fn a_model_trained_from_scratch_is_exported_and_read_again() {
    let gpt = Model::gpt(2, 12, 3, 11, 7);
    let llama = gpt.reshaped(|m| {
        m.kv_heads = 1;
        m.tied_head = false;
        m.biases = false;
        m.norm = Norm::Rms;
        m.positions = Positions::Rotary;
        m.activation = Activation::Swiglu;
    });
    for (model, model_type) in [(gpt, "gpt2"), (llama, "llama")] {
        let out = tempfile::tempdir().unwrap();
        let [first, folder, second] = ["first", "folder", "second"].map(|name| out.path().join(name));
        write::<f64>(&model, &first, None, |index| index as f64 + 1.0 / 1024.0);
        let options = ExportOptions { shard_size: 2000, ..ExportOptions::default() };
        let (exported, notes) = export(Checkpoint::find(&first).unwrap(), &folder, options).unwrap();
        assert_eq!((exported.family, exported.rounded, notes.len()), (model_type, 0, 0));
        assert!(exported.files.len() > 2);
        imported(&folder, &second).unwrap();
        let [first, second] = [first, second].map(|path| Checkpoint::find(&path).unwrap());
        let named = |model: &Model| Model { name: String::new(), ..model.clone() };
        assert_eq!(named(&second.about().model), named(&model));
        assert_eq!(first.tensors(), second.tensors());
        for shape in first.tensors() {
            let numbers = |checkpoint: &Checkpoint| checkpoint.whole::<f64>(&shape.name, Quantity::Value).unwrap();
            assert_eq!(numbers(&first), numbers(&second), "{}", shape.name);
        }
    }
}

#[test]
fn rounding_of_double_precision_is_counted() {
    let model = Model::gpt(1, 8, 2, 5, 6);
    let out = tempfile::tempdir().unwrap();
    write::<f64>(&model, &out.path().join("c"), None, |index| if index < 10 { 0.1 } else { 0.5 });
    let checkpoint = || Checkpoint::find(&out.path().join("c")).unwrap();
    let to = |dtype| ExportOptions { dtype: Some(dtype), ..ExportOptions::default() };
    for dtype in [StoredType::F32, StoredType::Bf16] {
        let (exported, _) = export(checkpoint(), &out.path().join(dtype.name()), to(dtype)).unwrap();
        assert_eq!((exported.rounded, exported.dtype), (10, dtype));
    }
    write::<f64>(&model, &out.path().join("large"), None, |_| 1e300);
    let large = Checkpoint::find(&out.path().join("large")).unwrap();
    let message = export(large, &out.path().join("x"), to(StoredType::F32)).unwrap_err().to_string();
    assert!(
        message.starts_with("tensor transformer.wte.weight holds 1e300, more than the largest number of f32"),
        "{message}"
    );
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let at = |name: &str| out.path().join(name);
    let gpt = Model::gpt(1, 8, 2, 5, 6);
    write::<f32>(&gpt.reshaped(|m| m.biases = false), &at("plain"), None, |_| 0.5);
    let message =
        export(Checkpoint::find(&at("plain")).unwrap(), &at("x"), ExportOptions::default()).unwrap_err().to_string();
    assert_eq!(message, "biases = false: the linear layers of gpt2 have biases; export a model that the library has");
    write::<f32>(&gpt, &at("odd"), Some(json!({"config": 3})), |_| 0.5);
    let message =
        export(Checkpoint::find(&at("odd")).unwrap(), &at("x"), ExportOptions::default()).unwrap_err().to_string();
    assert!(message.starts_with("the checkpoint's record of its import cannot be read: "), "{message}");
    // A number of the first tensor is damaged.
    write::<f32>(&gpt, &at("damaged"), None, |_| 0.5);
    let file = at("damaged/step-000000000007/rank-00000.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, bytes).unwrap();
    let error = export(Checkpoint::find(&at("damaged")).unwrap(), &at("x"), ExportOptions::default()).unwrap_err();
    assert!(matches!(error, HuggingFaceError::Checkpoint(_)), "{error}");
    assert!(!at("x").exists());
}
