//! `lockline schema`: what an operator runs for applications that may not create anything.

use crate::cli::{SchemaArgs, SchemaEngine};
use crate::exit::{Failure, code};
use crate::output::data;

pub(crate) fn schema(args: &SchemaArgs) -> Result<u8, Failure> {
    let text = match &args.engine {
        #[cfg(feature = "postgres")]
        SchemaEngine::Postgres { schema } => lockline::drivers::postgres::schema_sql(schema),
        #[cfg(feature = "mysql")]
        SchemaEngine::Mysql => lockline::drivers::mysql::schema_sql(),
    };
    data(&text)?;
    Ok(code::OK)
}
