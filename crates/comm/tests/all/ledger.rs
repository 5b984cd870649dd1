//! What the counted ledger says, against sums that hold for every ring.

use quadrille_comm::{JobOptions, Label, Ledger, LedgerKey, Reduction, run_ranks};
use quadrille_spec::{CollectiveKind, Transfer};

const BLOCK: Label = Label::indexed("block", 3);

fn key(group: &str, layer: Label, collective: CollectiveKind) -> LedgerKey {
    LedgerKey { group: group.into(), layer, collective }
}

fn entry(ledger: &Ledger, group: &str, collective: CollectiveKind) -> Transfer {
    ledger.get(&key(group, BLOCK, collective)).copied().unwrap_or_default()
}

/// One of each collective, on `g` ranks: `n` elements all-reduced and broadcast, `g c` in the chunked ones.
fn ledgers(g: usize, n: usize, c: usize) -> Vec<Ledger> {
    let members: Vec<usize> = (0..g).collect();
    let outcome = run_ranks(&JobOptions::new(g), |context| {
        let x = context.group("x", &members)?;
        context.enter(BLOCK, "everything")?;
        let full = || vec![0f32; g * c];
        context.all_reduce(&x, Reduction::Sum, vec![0f32; n]).wait()?;
        context.all_reduce(&x, Reduction::Max, vec![0f64; n]).wait()?;
        context.reduce_scatter(&x, full(), vec![0f32; c]).wait()?;
        context.all_gather(&x, vec![0f32; c], full()).wait()?;
        context.all_to_all(&x, full(), full()).wait()?;
        context.broadcast(&x, 1, vec![0f32; n]).wait()?;
        context.reduce(&x, 1, vec![0f32; n]).wait()?;
        context.barrier(&x).wait()?;
        let ledger = context.take_ledger();
        assert!(context.ledger().is_empty(), "taking resets");
        Ok(ledger)
    });
    outcome.unwrap()
}

#[test]
fn totals_of_the_rings() {
    for g in 2..=7 {
        let n = 2 * g + 1;
        let c = 5;
        let ledgers = ledgers(g, n, c);
        let total = |collective| {
            ledgers.iter().fold(Transfer::default(), |mut sum, ledger| {
                sum += entry(ledger, "x", collective);
                sum
            })
        };
        let transfer = |calls: usize, payload: usize, wire: usize| Transfer {
            calls: (g * calls) as u64,
            payload_bytes: (g * payload) as u64,
            wire_bytes: wire as u64,
        };
        // Around the ring every element passes g-1 links, twice for an all-reduce.
        assert_eq!(total(CollectiveKind::AllReduce), transfer(2, 12 * n, 12 * 2 * (g - 1) * n));
        let chunked = transfer(1, 4 * g * c, 4 * (g - 1) * g * c);
        assert_eq!(total(CollectiveKind::ReduceScatter), chunked);
        assert_eq!(total(CollectiveKind::AllGather), chunked);
        assert_eq!(total(CollectiveKind::AllToAll), chunked);
        assert_eq!(total(CollectiveKind::Broadcast), transfer(1, 4 * n, 4 * (g - 1) * n));
        assert_eq!(total(CollectiveKind::Reduce), transfer(1, 4 * n, 4 * (g - 1) * n));
        assert_eq!(total(CollectiveKind::Barrier), transfer(1, 0, 0));
        assert_eq!(ledgers[0].len(), 7);
    }
}

#[test]
fn uneven_chunks_are_counted_by_rank() {
    // 5 elements in 3 chunks: 1, 2, 2. An all-reduce sends all but chunk p, then all but chunk p+1.
    let sent: Vec<u64> = ledgers(3, 5, 1).iter().map(|l| entry(l, "x", CollectiveKind::AllReduce).wire_bytes).collect();
    assert_eq!(sent, [(4 + 3) * 12, (3 + 3) * 12, (3 + 4) * 12]);
    // The chain starts at member 1; member 0 is its end.
    let sent: Vec<u64> = ledgers(3, 5, 1).iter().map(|l| entry(l, "x", CollectiveKind::Broadcast).wire_bytes).collect();
    assert_eq!(sent, [0, 20, 20]);
    // The other way round: it begins at member 2 and ends with member 1.
    let sent: Vec<u64> = ledgers(3, 5, 1).iter().map(|l| entry(l, "x", CollectiveKind::Reduce).wire_bytes).collect();
    assert_eq!(sent, [20, 0, 20]);
}

#[test]
fn in_place_counts_as_apart() {
    let both = |in_place: bool| {
        let ledgers = run_ranks(&JobOptions::new(3), |context| {
            let x = context.group("x", &[0, 1, 2])?;
            if in_place {
                context.all_gather_in_place(&x, vec![0f64; 15]).wait()?;
                context.reduce_scatter_in_place(&x, vec![0f64; 15]).wait()?;
            } else {
                context.all_gather(&x, vec![0f64; 5], vec![0f64; 15]).wait()?;
                context.reduce_scatter(&x, vec![0f64; 15], vec![0f64; 5]).wait()?;
            }
            Ok(context.take_ledger())
        });
        ledgers.unwrap()
    };
    assert_eq!(both(true), both(false));
    assert!(both(true)[0].values().all(|sum| *sum == Transfer { calls: 1, payload_bytes: 120, wire_bytes: 80 }));
}

/// What is still under way when a step ends belongs to the step that issued it.
#[test]
fn calls_count_when_they_are_issued() {
    let ledgers = run_ranks(&JobOptions::new(2), |context| {
        let x = context.group("x", &[0, 1])?;
        let mut first = Ledger::new();
        if context.rank() == 0 {
            let sum = context.all_reduce(&x, Reduction::Sum, vec![1f32; 3]);
            let message = context.receive(&x, 1, 0, vec![0f32; 2]);
            first = context.take_ledger();
            assert!(!sum.is_done() && !message.is_done(), "the other rank waits for this message");
            context.send(&x, 1, 0, vec![0f32; 1]).wait()?;
            sum.wait()?;
            message.wait()?;
        } else {
            context.receive(&x, 0, 0, vec![0f32; 1]).wait()?;
            context.all_reduce(&x, Reduction::Sum, vec![1f32; 3]).wait()?;
            context.send(&x, 0, 0, vec![0f32; 2]).wait()?;
        }
        Ok((first, context.take_ledger()))
    });
    let (first, second) = &ledgers.unwrap()[0];
    let kinds = |ledger: &Ledger| ledger.keys().map(|key| key.collective).collect::<Vec<_>>();
    assert_eq!(kinds(first), [CollectiveKind::AllReduce, CollectiveKind::Receive]);
    assert_eq!(kinds(second), [CollectiveKind::Send]);
}

#[test]
fn messages_count_on_the_sender() {
    let ledgers = run_ranks(&JobOptions::new(2), |context| {
        let pipe = context.group("pipe", &[0, 1])?;
        context.enter(BLOCK, "boundary")?;
        for _ in 0..2 {
            match pipe.index() {
                0 => context.send(&pipe, 1, 0, vec![1f64; 4]).wait()?,
                _ => context.receive(&pipe, 0, 0, vec![0f64; 4]).wait()?,
            };
        }
        Ok(context.ledger())
    });
    let ledgers = ledgers.unwrap();
    let sent = Transfer { calls: 2, payload_bytes: 64, wire_bytes: 64 };
    assert_eq!(ledgers[0], Ledger::from([(key("pipe", BLOCK, CollectiveKind::Send), sent)]));
    let received = Transfer { wire_bytes: 0, ..sent };
    assert_eq!(ledgers[1], Ledger::from([(key("pipe", BLOCK, CollectiveKind::Receive), received)]));
}

#[test]
fn the_layer_is_that_of_the_issue() {
    let ledgers = run_ranks(&JobOptions::new(2), |context| {
        let x = context.group("x", &[0, 1])?;
        context.enter(Label::new("head"), "issue")?;
        let pending = context.all_reduce(&x, Reduction::Sum, vec![1f32; 3]);
        context.enter(Label::new("step"), "wait")?;
        pending.wait()?;
        Ok(context.take_ledger().into_keys().collect::<Vec<_>>())
    });
    assert_eq!(ledgers.unwrap(), vec![vec![key("x", Label::new("head"), CollectiveKind::AllReduce)]; 2]);
}

#[test]
fn a_group_of_one_counts_nothing() {
    let outcome = run_ranks(&JobOptions::new(2), |context| {
        let alone = context.group("z", &[context.rank()])?;
        let pending = context.all_gather(&alone, vec![1f32, 2.0], vec![0f32; 2]);
        assert!(pending.is_done(), "nobody to wait for");
        assert_eq!(pending.wait()?.1, [1.0, 2.0]);
        assert_eq!(context.reduce_scatter(&alone, vec![3f64], vec![0f64]).wait()?.1, [3.0]);
        assert_eq!(context.all_to_all(&alone, vec![4f64], vec![0f64]).wait()?.1, [4.0]);
        assert_eq!(context.all_reduce(&alone, Reduction::Sum, vec![5f32]).wait()?, [5.0]);
        assert_eq!(context.broadcast(&alone, 0, vec![6f32]).wait()?, [6.0]);
        assert_eq!(context.reduce(&alone, 0, vec![7f32]).wait()?, [7.0]);
        assert_eq!(context.all_gather_in_place(&alone, vec![8f32]).wait()?, [8.0]);
        assert_eq!(context.reduce_scatter_in_place(&alone, vec![9f32]).wait()?, [9.0]);
        context.barrier(&alone).wait()?;
        Ok(context.ledger())
    });
    assert_eq!(outcome.unwrap(), vec![Ledger::new(); 2]);
}
