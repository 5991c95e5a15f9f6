//! Rows, as both forms of the protocol send them.

use std::sync::Arc;

use super::fields::Fields;
use super::{Failure, Result};

/// A column of a result: its name, and how its values are sent in the binary form.
#[derive(Debug)]
pub(in crate::drivers::mysql) struct Column {
    name: String,
    kind: u8,
}

impl Column {
    pub(super) fn read(packet: &[u8]) -> Result<Column> {
        let mut fields = Fields(packet);
        // Catalog, schema, table, the table's own name.
        for _ in 0..4 {
            fields.bytes()?;
        }
        let name = fields.bytes()?.unwrap_or_default();
        // Its own name; a length; character set and length.
        fields.bytes()?;
        fields.length()?;
        fields.take(6)?;
        Ok(Column { name: String::from_utf8_lossy(name).into_owned(), kind: fields.byte()? })
    }
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::drivers::mysql) enum Cell {
    Null,
    Int(i64),
    Bytes(Vec<u8>),
}

/// A row of a result.
#[derive(Debug)]
pub(in crate::drivers::mysql) struct Row {
    columns: Arc<[Column]>,
    cells: Vec<Cell>,
}

impl Row {
    /// As text, the answer to a plain query.
    pub(super) fn from_text(columns: &Arc<[Column]>, packet: &[u8]) -> Result<Row> {
        let mut fields = Fields(packet);
        let cell = |_| Ok(fields.bytes()?.map_or(Cell::Null, |bytes| Cell::Bytes(bytes.to_vec())));
        let cells = columns.iter().map(cell).collect::<Result<_>>()?;
        Ok(Row { columns: columns.clone(), cells })
    }

    /// In the binary form, the answer to a prepared statement.
    pub(super) fn from_binary(columns: &Arc<[Column]>, packet: &[u8]) -> Result<Row> {
        let mut fields = Fields(packet);
        fields.byte()?;
        // Two bits of it are not used.
        let nulls = fields.take((columns.len() + 9) / 8)?;
        let is_null = |nth: usize| nulls[(nth + 2) / 8] & 1 << ((nth + 2) % 8) != 0;
        let mut cells = Vec::with_capacity(columns.len());
        for (nth, column) in columns.iter().enumerate() {
            cells.push(if is_null(nth) { Cell::Null } else { binary(column.kind, &mut fields)? });
        }
        Ok(Row { columns: columns.clone(), cells })
    }

    /// The value of a column, by its place or its name.
    pub(in crate::drivers::mysql) fn try_get<T: FromCell>(&self, at: impl At) -> Result<T> {
        let cell = at.place(&self.columns).and_then(|place| self.cells.get(place));
        cell.and_then(T::from_cell).ok_or(Failure::Protocol("a column is missing, or has another type"))
    }
}

fn binary(kind: u8, fields: &mut Fields<'_>) -> Result<Cell> {
    // Two's complement, made as long as all of them are.
    let mut int = |bytes: usize| {
        let shift = 64 - 8 * bytes as u32;
        Ok(Cell::Int((fields.number(bytes)? << shift).cast_signed() >> shift))
    };
    match kind {
        0x01 => int(1),
        0x02 | 0x0d => int(2),
        0x03 | 0x09 => int(4),
        0x08 => int(8),
        0x06 => Ok(Cell::Null),
        // Floats: nothing of ours has any.
        0x04 => fields.take(4).map(|bytes| Cell::Bytes(bytes.to_vec())),
        0x05 => fields.take(8).map(|bytes| Cell::Bytes(bytes.to_vec())),
        _ => Ok(fields.bytes()?.map_or(Cell::Null, |bytes| Cell::Bytes(bytes.to_vec()))),
    }
}

/// Where a value stands in a row.
pub(in crate::drivers::mysql) trait At {
    fn place(&self, columns: &[Column]) -> Option<usize>;
}

impl At for usize {
    fn place(&self, _: &[Column]) -> Option<usize> {
        Some(*self)
    }
}

impl At for &str {
    fn place(&self, columns: &[Column]) -> Option<usize> {
        columns.iter().position(|column| column.name == *self)
    }
}

/// What a value can be read as.
pub(in crate::drivers::mysql) trait FromCell: Sized {
    fn from_cell(cell: &Cell) -> Option<Self>;
}

impl FromCell for i64 {
    fn from_cell(cell: &Cell) -> Option<i64> {
        match cell {
            Cell::Int(number) => Some(*number),
            Cell::Bytes(text) => str::from_utf8(text).ok()?.parse().ok(),
            Cell::Null => None,
        }
    }
}

impl FromCell for i32 {
    fn from_cell(cell: &Cell) -> Option<i32> {
        i64::from_cell(cell)?.try_into().ok()
    }
}

impl FromCell for i16 {
    fn from_cell(cell: &Cell) -> Option<i16> {
        i64::from_cell(cell)?.try_into().ok()
    }
}

impl FromCell for bool {
    fn from_cell(cell: &Cell) -> Option<bool> {
        i64::from_cell(cell).map(|number| number != 0)
    }
}

impl FromCell for Vec<u8> {
    fn from_cell(cell: &Cell) -> Option<Vec<u8>> {
        match cell {
            Cell::Bytes(bytes) => Some(bytes.clone()),
            Cell::Int(number) => Some(number.to_string().into_bytes()),
            Cell::Null => None,
        }
    }
}

impl FromCell for String {
    fn from_cell(cell: &Cell) -> Option<String> {
        String::from_utf8(Vec::from_cell(cell)?).ok()
    }
}

impl<T: FromCell> FromCell for Option<T> {
    fn from_cell(cell: &Cell) -> Option<Option<T>> {
        if *cell == Cell::Null { Some(None) } else { T::from_cell(cell).map(Some) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn columns(kinds: &[u8]) -> Arc<[Column]> {
        kinds.iter().enumerate().map(|(nth, kind)| Column { name: nth.to_string(), kind: *kind }).collect()
    }

    #[test]
    fn values_are_read_in_both_forms() {
        let columns = columns(&[0x08, 0x01, 0x03, 0xfd, 0xfd]);
        let mut packet = vec![0, 0b100_0000];
        packet.extend_from_slice(&(-7_i64).to_le_bytes());
        packet.push(0xff);
        packet.extend_from_slice(&300_i32.to_le_bytes());
        packet.extend_from_slice(&[2, b'h', b'i']);
        let row = Row::from_binary(&columns, &packet).unwrap();
        assert_eq!(row.try_get::<i64>(0).unwrap(), -7);
        assert_eq!(row.try_get::<i64>("1").unwrap(), -1);
        assert_eq!(row.try_get::<i32>(2).unwrap(), 300);
        assert_eq!(row.try_get::<Option<String>>(4).unwrap(), None);
        assert_eq!(row.try_get::<Option<String>>(3).unwrap().as_deref(), Some("hi"));
        assert!(row.try_get::<String>(4).is_err() && row.try_get::<String>("gone").is_err());
        let row = Row::from_text(&columns, b"\x02-7\x01\x31\x03300\x02hi\xfb").unwrap();
        assert_eq!((row.try_get::<i64>(0).unwrap(), row.try_get::<bool>(1).unwrap()), (-7, true));
        assert_eq!(row.try_get::<Option<Vec<u8>>>(4).unwrap(), None);
    }

    proptest! {
        #[test]
        fn garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60), kinds in proptest::collection::vec(any::<u8>(), 0..9)) {
            let columns = columns(&kinds);
            let _ = Row::from_binary(&columns, &bytes);
            let _ = Row::from_text(&columns, &bytes);
            let _ = Column::read(&bytes);
        }
    }
}
