//! Runs the command under the lock it was given, and decides what becomes of what it leaves running.

use std::process::ExitStatus;

use crate::child::Child;
use crate::cli::Children;
use crate::exit::Failure;
use crate::guardian::Guardian;
use crate::signals::Signals;

use super::keep::{Ending, Hold, Keeping};

/// Keeps the command company until it has ended, with its children as far as the caller wants it. Tells its exit code.
pub(super) async fn keep(
    child: Child,
    guardian: Guardian,
    hold: Hold<'_>,
    children: Children,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let mut keeping = Keeping::new(child, guardian, hold, signals);
    let result = match keeping.until_ended_or_over().await {
        Ok(Ending::Ended(status)) => see_to_children(&mut keeping, status, children).await,
        Ok(Ending::Over(over)) => match keeping.stop(over).await {
            Ok(failure) | Err(failure) => {
                keeping.child.take_terminal_back();
                Err(failure)
            }
        },
        Err(failure) => Err(failure),
    };
    keeping.guardian.dismiss();
    result
}

async fn see_to_children(
    keeping: &mut Keeping<'_>,
    status: ExitStatus,
    children: Children,
) -> Result<u8, Failure> {
    let code = keeping.child.settle(status);
    match children {
        Children::Leave => Ok(code),
        Children::Stop => {
            if !keeping.child.left_running().is_empty() {
                keeping.end_group().await?;
            }
            Ok(code)
        }
        Children::Wait => match keeping.until_alone().await? {
            Ok(interrupted) => Ok(interrupted.unwrap_or(code)),
            Err(over) => Err(keeping.stop(over).await?),
        },
    }
}
