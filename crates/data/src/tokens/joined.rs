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
    ///
    /// # Errors
    /// Those of [`TokenSource::documents`].
    pub fn new(parts: Vec<TokenSource>) -> Result<Self, DataError> {
        let mut starts = vec![(0, 0)];
        let mut tokens = 0;
        let mut documents = 0;
        for part in &parts {
            tokens += part.len();
            documents += part.documents()?;
            starts.push((tokens, documents));
        }
        Ok(Self { parts, starts })
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

    fn documents(&self) -> Result<usize, DataError> {
        Ok(self.end().1)
    }

    fn document_starts(&self, first: usize, starts: &mut [usize]) -> Result<(), DataError> {
        let mut done = 0;
        for (part, window) in self.parts.iter().zip(self.starts.windows(2)) {
            let [(tokens, before), (_, end)] = [window[0], window[1]];
            let document = first + done;
            if !(before..end).contains(&document) {
                continue;
            }
            let count = (end - document).min(starts.len() - done);
            let own = &mut starts[done..done + count];
            part.document_starts(document - before, own)?;
            own.iter_mut().for_each(|start| *start += tokens);
            done += count;
        }
        starts[done..].fill(Tokens::len(self));
        Ok(())
    }

    fn vocabulary(&self) -> Option<Vocabulary> {
        self.parts.iter().find_map(TokenSource::vocabulary)
    }

    fn verify(&self) -> Result<(), DataError> {
        self.parts.iter().try_for_each(TokenSource::verify)
    }
}
