//! What is no number, and what is no file, is refused by the name of its flag, the rule and the remedy.

use crate::common::run;

/// Flags of numbers with the command that has them.
const FLAGS: [&str; 12] = [
    "train --steps",
    "train --lr",
    "train --microbatch",
    "train --stage-blocks",
    "train --keep",
    "plan --tokens",
    "plan --top",
    "plan --nvs",
    "sweep --vary gpus=2 --gpus",
    "bench pipeline --pass-ms",
    "generate --from run --top-p",
    "validate local --layouts",
];

#[test]
fn what_is_no_number_is_refused_with_the_rule_and_an_example() {
    let folder = tempfile::tempdir().unwrap();
    for flag in FLAGS {
        for value in ["words", "99999999999999999999999x"] {
            let output = run(folder.path(), &format!("{flag} {value}"));
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{flag}: {errors}");
            let name = flag.rsplit(' ').next().unwrap();
            for words in [value, name, ": it is a ", "write e.g. "] {
                assert!(errors.contains(words), "{flag} {value}: '{words}' is not in {errors}");
            }
        }
    }
}

#[test]
fn numbers_are_short_however_large_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), "plan --model gpt2-124m --gpus 2 --tokens 1e300 --price-per-hour 1e9 --top 1");
    let text = String::from_utf8(output.stdout).unwrap();
    let longest = text.split_whitespace().map(|word| word.bytes().filter(u8::is_ascii_digit).count()).max();
    assert!(output.status.success() && longest < Some(20), "{text}");
}

#[test]
fn what_never_ends_is_told_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        run(folder.path(), "plan --model gpt2-124m --gpus 2 --tokens 1e9 --price-per-hour 2 --top 1 --mtbf 1e-300");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("one in 1.00e-300 device-hours"), "{text}");
    assert!(text.contains(" for ever ") && !text.contains(" inf "), "{text}");
}

#[test]
fn a_file_has_a_name() {
    let folder = tempfile::tempdir().unwrap();
    for line in [
        "plan --model gpt2-124m --gpus 2 --html -",
        "plan --model gpt2-124m --gpus 2 --csv -",
        "sweep --model gpt2-124m --vary gpus=2 --out -",
        "calibrate --out -",
        "train --steps 1 --out -",
        "checkpoint merge run --out -",
        "report -",
    ] {
        let output = run(folder.path(), line);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {errors}");
        assert!(errors.contains("- is no file and no folder; name one, as ./- if it is called so"), "{line}: {errors}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}
