use std::time::Instant;

use stateright::{Checker, Model};

use super::Lockline;
use super::scenarios::Scenario;

#[test]
fn probe() {
    for scenario in super::scenarios::probes() {
        let begun = Instant::now();
        let name = scenario.name;
        let checker = Lockline::new(scenario, None).checker().threads(2).target_state_count(4_000_000).spawn_bfs().join();
        println!("{name}: {} states {} generated depth {} in {:?}", checker.unique_state_count(), checker.state_count(), checker.max_depth(), begun.elapsed());
        for (name, path) in checker.discoveries() {
            println!("{name}: {:?}", path.clone().into_actions());
        }
    }
}
