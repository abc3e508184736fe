//! `--policy`, `--allow` and `--limit`: what plugins may do.

use std::fs;
use std::path::Path;

use anyhow::Context;
use ks_host::policy::Policy;

/// The policy of the file, else the given one, with what is allowed and limited besides.
pub(crate) fn of(
    file: Option<&Path>,
    otherwise: Policy,
    allow: &[String],
    limit: &[String],
) -> anyhow::Result<Policy> {
    let mut policy = match file {
        None => otherwise,
        Some(file) => {
            let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            Policy::from_toml(&text).with_context(|| format!("cannot use the policy {}", file.display()))?
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
