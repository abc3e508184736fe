//! The errors of `clock`.

use super::case::{Case, case};

pub fn cases() -> Vec<Case> {
    let reason = "the host asks the plugin to stop, before the time is over";
    vec![
        case("interrupted", reason)
            .of(&["clock.sleep", "clock.sleep-until"])
            .host(&["--timeout", "200ms"])
            .says("the plugin was asked to stop"),
    ]
}
