use crate::{Axis, AxisSet, Layout, LayoutRequest, Linear, Model, Schedule};

fn model() -> Model {
    Model::gpt(1, 12, 6, 17, 6)
}

fn request(grid: &str, global_batch: usize) -> LayoutRequest {
    LayoutRequest::new(grid.parse().unwrap(), global_batch)
}

#[test]
fn sizes_that_are_no_powers_of_two_are_possible() {
    let layout = Layout::new(&model(), &request("x=3,y=2,data=2", 8)).unwrap();
    assert_eq!((layout.rows(), layout.microbatches(), layout.padded_vocab(&model())), (24, 1, 18));
}

#[test]
fn vocabularies_are_padded_for_each_of_their_parts() {
    for (grid, multiple, padded) in
        [("x=3,y=2", 1, 18), ("x=3,y=2", 4, 24), ("x=3", 8, 24), ("data=2", 16, 32), ("x=1", 17, 17)]
    {
        let asked = LayoutRequest { vocab_multiple: multiple, ..request(grid, 8) };
        let layout = Layout::new(&model(), &asked).unwrap();
        assert_eq!(layout.padded_vocab(&model()), padded, "{grid}, {multiple}");
    }
    let refused = |model: &Model, multiple| {
        let asked = LayoutRequest { vocab_multiple: multiple, ..request("x=1", 8) };
        Layout::new(model, &asked).unwrap_err().to_string()
    };
    assert!(refused(&model(), 0).starts_with("vocab-multiple = 0: it must be 1 to 4096"));
    assert!(refused(&model(), 4097).ends_with("try `layout.vocab_multiple` 4096"));
    let many = LayoutRequest { vocab_multiple: 4096, ..request("x=6,y=4", 24) };
    let message = Layout::new(&model(), &many).unwrap_err().to_string();
    assert!(message.contains("are padded to 98304 rows, at most 65536; try `layout.vocab_multiple` 2730"), "{message}");
    let fewer = LayoutRequest { vocab_multiple: 2730, ..many };
    assert!(Layout::new(&model(), &fewer).is_ok());
    let patches = Model::preset("vit-tiny").unwrap();
    assert!(refused(&patches, 2).contains("it must be 1: the model has no vocabulary to pad"));
}

#[test]
fn refusals_name_rule_and_remedy() {
    let message = |grid, batch| Layout::new(&model(), &request(grid, batch)).unwrap_err().to_string();
    assert_eq!(message("x=4", 4), "x=4 does not divide heads = 6; try x=3 or 6");
    assert_eq!(message("y=5", 60), "y=5 does not divide hidden = 12; try y=4 or 6");
    assert!(message("data=3", 4).ends_with("multiple of data=3; try `layout.global_batch` 3 or 6"));
    assert!(message("z=4", 6).contains("multiple of z=4, over which it is split; try `layout.global_batch` 4 or 8"));
    assert!(message("y=2", 3).ends_with("z*y = 1*2; try `layout.global_batch` 2 or 4"));
    let long = LayoutRequest { seq_len: Some(7), ..request("x=1", 1) };
    assert!(Layout::new(&model(), &long).unwrap_err().to_string().contains("6 positions"));
    let odd = LayoutRequest { microbatch: Some(3), ..request("x=1", 8) };
    assert!(Layout::new(&model(), &odd).unwrap_err().to_string().ends_with("try `layout.microbatch` 2 or 4"));
    // A share of 12 in multiples of z*y = 2: 2, 4, 6 and 12 are possible, 3 and 8 are not.
    for (microbatch, remedy) in [(3, "try `layout.microbatch` 2 or 4"), (8, "try `layout.microbatch` 6 or 12")] {
        let request = LayoutRequest { microbatch: Some(microbatch), ..request("z=2", 12) };
        let message = Layout::new(&model(), &request).unwrap_err().to_string();
        assert!(message.ends_with(remedy), "{message}");
    }
    let none = LayoutRequest { microbatch: Some(0), ..request("x=1", 8) };
    assert!(Layout::new(&model(), &none).unwrap_err().to_string().starts_with("microbatch = 0: it must be at least 1"));
}

#[test]
fn expert_and_data_cut_the_batch_together() {
    let message = |grid, batch| Layout::new(&model(), &request(grid, batch)).unwrap_err().to_string();
    let refused = message("expert=2,data=3", 8);
    assert!(refused.starts_with("global-batch = 8: it must be a multiple of data=3 times expert=2"), "{refused}");
    assert!(refused.contains("`layout.global_batch` 6 or 12"), "{refused}");
    assert!(message("expert=3", 4).contains("it must be a multiple of expert=3; try `layout.global_batch` 3 or 6"));
    let odd = LayoutRequest { microbatch: Some(3), ..request("expert=2,data=2", 16) };
    let refused = Layout::new(&model(), &odd).unwrap_err().to_string();
    assert!(refused.contains("the 4 sequences of a (data, expert) rank (global-batch / (data * expert))"), "{refused}");
    let layout = Layout::new(&model(), &request("expert=2,data=3", 12)).unwrap();
    assert_eq!(
        (layout.microbatch, layout.microbatches(), layout.replicating(AxisSet::EMPTY).key()),
        (2, 1, "expert+data".to_owned())
    );
    // Data is named beside the others at any size, alone never where it is 1.
    let replicating = |grid: &str, blocks| Layout::new(&model(), &request(grid, 4)).unwrap().replicating(blocks).key();
    assert_eq!(replicating("expert=2", AxisSet::EMPTY), "expert+data");
    assert_eq!(replicating("expert=2", Axis::Expert.only()), AxisSet::EMPTY.key());
    assert_eq!(replicating("x=2,z=2", AxisSet::EMPTY), AxisSet::EMPTY.key());
}

#[test]
fn remedies_keep_all_rules_of_their_axis() {
    // 6 divides the heads, too, but not the perceptron.
    let narrow = model().reshaped(|m| m.ffn = 15);
    let message = |model: &Model, grid: &str, batch| Layout::new(model, &request(grid, batch)).unwrap_err().to_string();
    assert_eq!(message(&narrow, "x=4", 4), "x=4 does not divide heads = 6; try x=3");
    assert_eq!(message(&narrow, "x=2", 4), "x=2 does not divide the perceptron's width = 15; try x=1 or 3");
    // z: 432, 144, 576 and 17 * 12 = 204 have the divisors of 12 in common, those with 20 sequences are 1, 2, 4.
    assert_eq!(message(&model(), "z=5", 20), "z=5 does not divide the tile of the qkv weight = 432; try z=4");
    assert_eq!(message(&model(), "z=5", 24), "z=5 does not divide the tile of the qkv weight = 432; try z=4 or 6");
    // y = 2 takes half of the sequences: z = 4 would leave 6 of 24 for it, 2 * 4 does not divide 20.
    assert!(message(&model(), "y=2,z=5", 20).ends_with("try z=2"), "{}", message(&model(), "y=2,z=5", 20));
    assert!(Layout::new(&model(), &request("y=2,z=2", 20)).is_ok());
}

#[test]
fn keys_are_held_whole_or_copied_whole() {
    let grouped = model().reshaped(|m| {
        m.heads = 12;
        m.kv_heads = 4;
        m.ffn = 48;
    });
    let message = |grid: &str| Layout::new(&grouped, &request(grid, 12)).unwrap_err().to_string();
    let rule = "it must divide kv_heads = 4, or be a multiple of it: each rank holds whole keys";
    assert_eq!(message("x=3"), format!("x = 3: {rule}; try x=2 or 4"));
    assert_eq!(message("x=6"), format!("x = 6: {rule}; try x=4 or 12"));
    assert_eq!(message("x=5"), "x=5 does not divide heads = 12; try x=4 or 12");
    let layout = |grid: &str| Layout::new(&grouped, &request(grid, 12)).unwrap();
    let attention = &grouped.blocks.first().attention;
    let held =
        |layout: &Layout| (layout.kv_heads(attention), layout.kv_copies(attention), layout.group_heads(attention));
    assert_eq!((held(&layout("x=2")), layout("x=2").qkv_width(attention)), ((4, 1, 3), 20));
    assert_eq!((held(&layout("x=12")), layout("x=12").qkv_width(attention)), ((12, 3, 1), 36));
    // A tile of 12 rows and (1 + 2) columns: 4 rows for each z rank.
    assert!(Layout::new(&grouped, &request("x=12,z=3", 12)).is_ok());
    let message =
        Layout::new(&model().reshaped(|m| m.kv_heads = 1), &request("x=2,y=4,z=2", 16)).unwrap_err().to_string();
    let rows = "z=2 does not divide the rows of the qkv weight's tile (x copies keys) = 3; try z=1";
    assert_eq!(message, rows);
}

#[test]
fn some_faults_do_not_depend_on_the_grid() {
    let fault = |change: fn(&mut LayoutRequest)| {
        let mut request = request("x=1", 8);
        change(&mut request);
        request.check_without_grid(&model(), 8).unwrap_err().to_string()
    };
    assert!(fault(|request| request.global_batch = 0).starts_with("global-batch = 0"));
    assert!(
        fault(|request| request.seq_len = Some(7))
            .starts_with("seq-len = 7: it must be 1 to 6: the model has 6 positions")
    );
    assert!(fault(|request| request.per_node = Some(0)).starts_with("per-node = 0"));
    let nodes = fault(|request| request.per_node = Some(3));
    assert_eq!(nodes, "per-node=3 does not divide the number of ranks = 8; try `layout.per_node` 2 or 4");
    assert_eq!(request("x=5", 3).check_without_grid(&model(), 5), Ok(()));
}

#[test]
fn pipelines_split_layers_and_order_microbatches() {
    let model = model().reshaped(|m| m.layers = 8);
    let layout = Layout::new(&model, &request("pipe=3", 8)).unwrap();
    assert_eq!((layout.stage_blocks.as_slice(), layout.microbatch), (&[3, 3, 2][..], 1));
    assert_eq!(layout.blocks_of(1), 3..6);
    let refused = |change: &dyn Fn(&mut LayoutRequest)| {
        let mut request = request("pipe=2", 6);
        change(&mut request);
        Layout::new(&model, &request).unwrap_err().to_string()
    };
    assert!(refused(&|r| r.chunks = 2).starts_with("chunks = 2: only the interleaved schedule"));
    assert!(refused(&|r| r.stage_blocks = Some(vec![5, 4])).contains("with the model's 8 layers in all"));
    assert!(refused(&|r| r.grid = "pipe=16".parse().unwrap()).contains("at most 10 pieces"));
    assert!(refused(&|r| r.stage_blocks = Some(vec![8])).contains("it must list 2 pieces ("));
    for huge in [11, usize::MAX] {
        assert!(refused(&|r| (r.schedule, r.chunks) = (Schedule::Interleaved, huge)).contains("it must be 1 to 10"));
        assert!(refused(&|r| r.overlap_chunks = huge).contains("it must be 1 to 6"));
    }
    let interleaved = |group| {
        move |r: &mut LayoutRequest| {
            (r.schedule, r.chunks, r.microbatch_group) = (Schedule::Interleaved, 2, Some(group));
        }
    };
    // 6 microbatches on 2 stages: groups of 5 leave 1.
    assert!(refused(&interleaved(5)).ends_with("try `layout.microbatch_group` 4 or 6"), "{}", refused(&interleaved(5)));
    assert!(refused(&interleaved(0)).ends_with("try `layout.microbatch_group` 2"));
    assert!(refused(&|r| r.keep_communicated = true).starts_with("cac = on"));
}

#[test]
fn context_and_panels_are_held_against_the_sizes() {
    let message = |request: &LayoutRequest| Layout::new(&model(), request).unwrap_err().to_string();
    assert!(message(&request("context=2", 2)).starts_with("seq-len = 6: context=2 cuts a sequence into 4"));
    assert!(Layout::new(&model(), &request("context=3", 2)).is_ok());
    let summa = |panels| LayoutRequest { linear: Linear::Summa, summa_panels: panels, ..request("x=3,y=2", 4) };
    assert_eq!(Layout::new(&model(), &summa(None)).unwrap().summa_panels, 6);
    assert!(message(&summa(Some(4))).ends_with("try `layout.summa_panels` 6"));
    assert!(message(&summa(Some(18))).starts_with("summa-panels=18 does not divide hidden = 12"));
    let chunked = LayoutRequest { overlap_chunks: 4, microbatch: Some(6), ..request("x=1", 24) };
    assert!(message(&chunked).contains("overlap chunks split"));
}

/// Two blocks with experts: 4 of width 24, groups of 4 tokens of a sequence of 16, and a shared perceptron of 12.
fn experts(overrides: &[(&str, &str)]) -> Model {
    let text = "name = \"moe\"\nlayers = 2\nhidden = 12\nheads = 6\nffn = 24\nvocab = 17\nseq_len = 16\nexperts = 4\n\
                shared_ffn = 12\ncapacity = 1.0\ncapacity_group = 4\n";
    let owned: Vec<_> = overrides.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Model::from_toml(text, &owned).unwrap()
}

#[test]
fn axes_cut_experts_as_they_cut_perceptrons() {
    let message = |overrides: &[(&str, &str)], grid: &str, batch| {
        Layout::new(&experts(overrides), &request(grid, batch)).unwrap_err().to_string()
    };
    let narrow = message(&[("expert_ffn", "20")], "x=3", 12);
    assert_eq!(narrow, "x=3 does not divide the experts' width = 20; try x=2");
    let narrow = message(&[("shared_ffn", "4")], "x=3", 12);
    assert_eq!(narrow, "x=3 does not divide the shared perceptron's width = 4; try x=2");
    // z = 7 cuts the experts' tiles only where their number makes up for it; nothing is asked of the router's 12 x 4.
    let odd = experts(&[("hidden", "14"), ("heads", "7"), ("head_dim", "2"), ("vocab", "14")]);
    assert!(Layout::new(&odd, &request("z=7", 7)).is_ok());
    let seven = [("experts", "7"), ("expert_ffn", "1"), ("shared_ffn", "0"), ("hidden", "6"), ("vocab", "9")];
    assert!(message(&seven, "z=9", 9).contains("the tile of the experts' up weight = 42"));
}

#[test]
fn groups_lie_whole_on_one_rank() {
    let refused = |overrides: &[(&str, &str)], request: &LayoutRequest| {
        Layout::new(&experts(overrides), request).unwrap_err().to_string()
    };
    // Pieces of 4 tokens have a group, those of 2 half of one.
    assert!(Layout::new(&experts(&[]), &request("context=2", 2)).is_ok());
    let message = refused(&[], &request("context=4", 2));
    assert_eq!(
        message,
        "context = 4: a rank has pieces of 2 tokens of a sequence, and experts' groups of 4 lie on one rank; a \
         `model.capacity_group` that divides 2 would lie on one, too; try context=2"
    );
    assert!(refused(&[("capacity_group", "0")], &request("context=2", 2)).ends_with("try context=1"));
    let short = LayoutRequest { seq_len: Some(10), ..request("x=1", 2) };
    let message = refused(&[], &short);
    assert!(message.starts_with("seq-len = 10: experts' groups of 4 tokens cut a sequence evenly"), "{message}");
    assert!(message.ends_with("try `layout.seq_len` 8 or 12"), "{message}");
    // x cuts 16 rows: 8 are two groups of 4, and one whole sequence cannot be cut.
    assert!(Layout::new(&experts(&[]), &request("x=2", 1)).is_ok());
    let message = refused(&[("capacity_group", "16")], &request("x=2", 1));
    assert!(message.starts_with("x = 2: each of its ranks has 8 token rows, and experts' groups of 16"), "{message}");
    assert!(message.ends_with("try x=1"), "{message}");
    let chunked = LayoutRequest { overlap_chunks: 2, ..request("x=2", 2) };
    assert!(refused(&[("capacity_group", "16")], &chunked).contains("each of its ranks has 8 token rows"));
    let replicated = LayoutRequest { activations: crate::Activations::Replicated, ..request("x=2", 1) };
    assert!(Layout::new(&experts(&[("capacity_group", "16")]), &replicated).is_ok());
}

#[test]
fn experts_have_no_panels_and_batches_are_balanced_at_once() {
    let summa = LayoutRequest { linear: Linear::Summa, ..request("x=2,y=2", 2) };
    let message = Layout::new(&experts(&[]), &summa).unwrap_err().to_string();
    assert_eq!(message, "linear = summa: experts have no panels; try `layout.linear` pmm");
    let several = LayoutRequest { microbatch: Some(1), ..request("data=2", 8) };
    assert!(Layout::new(&experts(&[]), &several).is_ok());
    let message = Layout::new(&experts(&[("balance", "batch")]), &several).unwrap_err().to_string();
    assert!(message.contains("`model.balance`=batch balances over a step"), "{message}");
    assert!(message.ends_with("try `layout.microbatch` 4"), "{message}");
}

#[test]
fn loads_that_biases_follow_can_be_counted() {
    // 16 tokens of a sequence, two of four experts each: 2^21 sequences have a mean load of 2^24.
    let biased = experts(&[("router_bias_rate", "0.001")]);
    let batch = |sequences| LayoutRequest { microbatch: Some(1), ..request("data=2", sequences) };
    assert!(Layout::new(&biased, &batch((1 << 21) - 2)).is_ok());
    assert!(Layout::new(&experts(&[]), &batch(1 << 21)).is_ok());
    let message = Layout::new(&biased, &batch(1 << 21)).unwrap_err().to_string();
    assert!(message.contains("are counted below 16777216 tokens of an expert in the mean"), "{message}");
    assert!(message.ends_with("try `layout.global_batch` 2097150"), "{message}");
}

#[test]
fn no_more_passes_are_listed_than_memory_holds() {
    // Two passes of a microbatch on each of two stages, and room for weight gradients of their own: 6 of 2^24.
    let model = model().reshaped(|m| m.layers = 2);
    let of = |grid: &str, microbatch, batch| {
        Layout::new(&model, &LayoutRequest { microbatch: Some(microbatch), ..request(grid, batch) })
    };
    let most = Layout::MOST_PASSES / 6;
    assert!(of("pipe=2", 1, most).is_ok());
    let message = of("pipe=2", 1, most + 1).unwrap_err().to_string();
    assert!(message.contains("at most 16777216 passes") && message.contains("2796203 microbatches"), "{message}");
    assert!(of("pipe=2", 2, 2 * most).is_ok());
    let message = of("pipe=2", 1, 2 * most).unwrap_err().to_string();
    assert!(message.ends_with("try `layout.microbatch` 2"), "{message}");
}

#[test]
fn generation_has_no_groups() {
    let model = experts(&[("capacity_group", "16")]);
    let layout = Layout::new(&model, &request("data=2", 2)).unwrap();
    assert!(layout.for_generation(&model, 3, 1).is_ok());
    assert!(layout.for_generation(&model, 3, 5).is_ok());
}

#[test]
fn y_cuts_narrow_rows_too_and_panels_do_not() {
    let latent = ["head_dim=4", "key_value_latent=6", "query_latent=8", "shared_key=1"]
        .map(|said| said.split_once('=').unwrap());
    let text = "name = 'latent'\nlayers = 1\nhidden = 12\nheads = 6\nvocab = 17\nseq_len = 6\n";
    let model = Model::from_toml(text, &latent.map(|(key, value)| (key.to_owned(), value.to_owned()))).unwrap();
    let refused = |request: &LayoutRequest| Layout::new(&model, request).unwrap_err().to_string();
    assert_eq!(refused(&request("y=4", 8)), "y=4 does not divide key_value_latent = 6; try y=2");
    assert_eq!(refused(&request("y=3", 6)), "y=3 does not divide query_latent = 8; try y=2");
    assert!(refused(&request("z=5", 5)).contains("the tile of the query latent's weight = 96"));
    let summa = LayoutRequest { linear: Linear::Summa, ..request("x=2,y=2", 4) };
    assert!(refused(&summa).contains("latent attention has no panels"));
    assert!(Layout::new(&model, &request("x=2,y=2,z=3", 12)).is_ok());
}
