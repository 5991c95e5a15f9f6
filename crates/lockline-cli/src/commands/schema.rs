//! `lockline schema`: what an operator runs for applications that may not create anything.

use crate::cli::{SchemaArgs, SchemaEngine, SharedLayout};
use crate::exit::{Failure, code};
use crate::output::data;

pub(crate) fn schema(args: &SchemaArgs) -> Result<u8, Failure> {
    let text = match &args.engine {
        #[cfg(feature = "postgres")]
        SchemaEngine::Postgres { schema, layout } => {
            use lockline::drivers::postgres::{Layout, schema_sql, shared_table_sql};
            match layout {
                None => schema_sql(schema),
                Some(SharedLayout::Table) => shared_table_sql(&Layout::table()).to_owned(),
                Some(SharedLayout::Shedlock) => shared_table_sql(&Layout::shedlock()).to_owned(),
            }
        }
        #[cfg(feature = "mysql")]
        SchemaEngine::Mysql { layout } => {
            use lockline::drivers::mysql::{Layout, schema_sql, shared_table_sql};
            match layout {
                None => schema_sql(),
                Some(SharedLayout::Table) => shared_table_sql(&Layout::table()).to_owned(),
                Some(SharedLayout::Shedlock) => shared_table_sql(&Layout::shedlock()).to_owned(),
            }
        }
    };
    data(&text)?;
    Ok(code::OK)
}
