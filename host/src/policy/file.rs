//! Policy files.
//!
//! ```toml
//! [allow]                         # nothing that is not named here
//! event = ["software", "tracepoint"]
//! scope = ["own", "task"]
//! xdp = ["eth0", "veth*"]
//! pin = ["counters/*"]
//!
//! [limits]
//! maps = 16
//! map_bytes = 1048576
//!
//! [signers]                       # one of them must have signed the plugin
//! "release@example.org" = "5df5dc8c6a541d11fb93bf8f0a97a501b112d860b9167cfdcf81b64994bf41cc"
//! ```

use toml::{Table, Value};

use super::{Class, Limit, Policy};
use crate::plugin::PublicKey;
use crate::text::toml as toml_escaped;

/// An error in a policy file or rule.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The text is not TOML.
    #[error("{0}")]
    Toml(#[from] Box<toml::de::Error>),
    /// A table that policies do not have.
    #[error("a policy has no table `{name}`, but `[allow]`, `[limits]` and `[signers]`")]
    UnknownTable {
        /// Name of the table.
        name: String,
    },
    /// A class that does not exist.
    #[error("there is no class `{name}`; {}", suggestion(.near, Class::ALL.map(Class::name)))]
    UnknownClass {
        /// The name as written.
        name: String,
        /// Similar names of classes.
        near: Vec<String>,
    },
    /// A limit that does not exist.
    #[error("there is no limit `{name}`; {}", suggestion(.near, Limit::ALL.map(Limit::name)))]
    UnknownLimit {
        /// The name as written.
        name: String,
        /// Similar names of limits.
        near: Vec<String>,
    },
    /// A target for a class that has none.
    #[error(
        "`{class}` has no targets to choose from, so `{target}` would allow everything: write `*` if that \
         is meant"
    )]
    NoChoice {
        /// Name of the class.
        class: &'static str,
        /// The target as written.
        target: String,
    },
    /// A pattern for a class that allows exact targets only.
    #[error("`{class}` takes the absolute path of one file without wildcards, not `{target}`")]
    NamedOnly {
        /// Name of the class.
        class: &'static str,
        /// The target as written.
        target: String,
    },
    /// A class whose targets are not a list of strings.
    #[error("`{name}` is not a list of targets, such as {name} = [\"*\"]")]
    NoTargets {
        /// Name of the class.
        name: String,
    },
    /// A signer without a valid key.
    #[error(
        "the key of the signer `{name}` is not one: 64 hexadecimal digits, as `ks-host sign` prints them"
    )]
    NoKey {
        /// Identity of the signer.
        name: String,
    },
    /// A limit whose value is not a number.
    #[error("the limit `{name}` is not a number, such as {name} = 16: {reason}")]
    NoNumber {
        /// Name of the limit.
        name: String,
        /// Why the value is invalid.
        reason: String,
    },
}

/// Formats a hint: the similar names, or all names if none is similar.
fn suggestion(near: &[String], all: impl IntoIterator<Item = &'static str>) -> String {
    match near {
        [] => format!(
            "there are {}",
            all.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        ),
        near => format!("did you mean `{}`?", near.join("`, `")),
    }
}

impl Policy {
    /// Parses a policy file. Everything that it does not name is denied.
    ///
    /// # Errors
    /// [`PolicyError`] for anything that is not understood.
    pub fn from_toml(text: &str) -> Result<Policy, PolicyError> {
        let file: Table = toml::from_str(text).map_err(Box::new)?;
        let mut policy = Policy::nothing();
        for (name, value) in &file {
            match (name.as_str(), value) {
                ("allow", Value::Table(classes)) => allow(&mut policy, classes)?,
                ("limits", Value::Table(limits)) => limit(&mut policy, limits)?,
                ("signers", Value::Table(signers)) => demand(&mut policy, signers)?,
                _ => return Err(PolicyError::UnknownTable { name: name.clone() }),
            }
        }
        Ok(policy)
    }
}

fn allow(policy: &mut Policy, classes: &Table) -> Result<(), PolicyError> {
    for (name, targets) in classes {
        let class = Class::named(name)?;
        let wrong = || PolicyError::NoTargets { name: name.clone() };
        for target in targets.as_array().ok_or_else(wrong)? {
            policy.allow(class, target.as_str().ok_or_else(wrong)?)?;
        }
    }
    Ok(())
}

fn limit(policy: &mut Policy, limits: &Table) -> Result<(), PolicyError> {
    for (name, number) in limits {
        let limit = Limit::named(name)?;
        let read = match number {
            Value::Integer(number) => u64::try_from(*number).map_err(|_| "it is below 0".to_owned()),
            Value::String(text) => limit.number(text),
            other => Err(format!("it is of the type {}", other.type_str())),
        };
        let number = read.map_err(|reason| PolicyError::NoNumber { name: name.clone(), reason })?;
        policy.set_limit(limit, number);
    }
    Ok(())
}

fn demand(policy: &mut Policy, signers: &Table) -> Result<(), PolicyError> {
    for (name, key) in signers {
        let key = key.as_str().and_then(|key| PublicKey::read(key).ok());
        policy.demand_signer(name, key.ok_or_else(|| PolicyError::NoKey { name: name.clone() })?);
    }
    // An empty table would demand no signature although it looks as if it did.
    if signers.is_empty() { Err(PolicyError::NoKey { name: String::new() }) } else { Ok(()) }
}

/// Formats a string as a TOML basic string, with quotes and escapes.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", toml_escaped(text))
}
