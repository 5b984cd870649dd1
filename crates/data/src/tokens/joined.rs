//! Several files of tokens, one after the other.

use super::{TokenSource, Tokens, check_range};
use crate::{DataError, Vocabulary};

/// Token sources as one.
#[derive(Debug)]
pub struct Joined {
    parts: Vec<TokenSource>,
    /// First token and first document of every part, and their numbers at the end.
    starts: Vec<(usize, usize)>,
}

impl Joined {
    /// The sources in their order; one or several.
    pub fn new(parts: Vec<TokenSource>) -> Self {
        let mut starts = vec![(0, 0)];
        let (mut tokens, mut documents) = (0, 0);
        for part in &parts {
            tokens += part.len();
            documents += part.documents();
            starts.push((tokens, documents));
        }
        Self { parts, starts }
    }

    /// The sources.
    pub fn parts(&self) -> &[TokenSource] {
        &self.parts
    }

    fn end(&self) -> (usize, usize) {
        self.starts.last().copied().unwrap_or_default()
    }
}

impl Tokens for Joined {
    fn len(&self) -> usize {
        self.end().0
    }

    fn window(&self, start: usize, out: &mut [u32]) -> Result<(), DataError> {
        check_range(start, out.len(), Tokens::len(self))?;
        let mut done = 0;
        let mut part = self.starts.partition_point(|(first, _)| *first <= start).saturating_sub(1);
        while done < out.len() {
            let (first, _) = self.starts[part];
            let within = start + done - first;
            let count = (self.parts[part].len() - within).min(out.len() - done);
            self.parts[part].window(within, &mut out[done..done + count])?;
            (done, part) = (done + count, part + 1);
        }
        Ok(())
    }

    fn documents(&self) -> usize {
        self.end().1
    }

    fn document_start(&self, document: usize) -> usize {
        let part = self.starts.partition_point(|(_, first)| *first <= document).saturating_sub(1);
        match (self.parts.get(part), self.starts.get(part)) {
            (Some(source), Some((tokens, documents))) => tokens + source.document_start(document - documents),
            _ => Tokens::len(self),
        }
    }

    fn vocabulary(&self) -> Option<Vocabulary> {
        self.parts.iter().find_map(TokenSource::vocabulary)
    }

    fn verify(&self) -> Result<(), DataError> {
        self.parts.iter().try_for_each(TokenSource::verify)
    }
}
