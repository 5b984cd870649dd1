//! Models of described blocks on the command line: what they train and verify, and who refuses them.

use serde_json::Value;

use crate::common::{json, run};
use crate::refusals::{folder_with, refused, refused_in};

/// What Gemma 2 has of its own, small: embedded tokens with a factor, heads apart from the stream, windows in every second block,
/// caps, norms on both sides.
const GEMMA: &str = "--set head_dim=16 --set kv_heads=2 --set heads=4 --set window=3 --set blocks.1/2.window=0 \
                     --set attention_cap=5 --set norm=rms --set norm_place=both --set norm_offset=true \
                     --set positions=rotary --set activation=geglu --set biases=false --set embedding_scale=5.5 \
                     --set logit_cap=2";

#[test]
fn described_blocks_equal_the_serial_model() {
    let document = json(&format!("verify --model gpt-tiny {GEMMA} --grid x=2,y=2,z=2 --steps 2 --global-batch 4"));
    assert_eq!(document["grids"][0]["ok"], true, "{document}");
    let others = "--set qk_norm=rms --set rotary_dim=4 --set positions=rotary --set rotary_scaling=llama3 \
                  --set rotary_factor=8 --set rotary_positions=8 --set residual=parallel --set residual_scale=0.5 \
                  --set qkv_bias=true --set biases=false --set activation=relu2";
    let document = json(&format!("verify --model gpt-tiny {others} --grid x=2,data=2,pipe=2 --global-batch 4"));
    assert_eq!(document["grids"][0]["ok"], true, "{document}");
}

#[test]
fn what_knows_classic_blocks_only_names_the_field() {
    for (field, value) in [("attention_cap", "4"), ("embedding_scale", "5.5"), ("logit_cap", "20")] {
        let set = format!("--set {field}={value}");
        for line in [
            format!("paper axonn plan --model gpt-tiny {set} --gpus 2 --global-batch 4"),
            format!("export --to megatron --model gpt-tiny {set} --grid x=2"),
            format!("export --to torchtitan --model gpt-tiny {set} --grid x=2"),
        ] {
            refused(&line, &[&format!("{field} = {value}"), "models of alike blocks"]);
        }
    }
    let file = "name='mine'\nlayers=2\nhidden=12\nheads=3\nvocab=17\nseq_len=8\n[[blocks]]\nat=[1]\nffn=24\n";
    let folder = folder_with("mine.toml", file);
    refused_in(folder.path(), "export --to megatron --model mine.toml --grid x=3", &["blocks = 2 kinds"]);
}

/// A file whose blocks differ: the winner of a plan has the price that `explain` and a layout's file give.
#[test]
fn plans_price_described_blocks_as_explanations_do() {
    let file = "name='mine'\nlayers=4\nhidden=48\nheads=4\nkv_heads=2\nhead_dim=16\nvocab=64\nseq_len=16\n\
                [[blocks]]\nat=[1, 3]\nffn=96\nwindow=4\nqk_norm='rms'\n";
    let folder = folder_with("mine.toml", file);
    let document = |line: &str| -> Value {
        let output = run(folder.path(), &format!("{line} --model mine.toml --cluster selene --global-batch 8 --json"));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let mut planned = document("plan --gpus 4 --out best.toml")["plans"][0].take();
    // An explanation looks at no other layouts of the grid.
    assert!(planned.as_object_mut().and_then(|plan| plan.remove("variants")).is_some());
    let explained = &document("explain --price --layout best.toml")["plan"];
    assert_eq!(explained, &planned);
    assert!(planned["time_s"].as_f64().unwrap() > 0.0);
    let open = &document("explain --price --ranks 4 --grid auto")["plan"];
    assert!(open["time_s"].as_f64() >= planned["time_s"].as_f64(), "{open}");
}

#[test]
fn summaries_tell_what_blocks_differ_in() {
    let line = format!("explain --model gpt-tiny {GEMMA} --grid x=2 --global-batch 4");
    let folder = tempfile::tempdir().unwrap();
    let told = String::from_utf8(run(folder.path(), &line).stdout).unwrap();
    for words in [
        "of 16 numbers",
        "norms before and after",
        "windows in part",
        "capped scores",
        "geglu",
        "scaled embeddings",
        "capped logits",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}
