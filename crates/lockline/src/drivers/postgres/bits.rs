//! 128 bits as PostgreSQL's `uuid`, which it stores in 16 bytes and compares fast.

use std::error::Error;

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// A claim's id, a line's key, a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bits(pub(super) u128);

impl ToSql for Bits {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Bits {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Bits, Box<dyn Error + Sync + Send>> {
        Ok(Bits(u128::from_be_bytes(raw.try_into()?)))
    }

    accepts!(UUID);
}
