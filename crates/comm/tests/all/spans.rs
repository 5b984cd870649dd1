//! Spans: what is recorded, when, and only if asked for.

use std::time::{Duration, Instant};

use quadrille_comm::{JobOptions, Label, MessageDelay, Reduction, run_ranks};
use quadrille_spec::CollectiveKind;

const DELAY: Duration = Duration::from_millis(60);

#[test]
fn spans_of_collectives_and_messages() {
    let delay = MessageDelay::new(|_| DELAY);
    let options = JobOptions { message_delay: Some(delay), ..JobOptions::new(2) };
    let results = run_ranks(&options, |context| {
        let x = context.group("x", &[0, 1])?;
        let alone = context.group("z", &[context.rank()])?;
        context.barrier(&x).wait()?; // not recorded
        context.record_spans(true);
        context.enter(Label::indexed("block", 1), "sum")?;
        let start = Instant::now();
        // The second sum leaves the queue when the first is done.
        let sums = [10, 20].map(|elements| context.all_reduce(&x, Reduction::Sum, vec![1f32; elements]));
        context.all_reduce(&alone, Reduction::Sum, vec![1f32]).wait()?; // nobody to communicate with
        for sum in sums {
            sum.wait()?;
        }
        context.enter(Label::new("head"), "boundary")?;
        match context.rank() {
            0 => context.send(&x, 1, 0, vec![1f64; 3]).wait()?,
            _ => context.receive(&x, 0, 0, vec![0f64; 3]).wait()?,
        };
        context.record_spans(false);
        context.barrier(&x).wait()?; // not recorded
        let spans = context.take_spans();
        assert!(context.take_spans().is_empty(), "taking resets");
        assert!(spans.iter().all(|span| start <= span.start && span.start <= span.end));
        assert!(spans.iter().all(|span| span.end <= Instant::now()));
        Ok((start, spans))
    });
    let (starts, spans): (Vec<_>, Vec<_>) = results.unwrap().into_iter().unzip();
    let [sent, received] = [CollectiveKind::Send, CollectiveKind::Receive];
    for (spans, message) in spans.iter().zip([sent, received]) {
        let what: Vec<_> = spans.iter().map(|span| (&*span.group, span.layer, span.kind, span.payload_bytes)).collect();
        let block = Label::indexed("block", 1);
        let head = Label::new("head");
        let sum = CollectiveKind::AllReduce;
        assert_eq!(what, [("x", block, sum, 40), ("x", block, sum, 80), ("x", head, message, 24)]);
        assert!(spans[0].end <= spans[1].start, "one at a time");
    }
    let end = |rank: usize, span: usize| spans[rank][span].end;
    assert!(end(0, 0).min(end(1, 0)) >= starts[0].max(starts[1]), "not before both have come");
    assert!(end(1, 2) - spans[0][2].start >= DELAY, "the message's span ends with its arrival");
}

#[test]
fn nothing_is_recorded_by_itself() {
    let spans = run_ranks(&JobOptions::new(2), |context| {
        let x = context.group("x", &[0, 1])?;
        context.barrier(&x).wait()?;
        Ok(context.take_spans())
    });
    assert_eq!(spans.unwrap(), [vec![], vec![]]);
}
