//! What the command line calls the choices that libraries name: the one place that knows both.

use quadrille_measure as measure;
use quadrille_plan::Skipped;
use quadrille_run::Setting;
use quadrille_spec::{Field, ModelFile, Named, SpecError, keys};
use quadrille_study as study;

/// Choices that messages of libraries name by a key with a dot, between backticks, and what they are called here; besides
/// them the fields of layouts and models, as `layout.per_node` and `model.seq_len`.
const FLAGS: [(&str, &str); 49] = [
    ("calibration.runs", "--runs"),
    ("checkpoint.merge", "quadrille checkpoint merge --dtype"),
    ("checkpoints.partial", "--partial"),
    ("data.binary", "--force-binary"),
    ("data.documents", "--documents"),
    ("data.format", "--format"),
    ("data.held_out.files", "--validation-data"),
    ("data.held_out.share", "--validation"),
    ("data.skip_bad_lines", "--skip-bad-lines"),
    ("data.text_field", "--text-field"),
    ("data.tokenizer", "--tokenizer"),
    ("generation.chat", "--chat"),
    ("mpirun.map_by", "mpirun --map-by"),
    ("run.cluster", "--cluster"),
    ("run.largest_loss", "--largest-loss"),
    ("run.layout", "--layout"),
    ("run.loss_scale", "--loss-scale"),
    ("run.ranks", "--ranks"),
    ("run.set", "--set"),
    ("search.any_layout", "--any-layout"),
    ("search.checkpoint_bandwidth", "--checkpoint-bandwidth"),
    ("search.checkpoint_seconds", "--checkpoint-seconds"),
    ("search.currency", "--currency"),
    ("search.days", "--days"),
    ("search.devices", "--gpus"),
    ("search.fast_domain", "--nvs"),
    ("search.framework", "--framework"),
    ("search.goodput", "--goodput"),
    ("search.imbalance", "--imbalance"),
    ("search.limit", "--search-limit"),
    ("search.memory_reserve", "--memory-reserve"),
    ("search.mtbf", "--mtbf"),
    ("search.nodes", "--nodes"),
    ("search.pareto", "--pareto"),
    ("search.price", "--price"),
    ("search.price_per_hour", "--price-per-hour"),
    ("search.restart_seconds", "--restart-seconds"),
    ("search.sparsity", "--sparsity"),
    ("search.products", "--products"),
    ("search.moments", "--moments"),
    ("search.tokens", "--tokens"),
    ("simulation.device_gflops", "--device-gflops"),
    ("simulation.latency_us", "--latency-us"),
    ("simulation.memory_gb_s", "--memory-gb-s"),
    ("space.fix", "--fix"),
    ("space.max", "--max"),
    ("space.min", "--min"),
    ("tokens.append_end", "--append-end"),
    ("tokens.format", "--format"),
];

/// A message of a library, with flags in place of the keys that it names.
pub fn spelled(message: &str) -> String {
    keys::renamed(message, flag)
}

/// The same of why grids are left out.
pub fn spelled_reasons(skipped: Vec<Skipped>) -> Vec<Skipped> {
    skipped.into_iter().map(|skipped| Skipped { reason: spelled(&skipped.reason), ..skipped }).collect()
}

fn flag(key: &str) -> Option<String> {
    if let Some(field) = key.strip_prefix("model.").filter(|field| ModelFile::knows(field)) {
        return Some(format!("--set {field}"));
    }
    if let Some(key) = key.strip_prefix("layout.") {
        let field = Field::ALL.into_iter().find(|field| field.key() == key)?;
        return Some(format!("--{}", field.name()));
    }
    FLAGS.iter().find(|(known, _)| *known == key).map(|(_, flag)| (*flag).to_owned())
}

/// The error of a value by the name of the flag that has said it.
pub fn called(flag: &'static str, error: SpecError) -> SpecError {
    match error {
        SpecError::Invalid { value, rule, remedy, .. } => SpecError::invalid(flag, value, rule, remedy),
        SpecError::Syntax { text, reason, .. } => SpecError::Syntax { what: flag, text, reason },
        error => error,
    }
}

/// How a part of what is measured is written on the command line.
pub fn of_measurement(setting: measure::Setting) -> String {
    match setting {
        measure::Setting::NcclTests => "--from-nccl-tests".to_owned(),
        measure::Setting::Osu => "--from-osu".to_owned(),
        measure::Setting::MeasuredStep => "--from-step".to_owned(),
        other => last_part(other),
    }
}

/// How a choice of a study is written on the command line.
pub fn of_study(setting: study::Setting) -> String {
    match setting {
        study::Setting::Data => "--data".to_owned(),
        other => last_part(other),
    }
}

/// How a choice of a run is written on the command line.
pub fn of_run(setting: Setting) -> String {
    let flag = match setting {
        Setting::From => "--from",
        Setting::Model => "--model and --set of the model",
        Setting::Vocabulary => "--set vocab",
        Setting::Data => "--data",
        Setting::Binary => "--force-binary",
        Setting::ParseSpecial => "--parse-special",
        Setting::HeldOutShare => "--validation",
        Setting::HeldOutFiles => "--validation-data",
        Setting::CheckpointEvery => "--checkpoint-every",
        Setting::ValidateEvery => "--validate-every",
        Setting::ValidationBatches => "--validation-batches",
        Setting::Tuning => "--tune-matmul",
        Setting::States => "--offload",
        Setting::LearningRate => "--lr",
        Setting::Optimizer(name) => return format!("--set {name}"),
        Setting::Changes => "the command line",
        other => return last_part(other),
    };
    flag.to_owned()
}

/// The flag that is called as the last part of a key: `--grid` of `layout.choices.grid`.
fn last_part(name: impl Named) -> String {
    let key = name.key();
    format!("--{}", key.rsplit('.').next().unwrap_or(key).replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_between_backticks_are_spelled_as_flags_and_nothing_else_is() {
        for (said, spelled_as) in [
            ("use `data.tokenizer` gpt2, or `tokens.format` megatron", "use --tokenizer gpt2, or --format megatron"),
            ("`layout.per_node` 3; use `model.seq_len`=8", "--per-node 3; use --set seq_len=8"),
            ("unknown field `dtype`, a ` and `space.min`", "unknown field `dtype`, a ` and --min"),
            ("the file `a`b", "the file `a`b"),
        ] {
            assert_eq!(spelled(said), spelled_as);
        }
    }
}
