//! Models whose states fit into no device in any layout: refused by a bound, with remedies that work.

use quadrille_cost::native::Framework;
use quadrille_plan::native::{MemoryRemedy, Nothing, Question, Search};
use quadrille_spec::{Cluster, ElementType, Model};

/// What Megatron-LM trains, or another framework.
fn question(model: &str, framework: Framework, devices: usize, batch: usize) -> Question {
    let model = Model::preset(model).unwrap();
    let cluster = Cluster::preset("dgx-h100").unwrap();
    let mut question = Question::new(model, cluster, framework, devices, batch);
    question.space.keep_to(&framework);
    question
}

/// Least bytes of states and the remedies; nothing was priced to know of the former.
fn too_large(question: &Question) -> (u64, Vec<MemoryRemedy>, String) {
    let search = question.search(1).unwrap();
    let found = search.run().unwrap();
    assert_eq!((found.counts.priced, found.stopped), (0, false));
    assert_eq!(found.counts.too_large, found.counts.legal);
    let nothing = search.why_nothing(&found);
    let message = nothing.to_string();
    match nothing {
        Nothing::StatesTooLarge { states, remedies, .. } => (states.bytes, remedies, message),
        other => panic!("{other}"),
    }
}

/// Searches what a remedy says: 40 looks at usual layouts would do, thousands are allowed.
fn fits(question: &Question, remedy: &MemoryRemedy) -> bool {
    let devices = remedy.devices.unwrap_or(question.devices);
    let model = question.model.clone();
    let cluster = question.cluster.clone();
    let fresh = Question::new(model, cluster, question.framework, devices, question.global_batch);
    let mut changed = Question { space: question.space.clone(), ..fresh };
    let mut numbers = changed.framework.numbers;
    for part in remedy.change.split(" and ").filter(|part| !part.is_empty()) {
        match part {
            "`layout.gradients` bf16" => numbers.gradients = Some(ElementType::Bf16),
            "`search.moments` bf16" => numbers.moments = Some("bf16".parse().unwrap()),
            "`search.moments` fp8" => numbers.moments = Some("fp8".parse().unwrap()),
            "`layout.offload` host" => {
                changed.space.bucket = Some(quadrille_spec::Layout::BUCKET);
                changed.space.keep_to(&question.framework);
            }
            other => panic!("{other}"),
        }
    }
    changed.framework = changed.framework.in_formats(numbers);
    let search = Search { limit: Some(1 << 16), ..changed.search(1).unwrap() };
    !search.run().unwrap().ranked.is_empty()
}

/// 18 bytes for each of 140.6e9 parameters over 16 devices are 158.2 GB: Megatron-LM has 2 of the weight, 4 of its gradient and 12
/// of the optimizer.
#[test]
fn a_mixture_whose_states_fit_nowhere_is_refused_by_its_states_alone() {
    let question = question("mixtral-8x22b", Framework::MEGATRON, 16, 64);
    let (bytes, remedies, message) = too_large(&question);
    let expected = 18.0 * 140.62e9 / 16.0;
    assert!((bytes as f64 / expected - 1.0).abs() < 0.001, "{bytes} and {expected}");
    assert!(message.contains("147 GiB") && message.contains("18 bytes for each of 140.6e9"), "{message}");
    // 10 bytes of 140.6e9 parameters over 16 devices are too many too: each remedy takes more devices, or the host's memory.
    let offloads = |remedy: &MemoryRemedy| remedy.change == "`layout.offload` host" && remedy.devices.is_none();
    assert!(remedies.iter().any(offloads), "{message}");
    assert!(remedies.iter().all(|remedy| offloads(remedy) || remedy.devices > Some(16)), "{message}");
    assert!(remedies.iter().all(|remedy| fits(&question, remedy)), "{message}");
    assert!(remedies.is_sorted_by_key(|remedy| remedy.states), "most gain first: {message}");
}

#[test]
fn dense_models_are_refused_likewise_with_numbers_that_make_room() {
    for (model, devices) in [("llama3-405b", 96), ("gpt3-175b", 32), ("llama3-70b", 16)] {
        let question = question(model, Framework::MEGATRON, devices, 192);
        let (bytes, remedies, message) = too_large(&question);
        assert!(bytes as f64 >= 0.999 * 18.0 * question.model.parameters() as f64 / devices as f64, "{message}");
        assert!(remedies.iter().any(|remedy| remedy.devices.is_none()), "{message}");
        for remedy in &remedies {
            assert!(fits(&question, remedy), "{remedy}: {message}");
            assert!(remedy.states < bytes, "{remedy}: {message}");
        }
    }
}

/// On a single device runs take less beside their tensors than on two.
#[test]
fn more_devices_than_one_take_what_runs_take_there() {
    for (batch, model) in [(16, "llama3-8b"), (16, "llama2-7b"), (8, "gpt3-6.7b")] {
        let model = Model::preset(model).unwrap();
        let cluster = Cluster::preset("dgx-a100").unwrap();
        let mut question = Question::new(model, cluster, Framework::MEGATRON, 1, batch);
        question.space.keep_to(&Framework::MEGATRON);
        let (_, remedies, message) = too_large(&question);
        assert!(!remedies.is_empty() && remedies.iter().all(|remedy| fits(&question, remedy)), "{message}");
        let memory =
            |devices| Question { devices, ..question.clone() }.setting().unwrap().framework.reserved_on(Some(80 << 30));
        assert!(memory(1) < memory(2) && memory(2) == Framework::MEGATRON.reserved_on(Some(80 << 30)));
    }
}

/// FSDP's gradients and moments are f32; states may lie in the host's memory.
#[test]
fn remedies_are_those_that_a_framework_has() {
    let fsdp = question("llama3-70b", Framework::FSDP, 8, 64);
    let (_, remedies, message) = too_large(&fsdp);
    let changes: Vec<_> = remedies.iter().map(|remedy| remedy.change.as_str()).collect();
    assert_eq!(changes, ["`layout.offload` host", ""], "{message}");
    assert!(remedies.iter().all(|remedy| fits(&fsdp, remedy)), "{message}");
    let own = Question { space: fsdp.space.clone(), ..question("llama2-13b", Framework::QUADRILLE, 2, 64) };
    let (_, remedies, message) = too_large(&own);
    assert!(!message.contains("moments"), "{message}");
    assert!(remedies.iter().all(|remedy| fits(&own, remedy)), "{message}");
}

#[test]
fn a_limit_of_looks_hides_nothing_that_is_impossible() {
    let question = Question { limit: Some(1), ..question("mixtral-8x22b", Framework::MEGATRON, 16, 64) };
    let search = question.search(1).unwrap();
    let nothing = search.why_nothing(&search.run().unwrap());
    assert!(matches!(nothing, Nothing::StatesTooLarge { .. }), "{nothing}");
}
