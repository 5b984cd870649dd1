//! Models of described blocks on the command line: what they train and verify, and who refuses them.

mod common;
#[path = "common/refusals.rs"]
mod refusals;

use common::{json, run};
use refusals::{folder_with, refused, refused_in};

/// What Gemma 2 has of its own, small: heads apart from the stream, windows in every second block, caps, norms on both sides.
const GEMMA: &str = "--set head_dim=16 --set kv_heads=2 --set heads=4 --set window=3 --set blocks.1/2.window=0 \
                     --set attention_cap=5 --set norm=rms --set norm_place=both --set norm_offset=true \
                     --set positions=rotary --set activation=geglu --set biases=false";

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
    let field = "--set window=4";
    for line in [
        format!("plan --model gpt-tiny {field} --cluster selene --gpus 8 --global-batch 8"),
        format!("plan --cost axonn --model gpt-tiny {field} --ranks 2 --global-batch 4"),
        format!("export --to megatron --model gpt-tiny {field} --grid x=2"),
    ] {
        refused(&line, &["window = 4", "models of alike blocks"]);
    }
    let file = "name='mine'\nlayers=2\nhidden=12\nheads=3\nvocab=17\nseq_len=8\n[[blocks]]\nat=[1]\nffn=24\n";
    let folder = folder_with("mine.toml", file);
    refused_in(folder.path(), "export --to megatron --model mine.toml --grid x=3", &["blocks = 2 kinds"]);
}

#[test]
fn summaries_tell_what_blocks_differ_in() {
    let line = format!("explain --model gpt-tiny {GEMMA} --grid x=2 --global-batch 4");
    let folder = tempfile::tempdir().unwrap();
    let told = String::from_utf8(run(folder.path(), &line).stdout).unwrap();
    for words in ["of 16 numbers", "norms before and after", "windows in part", "capped scores", "geglu"] {
        assert!(told.contains(words), "{words}: {told}");
    }
}
