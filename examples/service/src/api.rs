//! What is served over HTTP, and what a caller is told when it does not work.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use lockline::{ErrorKind, Locks};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::leader::ELECTION;
use crate::{App, accounts};

/// How many exports run at once, on all instances together, and how long one waits for its turn.
const EXPORTS: u32 = 2;
const EXPORT_PATIENCE: Duration = Duration::from_millis(200);

pub fn router(app: App) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/status", get(status))
        .route("/accounts/{id}", get(account))
        .route("/accounts/{id}/deposit", post(deposit))
        .route("/export", post(export))
        .with_state(app)
}

/// Whether it makes sense to send requests here: the database answers, and locks are granted.
async fn health(State(app): State<App>) -> Result<&'static str, Problem> {
    sqlx::query("SELECT 1").execute(&app.pool).await?;
    match app.locks.shut() {
        None => Ok("ok\n"),
        Some(shut) => Err(Problem(StatusCode::SERVICE_UNAVAILABLE, shut.to_string())),
    }
}

/// Who leads, and how often this instance did the leader's job.
async fn status(State(app): State<App>) -> Result<Json<Value>, Problem> {
    let leader = app.locks.election(ELECTION).leader().await?.map(|leader| leader.who.owner);
    let audits = sqlx::query_scalar("SELECT count(*) FROM audit WHERE leader = $1").bind(&app.name);
    let audits: i64 = audits.fetch_one(&app.pool).await?;
    Ok(Json(json!({ "instance": app.name, "leader": leader, "audits": audits })))
}

async fn account(State(app): State<App>, Path(id): Path<i64>) -> Result<Json<Value>, Problem> {
    Ok(Json(json!({ "balance": accounts::balance(&app.pool, id).await? })))
}

#[derive(Deserialize)]
struct Deposit {
    amount: i64,
    request: String,
}

async fn deposit(
    State(app): State<App>,
    Path(id): Path<i64>,
    Json(Deposit { amount, request }): Json<Deposit>,
) -> Result<Json<Value>, Problem> {
    Ok(Json(json!({ "balance": accounts::deposit(&app, id, amount, &request).await? })))
}

/// All accounts as CSV.
async fn export(State(app): State<App>) -> Result<String, Problem> {
    let permits = app.locks.semaphore("export", EXPORTS);
    let Some(permit) = permits.try_acquire_many_for(1, EXPORT_PATIENCE).await? else {
        return Err(Problem(
            StatusCode::TOO_MANY_REQUESTS,
            format!("{EXPORTS} exports run already: try later"),
        ));
    };
    let csv = permit.run(async {
        // Stands for the minutes that a real one takes.
        sqlx::query("SELECT pg_sleep(0.5)").execute(&app.pool).await?;
        let rows = "SELECT concat(id, ',', balance, chr(10)) FROM account ORDER BY id";
        let rows: Vec<String> = sqlx::query_scalar(rows).fetch_all(&app.pool).await?;
        Ok::<_, Problem>(rows.concat())
    });
    // Dropping the permit gives it back, in the background.
    csv.await?
}

/// Why a request failed: how it is answered, and in which words.
#[derive(Debug)]
pub struct Problem(StatusCode, String);

impl Problem {
    /// Somebody else holds the lock, and whoever asks should know who.
    pub async fn busy(locks: &Locks, name: &str) -> Problem {
        let holders = match locks.show(name).await {
            Ok(line) => line.holders,
            Err(error) => return error.into(),
        };
        let who: Vec<_> =
            holders.iter().map(|claim| format!("{} on {}", claim.who.owner, claim.who.host)).collect();
        Problem(StatusCode::CONFLICT, format!("{name} is busy: held by {}", who.join(", ")))
    }

    pub fn invalid(what: &str) -> Problem {
        Problem(StatusCode::UNPROCESSABLE_ENTITY, what.to_owned())
    }
}

/// A lost lock, a stale token, a database that is away: all of that passes, and whoever asks again is served.
impl<E: Error + 'static> From<E> for Problem {
    fn from(error: E) -> Problem {
        let of_lock = (&error as &dyn Error).downcast_ref::<lockline::Error>().map(lockline::Error::kind);
        let status = match of_lock {
            Some(ErrorKind::Invalid) => StatusCode::UNPROCESSABLE_ENTITY,
            Some(kind) if !kind.is_transient() && kind != ErrorKind::Closed => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Problem(status, error.to_string())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.1)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.0, self.1 + "\n").into_response()
    }
}
