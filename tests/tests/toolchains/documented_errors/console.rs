//! The errors of `console`.

use super::case::{Case, case};

pub fn cases() -> Vec<Case> {
    let append = |kind, reason| case(kind, reason).of(&["console.table.append"]);
    let histogram = |kind, reason| case(kind, reason).of(&["console.histograms.append"]);
    vec![
        histogram("limit", "`host_bytes`")
            .with("many")
            .host(&["--limit", "host_bytes=9000"])
            .says("`host_bytes` of the plugin is 9000"),
        append("invalid", "another number of values than columns")
            .with("short")
            .says("a row of 0 values: the table has 1 columns"),
        append("limit", "`host_bytes`")
            .with("many")
            .host(&["--limit", "host_bytes=9000"])
            .says("`host_bytes` of the plugin is 9000"),
    ]
}
