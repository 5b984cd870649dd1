//! A question that nobody waits for any more ends early, without an answer.

use quadrille_cost::native::Framework;
use quadrille_plan::native::{Answer, Cancel, Nothing, Question, Sweep, Wanted};
use quadrille_spec::{Cluster, Model};

fn question() -> Question {
    let model = Model::preset("gpt2-124m").unwrap();
    let cluster = Cluster::preset("selene").unwrap();
    Question::new(model, cluster, Framework::MEGATRON, 8, 32)
}

#[test]
fn a_sweep_ends_after_the_search_that_was_cancelled() {
    let question = question();
    let cancel = question.cancel.clone();
    let mut told = Vec::new();
    let mut watch = |done, of| {
        cancel.cancel();
        told.push((done, of));
    };
    let swept = Sweep::watched(question, "gpus=1,2,4".parse().unwrap(), None, &mut watch);
    assert!(swept.is_err_and(|error| error.is_stop()));
    assert_eq!(told, [(1, 3)]);
}

#[test]
fn a_cancelled_front_is_not_searched() {
    let question = question();
    question.cancel.cancel();
    let wanted = Wanted { top: 1, front_over: Some(vec![1, 2, 4]), ..Wanted::default() };
    assert_eq!(Answer::new(&question, &wanted).unwrap_err(), Nothing::Cancelled { devices: 8 });
    // Not even usual layouts are looked at.
    let search = question.search(1).unwrap();
    let found = search.run().unwrap();
    assert!(found.stopped && found.ranked.is_empty());
}

#[test]
fn a_cancelled_answer_is_not_explained() {
    let question = question();
    let mut answer = Answer::new(&question, &Wanted { top: 1, ..Wanted::default() }).unwrap();
    question.cancel.cancel();
    assert!(answer.explain().unwrap_err().is_stop());
    let layout = question.layout(&answer.advised).unwrap();
    assert!(question.setting().unwrap().passes(&layout, &Cancel::default()).is_ok());
}
