//! Runs from code: what callbacks are told and may ask for, what goes on, what is refused and who is to blame.

use std::ops::ControlFlow;
use std::path::Path;

use quadrille_engine::RunEvent;
use quadrille_run::{
    CheckpointSpec, DataChanges, DataPath, DataSpec, Ended, HeldOut, Host, OutputSpec, Prepared, Recorded, RunChanges,
    RunError, RunOutcome, RunSpec, Setting,
};
use quadrille_spec::{Blame, ElementType, Layout, LayoutRequest, Model};

fn spec(grid: &str, steps: u64) -> RunSpec {
    let model = Model::gpt(1, 8, 2, 256, 16);
    let request = LayoutRequest { dtype: ElementType::F64, ..LayoutRequest::new(grid.parse().unwrap(), 4) };
    let layout = Layout::new(&model, &request).unwrap();
    RunSpec { steps, threads: Some(1), ..RunSpec::new(model, layout) }
}

fn whole(run: Prepared) -> RunOutcome {
    run.run(&mut |_| ControlFlow::Continue(())).unwrap()
}

fn losses(outcome: &RunOutcome) -> Vec<f64> {
    outcome.trained.records.iter().map(|record| record.loss).collect()
}

fn refusal(result: Result<Prepared, RunError>) -> RunError {
    match result {
        Err(error) => error,
        Ok(_) => panic!("it was taken"),
    }
}

#[test]
fn a_callback_sees_every_step_and_may_end_the_run_in_good_order() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let spec = spec("x=2,data=2", 8);
    let undisturbed = losses(&whole(Prepared::begin(spec.clone(), None, &Host::default()).unwrap()));
    let mut seen = Vec::new();
    let run = Prepared::begin(spec.clone(), Some(&out), &Host::default()).unwrap();
    let outcome = run.run(&mut |event| match event {
        RunEvent::Step(record) => {
            seen.push(record.step);
            if record.step == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        _ => ControlFlow::Continue(()),
    });
    let Ended::Stopped { step, of: 8, .. } = outcome.unwrap().ended else { panic!("it was asked to end") };
    assert!((3..=4).contains(&step), "{step}");
    assert_eq!(seen, (1..=step).collect::<Vec<_>>());
    let outcome = whole(Prepared::resume(&out, RunChanges::default(), &Host::default()).unwrap());
    assert_eq!((outcome.ended, losses(&outcome)), (Ended::Whole, undisturbed[step as usize..].to_vec()));
    let outcome = outcome.check().unwrap();
    assert_eq!(outcome.summary.unwrap().losses.len(), 8 - step as usize);
    let Recorded { steps, events, cut } = Recorded::read(&out).unwrap();
    assert_eq!((steps.iter().map(|record| record.loss).collect::<Vec<_>>(), cut), (undisturbed, Vec::new()));
    let happened: Vec<_> = events.iter().map(|event| (event.step, event.kind.as_str())).collect();
    assert_eq!(happened, [(step, "saved"), (step, "stopped"), (step, "resumed"), (8, "saved")]);
}

#[test]
fn a_line_that_is_cut_off_is_told_and_a_broken_one_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    whole(Prepared::begin(spec("x=2", 3), Some(&out), &Host::default()).unwrap());
    let file = out.join("steps.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() - 9]).unwrap();
    let recorded = Recorded::read(&out).unwrap();
    assert_eq!((recorded.steps.len(), recorded.cut), (2, vec!["steps.jsonl"]));
    std::fs::write(&file, text.replacen("\"loss\"", "\"lass\"", 1)).unwrap();
    let error = Recorded::read(&out).unwrap_err().to_string();
    assert!(error.contains("steps.jsonl, line 1, column ") && error.contains("missing field `loss`"), "{error}");
    let line = text.lines().next().unwrap();
    std::fs::write(&file, format!("{line}\n{line}\n")).unwrap();
    let error = Recorded::read(&out).unwrap_err().to_string();
    assert!(error.ends_with("line 2: step 1 follows step 1; steps ascend"), "{error}");
}

#[test]
fn what_is_refused_names_its_choices_and_is_the_inputs_fault() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let begin = |spec: RunSpec, out: Option<&Path>| refusal(Prepared::begin(spec, out, &Host::default()));
    whole(Prepared::begin(spec("x=2", 2), Some(&out), &Host::default()).unwrap());
    let every = CheckpointSpec { every: Some(1), ..CheckpointSpec::default() };
    let held_out = HeldOut::Files(vec![DataPath { path: "held".into(), weight: None }]);
    let log = Some(folder.path().join("there/is/no/log"));
    let described = folder.path().join("cluster.toml");
    std::fs::write(&described, quadrille_spec::Cluster::preset_text("local").unwrap()).unwrap();
    let mut on_described = spec("x=2", 2);
    on_described.layout.cluster = described.display().to_string();
    on_described.outputs.log = Some(described);
    let fresh = folder.path().join("fresh");
    let mut into_itself = spec("x=2", 2);
    into_itself.outputs.log = Some(fresh.join("steps.jsonl"));
    let changes = |changes: RunChanges| refusal(Prepared::resume(&out, changes, &Host::default()));
    for (error, settings, words) in [
        (begin(spec("x=2", 2), Some(&out)), vec![Setting::Out, Setting::Resume], "holds a run already"),
        (
            begin(RunSpec { checkpoints: every, ..spec("x=2", 2) }, None),
            vec![Setting::CheckpointEvery, Setting::Out],
            "checkpoints are written into a run's folder",
        ),
        (
            begin(RunSpec { data: DataSpec { held_out, ..DataSpec::default() }, ..spec("x=2", 2) }, None),
            vec![Setting::HeldOutFiles, Setting::Data, Setting::HeldOutShare],
            "is held against its own",
        ),
        (
            begin(RunSpec { outputs: OutputSpec { log, trace: None }, ..spec("x=2", 2) }, None),
            Vec::new(),
            "cannot write the log",
        ),
        (begin(on_described, None), vec![Setting::Log, Setting::Cluster], "would be written over or into"),
        (begin(into_itself, Some(&fresh)), vec![Setting::Log, Setting::Out], "would be written over or into"),
        (
            changes(RunChanges::default()),
            vec![Setting::Steps],
            "the run has done 2 steps of 2; ask for more with `steps`",
        ),
        (
            changes(RunChanges { seed: Some(2), steps: Some(3), ..RunChanges::default() }),
            vec![Setting::Seed, Setting::From],
            "was written with `seed` 1, and now it is 2",
        ),
        (
            refusal(Prepared::resume(folder.path(), RunChanges::default(), &Host::default())),
            vec![Setting::Out],
            "holds no run.json: a run's folder, as `out` makes it, has one",
        ),
    ] {
        assert_eq!(error.blame(), Blame::Input);
        assert!(error.to_string().contains(words), "{error}");
        let RunError::Refused(refusal) = &error else { panic!("{error:?}") };
        assert_eq!(refusal.names().collect::<Vec<_>>(), settings, "{error}");
    }
}

#[test]
fn other_data_are_read_only_if_they_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let [out, text] = ["run", "a.txt"].map(|name| folder.path().join(name));
    std::fs::write(&text, "some words of no meaning ".repeat(40)).unwrap();
    let paths = vec![DataPath { path: text.clone(), weight: None }];
    let data = DataSpec { paths: paths.clone(), cache: folder.path().join("cache"), ..DataSpec::default() };
    whole(Prepared::begin(RunSpec { data, ..spec("x=2", 2) }, Some(&out), &Host::default()).unwrap());
    std::fs::write(&text, "other words ".repeat(90)).unwrap();
    let more = |data: DataChanges| {
        let changes = RunChanges { data, steps: Some(3), ..RunChanges::default() };
        Prepared::resume(&out, changes, &Host::default())
    };
    let error = refusal(more(DataChanges::default()));
    assert!(error.to_string().contains("on other data than there is now"), "{error}");
    whole(more(DataChanges { paths: Some(paths), ..DataChanges::default() }).unwrap());
}
