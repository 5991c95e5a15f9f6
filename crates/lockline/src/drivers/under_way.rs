//! A verb whose end matters, whoever waits for it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;

/// Goes on to its end, also when whoever waits for it goes away: half of it must not be overtaken by the next one.
///
/// It runs where it is awaited, because a task of its own would cost two wake-ups each time; only what is dropped before its
/// end is left to a task.
pub(super) struct UnderWay<T: Send + 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    runtime: Handle,
}

impl<T: Send + 'static> UnderWay<T> {
    pub(super) fn new(runtime: &Handle, work: impl Future<Output = T> + Send + 'static) -> UnderWay<T> {
        UnderWay { work: Some(Box::pin(work)), runtime: runtime.clone() }
    }
}

impl<T: Send + 'static> Future for UnderWay<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let UnderWay { work: slot, runtime } = &mut *self;
        let Some(work) = slot else { return Poll::Pending };
        // What it opens or starts must not end with the runtime of one caller: others use it, too.
        let _home = runtime.enter();
        let done = ready!(work.as_mut().poll(context));
        *slot = None;
        Poll::Ready(done)
    }
}

impl<T: Send + 'static> Drop for UnderWay<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.runtime.spawn(work);
        }
    }
}

impl<T: Send + 'static> fmt::Debug for UnderWay<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnderWay").field("is_done", &self.work.is_none()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_done_whether_or_not_somebody_waits() {
        let work = |done: &Arc<AtomicBool>| {
            let done = done.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                done.store(true, Ordering::Relaxed);
                7
            }
        };
        let done = Arc::new(AtomicBool::new(false));
        assert_eq!(UnderWay::new(&Handle::current(), work(&done)).await, 7);
        let left = Arc::new(AtomicBool::new(false));
        let under_way = UnderWay::new(&Handle::current(), work(&left));
        assert!(tokio::time::timeout(Duration::from_millis(1), under_way).await.is_err());
        assert!(!left.load(Ordering::Relaxed));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(left.load(Ordering::Relaxed), "it went on");
    }
}
