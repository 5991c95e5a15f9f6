//! One instance of all runs a job every second: the leader. When it ends or dies, the next one in line does.

use std::convert::Infallible;
use std::time::Duration;

use lockline::Guard;
use tokio_util::sync::CancellationToken;

use crate::App;
use crate::accounts::fenced;
use crate::api::Problem;

pub const ELECTION: &str = "auditor";

pub const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS audit (at timestamptz NOT NULL DEFAULT now(), leader text NOT NULL, total bigint NOT NULL);
";

const EVERY: Duration = Duration::from_secs(1);

/// Stands for election, leads, and stands again when the leadership is lost, until it is told to stop.
pub async fn lead(app: App, stop: CancellationToken) {
    // Dropping what is under way withdraws from the line; a leader resigns, so that the next one need not wait for a lease.
    stop.run_until_cancelled(async {
        loop {
            let Err(problem) = one_term(&app).await;
            tracing::warn!("{} does not lead: {problem}", app.name);
            tokio::time::sleep(EVERY).await;
        }
    })
    .await;
}

/// Waits until this instance leads, and works for as long as it does.
async fn one_term(app: &App) -> Result<Infallible, Problem> {
    let term = app.locks.election(ELECTION).campaign(&app.name).await?;
    tracing::info!("{} leads, term {}", app.name, term.fence());
    term.run(audit_for_ever(app, &term)).await?
}

async fn audit_for_ever(app: &App, term: &Guard) -> Result<Infallible, Problem> {
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        ticks.tick().await;
        let mut transaction = app.pool.begin().await?;
        // A leader that was replaced while it slept writes nothing, whatever it believes.
        fenced(&mut transaction, ELECTION, term.fence()).await?;
        sqlx::query(
            "INSERT INTO audit (leader, total) SELECT $1, coalesce(sum(balance), 0)::bigint FROM account",
        )
        .bind(&app.name)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
    }
}
