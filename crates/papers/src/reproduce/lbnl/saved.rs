//! The best configurations that the authors' code saved, which the curves of the figures are drawn from, and ours.

use std::collections::BTreeMap;

use quadrille_spec::SpecError;

use super::case::{Case, days};
use crate::lbnl::{PUBLISHED_BATCH, Ranked};
use crate::reproduce::point::Point;
use crate::reproduce::printed::Printed;

/// The columns that are read; they are consecutive, and others follow.
const COLUMNS: &str = "strategy,model,gpu,nvs,n_gpus,rank_in_top10,dp,tp1,tp2,pp,microbatch,summa_nb,nvs_tp1,nvs_tp2,\
                       nvs_dp,nvs_pp,global_batch,t_iter_s,mem_gb";

/// A figure of curves of best configurations.
struct Figure {
    source: &'static str,
    strategy: &'static str,
    model: &'static str,
    /// The system and its fast domain, if it shows one only.
    system: Option<(&'static str, u64)>,
    shows: Quantity,
}

const FIGURES: [Figure; 6] = {
    use Quantity::{Days, Gigabytes, Seconds};
    let one = ("1d", "gpt3_1T");
    let two = ("2d", "vit_era5");
    let summa = ("summa", "gpt3_1T");
    let small = Some(("B200", 8));
    let large = Some(("B200", 64));
    [
        Figure::new("figure 4a, saved output", one, small, Gigabytes),
        Figure::new("figure 4b, saved output", two, small, Gigabytes),
        Figure::new("figure 5a, saved output", one, None, Days),
        Figure::new("figure 5b, saved output", two, None, Days),
        Figure::new("appendix, figure 3b, saved output", summa, large, Gigabytes),
        Figure::new("appendix, figure 3b, saved output", summa, large, Seconds),
    ]
};

impl Figure {
    const fn new(
        source: &'static str,
        (strategy, model): (&'static str, &'static str),
        system: Option<(&'static str, u64)>,
        shows: Quantity,
    ) -> Self {
        Self { source, strategy, model, system, shows }
    }

    fn is_of(&self, case: &Case) -> bool {
        (case.strategy.as_str(), case.model.as_str()) == (self.strategy, self.model)
            && self.system.is_none_or(|system| system == (case.gpu.as_str(), case.nvs))
    }
}

/// What a figure shows of the best configurations.
#[derive(Clone, Copy)]
enum Quantity {
    /// Days of training.
    Days,
    /// Memory of a device, GB of 1e9 bytes.
    Gigabytes,
    /// Seconds of a step.
    Seconds,
}

/// A saved configuration.
struct Saved {
    /// As [`crate::lbnl::Configuration::numbers`].
    numbers: [u64; 10],
    seconds: f64,
    gigabytes: f64,
}

/// The saved configurations of a case, best first, and as many of ours.
struct List {
    case: Case,
    saved: Vec<Saved>,
    found: Vec<Ranked>,
}

/// The points of all figures, then how many of the saved configurations ours finds in their places.
pub fn points() -> Result<Vec<Point>, SpecError> {
    let lists = lists(include_str!("../../../published/lbnl_top10.csv"))?;
    let mut points = Vec::new();
    for figure in FIGURES {
        for list in lists.iter().filter(|list| figure.is_of(&list.case)) {
            points.push(list.point(figure.source, figure.shows)?);
        }
    }
    points.extend(places(&lists));
    Ok(points)
}

impl List {
    fn point(&self, source: &str, quantity: Quantity) -> Result<Point, SpecError> {
        let Self { case, saved, found } = self;
        let (Some(saved), Some(found)) = (saved.first(), found.first()) else {
            return Err(case.without_configuration());
        };
        let (what, printed, ours, decimals, unit) = match quantity {
            Quantity::Days => ("training", days(case, saved.seconds)?, days(case, found.price.seconds)?, 2, "days"),
            Quantity::Gigabytes => ("memory", saved.gigabytes, found.price.memory_bytes() / 1e9, 2, "GB"),
            Quantity::Seconds => ("step", saved.seconds, found.price.seconds, 4, "s"),
        };
        Ok(Point::new(format!("{case}: {what}"), source, Printed::rounded(printed, decimals)?, ours, unit))
    }
}

/// For every strategy, model and system, over all numbers of GPUs.
fn places(lists: &[List]) -> Vec<Point> {
    let mut counts: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for List { case, saved, found } in lists {
        let Case { strategy, model, gpu, nvs, .. } = case;
        let [all, equal] = counts.entry(format!("{strategy} {model}, {gpu} nvs {nvs}")).or_default();
        *all += saved.len();
        let pairs = saved.iter().zip(found);
        *equal += pairs.filter(|(saved, found)| saved.numbers == found.configuration.numbers()).count();
    }
    let point = |(system, [all, equal]): (String, [usize; 2])| {
        let what = format!("{system}: saved configurations in their places");
        Point::new(what, "saved output", Printed::count(all), equal as f64, "found")
    };
    counts.into_iter().map(point).collect()
}

/// Reads the saved configurations and searches for each list's case.
fn lists(text: &str) -> Result<Vec<List>, SpecError> {
    let mut lines = text.lines();
    if !lines.next().is_some_and(|header| header.starts_with(COLUMNS)) {
        return Err(syntax(format!("the first line does not begin with {COLUMNS}")));
    }
    let mut lists: Vec<List> = Vec::new();
    for (line, at) in lines.zip(2..) {
        let cells: Vec<&str> = line.split(',').collect();
        let (case, saved) = row(&cells).ok_or_else(|| syntax(format!("line {at} is no saved configuration")))?;
        match lists.last_mut() {
            Some(list) if list.case == case => list.saved.push(saved),
            _ => lists.push(List { case, saved: vec![saved], found: Vec::new() }),
        }
    }
    for list in &mut lists {
        list.found = list.case.search()?.run(list.saved.len()).ranked;
    }
    Ok(lists)
}

fn row(cells: &[&str]) -> Option<(Case, Saved)> {
    let size = |at: usize| cells.get(at)?.parse::<u64>().ok();
    let value = |at: usize| cells.get(at)?.parse::<f64>().ok();
    let [strategy, model, gpu] = [0, 1, 2].map(|at| cells.get(at).copied().unwrap_or_default().to_owned());
    let case = Case { strategy, model, gpu, nvs: size(3)?, gpus: size(4)?, batch: size(16)? };
    let mut numbers = [0; 10];
    for (at, number) in numbers.iter_mut().enumerate() {
        *number = size(6 + at)?;
    }
    (case.batch == PUBLISHED_BATCH).then_some((case, Saved { numbers, seconds: value(17)?, gigabytes: value(18)? }))
}

fn syntax(reason: String) -> SpecError {
    SpecError::Syntax { what: "published figures", text: "lbnl_top10.csv".to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "1d,gpt3_1T,B200,8,4096,1,8,4,1,128,1,0,4,1,1,2,4096,9.03904961,98.0978918";

    fn read(lines: &[&str]) -> Result<Vec<List>, String> {
        lists(&[&[COLUMNS], lines].concat().join("\n")).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_saved_elsewhere_than_found_is_counted_out() {
        let second = LINE.replace(",8,4,1,128,", ",4,8,1,128,");
        let lists = read(&[LINE, &second]).unwrap();
        let [list] = lists.as_slice() else { panic!("{} lists", lists.len()) };
        assert_eq!((list.saved.len(), list.found.len()), (2, 2));
        let points = places(&lists);
        assert_eq!((points.len(), points[0].published.to_string(), points[0].ours), (1, "2".to_owned(), 1.0));
        assert!(!points[0].agrees());
        assert!(list.point("figure", Quantity::Seconds).unwrap().agrees());
        let other = read(&[&LINE.replace(",9.03904961,", ",9.0393,")]).unwrap();
        assert!(!other[0].point("figure", Quantity::Seconds).unwrap().agrees());
    }

    #[test]
    fn lines_that_are_no_configuration_are_named() {
        for broken in ["1d,gpt3_1T", &LINE.replace("4096,9", "512,9"), &LINE.replace("128", "many")] {
            let error = read(&[LINE, broken]).err().unwrap();
            assert!(error.contains("line 3 is no saved configuration") && error.contains("lbnl_top10.csv"), "{error}");
        }
        assert!(lists("strategy,model\n").err().unwrap().to_string().contains("the first line does not begin with"));
        assert!(read(&[&LINE.replace("B200", "B300")]).err().unwrap().contains("system"));
    }
}
