//! Deposits: read, ask somebody else, write. The mutex makes that one step; its token keeps a late write out.

use std::time::Duration;

use lockline::fence::Fence;
use lockline::fence::sql::{Dialect, Parameter, check};
use sqlx::{PgConnection, PgPool};

use crate::App;
use crate::api::Problem;

pub const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS account (id bigint PRIMARY KEY, balance bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS deposit (request text PRIMARY KEY, account bigint NOT NULL, amount bigint NOT NULL);
";

/// How long a request waits for its turn: shorter than the patience of whoever sent it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Adds to a balance and gives the new one. `request` is the caller's own name for this deposit: whoever got no answer
/// asks again with the same, and it is paid in once.
pub async fn deposit(app: &App, id: i64, amount: i64, request: &str) -> Result<i64, Problem> {
    let name = format!("account/{id}");
    let Some(guard) = app.locks.mutex(&name).try_lock_for(PATIENCE).await? else {
        return Err(Problem::busy(&app.locks, &name).await);
    };
    // If the lock is lost, the work is dropped where it stands and its transaction rolled back. A commit that was under way
    // may have happened all the same: the caller cannot know, and asks again with the same `request`.
    let balance = guard.run(pay_in(app, id, amount, request, &name, guard.fence())).await??;
    // Losing the lock between the commit and here does no harm: the token was checked with the write.
    if let Err(error) = guard.release().await {
        tracing::warn!("{error}");
    }
    Ok(balance)
}

async fn pay_in(
    app: &App,
    id: i64,
    amount: i64,
    request: &str,
    resource: &str,
    fence: Fence,
) -> Result<i64, Problem> {
    // This balance is what the new one is computed from, outside any transaction: without the lock two deposits would
    // read the same one, and the later would overwrite the earlier.
    let before = balance(&app.pool, id).await?;
    approve(amount).await?;
    let after = before.checked_add(amount).ok_or(Problem::invalid("the balance would be too large"))?;

    let mut transaction = app.pool.begin().await?;
    fenced(&mut transaction, resource, fence).await?;
    let new = sqlx::query(
        "INSERT INTO deposit (request, account, amount) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
    );
    let new = new.bind(request).bind(id).bind(amount).execute(&mut *transaction).await?;
    if new.rows_affected() == 0 {
        return Ok(before);
    }
    let write =
        "INSERT INTO account VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET balance = excluded.balance";
    sqlx::query(write).bind(id).bind(after).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(after)
}

/// Stands for a call to another service: the reason why a lock is needed and a transaction alone would not do.
async fn approve(amount: i64) -> Result<(), Problem> {
    tokio::time::sleep(Duration::from_millis(5)).await;
    if amount > 0 { Ok(()) } else { Err(Problem::invalid("only what is above zero can be paid in")) }
}

/// The balance of an account; an account that nobody has paid into has none.
pub async fn balance(pool: &PgPool, id: i64) -> Result<i64, sqlx::Error> {
    let found = sqlx::query_scalar("SELECT balance FROM account WHERE id = $1").bind(id);
    Ok(found.fetch_optional(pool).await?.unwrap_or(0))
}

/// Refuses the rest of this transaction if a later holder of the lock has written: to be called before the first write.
/// The mark stays locked until the transaction ends, so nobody comes in between.
pub async fn fenced(transaction: &mut PgConnection, resource: &str, fence: Fence) -> Result<(), Problem> {
    let check = check(Dialect::Postgres, resource, fence);
    let mut changed = 0;
    for statement in check.statements() {
        let mut query = sqlx::query(statement.text);
        for parameter in &statement.parameters {
            query = match *parameter {
                Parameter::Resource(resource) => query.bind(resource),
                Parameter::Token(token) => query.bind(token),
            };
        }
        changed = query.execute(&mut *transaction).await?.rows_affected();
    }
    Ok(check.verdict(changed)?)
}
