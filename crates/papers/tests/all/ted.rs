//! Holds TED's formulas against closed forms written otherwise, for random groups.
//!
//! Letters as in `ted`: `NP` parameters of the base model, `E` experts, `G` GPUs, `G_t` of a tensor parallel group.

use proptest::prelude::*;
use quadrille_papers::ted::{Dispatch, Mixture, Placed, Sent, passes};

/// What a GPU sends in both passes, `[to its expert parallel group, to all]`.
fn both_passes(dispatch: Dispatch, elements: f64, tensor: usize, expert: usize) -> [f64; 2] {
    let sent = dispatch.sent(elements, tensor, expert).times(passes(false, false));
    [sent.all_to_all, sent.all()]
}

#[test]
fn groups_of_four_send_what_the_forms_say() {
    assert_eq!(both_passes(Dispatch::Duplicated, 192.0, 4, 4), [576.0, 1152.0]);
    assert_eq!(both_passes(Dispatch::Dropped, 192.0, 4, 4), [144.0, 1296.0]);
    assert_eq!(both_passes(Dispatch::DroppedAndScattered, 192.0, 4, 4), [144.0, 1008.0]);
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * other.abs().max(1.0)
}

proptest! {
    /// `2 r(E) ECM + 2 r(G_t) ECM` a pass, with tokens dropped `2 r(E) ECM/G_t + 4 r(G_t) ECM`; here with `r(n) n` messages
    /// of an `n`th part.
    #[test]
    fn passes_send_what_rings_do(tensor in 1_usize..=16, expert in 1_usize..=64, rows in 1_usize..10_000) {
        let elements = (rows * tensor * expert) as f64;
        let around = |ranks: usize, elements: f64| (0..ranks).skip(1).map(|_| elements / ranks as f64).sum::<f64>();
        let forms = [
            (Dispatch::Duplicated, elements, 2),
            (Dispatch::Dropped, elements / tensor as f64, 4),
            (Dispatch::DroppedAndScattered, elements / tensor as f64, 3),
        ];
        for (dispatch, exchanged, rings) in forms {
            let Sent { all_to_all, tensor: reduced } = dispatch.sent(elements, tensor, expert);
            prop_assert!(close(all_to_all, 2.0 * around(expert, exchanged)), "{dispatch:?}");
            prop_assert!(close(reduced, f64::from(rings) * around(tensor, elements)), "{dispatch:?}");
        }
    }

    /// Equation 7.5, `4 NP (1/G_t + (E + 2)/G)`, is 7.4; the spike is `4 (E + 2)/3 NP/G`, however a group is cut.
    #[test]
    fn bytes_are_the_equations(base in 1e6..1e12, experts in 1_usize..=128, log_tensor in 0_u32..5, data in 1_usize..=32) {
        let tensor = 1 << log_tensor;
        let gpus = tensor * experts * data;
        let placed = Placed { mixture: Mixture { base, experts }, gpus, tensor };
        let shared = (experts as f64 + 2.0) / gpus as f64;
        prop_assert!(close(placed.least_bytes(), 4.0 * base * (1.0 / tensor as f64 + shared)));
        prop_assert!(close(placed.spike_bytes(), 4.0 / 3.0 * base * shared));
    }

    /// The groups that are found have room, and smaller ones have none.
    #[test]
    fn smallest_groups_are_found(base in 1e8..1e11, log_experts in 0_u32..6, log_gpus in 0_u32..10, gigabytes in 1.0..100.0) {
        let mixture = Mixture { base, experts: 1 << log_experts };
        let gpus = 1 << log_gpus;
        let bytes = gigabytes * 1e9;
        let fits = |tensor: usize| Placed { mixture, gpus, tensor }.least_bytes() <= bytes;
        let most = gpus / mixture.experts;
        match Placed::least_tensor(mixture, gpus, bytes) {
            Some(placed) => {
                prop_assert!(fits(placed.tensor) && placed.tensor <= most);
                prop_assert!(placed.tensor == 1 || !fits(placed.tensor / 2));
            }
            None => prop_assert!(most == 0 || !fits(most)),
        }
    }
}
