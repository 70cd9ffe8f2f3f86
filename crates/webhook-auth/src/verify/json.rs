//! Unambiguous JSON.
//!
//! If an object has a key twice, some parsers use the first value and others the last. Signed content must
//! mean the same to every program, so such documents are rejected.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Decodes an object as `T`. Rejects duplicate keys at any depth, even in fields that `T` does not have.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    // Otherwise serde would accept an array for a struct.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(serde_json::Error::custom("not an object"));
    }
    serde_json::from_slice::<Unique>(bytes)?;
    serde_json::from_slice(bytes)
}

/// Accepts any JSON without duplicate keys and discards it.
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
