//! JSON that only reads one way.
//!
//! Where a key comes twice, one reader takes the first value and another the last. What is signed would then mean one thing
//! to one program and something else to the next, so it is not read at all.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Reads an object as `T`, unless some object in it has a key twice, at any depth, in fields that `T` does not have too.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    // A list of the right length would otherwise do for a struct.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(serde_json::Error::custom("not an object"));
    }
    serde_json::from_slice::<Unique>(bytes)?;
    serde_json::from_slice(bytes)
}

/// Any JSON without duplicate keys; the value itself is not kept.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Walk)
    }
}

struct Walk;

impl<'de> Visitor<'de> for Walk {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Unique, A::Error> {
        while list.next_element::<Unique>()?.is_some() {}
        Ok(Unique)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique, A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if !seen.insert(key) {
                return Err(A::Error::custom("a key comes twice"));
            }
            map.next_value::<Unique>()?;
        }
        Ok(Unique)
    }
}
