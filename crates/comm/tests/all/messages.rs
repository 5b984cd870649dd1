//! Messages: tags, delays, polling, failures.

use std::time::{Duration, Instant};

use quadrille_comm::{
    Cause, CollectiveError, Group, JobFailure, JobOptions, Label, MessageDelay, MessageInfo, Pending, RankContext,
    Reduction, run_ranks,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Runs two ranks with their group `pipe`.
fn pair<R: Send>(
    options: JobOptions,
    body: impl Fn(&RankContext, &Group) -> Outcome<R> + Sync,
) -> Result<Vec<R>, JobFailure> {
    run_ranks(&options, |context| body(context, &context.group("pipe", &[0, 1])?))
}

fn delayed(delay: impl Fn(&MessageInfo) -> Duration + Send + Sync + 'static) -> JobOptions {
    JobOptions { message_delay: Some(MessageDelay::new(delay)), ..JobOptions::new(2) }
}

#[test]
fn tags_match_in_any_order_and_keep_their_own() {
    let results = pair(JobOptions::new(2), |context, pipe| {
        if context.rank() == 0 {
            let sends: Vec<_> = (0..12u32).map(|i| context.send(pipe, 1, i % 3, vec![i as f32])).collect();
            for send in sends {
                send.wait()?;
            }
            return Ok(vec![]);
        }
        let mut received = Vec::new();
        for tag in [2, 0, 1, 1, 0, 2, 2, 2, 0, 1, 0, 1] {
            received.push((tag, context.receive(pipe, 0, tag, vec![0f32]).wait()?[0]));
        }
        Ok(received)
    });
    let received = &results.unwrap()[1];
    for tag in 0..3 {
        let of_tag: Vec<f32> = received.iter().filter(|(own, _)| *own == tag).map(|(_, value)| *value).collect();
        assert_eq!(of_tag, [0, 3, 6, 9].map(|i| (i + tag) as f32), "in the order of the sends");
    }
}

#[test]
fn a_delayed_message_is_received_no_earlier() {
    const DELAY: Duration = Duration::from_millis(60);
    for receive_first in [true, false] {
        let options = delayed(|message| {
            let second = MessageInfo { from: 0, to: 1, tag: 5, sequence: 2 };
            if *message == second { DELAY } else { Duration::ZERO }
        });
        let times = pair(options, |context, pipe| {
            let sends = context.rank() == 0;
            if sends == receive_first {
                context.barrier(pipe).wait()?;
            }
            let start = Instant::now();
            let issue = |value| {
                if sends { context.send(pipe, 1, 5, vec![value]) } else { context.receive(pipe, 0, 5, vec![0f64]) }
            };
            let [first, second] = [1.0, 2.0].map(issue);
            if sends == receive_first {
                assert!(!sends || second.is_done(), "the sender does not notice");
            } else {
                context.barrier(pipe).wait()?;
            }
            assert_eq!(first.wait()?, [1.0]);
            assert_eq!(second.wait()?, [2.0]);
            Ok((start, Instant::now()))
        });
        let [(sent, _), (_, received)] = times.unwrap()[..] else { panic!("two ranks") };
        assert!(received - sent >= DELAY, "{:?}", received - sent);
    }
}

/// The delay counts from the send, not from the receive.
#[test]
fn a_delay_that_is_over_costs_nothing() {
    const DELAY: Duration = Duration::from_millis(60);
    let waits = pair(delayed(|_| DELAY), |context, pipe| {
        if context.rank() == 0 {
            let send = context.send(pipe, 1, 0, vec![1f32]);
            context.barrier(pipe).wait()?;
            send.wait()?;
            return Ok(true);
        }
        context.barrier(pipe).wait()?;
        std::thread::sleep(DELAY);
        let receive = context.receive(pipe, 0, 0, vec![0f32]);
        let done = receive.is_done();
        receive.wait()?;
        Ok(done)
    });
    assert_eq!(waits.unwrap(), [true, true]);
}

#[test]
fn an_abort_ends_the_wait_for_a_delayed_message() {
    let start = Instant::now();
    let failure = pair(delayed(|_| Duration::from_secs(100)), |context, pipe| {
        if context.rank() == 0 {
            context.send(pipe, 1, 0, vec![1f32]).wait()?;
            return Err("disk full".into());
        }
        let receives = [(); 2].map(|()| context.receive(pipe, 0, 0, vec![0f32]));
        assert!(Pending::wait_for_any(&receives.each_ref()).is_some());
        let [first, _second] = receives;
        first.wait().expect_err("it has not arrived");
        Ok(())
    });
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!(failure.expect_err("rank 0 fails").to_string(), "rank 0 failed at job, start: disk full");
}

#[test]
fn a_delay_that_panics_ends_the_job() {
    let failure = pair(delayed(|message| panic!("no delay for tag {}", message.tag)), |context, pipe| {
        match context.rank() {
            0 => context.send(pipe, 1, 3, vec![1f32]).wait()?,
            _ => context.receive(pipe, 0, 3, vec![0f32]).wait()?,
        };
        Ok(())
    });
    let failure = failure.expect_err("the delay fails").to_string();
    assert!(failure.contains("no delay for tag 3"), "{failure}");
}

/// Polling alone completes messages, also while a collective of the same rank is held up by the other one.
#[test]
fn polled_receives_become_done_without_a_wait() {
    let outcome = pair(JobOptions::new(2), |context, pipe| {
        if context.rank() == 0 {
            let sum = context.all_reduce(pipe, Reduction::Sum, vec![1f32]);
            let mut receives: Vec<_> = (0..4).map(|tag| context.receive(pipe, 1, tag, vec![0f32; 100])).collect();
            while !receives.iter().all(Pending::is_done) {
                context.enter(Label::new("step"), "poll")?;
                std::thread::yield_now();
            }
            assert!(!sum.is_done(), "rank 1 has not come");
            let send = context.send(pipe, 1, 9, receives.remove(0).wait()?);
            while !(sum.is_done() && send.is_done()) {
                context.enter(Label::new("step"), "poll")?;
                std::thread::yield_now();
            }
        } else {
            for tag in (0..4).rev() {
                context.send(pipe, 0, tag, vec![1f32; 100]).wait()?;
            }
            context.receive(pipe, 0, 9, vec![0f32; 100]).wait()?;
            context.all_reduce(pipe, Reduction::Sum, vec![1f32]).wait()?;
        }
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn the_first_of_several_is_waited_for() {
    let options = delayed(|message| Duration::from_millis(if message.tag == 1 { 40 } else { 0 }));
    let outcome = pair(options, |context, pipe| {
        if context.rank() == 0 {
            for tag in [4, 2, 1, 3, 0] {
                context.receive(pipe, 1, 10 + tag, vec![0f32]).wait()?; // asks for the next
                context.send(pipe, 1, tag, vec![tag as f32]).wait()?;
            }
            return Ok(vec![]);
        }
        let mut receives: Vec<_> = (0..5).map(|tag| (tag, context.receive(pipe, 0, tag, vec![0f32]))).collect();
        let mut order = Vec::new();
        for next in [4, 2, 1, 3, 0] {
            let ask = context.send(pipe, 0, 10 + next, vec![0f32]);
            let pendings: Vec<_> = receives.iter().map(|(_, pending)| pending).collect();
            let first = Pending::wait_for_any(&pendings).ok_or("there are some")?;
            let (tag, pending) = receives.remove(first);
            assert_eq!(pending.wait()?, [tag as f32]);
            ask.wait()?;
            order.push(tag);
        }
        assert_eq!(Pending::<Vec<f32>>::wait_for_any(&[]), None);
        Ok(order)
    });
    assert_eq!(outcome.unwrap()[1], [4, 2, 1, 3, 0]);
}

#[test]
fn a_stuck_message_names_its_tag_and_the_absent_side() {
    let options = JobOptions { timeout: Duration::from_millis(500), ..JobOptions::new(2) };
    let failure = pair::<()>(options, |context, pipe| {
        if context.rank() == 0 {
            context.receive(pipe, 1, 6, vec![0f32; 2]).wait()?;
            context.receive(pipe, 1, 7, vec![0f32; 2]).wait()?; // never sent
        } else {
            context.send(pipe, 0, 6, vec![0f32; 2]).wait()?;
        }
        loop {
            context.enter(Label::new("data"), "read")?;
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let failure = failure.expect_err("nobody sends tag 7");
    assert_eq!(failure.rank, 1);
    let Cause::Collective(error) = &failure.cause else { panic!("{failure}") };
    assert!(matches!(**error, CollectiveError::Stuck { sequence: 1, .. }), "{failure}");
    let text = failure.to_string();
    assert!(text.contains("receive from member 1 with tag 7 of 2 f32 [job, start] #1 on group \"pipe\""), "{text}");
    assert!(text.contains("late: rank 1 at data, read"), "{text}");
}
