//! Bounds against the prices of programs.

use quadrille_cost::native::{Bounds, Framework};
use quadrille_spec::{EvenPieces, Schedule};

use crate::case::fixed;

#[test]
fn bounds_are_never_above_the_price() {
    for (name, schedule) in Schedule::ALL {
        let mut ratios: Vec<(f64, f64)> = Vec::new();
        for case in fixed(schedule, 1000) {
            let problem = case.problem(Framework::QUADRILLE);
            if problem.check_placed(&case.layout).is_err() || !EvenPieces::are(&case.layout.stage_blocks) {
                continue;
            }
            let candidate = case.candidate();
            let mut bounds = Bounds::new(&problem);
            let pieces = bounds.pieces(&candidate).unwrap();
            let price = problem.price_layout(&case.layout).unwrap();
            let seconds = bounds.seconds(&candidate, &pieces) / price.seconds;
            let bytes = bounds.bytes(&candidate, &pieces) as f64 / price.memory.total() as f64;
            if seconds > 1.0 || bytes > 1.0 {
                println!("{name} {seconds:.4} {bytes:.4} {:?} layers {}", candidate, case.model.layers);
            }
            ratios.push((seconds, bytes));
        }
        let show = |mut of: Vec<f64>| {
            of.sort_by(f64::total_cmp);
            let at = |q: f64| of[((of.len() - 1) as f64 * q) as usize];
            format!("least {:.3} 1% {:.3} 5% {:.3} 25% {:.3} median {:.4} most {:.4} over {}", at(0.0), at(0.01), at(0.05), at(0.25), at(0.5), at(1.0), of.iter().filter(|r| **r > 1.0).count())
        };
        println!("{name} n {} seconds {}", ratios.len(), show(ratios.iter().map(|r| r.0).collect()));
        println!("{name} bytes {}", show(ratios.iter().map(|r| r.1).collect()));
    }
}
