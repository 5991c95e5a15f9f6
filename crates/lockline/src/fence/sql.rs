//! Fencing in the same transaction as the protected write, for applications on PostgreSQL, MySQL or MariaDB.
//!
//! A [`check`] is a statement or two that an application runs **in its own transaction**, before it writes, with whatever
//! database library it has. It raises the mark of a resource to the token of the holder, or changes nothing if a newer token
//! has been there. The row it touches stays locked until the transaction ends, so nobody with a newer token can come in
//! between: the check and the write are one step. It needs one table, and works with tokens of any engine.
//!
//! ```
//! use lockline::fence::Fence;
//! use lockline::fence::sql::{Dialect, Parameter, check};
//!
//! // Once: run Dialect::Postgres.table(). Then, in the transaction that writes:
//! let fence = Fence::from_token(42);                              // guard.fence()
//! let check = check(Dialect::Postgres, "acct/7", fence);
//! let mut changed = 0;
//! for statement in check.statements() {
//!     // changed = transaction.execute(statement.text, &statement.parameters).await?;
//! #   changed = u64::from(statement.parameters == [Parameter::Resource("acct/7"), Parameter::Token(42)]);
//! }
//! check.verdict(changed)?;                                        // Err: a newer holder was here; roll back, stop
//! // transaction.execute("UPDATE account SET …").await?;
//! // transaction.commit().await?;
//! # Ok::<(), lockline::fence::sql::Refused>(())
//! ```

use std::fmt;

use super::Fence;

/// Which SQL the application's database speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL. Parameters are `$1` and `$2`.
    Postgres,
    /// MariaDB and MySQL. Parameters are `?`.
    Mysql,
}

impl Dialect {
    /// Makes the table of marks, if it is not there: the newest token that each resource has seen.
    pub fn table(self) -> &'static str {
        match self {
            Dialect::Postgres => include_str!("sql/postgres_table.sql"),
            Dialect::Mysql => include_str!("sql/mysql_table.sql"),
        }
    }
}

/// One check of a token: what to run, and what its outcome means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check<'a> {
    dialect: Dialect,
    resource: &'a str,
    fence: Fence,
}

/// One statement of a check. It contains no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// Its text.
    pub text: &'static str,
    /// Its parameters, in order.
    pub parameters: Vec<Parameter<'a>>,
}

/// A parameter of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter<'a> {
    /// The resource: text on PostgreSQL, bytes on MariaDB and MySQL, where it is compared byte by byte.
    Resource(&'a str),
    /// The token: a 64-bit integer.
    Token(i64),
}

/// The check of a token for a resource: a name of the application's own, of at most 512 bytes. The lock's name is a good one.
pub fn check(dialect: Dialect, resource: &str, fence: Fence) -> Check<'_> {
    Check { dialect, resource, fence }
}

impl<'a> Check<'a> {
    /// What to run, in order, in the transaction of the write. The rows that the **last** one changed are the
    /// [verdict](Check::verdict).
    pub fn statements(&self) -> Vec<Statement<'a>> {
        let resource = Parameter::Resource(self.resource);
        let token = Parameter::Token(i64::try_from(self.fence.token()).unwrap_or(i64::MAX));
        let one = |text, parameters: &[Parameter<'a>]| Statement { text, parameters: parameters.to_vec() };
        // Only exclusive tokens raise the mark: co-holders act in any order.
        match (self.dialect, self.fence.is_exclusive()) {
            (Dialect::Postgres, true) => {
                vec![one(include_str!("sql/postgres_exclusive.sql"), &[resource, token])]
            }
            (Dialect::Postgres, false) => {
                vec![one(include_str!("sql/postgres_shared.sql"), &[resource, token])]
            }
            // Two, because how MySQL counts rows that are left as they are depends on the client library.
            (Dialect::Mysql, exclusive) => vec![
                one(include_str!("sql/mysql_lock.sql"), &[resource]),
                if exclusive {
                    one(include_str!("sql/mysql_exclusive.sql"), &[token, resource, token])
                } else {
                    one(include_str!("sql/mysql_shared.sql"), &[resource, token])
                },
            ],
        }
    }

    /// What the number of rows that the last statement changed means.
    ///
    /// # Errors
    /// [`Refused`] if a newer token has been there: roll back and stop, the lock is lost.
    pub fn verdict(&self, changed: u64) -> Result<(), Refused> {
        if changed > 0 { Ok(()) } else { Err(Refused { token: self.fence.token() }) }
    }
}

/// A newer holder has written: the lock of whoever shows this token is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The token that was shown.
    pub token: u64,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stale fencing token {}: a newer one has been seen", self.token)
    }
}

impl std::error::Error for Refused {}
