//! Folders that are damaged, mixed up or of other models: refused by file and tensor, never a panic.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use quadrille_hugging_face::Source;
use safetensors::Dtype;
use serde_json::json;
use tempfile::TempDir;

use crate::common::{FOLDERS, config, fixture, folder, raw};

/// A copy of a folder of weights, to be damaged.
fn copy(name: &str) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

/// The refusal of a folder: opened, then read.
fn refusal(folder: &Path) -> Option<String> {
    let mut source = match Source::open(folder, &[]) {
        Ok(source) => source,
        Err(error) => return Some(full(&error)),
    };
    (0..source.tensors().len()).find_map(|index| source.read(index).err().map(|error| full(&error)))
}

/// An error with its causes.
fn full(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn refused(folder: &Path, parts: &[&str]) {
    let message = refusal(folder).expect("refused");
    for part in parts {
        assert!(message.contains(part), "{message}\nlacks {part}");
    }
}

#[test]
fn whole_folders_are_read() {
    for name in FOLDERS {
        assert_eq!(refusal(&fixture(name)), None);
    }
}

#[test]
fn experts_are_not_put_into_folders_of_perceptrons() {
    let set = [("experts", "4"), ("capacity", "2")].map(|(field, value)| (field.to_owned(), value.to_owned()));
    let message = full(&Source::open(&fixture("llama"), &set).map(|_| ()).unwrap_err());
    assert!(message.contains("experts = 4: the folder's weights are of perceptrons"), "{message}");
}

/// Latent attention was refused as a table of positions.
#[test]
fn fields_that_ask_for_other_weights_are_named() {
    let mut settings = config(&fixture("llama"));
    settings["num_key_value_heads"] = settings["num_attention_heads"].clone();
    let whole = folder(&settings, &raw(&fixture("llama")));
    let refused = |fields: &[(&str, &str)]| {
        let fields: Vec<_> = fields.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        full(&Source::open(whole.path(), &fields).map(|_| ()).unwrap_err())
    };
    let latent = [("key_value_latent", "8"), ("shared_key", "2")];
    for fields in [&latent[..], &[&latent[..], &[("query_latent", "4")]].concat()] {
        let message = refused(fields);
        assert!(message.contains("key_value_latent = 8: a llama has no latent attention; leave"), "{message}");
    }
    assert!(refused(&[("positions", "learned")]).contains("positions = learned: a llama has no table of positions"));
    assert!(refused(&[("qk_norm", "rms")]).contains("qk_norm = rms: a llama has no norms of queries and keys"));
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let llama = raw(&fixture("llama"));
    let settings = config(&fixture("llama"));
    let key = "model.layers.1.self_attn.k_proj.weight";

    let mut missing = llama.clone();
    missing.remove(key);
    refused(folder(&settings, &missing).path(), &[key, "it is missing", "20 tensors"]);

    let mut extra = llama.clone();
    extra.insert("model.layers.2.mlp.up_proj.weight".to_owned(), llama[key].clone());
    refused(
        folder(&settings, &extra).path(),
        &["model.safetensors: tensor model.layers.2.mlp.up_proj.weight", "of 2 layers as config.json", "has none"],
    );

    let mut shaped = llama.clone();
    shaped.get_mut(key).unwrap().1 = vec![32, 16];
    refused(folder(&settings, &shaped).path(), &[key, "its shape is [32, 16], and by config.json it is [16, 32]"]);

    let mut typed = llama.clone();
    let (dtype, _, bytes) = typed.get_mut(key).unwrap();
    (*dtype, *bytes) = (Dtype::F64, bytes.repeat(2));
    refused(folder(&settings, &typed).path(), &[key, "type F64", "float32, float16 or bfloat16"]);

    // Weights of another model than the configuration's.
    refused(folder(&config(&fixture("gpt2")), &llama).path(), &["tensor transformer.wte.weight: it is missing"]);
    // Frequencies of older versions do no harm.
    let mut older = llama.clone();
    older.insert("model.layers.0.self_attn.rotary_emb.inv_freq".to_owned(), (Dtype::F32, vec![4], vec![0; 16]));
    assert_eq!(refusal(folder(&settings, &older).path()), None);
}

#[test]
fn a_tied_head_that_is_another_is_refused() {
    let mut tied = raw(&fixture("llama-tied"));
    let settings = config(&fixture("llama-tied"));
    let table = tied["model.embed_tokens.weight"].clone();
    tied.insert("lm_head.weight".to_owned(), table.clone());
    assert_eq!(refusal(folder(&settings, &tied).path()), None);
    // The last bit of the last number.
    let bytes = &mut tied.get_mut("lm_head.weight").unwrap().2;
    let last = bytes.len() - 4;
    bytes[last] ^= 1;
    let parts = [
        "tensor lm_head.weight",
        "ties it to model.embed_tokens.weight, and it is another",
        "\"tie_word_embeddings\": false",
    ];
    refused(folder(&settings, &tied).path(), &parts);
    // What the remedy says.
    let mut untied = settings.clone();
    untied["tie_word_embeddings"] = json!(false);
    assert_eq!(refusal(folder(&untied, &tied).path()), None);
    tied.insert("lm_head.weight".to_owned(), (table.0, vec![32, 97], table.2));
    refused(folder(&settings, &tied).path(), &["tensor lm_head.weight"]);
    // An untied model without its head.
    refused(folder(&untied, &raw(&fixture("llama-tied"))).path(), &["tensor lm_head.weight: it is missing"]);
}

#[test]
fn folders_without_a_model_are_refused() {
    let empty = tempfile::tempdir().unwrap();
    refused(empty.path(), &["there is no config.json", "save_pretrained"]);
    refused(&empty.path().join("missing"), &["cannot read", "missing/config.json"]);
    fs::copy(fixture("llama").join("config.json"), empty.path().join("config.json")).unwrap();
    refused(empty.path(), &["neither model.safetensors nor model.safetensors.index.json"]);
    fs::create_dir(empty.path().join("model.safetensors")).unwrap();
    refused(empty.path(), &["cannot read", "model.safetensors"]);

    // Opening a pipe would wait for its writer for ever.
    for name in ["config.json", "model.safetensors"] {
        let piped = copy("llama");
        fs::remove_file(piped.path().join(name)).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(piped.path().join(name)).status().unwrap().success());
        refused(piped.path(), &["cannot read", name, "not a regular file"]);
    }

    let other = copy("llama");
    let mut settings = config(other.path());
    settings["rope_parameters"] = json!({"rope_type": "yarn"});
    fs::write(other.path().join("config.json"), settings.to_string()).unwrap();
    refused(other.path(), &["cannot use", "config.json: rope_parameters = "]);
    fs::write(other.path().join("config.json"), "{").unwrap();
    refused(other.path(), &["config.json"]);
    fs::write(other.path().join("config.json"), [0xff; 9]).unwrap();
    refused(other.path(), &["config.json: it is not UTF-8 text"]);
    fs::write(other.path().join("config.json"), vec![b' '; (1 << 20) + 1]).unwrap();
    refused(other.path(), &["config.json: it has 1048577 bytes"]);
}

#[test]
fn weights_of_other_kinds_are_named() {
    const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 440473133\n";
    for (name, kind) in [
        ("pytorch_model.bin", "a pickle of PyTorch, which runs code"),
        ("consolidated.00.pth", "a pickle of PyTorch, which runs code"),
        ("llama-q4.gguf", "a model of llama.cpp"),
    ] {
        let folder = copy("llama");
        fs::rename(folder.path().join("model.safetensors"), folder.path().join(name)).unwrap();
        refused(folder.path(), &[&format!("its weights are {name}, {kind}"), "neither model.safetensors nor"]);
    }
    for name in ["config.json", "model.safetensors"] {
        let folder = copy("llama");
        fs::write(folder.path().join(name), POINTER).unwrap();
        refused(folder.path(), &[name, "it is a pointer of Git LFS", "git lfs pull"]);
    }
    let folder = copy("llama");
    let mut settings = config(folder.path());
    settings["quantization_config"] = json!({"quant_method": "gptq", "bits": 4, "group_size": 128});
    fs::write(folder.path().join("config.json"), settings.to_string()).unwrap();
    refused(folder.path(), &["quantization_config = {", "quantized by gptq", "take the model that was quantized"]);
    // Older programs say it in a file beside config.json.
    let mut tensors = raw(&fixture("llama"));
    let name = "model.layers.0.mlp.up_proj.weight";
    let weight = tensors.remove(name).unwrap();
    tensors.insert(name.replace(".weight", ".qweight"), weight);
    refused(self::folder(&config(&fixture("llama")), &tensors).path(), &["qweight: it is quantized by GPTQ or AWQ"]);
}

#[test]
fn shards_that_do_not_fit_their_index_are_named() {
    let second = "model-00002-of-00003.safetensors";
    let index = "model.safetensors.index.json";
    let missing = copy("llama-sharded");
    fs::remove_file(missing.path().join(second)).unwrap();
    refused(missing.path(), &["cannot read", second]);

    let swapped = copy("llama-sharded");
    let [one, two] = ["model-00001-of-00003.safetensors", second].map(|name| swapped.path().join(name));
    let first = fs::read(&one).unwrap();
    fs::rename(&two, &one).unwrap();
    fs::write(&two, &first).unwrap();
    refused(swapped.path(), &[index, "says that it is there, and it is in"]);

    let twice = copy("llama-sharded");
    fs::write(twice.path().join(second), &first).unwrap();
    refused(twice.path(), &["has it, too"]);

    let set = |map: serde_json::Value| {
        let folder = copy("llama-sharded");
        fs::write(folder.path().join(index), json!({"weight_map": map}).to_string()).unwrap();
        folder
    };
    refused(set(json!({})).path(), &[index, "no weight_map"]);
    refused(set(json!({"model.norm.weight": 3})).path(), &[index, "model.norm.weight is 3, not a file's name"]);
    for outside in ["../model.safetensors", "/etc/passwd", "a/b", "..", ""] {
        refused(set(json!({"model.norm.weight": outside})).path(), &[index, "not a file's name"]);
    }
    refused(set(json!({"model.other": second})).path(), &["model.other", "says that it is there, and it is not"]);
    refused(set(json!({"model.norm.weight": "model-00003-of-00003.safetensors"})).path(), &["it is missing"]);
}

#[test]
fn cut_and_lengthened_files_are_named() {
    let file = |folder: &TempDir| folder.path().join("model.safetensors");
    let whole = fs::read(fixture("llama").join("model.safetensors")).unwrap();
    for length in [0, 7, 8, 100, whole.len() - 1] {
        let cut = copy("llama");
        fs::write(file(&cut), &whole[..length]).unwrap();
        refused(cut.path(), &["model.safetensors is damaged", "copy or download it again"]);
    }
    let long = copy("llama");
    fs::write(file(&long), [whole.as_slice(), b"x"].concat()).unwrap();
    refused(long.path(), &["model.safetensors is damaged: something follows its tensors"]);
    // A header that would take all memory.
    let absurd = copy("llama");
    fs::write(file(&absurd), [&u64::MAX.to_le_bytes()[..], &whole[8..]].concat()).unwrap();
    refused(absurd.path(), &["its header would have 18446744073709551615 bytes"]);
    // A tensor that would.
    let huge = copy("llama");
    let header =
        format!(r#"{{"model.norm.weight":{{"dtype":"F32","shape":[{0},{0}],"data_offsets":[0,4]}}}}"#, u64::MAX);
    fs::write(file(&huge), [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 4]].concat()).unwrap();
    refused(huge.path(), &["model.safetensors is damaged: its header cannot be read"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any file cut anywhere is refused.
    #[test]
    fn truncation_is_noticed(which in 0..5_usize, part in 0.0..1.0_f64) {
        let folder = copy("llama-sharded");
        let mut paths: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let path = &paths[which];
        let bytes = fs::read(path).unwrap();
        // The last byte of the texts may be a line's end.
        let length = ((bytes.len() - 1) as f64 * part) as usize;
        fs::write(path, &bytes[..length]).unwrap();
        let message = refusal(folder.path());
        prop_assert!(message.is_some(), "{} of {length} bytes was read", path.display());
        let name = path.file_name().unwrap().to_str().unwrap();
        prop_assert!(message.as_ref().unwrap().contains(name), "{message:?} does not name {name}");
    }

    /// A changed header is refused, or describes the same tensors; it never panics.
    #[test]
    fn flipped_bits_of_headers_do_not_panic(at in 0.0..1.0_f64, bit in 0..8_u8) {
        let folder = copy("gpt2-f16");
        let path = folder.path().join("model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        bytes[(header as f64 * at) as usize] ^= 1 << bit;
        fs::write(&path, &bytes).unwrap();
        match refusal(folder.path()) {
            Some(message) => prop_assert!(message.contains("model.safetensors") || message.contains("tensor "), "{message}"),
            // A bit of the metadata, of a name of the same meaning or of white space.
            None => {
                let folder_shapes = |folder: &Path| raw(folder).into_iter().map(|(name, raw)| (name, raw.1)).collect::<Vec<_>>();
                prop_assert_eq!(folder_shapes(folder.path()), folder_shapes(&fixture("gpt2-f16")));
            }
        }
    }

    /// Nor does a changed index or configuration.
    #[test]
    fn flipped_bits_of_texts_do_not_panic(config in any::<bool>(), at in 0.0..1.0_f64, bit in 0..8_u8) {
        let folder = copy("llama-sharded");
        let path = folder.path().join(if config { "config.json" } else { "model.safetensors.index.json" });
        let mut bytes = fs::read(&path).unwrap();
        let at = (bytes.len() as f64 * at) as usize;
        bytes[at] ^= 1 << bit;
        fs::write(&path, &bytes).unwrap();
        let _ = refusal(folder.path());
    }
}

/// Another program cuts a shard that is open already.
#[test]
fn a_shard_that_is_cut_while_it_is_open_is_named() {
    let folder = copy("llama-sharded");
    let mut source = Source::open(folder.path(), &[]).unwrap();
    let name = "model-00002-of-00003.safetensors";
    fs::OpenOptions::new().write(true).open(folder.path().join(name)).unwrap().set_len(300).unwrap();
    let errors: Vec<String> =
        (0..source.tensors().len()).filter_map(|index| source.read(index).err().map(|error| full(&error))).collect();
    assert!(!errors.is_empty());
    for error in errors {
        assert!(error.contains(name) && error.contains("has become shorter"), "{error}");
    }
}

/// A configuration that is read may be of weights that are not.
#[test]
fn weights_of_a_family_whose_configuration_alone_is_read_are_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../spec/tests/data/hugging_face/deepseek-v3.json");
    fs::copy(config, folder.path().join("config.json")).unwrap();
    refused(folder.path(), &["weights of deepseek_v3 are not read, its configuration is", "take weights of gemma, "]);
}
