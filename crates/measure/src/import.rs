//! Measurements of others, read from files into a cluster that is otherwise kept.

use std::path::{Path, PathBuf};

use quadrille_cost::native::{Framework, Numbers};
use quadrille_files::Document;
use quadrille_plan::native::framework;
use quadrille_run::{RunError, described};
use quadrille_spec::{Cluster, ElementType, Field, Layout, SpecError};

use crate::logs::{self, Job, Log, Placed, Refit};
use crate::step_fit::{self, Scaled, Step};
use crate::{MeasureError, Refusal};

/// What nccl-tests and the OSU benchmarks print.
const LOG: Document = Document::new("the log of a benchmark", 1 << 28);

/// What is read.
#[derive(Debug, Clone, Default)]
pub struct ImportSpec {
    /// Logs of nccl-tests.
    pub nccl_tests: Vec<PathBuf>,
    /// Logs of the OSU benchmarks.
    pub osu: Vec<PathBuf>,
    /// What logs do not say themselves.
    pub job: Job,
    /// Measured steps: a model's preset or file, a layout's file, seconds.
    pub steps: Vec<[String; 3]>,
    /// What ran the steps; `None`: what their layouts were planned for, or Megatron-LM.
    pub framework: Option<String>,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Imported {
    /// Tiers that were fitted again.
    pub refits: Vec<Refit>,
    /// How products were scaled, if steps were read.
    pub scaled: Option<Scaled>,
}

impl ImportSpec {
    /// Reads all logs, then all steps, into a cluster.
    ///
    /// # Errors
    /// Files that cannot be read; what does not lie in the cluster, or cannot have been measured on it.
    pub fn read_into(&self, cluster: &mut Cluster) -> Result<Imported, MeasureError> {
        let placed = self.placed(cluster.tiers.len())?;
        let refits = logs::refit(cluster, &placed)?;
        Ok(Imported { refits, scaled: self.scale(cluster)? })
    }

    /// All logs, with their places in a cluster of so many tiers.
    fn placed(&self, tiers: usize) -> Result<Vec<Placed>, MeasureError> {
        let parse: [(&[PathBuf], Parse); 2] = [(&self.nccl_tests, logs::nccl_tests), (&self.osu, logs::osu)];
        let mut read = Vec::new();
        for (paths, parse) in parse {
            for path in paths {
                let bytes = LOG.bytes(path).map_err(RunError::from)?;
                read.push((path.display().to_string(), parse(path, &String::from_utf8_lossy(&bytes))?));
            }
        }
        self.job.check(&read)?;
        let place = |(name, log): (String, Log)| Ok(log.place(name, self.job, tiers)?);
        read.into_iter().map(place).collect()
    }

    fn scale(&self, cluster: &mut Cluster) -> Result<Option<Scaled>, MeasureError> {
        let steps: Vec<(Step, Framework)> =
            self.steps.iter().map(|step| self.read_step(cluster, step)).collect::<Result<_, _>>()?;
        let Some((first, framework)) = steps.first() else { return Ok(None) };
        let framework = *framework;
        if let Some((other, _)) = steps.iter().find(|(_, ran)| *ran != framework) {
            let rule = "layouts were planned for different programs or types of numbers; read them one after the other";
            return Err(Refusal::new(format!("{} and {}: {rule}", first.name, other.name)).into());
        }
        let steps: Vec<Step> = steps.into_iter().map(|(step, _)| step).collect();
        Ok(Some(step_fit::scale(cluster, &framework, &steps)?))
    }

    /// Reads a model, a layout's file and the seconds of a step, and what ran it; refuses a layout without a grid or a batch.
    fn read_step(
        &self,
        cluster: &Cluster,
        [model, path, seconds]: &[String; 3],
    ) -> Result<(Step, Framework), MeasureError> {
        let name = format!("{model} {path}");
        let seconds = step_fit::seconds(&name, seconds)?;
        let model = described::model(model, &[])?;
        let file = described::layout_file(Path::new(path))?;
        let usual = (Framework::MEGATRON.name, ElementType::F32);
        let framework = framework(self.framework.as_deref(), usual, None, None, Numbers::default(), &file)?;
        let wrong = |error: SpecError| Refusal::new(format!("{path}: {error}"));
        if [Field::Grid, Field::GlobalBatch].iter().any(|field| file.get(*field).is_none()) {
            let rule = "a measured step has a grid and a global_batch; add both";
            return Err(Refusal::new(format!("{path}: {rule}")).into());
        }
        let mut request = file.request().map_err(wrong)?;
        if file.get(Field::VocabMultiple).is_none() && model.patch_values.is_none() {
            request.vocab_multiple = framework.vocab_multiple;
        }
        request.per_node = request.per_node.or(Some(cluster.ranks_of_node(request.grid.ranks())));
        let layout = Layout::new(&model, &request).map_err(wrong)?;
        Ok((Step { name, model, layout, seconds }, framework))
    }
}

/// Reads a log.
type Parse = fn(&Path, &str) -> Result<Log, Refusal>;
