//! What bounds have learned of programs, for the next problem whose programs are the same.

use std::sync::{Arc, Mutex, PoisonError};

use quadrille_spec::{Imbalance, Model};

use super::Templates;
use crate::native::{Framework, Problem};

/// Templates that were made, for others on other threads.
pub(super) type Made = Arc<Mutex<Templates>>;

/// What bounds have learned of a problem's programs, for the bounds of other problems: whoever asks about other numbers of devices or
/// sequences, or another cluster, need not wait for it again. Of the programs of the last problem alone. Every copy knows the same.
#[derive(Debug, Clone, Default)]
pub struct Learned(Arc<Mutex<Option<(Programs, Made)>>>);

/// What templates depend on, beside the structure of a candidate.
#[derive(Debug, Clone, PartialEq)]
struct Programs {
    by_work: Model,
    framework: Framework,
    imbalance: Imbalance,
    seq_len: usize,
}

impl Learned {
    /// What is known of a problem's programs: nothing where those of the problem before were others.
    pub(super) fn of(&self, problem: &Problem) -> Made {
        let Problem { by_work, imbalance, .. } = problem;
        let by_work = by_work.clone();
        let imbalance = imbalance.clone();
        let programs = Programs { by_work, framework: problem.framework, imbalance, seq_len: problem.seq_len };
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((known, made)) if *known == programs => Arc::clone(made),
            _ => Arc::clone(&last.insert((programs, Made::default())).1),
        }
    }
}

#[cfg(test)]
mod tests {
    use quadrille_spec::Cluster;

    use super::*;

    #[test]
    fn problems_with_other_programs_begin_with_nothing() {
        let model = Model::gpt(2, 64, 4, 128, 32);
        let problem = |cluster, framework, batch, seq_len| {
            Problem::new(&model, &Cluster::preset(cluster).unwrap(), framework, batch, seq_len).unwrap()
        };
        let learned = Learned::default();
        let first = learned.of(&problem("selene", Framework::MEGATRON, 8, 32));
        let is_first = |made: &Made| Arc::ptr_eq(made, &first);
        assert!(is_first(&learned.of(&problem("dgx-h100", Framework::MEGATRON, 24, 32))));
        for (framework, seq_len) in [(Framework::MEGATRON, 16), (Framework::QUADRILLE, 32)] {
            assert!(!is_first(&learned.of(&problem("selene", framework, 8, seq_len))));
        }
        assert!(!is_first(&learned.of(&problem("selene", Framework::MEGATRON, 8, 32))), "it was forgotten meanwhile");
    }

    #[test]
    fn problems_with_other_loads_of_experts_begin_with_nothing() {
        let model = Model::preset("mixtral-8x7b").unwrap();
        let cluster = Cluster::preset("selene").unwrap();
        let problem = Problem::new(&model, &cluster, Framework::MEGATRON, 8, model.seq_len).unwrap();
        let crowded = problem.clone().with_imbalance(&Imbalance::Times(1.5)).unwrap();
        let learned = Learned::default();
        let equal = learned.of(&problem);
        assert!(Arc::ptr_eq(&equal, &learned.of(&problem)) && !Arc::ptr_eq(&equal, &learned.of(&crowded)));
    }
}
