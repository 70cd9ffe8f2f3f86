//! Writes JSON with keys in a declared order. Kubernetes encodes its own types with their fields in declaration
//! order.

use crate::{Map, Value, write};

/// Key order of a JSON object: the named keys first, in this order, then all others sorted. Each named key has the
/// order of its value; the items of a list have the order of the list.
#[derive(Debug)]
pub struct KeyOrder(pub &'static [(&'static str, &'static KeyOrder)]);

/// Sorts all keys by name.
pub static SORTED: KeyOrder = KeyOrder(&[]);

impl KeyOrder {
    /// Entries of a map in this order, each with the order of its value.
    fn entries<'m>(
        &'static self,
        map: &'m Map,
    ) -> impl Iterator<Item = (&'m str, &'m Value, &'static KeyOrder)> {
        let named = self.0.iter().filter_map(|(key, below)| map.get(key).map(|item| (*key, item, *below)));
        let named = named.map(|(key, item, below)| (key as &'m str, item, below));
        let others = map.iter().filter(|(key, _)| !self.0.iter().any(|(named, _)| named == &key.as_str()));
        named.chain(others.map(|(key, item)| (key.as_str(), item, &SORTED)))
    }

    /// Appends `value` as JSON in this order.
    pub fn write(&'static self, out: &mut Vec<u8>, value: &Value) {
        match value {
            _ if self.0.is_empty() => write::write(out, value),
            Value::List(list) => {
                out.push(b'[');
                for (i, item) in list.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    self.write(out, item);
                }
                out.push(b']');
            }
            Value::Map(map) => {
                out.push(b'{');
                for (i, (key, item, below)) in self.entries(map).enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    write::string(out, key);
                    out.push(b':');
                    below.write(out, item);
                }
                out.push(b'}');
            }
            _ => write::write(out, value),
        }
    }
}
