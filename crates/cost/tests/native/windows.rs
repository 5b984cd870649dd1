//! Prices of models with sliding windows.

use quadrille_cost::native::{Framework, Problem};
use quadrille_spec::{Cluster, Layout, LayoutRequest, Model};

/// 40 of 48 blocks have windows of 1,024 tokens: of 12 FLOPs for a key and a column of queries, 4,096 of them, 31,744 keys fewer.
#[test]
fn windows_of_gemma_count_their_keys() {
    let model = Model::preset("gemma3-12b").unwrap();
    let open = Model { blocks: model.blocks.each(|block| block.attention.window = None), ..model.clone() };
    let cluster = Cluster::preset("dgx-h100").unwrap();
    let price = |model: &Model, framework: Framework| {
        let request = LayoutRequest {
            seq_len: Some(32_768),
            microbatch: Some(1),
            ..LayoutRequest::new("x=8".parse().unwrap(), 8)
        };
        let layout = Layout::new(model, &request).unwrap();
        Problem::new(model, &cluster, framework, 8, 32_768).unwrap().price_layout(&layout).unwrap()
    };
    let fewer = 40.0 * 12.0 * 4096.0 * (32_768.0 - 1024.0) * 262_144.0;
    for framework in [Framework::QUADRILLE, Framework::MEGATRON, Framework::MEGATRON_STORED, Framework::FSDP] {
        let [windows, all] = [&model, &open].map(|model| price(model, framework));
        assert!((windows.model_flops / 2.241e16 - 1.0).abs() < 1e-3, "{:e}", windows.model_flops);
        assert!((all.model_flops / 3.877e16 - 1.0).abs() < 1e-3, "{:e}", all.model_flops);
        assert!(((all.model_flops - windows.model_flops) / fewer - 1.0).abs() < 1e-12);
        let saved = all.executed_flops - windows.executed_flops;
        match framework.name {
            // Scores are made, kept and weighted whole.
            "megatron-stored" => assert_eq!((saved, all.seconds, all.memory), (0.0, windows.seconds, windows.memory)),
            _ => {
                assert!((saved / fewer - 1.0).abs() < 1e-9, "{}: {saved:e}", framework.name);
                assert!(windows.parts.compute < 0.75 * all.parts.compute, "{}: {windows:?}, {all:?}", framework.name);
            }
        }
    }
    // A window that no sequence reaches is none.
    let wide = Model { blocks: model.blocks.each(|block| block.attention.window = Some(32_768)), ..model.clone() };
    assert_eq!(price(&wide, Framework::MEGATRON), price(&open, Framework::MEGATRON));
}
