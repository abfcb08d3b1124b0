//! What is wrong with a configuration file, or odd, each with the place where it stands.

use std::ops::Range;

use anyhow::Result;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Where it begins, as a byte of the file; without it, it is of the file as a whole.
    pub(crate) at: Option<usize>,
    /// What, and what to write instead.
    pub(crate) what: String,
}

/// Everything that is wrong, in the order in which it was found.
#[derive(Debug, Default)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl Problem {
    /// `line 7: `, or nothing.
    pub(crate) fn line(&self, text: &str) -> String {
        self.at.map_or_else(String::new, |at| format!("line {}: ", position(text, at).0))
    }
}

impl Problems {
    /// What came out of `span`, unless it is wrong, which is noted.
    pub(crate) fn note<T>(&mut self, span: Range<usize>, result: Result<T>) -> Option<T> {
        self.noted(Some(span.start), result)
    }

    /// The same of the file as a whole.
    pub(crate) fn note_of_all<T>(&mut self, result: Result<T>) -> Option<T> {
        self.noted(None, result)
    }

    fn noted<T>(&mut self, at: Option<usize>, result: Result<T>) -> Option<T> {
        let note = |error: anyhow::Error| self.0.push(Problem { at, what: format!("{error:#}") });
        result.map_err(note).ok()
    }

    /// The file as a whole is wrong.
    pub(crate) fn of_all(&mut self, what: &str) {
        self.0.push(Problem { at: None, what: what.to_owned() });
    }

    pub(crate) fn first(&self) -> Option<&Problem> {
        self.0.first()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Line and column of a byte, as people count.
pub(crate) fn position(text: &str, at: usize) -> (usize, usize) {
    let mut end = at.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_counted_as_people_do() {
        for (at, place) in [(0, (1, 1)), (3, (1, 3)), (4, (2, 1)), (5, (2, 2)), (99, (2, 2))] {
            assert_eq!(position("aé\nb", at), place, "{at}");
        }
    }
}
