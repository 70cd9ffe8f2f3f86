//! The protobuf wire format: splits bytes into numbered fields, independently of any schema.

/// The unread rest of a message.
pub(super) struct Wire<'a> {
    rest: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WireField<'a> {
    /// Its number, 1 or more.
    pub(super) number: usize,
    pub(super) datum: Datum<'a>,
}

/// The payload of a field by wire type.
#[derive(Clone, Copy, Debug)]
pub(super) enum Datum<'a> {
    /// Wire type 0: integers and booleans.
    Varint(u64),
    /// Wire type 1: a double.
    Fixed64(u64),
    /// Wire type 2: text, bytes, messages and packed numbers.
    Bytes(&'a [u8]),
    /// Wire type 5, which Kubernetes never writes.
    Fixed32,
}

impl<'a> Wire<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Wire { rest: bytes }
    }

    /// The next field, or `None` at the end. `message` is the message name for errors.
    pub(super) fn next(&mut self, message: &str) -> Result<Option<WireField<'a>>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        // Go stores the number in an int32.
        #[expect(clippy::cast_possible_truncation, reason = "the high bits are dropped on purpose")]
        let number = (tag >> 3) as i32;
        if tag & 7 == 4 {
            return Err(format!("proto: {message}: wiretype end group for non-group"));
        }
        let Some(number) = usize::try_from(number).ok().filter(|number| *number > 0) else {
            return Err(format!("proto: {message}: illegal tag {number} (wire type {tag})"));
        };
        let datum = match tag & 7 {
            0 => Datum::Varint(self.varint()?),
            1 => Datum::Fixed64(u64::from_le_bytes(self.fixed()?)),
            2 => Datum::Bytes(self.delimited()?),
            5 => {
                self.fixed::<4>()?;
                Datum::Fixed32
            }
            other => return Err(format!("proto: illegal wireType {other}")),
        };
        Ok(Some(WireField { number, datum }))
    }

    /// The next number of a packed list, or `None` at its end.
    pub(super) fn packed(&mut self) -> Result<Option<u64>, String> {
        if self.rest.is_empty() { Ok(None) } else { self.varint().map(Some) }
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or_else(end)?;
            self.rest = rest;
            // Go keeps only those bits of the tenth byte that fit.
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("proto: integer overflow".to_owned())
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(end)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn delimited(&mut self) -> Result<&'a [u8], String> {
        let length = self.varint()?;
        if i64::try_from(length).is_err() {
            return Err("proto: negative length found during unmarshaling".to_owned());
        }
        let length = usize::try_from(length).map_err(|_| end())?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(end)?;
        self.rest = rest;
        Ok(bytes)
    }
}

impl<'a> WireField<'a> {
    /// The payload as bytes. `name` is the field name for errors.
    pub(super) fn bytes(self, name: &str) -> Result<&'a [u8], String> {
        match self.datum {
            Datum::Bytes(bytes) => Ok(bytes),
            _ => Err(self.datum.wrong(name)),
        }
    }

    /// The payload as an integer. `name` is the field name for errors.
    pub(super) fn varint(self, name: &str) -> Result<u64, String> {
        match self.datum {
            Datum::Varint(number) => Ok(number),
            _ => Err(self.datum.wrong(name)),
        }
    }
}

impl Datum<'_> {
    /// The error for a wire type that the field `name` cannot have.
    #[cold]
    pub(super) fn wrong(self, name: &str) -> String {
        let wire_type = match self {
            Datum::Varint(_) => 0,
            Datum::Fixed64(_) => 1,
            Datum::Bytes(_) => 2,
            Datum::Fixed32 => 5,
        };
        // Go uses the name of the struct field, usually the JSON name with a capital letter.
        let mut letters = name.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        let name: String = first.into_iter().chain(letters).collect();
        format!("proto: wrong wireType = {wire_type} for field {name}")
    }
}

/// The low 32 bits, as Go decodes an int32.
#[expect(clippy::cast_possible_truncation, reason = "the high bits are dropped on purpose")]
pub(super) fn int32(number: u64) -> i32 {
    number as i32
}

fn end() -> String {
    "unexpected EOF".to_owned()
}
