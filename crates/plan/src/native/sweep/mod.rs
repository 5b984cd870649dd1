//! The best layout for every value of one or two numbers.

mod variable;

use quadrille_cost::native::PriceError;
use quadrille_spec::SpecError;

pub use self::variable::Variable;
use super::{Nothing, Question, Ranked, stop_at};

/// The best layouts by one number or two.
///
/// ```
/// use quadrille_cost::native::Framework;
/// use quadrille_plan::native::{Question, Reserve, Space, Sweep};
/// use quadrille_spec::{Cluster, Imbalance, Model};
///
/// let model = Model::preset("gpt2-124m")?;
/// let question = Question {
///     cluster: Cluster::preset("selene")?,
///     framework: Framework::MEGATRON,
///     imbalance: Imbalance::EQUAL,
///     devices: 4,
///     global_batch: 32,
///     seq_len: model.seq_len,
///     model,
///     space: Space::default(),
///     per_node: None,
///     reserve: Reserve::USUAL,
///     tokens: None,
///     price_per_hour: None,
///     time_limit: None,
/// };
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
    /// Whether the time was up before everything was looked at.
    pub stopped: bool,
}

impl Sweep {
    /// Searches the best layout for every value, or pair of values. All of them are held against their rules before the first
    /// search begins.
    ///
    /// # Errors
    /// Values that break a rule; what cannot be priced.
    pub fn new(question: Question, first: Variable, second: Option<Variable>) -> Result<Self, PriceError> {
        if let Some(second) = second.as_ref().filter(|second| second.varies_as(&first)) {
            let remedy = "leave one of them out".to_owned();
            return Err(SpecError::invalid("vary", second, "it varies twice", remedy).into());
        }
        let others = second.as_ref().map_or([0.0].as_slice(), |second| second.values());
        let pairs = first.values().iter().flat_map(|value| others.iter().map(|other| [*value, *other]));
        let questions = pairs.map(|[value, other]| {
            let changed = first.set(&question, value)?;
            let changed = second.as_ref().map_or(Ok(changed.clone()), |second| second.set(&changed, other))?;
            Ok(([value, other], changed))
        });
        let questions = questions.collect::<Result<Vec<_>, SpecError>>()?;
        let points = questions.into_iter().map(|(values, question)| Point::new(values, question));
        let points = points.collect::<Result<_, _>>()?;
        Ok(Self { question, first, second, points })
    }

    /// The numbers that vary.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        std::iter::once(&self.first).chain(&self.second)
    }
}

impl Point {
    fn new(values: [f64; 2], question: Question) -> Result<Self, PriceError> {
        let (search, stop) = (question.search(1)?, stop_at(question.end()));
        let found = search.run(&stop)?;
        let best = found.ranked.first().copied().ok_or_else(|| search.why_nothing(&found, &stop));
        Ok(Self { values, best, stopped: found.stopped, question })
    }
}
