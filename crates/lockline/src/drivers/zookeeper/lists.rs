//! The list of a line, read once for all who ask for it at the same time: if a thousand claims that join together each read
//! it, the ensemble would have to write a line of a thousand a thousand times.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use zookeeper_client::{Client, Error as ZkError};

use super::recipe::Places;
use crate::sync::locked;

type Answer = Result<Arc<Places>, ZkError>;
type Askers = Mutex<HashMap<String, Vec<oneshot::Sender<Answer>>>>;

/// The lines of a session that are being read, and who waits for the **next** reading of each: the one that is under way may
/// have begun before a znode of theirs was made.
#[derive(Debug, Default)]
pub(super) struct Lists(Arc<Askers>);

impl Lists {
    /// The places of a line as of now or later; none if there is no such znode.
    pub(super) async fn read(&self, client: &Client, line: &str) -> Answer {
        self.ask(client, line).await.unwrap_or(Err(ZkError::ClientClosed))
    }

    fn ask(&self, client: &Client, line: &str) -> oneshot::Receiver<Answer> {
        let (asker, answer) = oneshot::channel();
        let mut lines = locked(&self.0);
        match lines.get_mut(line) {
            Some(next) => next.push(asker),
            None => {
                lines.insert(line.to_owned(), vec![asker]);
                // In a task of its own: others must get their answer when this one does not wait for it any longer.
                tokio::spawn(read_for_all(self.0.clone(), client.clone(), line.to_owned()));
            }
        }
        answer
    }
}

async fn read_for_all(lines: Arc<Askers>, client: Client, line: String) {
    loop {
        let askers = {
            let mut lines = locked(&lines);
            let askers = lines.get_mut(&line).map(std::mem::take).unwrap_or_default();
            if askers.is_empty() {
                lines.remove(&line);
                return;
            }
            askers
        };
        let answer = match client.list_children(&line).await {
            Ok(children) => Ok(Arc::new(Places::new(children))),
            Err(ZkError::NoNode) => Ok(Arc::default()),
            Err(error) => Err(error),
        };
        for asker in askers {
            // It may have gone.
            let _ = asker.send(answer.clone());
        }
    }
}
