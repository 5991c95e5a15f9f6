//! `lockline evict`: shows a claim out of its line.

use lockline::line::LineView;
use lockline::{Locks, Ticket};

use crate::cli::EvictArgs;
use crate::engine::{Engine, on_runtime};
use crate::exit::{Failure, code};
use crate::json::Evicted;
use crate::output::{json, say, visible};
use crate::table::age;

pub(crate) fn evict(args: EvictArgs) -> Result<u8, Failure> {
    let engine = Engine::of(args.engine.on.clone())?;
    engine.check(&args.name)?;
    on_runtime(async {
        let told = match engine.open_to_look().await? {
            Some(locks) => show_out(&locks, &args).await?,
            None => None,
        };
        if args.json {
            json(&Evicted { name: &args.name, token: args.token, evicted: told.is_some(), now: args.now })?;
        }
        match told {
            Some(text) => {
                if !args.json {
                    say(&text);
                }
                Ok(code::OK)
            }
            None if args.json => Ok(code::NO_SUCH_CLAIM),
            None => Err(nobody(&args)),
        }
    })
}

/// Evicts the claim and tells what that means; `None` if it was not there.
async fn show_out(locks: &Locks, args: &EvictArgs) -> Result<Option<String>, Failure> {
    // Looked at first, because afterwards it can no longer be told whether it held or waited.
    let line = locks.show(&args.name).await?;
    let evicted = locks.evict(&args.name, Ticket::new(args.token), args.now).await?;
    Ok(evicted.then(|| what_it_means(&line, args)))
}

fn what_it_means(line: &LineView, args: &EvictArgs) -> String {
    let name = visible(&args.name);
    let holder = line.holders.iter().find(|claim| claim.ticket.get() == args.token);
    let Some(holder) = holder else {
        return format!("lockline: evicted ticket {} from the line for {name}\n", args.token);
    };
    let who =
        format!("{} ({}, pid {})", visible(&holder.who.owner), visible(&holder.who.host), holder.who.pid);
    if args.now {
        format!(
            "lockline: evicted {who} from {name}; whoever is next is in now\n\
             hint: until the old holder notices, only the token protects: whatever checks tokens refuses {} from now on\n",
            args.token
        )
    } else {
        format!(
            "lockline: evicted {who} from {name}; its place stands until it leaves or its lease ends, in {} at the latest\n\
             hint: --now lets the next one in at once; then only the token protects\n",
            age(holder.remaining)
        )
    }
}

fn nobody(args: &EvictArgs) -> Failure {
    let message = format!("no claim with ticket {} stands in line for {}", args.token, visible(&args.name));
    Failure::new(code::NO_SUCH_CLAIM, message).hint("lockline show NAME lists the tickets")
}
