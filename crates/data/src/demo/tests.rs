//! The floors against brute force and against text.

use std::collections::{BTreeMap, HashSet};

use super::*;

const TOKENIZERS: [Tokenizer; 2] = [Tokenizer::Bytes, Tokenizer::Gpt2];

/// A random source of two letters with words that share beginnings, small enough for brute force.
fn tiny() -> Vec<Vec<Choice>> {
    let word = |word: &str, weight, next| (word.to_string(), weight, next);
    vec![
        vec![word("ab", 2, 1), word("aa", 1, 0), word("b", 1, 2)],
        vec![word("a", 1, 2), word("b", 2, 0)],
        vec![word("ab", 1, 0)],
    ]
}

fn bytes(word: &str) -> Vec<u32> {
    word.bytes().map(u32::from).collect()
}

fn text(demo: &DemoCorpus) -> String {
    String::from_utf8(demo.tokenizer.decode(&demo.tokens).unwrap()).unwrap()
}

/// Every sentence of `places` with its probability.
fn sentences(places: &[Vec<Choice>]) -> Vec<(String, f64)> {
    let mut done = Vec::new();
    let mut open = vec![(String::new(), 1.0, 0)];
    while let Some((begun, p, place)) = open.pop() {
        let total: u32 = places[place].iter().map(|(_, weight, _)| weight).sum();
        for (word, weight, next) in &places[place] {
            let longer = begun.clone() + word;
            let p = p * f64::from(*weight) / f64::from(total);
            if *next == 0 {
                done.push((longer, p));
            } else {
                open.push((longer, p, *next));
            }
        }
    }
    done
}

#[test]
fn the_floor_is_that_of_all_sentences_enumerated() {
    let all = sentences(&places());
    assert_eq!(all.iter().map(|(sentence, _)| sentence).collect::<HashSet<_>>().len(), all.len(), "ambiguous");
    assert!(all.iter().all(|(sentence, _)| sentence.find('\n') == Some(sentence.len() - 1)), "no clear end");
    let entropy: f64 = all.iter().map(|(_, p)| -p * p.ln()).sum();
    for tokenizer in TOKENIZERS {
        let length = |sentence: &str| tokenizer.encode(sentence).unwrap().len() as f64;
        let tokens: f64 = all.iter().map(|(sentence, p)| p * length(sentence)).sum();
        let demo = DemoCorpus::new(0, tokenizer.clone(), 1);
        assert!((demo.chain.tokens_per_sentence() - tokens).abs() < 1e-9, "{tokenizer}");
        assert!((demo.floor() - entropy / tokens).abs() < 1e-12, "{tokenizer} {} {}", demo.floor(), entropy / tokens);
    }
}

/// What [`Chain`] relies on: a token and the state before it tell the state after it.
#[test]
fn no_word_begins_with_another_of_its_place() {
    for tokenizer in TOKENIZERS {
        for choices in &places() {
            let words: Vec<Vec<u32>> = choices.iter().map(|(word, ..)| tokenizer.encode(word).unwrap()).collect();
            for (i, a) in words.iter().enumerate() {
                assert!(words.iter().enumerate().all(|(j, b)| i == j || !b.starts_with(a)), "{:?}", choices[i]);
            }
        }
    }
}

#[test]
fn the_tokens_are_those_of_the_text() {
    for tokenizer in TOKENIZERS {
        let demo = DemoCorpus::new(5, tokenizer.clone(), 20_000);
        assert_eq!(tokenizer.encode(&text(&demo)).unwrap(), demo.tokens, "{tokenizer}");
        let known: HashSet<String> = sentences(&places()).into_iter().map(|(sentence, _)| sentence).collect();
        assert!(text(&demo).split_inclusive('\n').all(|sentence| known.contains(sentence)));
    }
}

#[test]
fn the_text_depends_on_the_seed_and_not_on_the_tokenizer() {
    let demo = |seed, tokenizer| text(&DemoCorpus::new(seed, tokenizer, 2000));
    assert_eq!(demo(1, Tokenizer::Bytes), demo(1, Tokenizer::Bytes));
    assert_ne!(demo(1, Tokenizer::Bytes), demo(2, Tokenizer::Bytes));
    assert!(demo(1, Tokenizer::Gpt2).starts_with(&demo(1, Tokenizer::Bytes)));
    assert!(!demo(1, Tokenizer::Bytes).contains(&demo(2, Tokenizer::Bytes)[..200]));
}

/// The probability of each sentence of a text, by enumeration, gives the loss of a perfect model.
#[test]
fn a_text_is_as_likely_as_the_floor_says() {
    let probability: BTreeMap<String, f64> = sentences(&places()).into_iter().collect();
    for seed in 0..3 {
        let demo = DemoCorpus::new(seed, Tokenizer::Bytes, 300_000);
        let text = text(&demo);
        // A sentence's nats less what the floor gives for its length: independent, with mean 0.
        let surplus: Vec<f64> = text
            .split_inclusive('\n')
            .map(|sentence| -probability[sentence].ln() - demo.floor() * sentence.len() as f64)
            .collect();
        let error = standard_error(&surplus);
        let mean = surplus.iter().sum::<f64>() / surplus.len() as f64;
        assert!(mean.abs() < 4.0 * error && error < 0.05, "seed {seed}: {mean} with standard error {error}");
    }
}

fn standard_error(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n / n).sqrt()
}

/// -ln of the probability of every string of `len` bytes, summed with that probability: sentences are laid end to end,
/// and the string starts at each place of the first one.
fn block_entropy(places: &[Vec<Choice>], len: usize) -> f64 {
    let all = sentences(places);
    let mean_length: f64 = all.iter().map(|(sentence, p)| p * sentence.len() as f64).sum();
    let mut strings: BTreeMap<String, f64> = BTreeMap::new();
    let mut open: Vec<(String, f64)> = all
        .iter()
        .flat_map(|(sentence, p)| {
            (0..sentence.len()).map(move |start| (sentence[start..].to_string(), p / mean_length))
        })
        .collect();
    while let Some((string, p)) = open.pop() {
        if string.len() >= len {
            *strings.entry(string[..len].to_string()).or_default() += p;
        } else {
            open.extend(all.iter().map(|(sentence, q)| (string.clone() + sentence, p * q)));
        }
    }
    strings.values().map(|p| -p * p.ln()).sum()
}

#[test]
fn the_window_floor_is_that_of_all_windows_enumerated() {
    let chain = Chain::new(&tiny(), bytes);
    for len in [1, 2, 3, 7] {
        let expected = (block_entropy(&tiny(), len + 1) - block_entropy(&tiny(), 1)) / len as f64;
        assert!((chain.window_entropy(len) - expected).abs() < 1e-12, "{len} {expected}");
    }
}

#[test]
fn the_window_floor_falls_to_the_floor() {
    for tokenizer in TOKENIZERS {
        let demo = DemoCorpus::new(0, tokenizer.clone(), 1);
        let floors: Vec<f64> = [1, 8, 64, 512, 4096].iter().map(|&len| demo.window_floor(len)).collect();
        assert!(floors.windows(2).all(|pair| pair[0] > pair[1]), "{tokenizer} {floors:?}");
        // What is missed is the state at the window's start; it is bounded, so it vanishes as 1 / length.
        let missed = 4096.0 * (floors[4] - demo.floor());
        assert!(missed > 0.0 && (missed - 512.0 * (floors[3] - demo.floor())).abs() < 1e-6, "{tokenizer} {missed}");
        println!(
            "{tokenizer}: floor {}, of windows {floors:?}, {} tokens",
            demo.floor(),
            demo.chain.tokens_per_sentence()
        );
    }
}

#[test]
fn the_language_is_easy_and_looks_like_text() {
    let demo = DemoCorpus::new(0, Tokenizer::Bytes, 200);
    assert!((0.3..0.6).contains(&demo.floor()), "{}", demo.floor());
    assert!((20.0..40.0).contains(&demo.chain.tokens_per_sentence()));
    println!("{}", text(&demo));
}

#[test]
fn windows_beyond_the_end_are_errors() {
    let demo = DemoCorpus::new(0, Tokenizer::Bytes, 100);
    let mut out = [0; 4];
    demo.window(demo.len() - 4, &mut out).unwrap();
    assert_eq!(out[3], u32::from(b'\n'));
    for start in [demo.len() - 3, usize::MAX] {
        assert!(matches!(demo.window(start, &mut out), Err(DataError::OutOfRange { .. })));
    }
}
