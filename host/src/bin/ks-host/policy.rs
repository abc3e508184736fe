//! `--policy`, `--allow` and `--limit`: the rights of plugins.

use std::path::Path;

use anyhow::Context;
use ks_host::policy::{Limit, Policy};
use ks_wit::command_output::shown;

/// Bytes of a policy file.
const MOST_BYTES: u64 = 16 << 20;

/// Returns the help text of `--limit`, with the names of all limits. `subject` is what they apply to.
pub(crate) fn limit_help(subject: &str) -> String {
    let names = Limit::ALL.map(|limit| match limit {
        // The name does not say which time is counted.
        Limit::ComputeMs => format!("`{}` (time on a CPU between two calls of the host)", limit.name()),
        _ => format!("`{}`", limit.name()),
    });
    format!("Limits what each {subject} takes: {}. May be given several times", names.join(", "))
}

/// Returns the policy of the file, or the given one without a file, with the permissions and limits of the
/// options added.
pub(crate) fn of(
    file: Option<&Path>,
    otherwise: Policy,
    allow: &[String],
    limit: &[String],
) -> anyhow::Result<Policy> {
    let mut policy = match file {
        None => otherwise,
        Some(file) => {
            let text = ks_wit::files::read_text(file, MOST_BYTES)
                .with_context(|| format!("cannot read {}", shown(file)))?;
            Policy::from_toml(&text).with_context(|| format!("cannot use the policy {}", shown(file)))?
        }
    };
    for rule in allow {
        policy.allow_rule(rule).with_context(|| format!("--allow {rule}"))?;
    }
    for rule in limit {
        policy.limit_rule(rule).with_context(|| format!("--limit {rule}"))?;
    }
    Ok(policy)
}
