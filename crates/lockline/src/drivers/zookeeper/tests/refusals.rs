//! Logins, access lists, leases and ensembles that are refused, each with an error that helps and tells no secret.

use std::time::Duration;

use super::{Ensemble, claim, included, is_in, open, within};
use crate::driver::Driver;
use crate::drivers::zookeeper::{Access, ZookeeperConfig};
use crate::error::ErrorKind;
use crate::line::Mode;
use crate::{Error, Locks};

const LEASE: Duration = Duration::from_secs(5);

fn tells_no_secret(error: &Error) {
    let said = format!("{error} {error:?} {}", error.hint_text().unwrap_or_default());
    assert!(!said.contains("c4nary"), "{said}");
    assert!(error.hint_text().is_some(), "it says what to do: {said}");
}

#[tokio::test]
async fn an_ensemble_that_is_not_there() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("zookeeper://me:c4nary@127.0.0.1:{port}/locks");
    let error = Locks::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    tells_no_secret(&error);
}

#[tokio::test]
async fn what_a_user_owns_is_closed_to_others() {
    if !included() {
        return;
    }
    let ensemble = Ensemble::start(1);
    let (ours, _) = open(ensemble.config().login("me", "c4nary")).await;
    let first = claim("m", Mode::Exclusive, LEASE);
    assert!(is_in(&ours.join(&first, true).await.unwrap()));
    for config in [ensemble.config(), ensemble.config().login("me", "c4nary-wrong")] {
        let (theirs, _) = open(config).await;
        let error = theirs.join(&claim("m", Mode::Exclusive, LEASE), true).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        tells_no_secret(&error);
    }
    let (again, _) = open(ensemble.config().login("me", "c4nary")).await;
    assert!(
        !is_in(&again.join(&claim("m", Mode::Exclusive, LEASE), true).await.unwrap()),
        "it stands in the same line"
    );
    let open_to_all = ensemble.config().base("/open").login("me", "c4nary").access(Access::Open);
    let (ours, _) = open(open_to_all).await;
    assert!(is_in(&ours.join(&first, true).await.unwrap()));
    let (theirs, _) = open(ensemble.config().base("/open")).await;
    assert!(!is_in(&theirs.join(&claim("m", Mode::Exclusive, LEASE), true).await.unwrap()));
}

#[tokio::test]
async fn a_lease_that_no_session_lasts_for() {
    if !included() {
        return;
    }
    // Its sessions last for 60 s at most.
    let ensemble = Ensemble::start(1);
    let locks = Locks::connect(&ensemble.url()).await.unwrap();
    let error = locks.mutex("m").lease(Duration::from_secs(41)).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("40s is the longest"), "{error}");
    tells_no_secret(&error);
    assert!(locks.mutex("m").lease(Duration::from_secs(40)).lock().await.is_ok());
    let fixed = locks.mutex("m").lease(Duration::from_secs(30)).fixed().lock().await.unwrap_err();
    assert_eq!(fixed.kind(), ErrorKind::Unsupported, "the client's lease of 10 s has a session of 15 s");
    tells_no_secret(&fixed);
    let longer = Locks::connect(&format!("{}?session=45s", ensemble.url())).await.unwrap();
    assert!(longer.mutex("m").lease(Duration::from_secs(30)).fixed().lock().await.is_ok());
}

#[tokio::test]
async fn an_empty_lock_vanishes() {
    if !included() {
        return;
    }
    let ensemble = Ensemble::start(1);
    let locks = Locks::connect(&ensemble.url()).await.unwrap();
    let guard = locks.mutex("a/b").lock().await.unwrap();
    let stranger = ensemble.stranger().await;
    assert!(stranger.check_stat("/lockline/a/b").await.unwrap().is_some());
    guard.release().await.unwrap();
    within(Duration::from_secs(20), "the znodes are gone", async || {
        stranger.check_stat("/lockline").await.unwrap().is_none()
    })
    .await;
    assert!(locks.mutex("a/b").lock().await.unwrap().is_valid(), "and are made again");
}

#[test]
fn a_config_has_sensible_doors() {
    let config = ZookeeperConfig::new(["a"]).base("locks/");
    assert_eq!(config.address(), "zookeeper://a/locks");
}
