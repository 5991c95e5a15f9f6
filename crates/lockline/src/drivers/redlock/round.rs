//! One question to all nodes, and their answers as they come.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

use super::tally::majority;
use crate::driver::Verb;
use crate::error::Result;

/// How long nodes are waited for that did not answer in time the last time, when a majority has answered.
const GRACE: Duration = Duration::from_millis(10);

/// One question to all nodes, and their answers as they come.
pub(super) struct Round<T> {
    pending: Vec<(usize, Verb<'static, T>)>,
    ready: VecDeque<(usize, Result<T>)>,
    /// How many have answered.
    answers: usize,
    /// Of each node.
    slow: Vec<Arc<AtomicBool>>,
    over: Pin<Box<Sleep>>,
    grace: Option<Pin<Box<Sleep>>>,
}

impl<T: Send + 'static> Round<T> {
    /// What is asked of each node, and whether that node was slow the last time. Nothing is sent yet.
    pub(super) fn new(
        pending: Vec<(usize, Verb<'static, T>)>,
        slow: Vec<Arc<AtomicBool>>,
        within: Duration,
    ) -> Round<T> {
        let over = Box::pin(tokio::time::sleep(within));
        Round { pending, ready: VecDeque::new(), answers: 0, slow, over, grace: None }
    }

    /// The next answer; `None` when all have answered, or nobody is waited for any longer.
    pub(super) async fn next(&mut self) -> Option<(usize, Result<T>)> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Polls all requests, also when one is ready: each is sent when it is first polled.
    pub(super) fn send(&mut self, context: &mut Context<'_>) {
        let mut at = 0;
        while let Some((_, request)) = self.pending.get_mut(at) {
            match request.as_mut().poll(context) {
                Poll::Pending => at += 1,
                Poll::Ready(answer) => {
                    let (node, _) = self.pending.swap_remove(at);
                    self.slow[node].store(false, Ordering::Relaxed);
                    self.answers += usize::from(answer.is_ok());
                    self.ready.push_back((node, answer));
                }
            }
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Result<T>)>> {
        self.send(context);
        if let Some(answer) = self.ready.pop_front() {
            return Poll::Ready(Some(answer));
        }
        if self.pending.is_empty() {
            return Poll::Ready(None);
        }
        if self.over.as_mut().poll(context).is_ready() {
            for (node, _) in &self.pending {
                self.slow[*node].store(true, Ordering::Relaxed);
            }
            return Poll::Ready(None);
        }
        // Only those who are not needed: on a busy day all of them may be slow.
        let needed = self.answers < majority(self.slow.len());
        if !needed && self.pending.iter().all(|(node, _)| self.slow[*node].load(Ordering::Relaxed)) {
            let grace = self.grace.get_or_insert_with(|| Box::pin(tokio::time::sleep(GRACE)));
            return grace.as_mut().poll(context).map(|()| None);
        }
        Poll::Pending
    }

    /// Lets the rest come in the background, each given to `late`: what was decided without them may still have to be known,
    /// and a restarted node must be given its scripts.
    pub(super) fn finish_later(mut self, mut late: impl FnMut(usize, Result<T>) + Send + 'static) {
        if self.pending.is_empty() && self.ready.is_empty() {
            return;
        }
        self.grace = None;
        tokio::spawn(async move {
            while let Some((node, answer)) = self.next().await {
                late(node, answer);
            }
        });
    }
}
