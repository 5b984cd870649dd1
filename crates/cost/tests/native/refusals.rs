//! Problems that are refused, by name and with a remedy.

use quadrille_cost::native::{Framework, Problem};
use quadrille_spec::{Cluster, Model, Tier};

fn refusal(cluster: &Cluster, global_batch: usize, seq_len: usize) -> String {
    let model = Model::gpt(4, 64, 4, 128, 32);
    Problem::new(&model, cluster, Framework::MEGATRON_STORED, global_batch, seq_len).unwrap_err().to_string()
}

#[test]
fn clusters_that_say_too_little_are_refused() {
    let selene = Cluster::preset("selene").unwrap();
    let message = refusal(&Cluster { device: None, ..selene.clone() }, 8, 32);
    assert!(message.starts_with("device = none in selene") && message.contains("a100-80"), "{message}");
    let message = refusal(&Cluster { tiers: Vec::new(), ..selene.clone() }, 8, 32);
    assert!(message.starts_with("tiers = none in selene") && message.contains("innermost first"), "{message}");
    let inner = Tier { devices: Some(8), ..selene.tiers[0].clone() };
    let message = refusal(&Cluster { tiers: vec![inner; 6], ..selene }, 8, 32);
    assert!(message.starts_with("tiers = 6: the native model has at most 5 tiers"), "{message}");
}

#[test]
fn batches_and_sequences_of_nothing_are_refused() {
    let selene = Cluster::preset("selene").unwrap();
    let message = refusal(&selene, 0, 32);
    assert!(message.starts_with("global-batch = 0: it must be at least 1"), "{message}");
    let message = refusal(&selene, 8, 0);
    assert!(message.starts_with("seq-len = 0: it must be at least 1"), "{message}");
}

#[test]
fn counts_that_would_overflow_are_refused() {
    let selene = Cluster::preset("selene").unwrap();
    for (global_batch, seq_len) in [(usize::MAX, 32), (8, usize::MAX), (1 << 40, 1 << 20), (usize::MAX, usize::MAX)] {
        let message = refusal(&selene, global_batch, seq_len);
        assert!(message.contains("has at most 1e18 bytes"), "{message}");
    }
    // Rows that attention narrows the stream to, wider than all else.
    let latent = "name = 'wide'\nlayers = 1\nhidden = 64\nheads = 4\nvocab = 128\nseq_len = 32\nkey_value_latent = 1048576\n\
        shared_key = 4\n";
    let model = Model::from_toml(latent, &[]).unwrap();
    let refused = Problem::new(&model, &selene, Framework::MEGATRON_STORED, 1 << 32, 32).unwrap_err().to_string();
    assert!(refused.contains("32 tokens a sequence and 1048576 columns has at most"), "{refused}");
}

#[test]
fn unknown_frameworks_are_refused_with_the_known_ones() {
    let message = Framework::by_name("tensorflow").unwrap_err().to_string();
    assert!(message.contains("quadrille") && message.contains("megatron") && message.contains("fsdp"), "{message}");
}
