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

    /// The JSON of an object up to the first item of the list under `key`, the JSON after the last item, and the order of the items. The
    /// list's own items are not written.
    pub fn around(&'static self, map: &Map, key: &str) -> (Vec<u8>, Vec<u8>, &'static KeyOrder) {
        let (mut head, mut foot) = (vec![b'{'], Vec::new());
        let mut of_items = None;
        for (i, (name, item, below)) in self.entries(map).enumerate() {
            let out = if of_items.is_some() { &mut foot } else { &mut head };
            if i > 0 {
                out.push(b',');
            }
            write::string(out, name);
            out.push(b':');
            if name == key {
                head.push(b'[');
                foot.push(b']');
                of_items = Some(below);
            } else {
                below.write(out, item);
            }
        }
        foot.push(b'}');
        (head, foot, of_items.unwrap_or(&SORTED))
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

#[cfg(test)]
mod tests {
    use super::{KeyOrder, SORTED};
    use crate::json;

    static ORDER: KeyOrder = KeyOrder(&[("kind", &SORTED), ("items", &ITEM)]);
    static ITEM: KeyOrder = KeyOrder(&[("z", &SORTED)]);

    #[test]
    fn items_between_head_and_foot_are_the_whole_list() {
        for text in [r#"{"kind":"L","items":[{"z":1,"a":"x"},{"a":2}],"b":{}}"#, r#"{"items":[1,"2"]}"#] {
            for order in [&ORDER, &SORTED] {
                let list = json::parse(text.as_bytes()).unwrap();
                let mut whole = Vec::new();
                order.write(&mut whole, &list);
                let (mut out, foot, below) = order.around(list.as_map().unwrap(), "items");
                for (i, item) in list.list_at(&["items"]).iter().enumerate() {
                    out.extend_from_slice(if i > 0 { b"," } else { b"" });
                    below.write(&mut out, item);
                }
                out.extend_from_slice(&foot);
                assert_eq!(String::from_utf8(out), String::from_utf8(whole));
            }
        }
    }
}
