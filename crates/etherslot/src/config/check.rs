//! All that is wrong with a file at once, where its reading would stop at the first.
//!
//! First what each key and value says: the document is read again and again, each time without what was wrong in it, or with
//! something harmless where something is missing. When every key and value is right, what they mean together is looked at.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, Error};

use super::problems::{Problem, Problems};
use super::show::Shown;
use super::{BoxFile, File, HostFile, Overrides, odd};

/// Rounds of reading at most, and so mistakes that are told.
const MOST: usize = 200;

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// `etherslot box`.
    Box,
    /// `etherslot host`.
    Host,
}

/// What came of a check.
pub(crate) struct Checked {
    /// What the daemon would take, if nothing is wrong.
    pub(crate) options: Option<Shown>,
    /// What is wrong.
    pub(crate) errors: Vec<Problem>,
    /// What is possible, and may not be meant.
    pub(crate) warnings: Vec<Problem>,
}

/// Checks a file of this kind; if it is not said, a file with devices is a box's and one with slots a host's.
pub(crate) fn check(text: &str, kind: Option<Kind>, overrides: &Overrides) -> Checked {
    let mut checked = Checked { options: None, errors: Vec::new(), warnings: Vec::new() };
    let (document, errors) = DeTable::parse_recoverable(text);
    checked.errors.extend(errors.iter().map(problem));
    if !checked.errors.is_empty() {
        return checked;
    }
    let has = |key| document.get_ref().contains_key(key);
    match (kind, has("device"), has("slot")) {
        (Some(Kind::Box), ..) | (None, true, false) => {
            let options = read::<BoxFile>(&document, overrides, &mut checked.errors);
            checked.options = options.map(Shown::Box);
        }
        (Some(Kind::Host), ..) | (None, false, true) => {
            let options = read::<HostFile>(&document, overrides, &mut checked.errors);
            checked.options = options.map(Shown::Host);
        }
        (None, true, true) => {
            let what = "there are [[device]] and [[slot]]: a box has devices and a host has slots, each a file of its own";
            checked.errors.push(Problem { at: None, what: what.to_owned() });
        }
        (None, false, false) => {
            let what = "there is no [[device]], as a box has, and no [[slot]], as a host has: add one";
            checked.errors.push(Problem { at: None, what: what.to_owned() });
        }
    }
    if let Some(options) = &checked.options {
        checked.warnings = odd::of(options, &document);
    }
    checked.errors.sort_by_key(|problem| problem.at.map_or(usize::MAX, |at| at));
    checked
}

fn problem(error: &Error) -> Problem {
    Problem { at: error.span().map(|span| span.start), what: error.message().to_owned() }
}

fn read<F: File>(
    document: &Spanned<DeTable<'_>>,
    overrides: &Overrides,
    errors: &mut Vec<Problem>,
) -> Option<F::Options> {
    let mut document = document.clone();
    // Tables, by where they stand, with keys that were taken out of them.
    let mut taken: Vec<(Option<usize>, String)> = Vec::new();
    for _ in 0..MOST {
        let error = match F::deserialize(Deserializer::from(document.clone())) {
            Ok(file) if errors.is_empty() => {
                let mut problems = Problems::default();
                let options = file.options(overrides, &mut problems);
                errors.extend(problems.0);
                return options;
            }
            Ok(_) => return None,
            Err(error) => error,
        };
        let span = error.span();
        let missing = error.message().strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        if let Some(key) = missing {
            let place = span.as_ref().map(|span| span.start);
            if !taken.iter().any(|(at, taken)| *at == place && taken == key) {
                errors.push(problem(&error));
            }
            if !put(&mut document, span.as_ref(), key) {
                return None;
            }
        } else {
            errors.push(problem(&error));
            taken.push(take_out(&mut document, &span?)?);
        }
    }
    None
}

/// Takes the key out that this is the span of, of the key itself or somewhere in its value; the table's place, and the key.
fn take_out(document: &mut Spanned<DeTable<'_>>, span: &Range<usize>) -> Option<(Option<usize>, String)> {
    let at = document.span().start;
    from_table(document.get_mut(), at, span)
}

fn from_table(table: &mut DeTable<'_>, at: usize, span: &Range<usize>) -> Option<(Option<usize>, String)> {
    let is_within =
        |outer: &Range<usize>| outer.start <= span.start && span.end <= outer.end && !outer.is_empty();
    for (_, value) in table.iter_mut() {
        if let Some(found) = from_value(value, span) {
            return Some(found);
        }
    }
    let out = table.iter().find(|(key, value)| is_within(&key.span()) || is_within(&value.span()));
    let key = out.map(|(key, _)| key.get_ref().to_string())?;
    table.remove(key.as_str());
    Some((Some(at), key))
}

fn from_value(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<(Option<usize>, String)> {
    let at = value.span().start;
    match value.get_mut() {
        DeValue::Table(table) => from_table(table, at, span),
        DeValue::Array(array) => array.iter_mut().find_map(|value| from_value(value, span)),
        _ => None,
    }
}

/// Puts something harmless for a key that the table of this span needs.
fn put(document: &mut Spanned<DeTable<'_>>, span: Option<&Range<usize>>, key: &str) -> bool {
    let is_root = span.is_none_or(|span| *span == document.span());
    let harmless = match key {
        "node" => table_of("name", "x"),
        "link" => table_of("kind", "packet"),
        "listen" => text("127.0.0.1:1"),
        _ => text("x"),
    };
    if is_root {
        document.get_mut().insert(spanned(Cow::Owned(key.to_owned())), harmless);
        return true;
    }
    let Some(span) = span else { return false };
    put_into(document.get_mut(), span, key, &harmless)
}

fn put_into<'a>(
    table: &mut DeTable<'a>,
    span: &Range<usize>,
    key: &str,
    harmless: &Spanned<DeValue<'a>>,
) -> bool {
    for (name, value) in table.iter_mut() {
        let harmless = match (key, &**name.get_ref()) {
            ("kind", "link") => text("packet"),
            ("kind", "device") => text("nvme"),
            _ => harmless.clone(),
        };
        let here = value.span();
        let done = match value.get_mut() {
            DeValue::Table(table) if here == *span => {
                table.insert(spanned(Cow::Owned(key.to_owned())), harmless);
                true
            }
            DeValue::Table(table) => put_into(table, span, key, &harmless),
            DeValue::Array(array) => array.iter_mut().any(|element| {
                let here = element.span();
                match element.get_mut() {
                    DeValue::Table(table) if here == *span => {
                        table.insert(spanned(Cow::Owned(key.to_owned())), harmless.clone());
                        true
                    }
                    DeValue::Table(table) => put_into(table, span, key, &harmless),
                    _ => false,
                }
            }),
            _ => false,
        };
        if done {
            return true;
        }
    }
    false
}

/// What was not in the file stands nowhere in it.
fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(usize::MAX..usize::MAX, value)
}

fn text<'a>(text: &'static str) -> Spanned<DeValue<'a>> {
    spanned(DeValue::String(Cow::Borrowed(text)))
}

fn table_of<'a>(key: &'static str, value: &'static str) -> Spanned<DeValue<'a>> {
    let mut table = DeTable::new();
    table.insert(spanned(Cow::Borrowed(key)), text(value));
    spanned(DeValue::Table(table))
}
