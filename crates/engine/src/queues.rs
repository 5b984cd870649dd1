//! Rows of experts that drop nothing: how many there are is known once tokens have chosen.

use quadrille_step::{Collective, Loads, Parts, Queues, ValueId, kind};
use quadrille_tensor::Element;

use crate::{Backend, EngineError, RankEngine};

impl<B: Backend> RankEngine<'_, B> {
    /// The rows that experts which drop nothing have got since the last call, of the last pass over each microbatch.
    pub fn take_loads(&mut self) -> Loads {
        std::mem::take(&mut self.loads)
    }

    /// The queues of the current pass that a value's rows are.
    pub(crate) fn queues_of(&self, value: ValueId) -> Option<&Queues> {
        let counts = self.program.value(value).counts?;
        self.loads.get(&(counts, self.microbatch))
    }

    /// Rows that the rank has of a value.
    pub(crate) fn local_rows(&self, id: ValueId) -> usize {
        let value = self.program.value(id);
        self.queues_of(id).map_or(value.local_rows, |queues| queues.rows(value, &self.program.layout, self.place))
    }

    /// Elements that the rank has of a value.
    pub(crate) fn local_elements(&self, id: ValueId) -> usize {
        let value = self.program.value(id);
        self.queues_of(id).map_or(value.local_elements, |_| self.local_rows(id) * value.local_cols)
    }

    /// The parts in which a collective moves rows of queues; `None` of other collectives.
    pub(crate) fn queue_parts(&self, collective: &Collective) -> Option<Parts> {
        self.queues_of(collective.input)?.parts(self.program, collective, self.place)
    }

    /// Learns the queues of a pass, and makes sure that there is room for their rows.
    pub(crate) fn admit(&mut self, op: &kind::Admit) -> Result<(), EngineError> {
        let kind::Admit { counts, .. } = *op;
        let experts = self.program.value(counts).cols;
        let lengths = |lengths: &[B::Real]| lengths.iter().map(|length| length.to_f64() as usize).collect();
        let queues = Queues::new(experts, self.backend.download(self.read(counts)?, lengths)?);
        let program = self.program;
        for value in program.values.iter().filter(|value| value.counts == Some(counts)) {
            let rows = queues.rows(value, &program.layout, self.place);
            let cols = value.local_cols.max(1);
            let room = program.storages[value.storage.0].elements / cols;
            if rows > room {
                let times = rows.div_ceil(value.local_rows);
                return Err(EngineError::TooManyRows { value: value.name.clone(), rows, room, times });
            }
        }
        self.loads.insert((counts, self.microbatch), queues);
        Ok(())
    }
}
