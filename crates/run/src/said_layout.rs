//! What a user says of a layout: names of files, a grid in words, choices.

use std::path::PathBuf;

use quadrille_spec::{Cluster, ElementType, Field, LayoutFile, Model, Tier};

use crate::refusal::Setting;
use crate::{LayoutDefaults, LayoutSpec, OpenLayout, Processes, Refusal, RunError, described};

/// A layout as it is said, of which everything may be left out.
#[derive(Debug, Clone, Default)]
pub struct SaidLayout {
    /// A file, over which all else wins.
    pub file: Option<PathBuf>,
    /// Sizes of axes, or `auto`, which leaves the grid open whatever the file says.
    pub grid: Option<String>,
    /// The number of ranks.
    pub ranks: Option<usize>,
    /// The type of the values.
    pub dtype: Option<ElementType>,
    /// The other choices.
    pub choices: LayoutFile,
    /// A cluster's preset or file.
    pub cluster: Option<String>,
}

impl SaidLayout {
    /// The cluster's name: `local` where none is said.
    pub fn cluster(&self) -> &str {
        self.cluster.as_deref().unwrap_or(LayoutSpec::CLUSTER)
    }

    /// The cluster.
    ///
    /// # Errors
    /// As [`described::cluster`].
    pub fn described_cluster(&self) -> Result<Cluster, RunError> {
        described::cluster(self.cluster())
    }

    /// What the file says; nothing where there is none.
    ///
    /// # Errors
    /// As [`described::layout_file`].
    pub fn read(&self) -> Result<LayoutFile, RunError> {
        self.file.as_deref().map_or(Ok(LayoutFile::default()), described::layout_file)
    }

    /// All of it on its cluster, not yet held against a model.
    ///
    /// # Errors
    /// Files that cannot be read; a choice that is not known; numbers of ranks that contradict each other.
    pub fn open(&self, defaults: &LayoutDefaults) -> Result<OpenLayout, RunError> {
        self.open_over(defaults, self.described_cluster()?, &LayoutFile::default())
    }

    /// The same over what is `kept` of the layout of a run, on its cluster where none is said.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn open_after(
        &self,
        before: &LayoutSpec,
        kept: LayoutFile,
        defaults: &LayoutDefaults,
    ) -> Result<OpenLayout, RunError> {
        let cluster = match &self.cluster {
            Some(name) => described::cluster(name)?,
            None => described::cluster(&before.cluster).map_err(|error| {
                let refusal = Refusal::new(format!("the run's cluster {}: {error}; ", before.cluster));
                refusal.name(Setting::Cluster).text(" names another in its place")
            })?,
        };
        // A whole layout in a file leaves nothing of the one before but its batch.
        let kept = if self.file.is_some() { LayoutFile::default() } else { kept };
        // Gradients of the type before may be none of another type of values.
        let kept = if self.dtype.is_some() { kept.without(Field::Gradients) } else { kept };
        self.open_over(defaults, cluster, &kept)
    }

    fn open_over(
        &self,
        defaults: &LayoutDefaults,
        cluster: Cluster,
        before: &LayoutFile,
    ) -> Result<OpenLayout, RunError> {
        let said = self.choices.over(&self.read()?).over(before);
        let said = match self.grid.as_deref() {
            Some("auto") => said.without(Field::Grid),
            Some(text) => said.with(Field::Grid, Field::Grid.parse(text)?),
            None => said,
        };
        let open = OpenLayout::new(said, self.ranks, self.dtype, defaults, cluster)?;
        let grid = &open.request.grid;
        match self.ranks {
            Some(ranks) if grid.ranks() != ranks => {
                let whose = match (&self.grid, before.get(Field::Grid)) {
                    (Some(_), _) => "`layout.grid`",
                    (None, Some(_)) => "the run's grid",
                    (None, None) => "the layout file's grid",
                };
                Err(Refusal::new(format!(
                    "`run.ranks` {ranks} does not match {whose} {grid}, which has {} ranks; leave one of them out",
                    grid.ranks()
                ))
                .into())
            }
            _ => Ok(open),
        }
    }

    /// The layout of a run that goes on with its cluster's tiers, if it is another than `before`: because something is said,
    /// because its model is another one, or because ranks are other processes.
    ///
    /// # Errors
    /// As [`Self::open`]; what the model does not allow, or nodes that are not full.
    pub fn going_on(
        &self,
        before: &LayoutSpec,
        other_model: bool,
        model: &Model,
        processes: &Processes,
    ) -> Result<Option<(LayoutSpec, Vec<Tier>)>, RunError> {
        let layout = &before.layout;
        let ranks = layout.grid.ranks();
        let defaults = processes.defaults(&LayoutDefaults::after(layout))?;
        let is_open = |field| before.open.contains(&field);
        let other_ranks = defaults.ranks != ranks && is_open(Field::Grid);
        let other_nodes =
            defaults.per_node.is_some_and(|per_node| per_node != layout.per_node) && is_open(Field::PerNode);
        if !(self.says_anything() || other_model || other_ranks || other_nodes) {
            return Ok(None);
        }
        let cluster = self.cluster.as_deref().unwrap_or(&before.cluster);
        let open = self.open_after(before, before.made(), &defaults)?;
        Ok(Some((open.spec(model, cluster)?, open.cluster.tiers)))
    }

    fn says_anything(&self) -> bool {
        self.cluster.is_some() || self.says_layout()
    }

    /// Whether anything is said but the cluster.
    pub(crate) fn says_layout(&self) -> bool {
        let Self { file, grid, ranks, dtype, choices, cluster: _ } = self;
        let named = file.is_some() || grid.is_some() || ranks.is_some();
        named || dtype.is_some() || choices.iter().next().is_some()
    }
}
