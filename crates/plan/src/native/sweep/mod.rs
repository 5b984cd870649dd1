//! The best layout for every value of one or two numbers.

mod variable;

use quadrille_cost::native::PriceError;
use quadrille_cost::simulation::SimulationError;
use quadrille_spec::SpecError;

pub use self::variable::Variable;
use super::{InDays, Nothing, Question, Ranked};

/// The best layouts by one number or two.
///
/// ```
/// use quadrille_cost::native::Framework;
/// use quadrille_plan::native::{Question, Sweep};
/// use quadrille_spec::{Cluster, Model};
///
/// let model = Model::preset("gpt2-124m")?;
/// let cluster = Cluster::preset("selene")?;
/// let question = Question::new(model, cluster, Framework::MEGATRON, 4, 32);
/// let sweep = Sweep::new(question, "gpus=1,2,4".parse()?, None)?;
/// let seconds = |at: usize| sweep.points[at].best.as_ref().ok().map(|best| best.price.seconds);
/// assert!(seconds(2) < seconds(0)); // four devices are faster than one
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Sweep {
    /// What does not vary.
    pub question: Question,
    /// The only number that varies, or the first of two.
    pub first: Variable,
    /// The second number, if two vary.
    pub second: Option<Variable>,
    /// A point for every value of the first number, or for every pair of values, of which those of the second vary fastest.
    pub points: Vec<Point>,
}

/// What was found for a value of each number.
#[derive(Debug, Clone)]
pub struct Point {
    /// Of the first number, and of the second; without a second one it does not count.
    pub values: [f64; 2],
    /// What was asked.
    pub question: Question,
    /// The best layout, or why there is none.
    pub best: Result<Ranked, Nothing>,
    /// True if the limit was reached before everything was looked at.
    pub stopped: bool,
}

impl Sweep {
    /// Searches the best layout for every value, or pair of values. All of them are held against their rules before the first
    /// search begins.
    ///
    /// # Errors
    /// Values that break a rule; what cannot be priced.
    pub fn new(question: Question, first: Variable, second: Option<Variable>) -> Result<Self, PriceError> {
        Self::watched(question, first, second, &mut |_, _| {})
    }

    /// The same, telling after each search how many of how many are done, and asking whether anybody waits for the others.
    ///
    /// # Errors
    /// As [`Self::new`]; [`SimulationError::Stopped`] where nobody does.
    pub fn watched(
        question: Question,
        first: Variable,
        second: Option<Variable>,
        watch: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, PriceError> {
        if let Some(second) = second.as_ref().filter(|second| second.varies_as(&first)) {
            let remedy = "leave one of them out".to_owned();
            return Err(SpecError::invalid("vary", second, "it varies twice", remedy).into());
        }
        let others = second.as_ref().map_or([0.0].as_slice(), |second| second.values());
        let pairs = first.values().iter().flat_map(|value| others.iter().map(|other| [*value, *other]));
        let questions = pairs.map(|[value, other]| {
            let mut varied = vec![(&first, value)];
            varied.extend(second.as_ref().map(|second| (second, other)));
            // Of how many devices nodes are is known before how many of them there are.
            varied.sort_by_key(|(variable, _)| variable.is_nodes());
            let changed = varied
                .iter()
                .try_fold(question.clone(), |question, (variable, value)| variable.set(&question, *value))?;
            Ok(([value, other], changed))
        });
        let questions = questions.collect::<Result<Vec<_>, SpecError>>()?;
        let number = questions.len();
        let points = questions.into_iter().zip(1..).map(|((values, question), done)| {
            let cancel = question.cancel.clone();
            let point = Point::new(values, question)?;
            watch(done, number);
            if cancel.is_cancelled() { Err(PriceError::from(SimulationError::Stopped)) } else { Ok(point) }
        });
        let points = points.collect::<Result<_, PriceError>>()?;
        Ok(Self { question, first, second, points })
    }

    /// The numbers that vary.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        std::iter::once(&self.first).chain(&self.second)
    }
}

impl Point {
    fn new(values: [f64; 2], question: Question) -> Result<Self, PriceError> {
        let search = question.search(1)?;
        let found = search.run()?;
        let best = match (found.ranked.first().copied(), &search.deadline) {
            (Some(best), Some(deadline)) if !deadline.is_kept(&best) => {
                let fastest = InDays { devices: question.devices, days: deadline.days_of(&best) };
                Err(Nothing::TooSlow { days: deadline.days(), fastest, enough: None, tried: Vec::new() })
            }
            (Some(best), _) => Ok(best),
            (None, _) => Err(search.why_nothing(&found)),
        };
        Ok(Self { values, best, stopped: found.stopped, question })
    }
}
