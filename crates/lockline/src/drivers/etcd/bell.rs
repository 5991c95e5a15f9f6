//! Watches: whose going a claim waits for, and where this process hears of evictions.
//!
//! A watch begins *now*, and when the server says that it has begun, the claims that wait on it look. The other way, from
//! the revision of an answer, loses nothing either, but a server tells a watch that begins in the past only at the next
//! round of a task that runs ten times a second: that is why `v3lock` takes 100 ms for each change of owner.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;

use super::Inner;
use super::place::{Keys, read_message, ticket};
use super::proto::{WatchCancel, WatchCommand, WatchCreate, WatchRequest, WatchResponse};
use crate::line::{Bell, News};
use crate::pause;
use crate::sync::locked;

const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// The watch of the mailbox has this number on every stream.
const MAILBOX: i64 = 1;
const NO_PUTS: i32 = 0;
const NO_DELETIONS: i32 = 1;
const DELETION: i32 = 1;

/// What is watched, on the stream that is open.
#[derive(Debug, Default)]
pub(super) struct Watches {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stream: Option<mpsc::UnboundedSender<WatchRequest>>,
    numbers: HashMap<Keys, i64>,
    last: i64,
}

impl State {
    fn create(&mut self, keys: &Keys) {
        let Some(stream) = &self.stream else { return };
        if self.numbers.contains_key(keys) {
            return;
        }
        self.last += 1;
        self.numbers.insert(keys.clone(), self.last);
        // If the stream has just ended, whoever opens the next one asks for all again.
        let _ = stream.send(create(keys, self.last, NO_PUTS));
    }
}

impl Watches {
    /// Has deletions among these keys be told. Once for each, however many wait for it.
    pub(super) fn watch(&self, keys: &Keys) {
        locked(&self.state).create(keys);
    }

    pub(super) fn unwatch(&self, keys: &Keys) {
        let mut state = locked(&self.state);
        if let Some(watch_id) = state.numbers.remove(keys)
            && let Some(stream) = &state.stream
        {
            let cancel = WatchCommand::Cancel(WatchCancel { watch_id });
            let _ = stream.send(WatchRequest { command: Some(cancel) });
        }
    }

    fn keys_of(&self, watch_id: i64) -> Option<Keys> {
        let state = locked(&self.state);
        state.numbers.iter().find(|(_, number)| **number == watch_id).map(|(keys, _)| keys.clone())
    }
}

fn create(keys: &Keys, watch_id: i64, filter: i32) -> WatchRequest {
    let create =
        WatchCreate { key: keys.key.clone(), range_end: keys.end.clone(), filters: vec![filter], watch_id };
    WatchRequest { command: Some(WatchCommand::Create(create)) }
}

/// Listens for as long as the driver lives. Streams never heal by themselves: the next one asks for everything again, and
/// everybody looks.
pub(super) async fn listen(driver: Weak<Inner>) {
    let mut pauses = pause::RECONNECT;
    let mut first = true;
    loop {
        if !first {
            pause::before_reconnecting().await;
        }
        let Some(inner) = driver.upgrade() else { return };
        let link = inner.wire.link();
        let wire = inner.wire.clone();
        let (sender, receiver) = mpsc::unbounded_channel();
        inner.begin(sender);
        let opened = tokio::select! {
            opened = wire.stream::<_, WatchResponse>(&link, WATCH, UnboundedReceiverStream::new(receiver)) => opened,
            () = link.is_given_up() => Err(Status::unavailable("given up")),
        };
        let mut answers = match opened {
            Ok(answers) => answers,
            Err(status) => {
                drop(inner);
                wire.after_stream(&link, &status).await;
                tokio::time::sleep(pauses.next()).await;
                continue;
            }
        };
        if !first {
            // Evictions may have been missed meanwhile, too.
            inner.board.look_at_all();
        }
        (pauses, first) = (pause::RECONNECT, false);
        drop(inner);
        let ended = loop {
            let message = tokio::select! {
                message = answers.message() => message,
                () = link.is_given_up() => break Status::unavailable("given up"),
            };
            let Some(inner) = driver.upgrade() else { return };
            match message {
                Ok(Some(news)) => {
                    link.heard_from();
                    inner.hear(news);
                }
                Ok(None) => break Status::unavailable("the server ended it"),
                Err(status) => break status,
            }
        };
        tracing::debug!(status = ended.message(), "the stream of watches has ended");
        wire.after_stream(&link, &ended).await;
    }
}

impl Inner {
    /// Everything that is to be watched, on a new stream.
    fn begin(&self, stream: mpsc::UnboundedSender<WatchRequest>) {
        // In this order everywhere: first the books, then the watches.
        let books = locked(&self.books);
        let mut state = locked(&self.bells.state);
        let mailbox = Keys::one(self.layout.mailbox(&self.process));
        let _ = stream.send(create(&mailbox, MAILBOX, NO_DELETIONS));
        state.stream = Some(stream);
        state.numbers.clear();
        state.last = state.last.max(MAILBOX);
        for keys in books.all_waited_for().iter().filter(|keys| !books.is_ours(&keys.key)) {
            state.create(keys);
        }
    }

    fn hear(self: &Arc<Self>, news: WatchResponse) {
        if news.watch_id == MAILBOX && !news.canceled {
            for event in news.events {
                if let Some((revision, name)) = event.kv.and_then(|kv| read_message(&kv.value)) {
                    let evicted = locked(&self.books).on_place(&name, revision);
                    for id in evicted {
                        self.board.ring(&name, &Bell { id, ticket: ticket(revision), news: News::Out });
                    }
                }
            }
            return;
        }
        let Some(keys) = self.bells.keys_of(news.watch_id) else { return };
        if news.canceled {
            tracing::debug!(reason = news.cancel_reason, "a watch was cancelled");
            locked(&self.bells.state).numbers.remove(&keys);
        }
        // When it begins, what went before it began was not told: look. And when it was cancelled, to begin another.
        if news.created || news.canceled || news.events.iter().any(|event| event.kind == DELETION) {
            self.look_for(&keys);
        }
    }

    /// Somebody went: whoever waited for that looks.
    pub(super) fn look_for(self: &Arc<Self>, keys: &Keys) {
        let waiting = locked(&self.books).waiting_for(keys);
        for id in waiting {
            let inner = self.clone();
            self.runtime.spawn(async move { inner.look(id).await });
        }
    }
}
