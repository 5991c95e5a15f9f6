//! The list of a line, read once for many who ask for it at the same time: if a thousand claims that join together each read
//! it, the ensemble would have to write a line of a thousand a thousand times.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use zookeeper_client::{Client, Error as ZkError};

use super::recipe::Places;
use crate::sync::locked;

/// So many readings of a line may be under way at once. Whoever gets in next must not wait for an answer that somebody asked
/// for a moment before; a crowd can.
const SIDE_BY_SIDE: usize = 4;

/// A list that was asked for; it never comes if the runtime is shut down.
pub(super) type Reading = oneshot::Receiver<Answer>;
type Answer = Result<Arc<Places>, ZkError>;
type Asker = oneshot::Sender<Answer>;

#[derive(Debug, Default)]
struct Line {
    under_way: usize,
    /// Who waits for the **next** reading: those under way may have begun before a znode of theirs was made.
    next: Vec<Asker>,
}

/// The lines of a session that are being read.
#[derive(Debug, Default)]
pub(super) struct Lists(Arc<Mutex<HashMap<String, Line>>>);

impl Lists {
    /// The places of a line as of now or later; none if there is no such znode.
    pub(super) async fn read(&self, client: &Client, line: &str) -> Answer {
        self.ask(client, line).await.unwrap_or(Err(ZkError::ClientClosed))
    }

    /// The same; what is read is what is there after everything that was sent before.
    pub(super) fn ask(&self, client: &Client, line: &str) -> Reading {
        let (asker, answer) = oneshot::channel();
        let mut lines = locked(&self.0);
        let reading = lines.entry(line.to_owned()).or_default();
        if reading.under_way < SIDE_BY_SIDE {
            reading.under_way += 1;
            let first = list(client, line);
            // In a task of its own: others must get their answer when this one does not wait for it any longer.
            tokio::spawn(read_for(self.0.clone(), client.clone(), line.to_owned(), first, vec![asker]));
        } else {
            reading.next.push(asker);
        }
        answer
    }
}

/// Sends the request at once; the answer is to be awaited.
fn list(client: &Client, line: &str) -> impl Future<Output = Answer> + Send + use<> {
    let children = client.get_children(line);
    async {
        match children.await {
            Ok((children, _)) => Ok(Arc::new(Places::new(children))),
            Err(ZkError::NoNode) => Ok(Arc::default()),
            Err(error) => Err(error),
        }
    }
}

/// Gives what was read first to these, and reads the line again for those who have asked meanwhile.
async fn read_for(
    lines: Arc<Mutex<HashMap<String, Line>>>,
    client: Client,
    line: String,
    first: impl Future<Output = Answer> + Send,
    mut askers: Vec<Asker>,
) {
    let mut answer = first.await;
    loop {
        for asker in askers {
            // It may have gone.
            let _ = asker.send(answer.clone());
        }
        askers = next_askers(&mut locked(&lines), &line);
        if askers.is_empty() {
            return;
        }
        answer = list(&client, &line).await;
    }
}

/// Who has asked while a line was read; if nobody did, this reading is over.
fn next_askers(lines: &mut HashMap<String, Line>, line: &str) -> Vec<Asker> {
    let Some(reading) = lines.get_mut(line) else { return Vec::new() };
    let askers = std::mem::take(&mut reading.next);
    if askers.is_empty() {
        reading.under_way -= 1;
        if reading.under_way == 0 {
            lines.remove(line);
        }
    }
    askers
}
