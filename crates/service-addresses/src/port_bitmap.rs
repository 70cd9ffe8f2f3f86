//! The set of allocated node ports, in the form in which every server of a cluster stores it.

use std::fmt;

/// The range of node ports (`--service-node-port-range`), inclusive at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePortRange {
    base: u16,
    /// Number of ports, from 1 to 65536.
    size: u32,
}

/// The default of `--service-node-port-range`.
pub const DEFAULT_NODE_PORTS: NodePortRange = NodePortRange { base: 30000, size: 2768 };

impl NodePortRange {
    /// `None` if `first` is larger than `last`.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        Some(NodePortRange { base: first, size: u32::from(last.checked_sub(first)?) + 1 })
    }

    /// Parses `first-last`, `first+offset` or a single port, as kube-apiserver does. The error is kube-apiserver's.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let number = |part: &str| {
            let quoted = api::field::quote(part);
            part.parse::<i64>().map_err(|_| format!("strconv.Atoi: parsing {quoted}: invalid syntax"))
        };
        let (first, last) = match (text.split_once('-'), text.split_once('+')) {
            (Some(_), Some(_)) => return Err(format!("unable to parse port range: {text}")),
            (Some((first, last)), None) => (number(first)?, number(last)?),
            (None, Some((first, offset))) => {
                let first = number(first)?;
                (first, first.saturating_add(number(offset)?))
            }
            (None, None) => {
                let port = number(text)?;
                (port, port)
            }
        };
        if first > 65535 || last > 65535 {
            return Err(format!("the port range cannot be greater than 65535: {text}"));
        }
        let ends = u16::try_from(first).ok().zip(u16::try_from(last).ok());
        ends.and_then(|(first, last)| NodePortRange::new(first, last))
            .ok_or_else(|| format!("end port cannot be less than start port: {text}"))
    }

    pub fn size(self) -> u32 {
        self.size
    }

    fn offset(self, port: i64) -> Option<u32> {
        let offset = u32::try_from(port.checked_sub(i64::from(self.base))?).ok()?;
        (offset < self.size).then_some(offset)
    }

    pub fn contains(self, port: i64) -> bool {
        self.offset(port).is_some()
    }

    /// Number of ports at the start of the range that are allocated last, because they are meant for explicit requests.
    fn lower_band(self) -> u32 {
        if self.size <= 16 { 0 } else { (self.size / 32).clamp(16, 128) }
    }
}

/// Formats as in `range` of a RangeAllocation: `30000-32767`.
impl fmt::Display for NodePortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.base, u32::from(self.base) + self.size - 1)
    }
}

/// The allocated ports of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortBitmap {
    range: NodePortRange,
    /// Least significant bit first; as long as the range.
    bits: Vec<bool>,
}

impl PortBitmap {
    pub fn empty(range: NodePortRange) -> Self {
        PortBitmap { range, bits: vec![false; range.size as usize] }
    }

    /// Decodes `data` of a RangeAllocation: a big-endian number without leading zero bytes, whose bit `i` stands for the `i`th port. Bits
    /// beyond the range are dropped.
    pub fn from_data(range: NodePortRange, data: &[u8]) -> Self {
        let mut ports = PortBitmap::empty(range);
        let set = data.iter().rev().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
        ports.bits.iter_mut().zip(set).for_each(|(bit, set)| *bit = set);
        ports
    }

    /// Encodes the ports as [`PortBitmap::from_data`] reads them.
    pub fn to_data(&self) -> Vec<u8> {
        let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
        let bytes = self.bits.chunks(8).map(byte);
        bytes.rev().skip_while(|byte| *byte == 0).collect()
    }

    pub fn range(&self) -> NodePortRange {
        self.range
    }

    pub fn has(&self, port: i64) -> bool {
        self.range.offset(port).and_then(|offset| self.bits.get(offset as usize)).is_some_and(|bit| *bit)
    }

    /// Marks a port as allocated or free. Returns false if it was already so, or is outside of the range.
    pub fn set(&mut self, port: i64, allocated: bool) -> bool {
        let bit = self.range.offset(port).and_then(|offset| self.bits.get_mut(offset as usize));
        bit.is_some_and(|bit| std::mem::replace(bit, allocated) != allocated)
    }

    /// A free port: above the lower band if there is one there, searched from a place that `random` chooses. `random(n)` returns a number
    /// below `n`.
    pub fn any_free(&self, random: impl Fn(u64) -> u64) -> Option<i64> {
        let lower = self.range.lower_band() as usize;
        let (below, above) = self.bits.split_at_checked(lower)?;
        let search = |bits: &[bool], first: usize| {
            let count = u64::try_from(bits.len()).ok().filter(|count| *count > 0)?;
            let start = usize::try_from(random(count)).ok()?;
            let free = |offset: &usize| bits.get(*offset).is_some_and(|bit| !bit);
            (start..bits.len()).chain(0..start).find(free).map(|offset| first + offset)
        };
        let offset = search(above, lower).or_else(|| search(below, 0))?;
        Some(i64::from(self.range.base) + i64::try_from(offset).ok()?)
    }

    /// The allocated ports, in order.
    pub fn allocated(&self) -> impl Iterator<Item = i64> + '_ {
        (i64::from(self.range.base)..).zip(&self.bits).filter_map(|(port, bit)| bit.then_some(port))
    }

    pub fn count(&self) -> usize {
        self.bits.iter().filter(|bit| **bit).count()
    }
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_NODE_PORTS, NodePortRange, PortBitmap};

    fn bitmap(ports: &[i64]) -> PortBitmap {
        let mut bitmap = PortBitmap::empty(DEFAULT_NODE_PORTS);
        for port in ports {
            assert!(bitmap.set(*port, true));
        }
        bitmap
    }

    #[test]
    fn ports_are_encoded_as_kube_apiserver_stores_them() {
        for (ports, data) in [
            (&[][..], &[][..]),
            (&[30000], &[1]),
            (&[30000, 30009], &[2, 1]),
            (&[30007], &[0x80]),
            (&[30008], &[1, 0]),
        ] {
            assert_eq!(bitmap(ports).to_data(), data, "{ports:?}");
            assert_eq!(PortBitmap::from_data(DEFAULT_NODE_PORTS, data), bitmap(ports));
        }
        let last = bitmap(&[32767]).to_data();
        assert_eq!((last.len(), last.first()), (346, Some(&0x80)));
        assert_eq!(PortBitmap::from_data(DEFAULT_NODE_PORTS, &last).allocated().collect::<Vec<_>>(), [32767]);
    }

    #[test]
    fn bits_beyond_the_range_are_dropped() {
        let small = NodePortRange::new(30000, 30003).unwrap();
        let ports = PortBitmap::from_data(small, &[0xff, 0xf5]);
        assert_eq!(ports.allocated().collect::<Vec<_>>(), [30000, 30002]);
        assert_eq!(ports.to_data(), [5]);
    }

    #[test]
    fn the_lower_band_is_allocated_last() {
        let mut ports = PortBitmap::empty(DEFAULT_NODE_PORTS);
        let mut order = Vec::new();
        while let Some(port) = ports.any_free(|_| 0) {
            assert!(ports.set(port, true));
            order.push(port);
        }
        assert_eq!(order.len(), 2768);
        assert_eq!((order[0], order[2681], order[2682]), (30086, 32767, 30000));
    }

    #[test]
    fn a_free_port_is_found_wherever_the_search_starts() {
        let small = NodePortRange::new(30000, 30019).unwrap();
        let mut ports = PortBitmap::empty(small);
        for _ in 0..20 {
            let port = ports.any_free(|count| count - 1).unwrap();
            assert!(ports.set(port, true), "{port} was free");
        }
        assert_eq!(ports.any_free(|_| 0), None);
        assert_eq!(ports.count(), 20);
    }

    #[test]
    fn ranges_are_parsed_as_kube_apiserver_does() {
        for (text, expected) in [
            ("30000-32767", Ok("30000-32767")),
            ("30000+10", Ok("30000-30010")),
            (" 8080 ", Ok("8080-8080")),
            ("0-65535", Ok("0-65535")),
            ("7-6", Err("end port cannot be less than start port: 7-6")),
            ("1-70000", Err("the port range cannot be greater than 65535: 1-70000")),
            ("1-2+3", Err("unable to parse port range: 1-2+3")),
            ("a-3", Err("strconv.Atoi: parsing \"a\": invalid syntax")),
        ] {
            let parsed = NodePortRange::parse(text).map(|range| range.to_string());
            assert_eq!(parsed, expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }
}
