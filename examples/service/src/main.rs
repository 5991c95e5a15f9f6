//! A small bank: start it as often as you like against one database. See README.md.

mod accounts;
mod api;
mod leader;

use std::error::Error;
use std::time::Duration;

use lockline::Locks;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How long requests may take to finish after a SIGTERM; a deployment that kills after 30 s leaves room for it.
const FINISH: Duration = Duration::from_secs(10);

/// What every handler needs. Both parts are handles: a clone shares the connections of the first.
#[derive(Clone)]
struct App {
    /// Who this instance is, in `/status` and in `lockline ls`.
    name: String,
    pool: PgPool,
    locks: Locks,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let variable = |name: &str| std::env::var(name).map_err(|_| format!("set {name}: see README.md"));
    let database = variable("DATABASE_URL")?;
    // The same server by default; the tokens work from any engine.
    let engine = variable("LOCKS_URL").unwrap_or_else(|_| database.clone());
    let name = variable("INSTANCE").unwrap_or_else(|_| format!("service-{}", std::process::id()));

    let pool = PgPoolOptions::new().max_connections(8).connect(&database).await?;
    let locks = Locks::builder().owner(&name).connect(&engine).await?;
    let app = App { name, pool, locks };
    create_tables(&app).await?;

    let stop = CancellationToken::new();
    let leading = tokio::spawn(leader::lead(app.clone(), stop.clone()));
    let listener = TcpListener::bind(variable("LISTEN").unwrap_or_else(|_| "127.0.0.1:0".to_owned())).await?;
    println!("listening on http://{}", listener.local_addr()?);

    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn({
        let stop = stop.clone();
        async move {
            tokio::select! { _ = terminate.recv() => {} _ = tokio::signal::ctrl_c() => {} }
            stop.cancel();
        }
    });
    let serving = axum::serve(listener, api::router(app.clone()))
        .with_graceful_shutdown(stop.clone().cancelled_owned());

    // Stops accepting first and finishes what was accepted, then lets go of the locks, and of the database last.
    tokio::select! {
        served = serving => served?,
        () = async { stop.cancelled().await; tokio::time::sleep(FINISH).await } => {
            tracing::warn!("some requests did not finish in time");
        }
    }
    leading.await?;
    // Without this the next instance would wait until the leases of what is left have ended.
    app.locks.shutdown(Duration::from_secs(5)).await?;
    app.pool.close().await;
    Ok(())
}

/// Two instances that start at once would both create the tables, and `IF NOT EXISTS` fails for one of them.
async fn create_tables(app: &App) -> Result<(), Box<dyn Error>> {
    let guard = app.locks.mutex("tables").lock().await?;
    for text in [lockline::fence::sql::Dialect::Postgres.table(), accounts::TABLES, leader::TABLE] {
        sqlx::raw_sql(text).execute(&app.pool).await?;
    }
    guard.release().await?;
    Ok(())
}
