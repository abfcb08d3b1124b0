//! Counters with their names, as they are shown and sent: in the order in which they are defined.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Named numbers. As JSON: one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted(Vec<(Cow<'static, str>, u64)>);

impl Counted {
    /// Name and value, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }

    /// The same with more behind.
    pub(crate) fn and(mut self, more: impl IntoIterator<Item = (&'static str, u64)>) -> Self {
        self.0.extend(more.into_iter().map(|(name, value)| (Cow::Borrowed(name), value)));
        self
    }

    /// The same with `more` behind, whose names get `prefix` and an underscore in front.
    pub(crate) fn and_under(mut self, prefix: &str, more: &Self) -> Self {
        self.0.extend(more.iter().map(|(name, value)| (Cow::Owned(format!("{prefix}_{name}")), value)));
        self
    }

    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|&(known, _)| known == name).map(|(_, value)| value)
    }
}

impl<I: IntoIterator<Item = (&'static str, u64)>> From<I> for Counted {
    fn from(named: I) -> Self {
        Self(named.into_iter().map(|(name, value)| (Cow::Borrowed(name), value)).collect())
    }
}

/// Those that are not 0, as `name=value`, for a line of the log.
impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.iter().filter(|(_, value)| *value != 0).enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl Serialize for Counted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Counted;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of numbers")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Counted, M::Error> {
                let mut named = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, u64>()? {
                    named.push((Cow::Owned(name), value));
                }
                Ok(Counted(named))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// The fields of a struct of counters with their names. One that is missing here does not compile.
macro_rules! counted {
    ($counters:expr => $kind:ident { $($field:ident),* $(,)? }) => {{
        let $kind { $($field),* } = *$counters;
        $crate::counted::Counted::from([$((stringify!($field), $field)),*])
    }};
}
pub(crate) use counted;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_json_and_back() {
        let counted = Counted::from([("z", 1), ("a", u64::MAX), ("m", 0)]);
        let json = serde_json::to_string(&counted).unwrap();
        assert_eq!(json, format!("{{\"z\":1,\"a\":{},\"m\":0}}", u64::MAX));
        assert_eq!(serde_json::from_str::<Counted>(&json).unwrap(), counted);
    }

    #[test]
    fn a_line_of_the_log_leaves_out_what_is_0() {
        assert_eq!(Counted::from([("a", 1), ("b", 0), ("c", 3)]).to_string(), "a=1 c=3");
        assert_eq!(Counted::default().to_string(), "");
    }
}
