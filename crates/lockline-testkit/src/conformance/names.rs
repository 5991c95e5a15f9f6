//! Names are data; bad input is refused before anything is sent; name spaces and views.

use std::time::Duration;

use lockline::line::Mode;
use lockline::{ErrorKind, Name};

use crate::setup::{LONG, Setup, line, queue_up, until_empty};

fn hostile() -> Vec<String> {
    let mut names: Vec<String> = [
        "{}",
        "{a}b",
        "{",
        "}",
        "/",
        "//",
        "../..",
        ".",
        "a/b/",
        "\n",
        "a\nb",
        "\r\n",
        "\t",
        " ",
        "a ",
        "a",
        "A",
        "\"",
        "'",
        "`",
        "\\",
        "\\0",
        "%",
        "%s%n",
        "100%",
        "100x",
        "_",
        "*",
        "?",
        "[a-z]",
        "'; DROP TABLE claims; --",
        "$(reboot)",
        "\u{1b}[31m",
        "é",
        "e\u{301}",
        "ß",
        "ẞ",
        "İ",
        "\u{202e}abc",
        "\u{feff}",
        "🔒",
        "名前",
        "\u{10ffff}",
        "null",
        "0",
        "-1",
        "NaN",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("🔒".repeat(Name::MAX_BYTES / 4));
    names.push("x".repeat(Name::MAX_BYTES));
    names
}

/// §1 *Names*, algorithms §3: "a name is data, never part of a path, pattern or statement": each is a lock of its own.
pub async fn hostile_names_are_locks_of_their_own(setup: &Setup) {
    let (ann, bob) = (setup.client().await, setup.client().await);
    let names = hostile();
    let mut guards = Vec::new();
    for name in &names {
        let guard = ann.mutex(name).try_lock().await.unwrap();
        guards.push(guard.unwrap_or_else(|| panic!("{name:?} is the same lock as another one")));
    }
    for (name, guard) in names.iter().zip(&guards) {
        assert_eq!(guard.name(), name);
        assert!(bob.mutex(name).try_lock().await.unwrap().is_none(), "{name:?} is held");
        let stands = line(&bob, name).await;
        assert_eq!(stands.name.as_str(), name);
        assert_eq!(stands.holders.len(), 1);
        assert_eq!(stands.holders[0].ticket.get(), guard.fence().token());
    }
    let seen: Vec<_> =
        bob.view("").await.unwrap().into_iter().map(|line| line.name.as_str().to_owned()).collect();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(seen, sorted, "the view shows them all, in order, as they are");
    let first = &names[0];
    let waiting = queue_up(&bob, first, 1).await;
    drop(guards);
    crate::setup::granted(waiting).await.release().await.unwrap();
    until_empty(&ann, "of the hostile names").await;
}

/// §4 `view`: a prefix is text, not a pattern: no wildcard, no case folding.
pub async fn view_prefix_is_not_a_pattern(setup: &Setup) {
    let locks = setup.client().await;
    let names = ["100%", "100%/a", "100x", "a_c", "abc", "ABC", "abcd", "{", "é"];
    let mut guards = Vec::new();
    for name in names {
        guards.push(locks.mutex(name).lock().await.unwrap());
    }
    let cases: [(&str, &[&str]); 7] = [
        ("100%", &["100%", "100%/a"]),
        ("a_", &["a_c"]),
        ("abc", &["abc", "abcd"]),
        ("ABC", &["ABC"]),
        ("%", &[]),
        ("*", &[]),
        ("é", &["é"]),
    ];
    for (prefix, expected) in cases {
        let seen = locks.view(prefix).await.unwrap();
        assert_eq!(
            seen.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(),
            expected,
            "prefix {prefix:?}"
        );
    }
    assert_eq!(locks.view("").await.unwrap().len(), names.len());
    drop(guards);
}

/// §1: "Empty, too long or NUL is a clear error before anything is sent."
pub async fn bad_names_are_refused_before_sending(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    for bad in
        [String::new(), "x".repeat(Name::MAX_BYTES + 1), "🔒".repeat(129), "a\0b".to_owned(), "\0".to_owned()]
    {
        let kinds = [
            locks.mutex(&bad).lock().await.unwrap_err().kind(),
            locks.mutex(&bad).try_lock().await.unwrap_err().kind(),
            locks.rwlock(&bad).read().await.unwrap_err().kind(),
            locks.semaphore(&bad, 2).acquire().await.unwrap_err().kind(),
            locks.all(["good", bad.as_str()]).lock().await.unwrap_err().kind(),
            locks.election(&bad).campaign("me").await.unwrap_err().kind(),
            locks.election(&bad).leader().await.unwrap_err().kind(),
            locks.owner("me").mutex(&bad).lock().await.unwrap_err().kind(),
            locks.show(&bad).await.unwrap_err().kind(),
            locks.evict(&bad, lockline::Ticket::new(1), false).await.unwrap_err().kind(),
        ];
        assert!(kinds.iter().all(|kind| *kind == ErrorKind::Invalid), "{bad:?}: {kinds:?}");
    }
    assert_eq!(faults.total(), 0, "not one word to the engine");
}

/// §2, algorithms §11: bad leases, counts, caps and labels are refused before anything is sent.
pub async fn bad_options_are_refused_before_sending(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    let long = "x".repeat(257);
    let errors = [
        locks.mutex("m").lease(Duration::from_millis(99)).lock().await.unwrap_err(),
        locks.mutex("m").lease(Duration::from_secs(24 * 60 * 60 + 1)).lock().await.unwrap_err(),
        locks.mutex("m").lease(Duration::ZERO).fixed().lock().await.unwrap_err(),
        locks.mutex("m").max_hold(Duration::ZERO).lock().await.unwrap_err(),
        locks.semaphore("m", 4).acquire_many(0).await.unwrap_err(),
        locks.semaphore("m", 4).acquire_many(5).await.unwrap_err(),
        locks.semaphore("m", 0).acquire().await.unwrap_err(),
        locks.owner("").mutex("m").lock().await.unwrap_err(),
        locks.owner(&long).mutex("m").lock().await.unwrap_err(),
        locks.owner("a\0b").mutex("m").lock().await.unwrap_err(),
        locks.shared_owner("me", "").mutex("m").lock().await.unwrap_err(),
        locks.shared_owner("me", &long).mutex("m").lock().await.unwrap_err(),
        locks.election("m").campaign("").await.unwrap_err(),
    ];
    for error in &errors {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(!error.to_string().contains('\n'), "one clear line: {error}");
    }
    assert_eq!(faults.total(), 0, "not one word to the engine");
    for builder in [
        lockline::Locks::builder().lease(Duration::from_millis(1)),
        lockline::Locks::builder().prefix("a\0b"),
        lockline::Locks::builder().prefix("x".repeat(512)),
        lockline::Locks::builder().owner(""),
        lockline::Locks::builder().owner(&long),
    ] {
        assert_eq!(builder.connect(setup.engine().url()).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

/// §7 `prefix=`: name spaces do not meet, and their users see their own names.
pub async fn prefixes_are_name_spaces(setup: &Setup) {
    let bare = setup.client().await;
    let [test, prod] =
        ["test/", "prod/"].map(|prefix| setup.client_with(move |builder| builder.prefix(prefix)));
    let (test, prod) = (test.await, prod.await);
    let guard = test.mutex("m").lock().await.unwrap();
    assert_eq!(guard.name(), "m");
    let other = prod.mutex("m").try_lock().await.unwrap();
    assert!(other.is_some(), "another name space");
    assert!(bare.mutex("test/m").try_lock().await.unwrap().is_none(), "the same lock, by its whole name");
    let seen = test.view("").await.unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].name.as_str(), "m");
    assert_eq!(test.show("m").await.unwrap().name.as_str(), "m");
    assert_eq!(bare.view("").await.unwrap().len(), 2);
    assert!(test.evict("m", lockline::Ticket::new(guard.fence().token()), true).await.unwrap());
    let too_long = "x".repeat(Name::MAX_BYTES - 4);
    assert_eq!(
        test.mutex(too_long).lock().await.unwrap_err().kind(),
        ErrorKind::Invalid,
        "prefix and name together"
    );
}

/// §4 `view`, §7 `show`: owner, host, pid, mode, remaining lease, since when, and the order of the line.
pub async fn view_shows_who_and_in_which_order(setup: &Setup) {
    let ann = setup.client_with(|builder| builder.owner("ann").lease(LONG)).await;
    let bob = setup.client_with(|builder| builder.owner("bob").lease(LONG * 2)).await;
    let free = line(&ann, "m").await;
    assert!(free.holders.is_empty() && free.waiters.is_empty(), "a free name");
    let guard = ann.mutex("m").lock().await.unwrap();
    let first = queue_up(&bob, "m", 1).await;
    let (worker, permits) = (ann.owner("worker-7"), !setup.refuses_permits().await);
    let (semaphore, read) = (worker.semaphore("m", 5), worker.rwlock("m"));
    let second =
        tokio::spawn(
            async move { if permits { semaphore.acquire_many(3).await } else { read.read().await } },
        );
    crate::setup::until_waiting(&ann, "m", 2).await;
    tokio::time::sleep(Duration::from_millis(20)).await;

    let stands = line(&bob, "m").await;
    let owners: Vec<_> = stands.waiters.iter().map(|claim| claim.who.owner.as_str()).collect();
    assert_eq!(stands.holders[0].who.owner, "ann");
    assert_eq!(owners, ["bob", "worker-7"], "in line order");
    assert_eq!(stands.holders[0].ticket.get(), guard.fence().token());
    assert!(
        stands.holders[0].ticket < stands.waiters[0].ticket
            && stands.waiters[0].ticket < stands.waiters[1].ticket
    );
    assert_eq!(stands.holders[0].mode, Mode::Exclusive);
    let mode = if permits { Mode::Permits { count: 3, limit: 5 } } else { Mode::Shared };
    assert_eq!(stands.waiters[1].mode, mode);
    for claim in stands.holders.iter().chain(&stands.waiters) {
        assert_eq!(claim.who.pid, std::process::id());
        assert!(!claim.who.host.is_empty());
        assert!(!claim.evicted);
        assert!(claim.since >= Duration::from_millis(20) && claim.since < LONG, "{:?}", claim.since);
    }
    assert!(stands.holders[0].remaining <= LONG && stands.holders[0].remaining > LONG / 3);
    assert!(stands.waiters[0].remaining > LONG, "each has its own lease");
    assert!(stands.holders[0].since >= stands.waiters[0].since, "who came first has stood longer");
    assert!(stands.waiters.iter().all(|claim| claim.held.is_none()), "who waits holds nothing");
    if let Some(held) = stands.holders[0].held {
        assert_eq!(held, stands.holders[0].since, "who got it at once has held it all the time");
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(guard);
    let first = crate::setup::granted(first).await;
    let stands = line(&bob, "m").await;
    let holder = &stands.holders[0];
    assert!(holder.since >= Duration::from_millis(120), "it waited: {:?}", holder.since);
    if let Some(held) = holder.held {
        assert!(held <= holder.since - Duration::from_millis(100), "{held:?} of {:?}", holder.since);
    }
    first.release().await.unwrap();
    crate::setup::granted(second).await.release().await.unwrap();
}
