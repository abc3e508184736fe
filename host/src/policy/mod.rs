//! Policy: the actions that a plugin is allowed.
//!
//! ```text
//! plugin file -> ObjectSet (strictly read) -> Request (its needs) -\
//! --policy FILE, --allow, --limit -> Policy -----------------------+-> admit -> Admitted (what is loaded)
//!                                      |                                    or exit code 126
//!                                      \-> the world checks each action whose target is known only later
//! ```
//!
//! A pure function: nothing here queries the kernel, and the plugin's manifest has no influence. A denied
//! need ends the start before anything of the plugin is loaded. Not here: enforcing limits of a running
//! plugin (`plugin`, `world`).

mod class;
mod file;
mod limits;
mod needs;
mod object;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use ks_compiler::object::Object;
use ks_wit::helper::{self, HelperClass};

use class::COUNTING_FAMILIES;
pub use class::Class;
pub use file::PolicyError;
pub use limits::Limit;
use limits::MapLimits;
pub(crate) use needs::class_of;
pub use needs::{Need, Request};
pub use object::{Admitted, ObjectError, ObjectSet, PluginObject};

use crate::pattern::Pattern;
use crate::plugin::{PublicKey, Signer};
use crate::text::{MOST_BYTES, visible};

/// A policy: for each class of actions the allowed targets, as patterns with `*` and `?`, plus limits and
/// signers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    allowed: BTreeMap<Class, Vec<Pattern>>,
    limits: BTreeMap<Limit, u64>,
    /// Accepted signers, of which one must have signed the plugin. If empty, no signature is needed.
    signers: BTreeSet<(String, PublicKey)>,
}

/// The pattern for any target.
const ANY: &str = "*";

impl Policy {
    /// Allows no action at all.
    pub fn nothing() -> Policy {
        Policy { allowed: BTreeMap::new(), limits: BTreeMap::new(), signers: BTreeSet::new() }
    }

    /// Allows all observing classes: the default for a plugin that a person starts.
    pub fn observing() -> Policy {
        let observing = Class::ALL.into_iter().filter(|class| class.is_observing());
        let patterns = |class| match class {
            Class::Event => COUNTING_FAMILIES.map(Pattern::exactly).to_vec(),
            _ => vec![Pattern::new(ANY)],
        };
        let allowed = observing.map(|class| (class, patterns(class))).collect();
        Policy { allowed, ..Policy::nothing() }
    }

    /// Allows everything that the contract has, except classes whose targets must be named.
    pub fn everything() -> Policy {
        let all = Class::ALL.into_iter().filter(|class| !class.is_named_only());
        let allowed = all.map(|class| (class, vec![Pattern::new(ANY)])).collect();
        Policy { allowed, ..Policy::nothing() }
    }

    /// Allows to observe, and to load packet programs without attaching them: tests call them directly.
    pub fn testing() -> Policy {
        let mut policy = Policy::observing();
        for class in [Class::Xdp, Class::Tc, Class::Cgroup] {
            policy.add(class, Pattern::exactly(""));
        }
        policy
    }

    /// Allows all families of events that only count.
    pub fn allow_counting(&mut self) {
        COUNTING_FAMILIES.iter().for_each(|family| self.add(Class::Event, Pattern::exactly(family)));
    }

    /// Requires a signature by this identity with this key, or by another required signer.
    pub fn demand_signer(&mut self, identity: &str, key: PublicKey) {
        self.signers.insert((identity.to_owned(), key));
    }

    /// Returns whether the plugin must be signed.
    pub fn demands_signer(&self) -> bool {
        !self.signers.is_empty()
    }

    /// Checks the signatures of a plugin.
    ///
    /// # Errors
    /// The message for a person, with the accepted signers.
    pub fn judge_signers(&self, signers: &[Signer]) -> Result<(), String> {
        let is_demanded = |signer: &Signer| self.signers.contains(&(signer.identity.clone(), signer.key));
        if self.signers.is_empty() || signers.iter().any(is_demanded) {
            return Ok(());
        }
        let known = |(identity, key): &(String, PublicKey)| {
            format!("`{}` with key {key}", visible(identity, MOST_BYTES))
        };
        let demanded: Vec<_> = self.signers.iter().map(known).collect();
        let has: Vec<_> =
            signers.iter().map(|signer| known(&(signer.identity.clone(), signer.key))).collect();
        let has = if has.is_empty() { "nobody has signed this very file".into() } else { has.join(" and ") };
        Err(format!(
            "the policy demands a signature by {}, and the plugin has: {has}: `ks-host inspect` shows its \
             signatures, `ks-host sign` makes one",
            demanded.join(" or ")
        ))
    }

    /// Allows the targets of one more pattern: `*` matches any text, `?` any character, and `\` escapes a
    /// character.
    ///
    /// # Errors
    /// [`PolicyError::NoChoice`]; [`PolicyError::NamedOnly`].
    pub fn allow(&mut self, class: Class, pattern: &str) -> Result<(), PolicyError> {
        let pattern = Pattern::new(pattern);
        // The rule would allow everything, contrary to its author's intention.
        if !class.has_targets() && !pattern.is_any() {
            return Err(PolicyError::NoChoice { class: class.name(), target: pattern.to_string() });
        }
        if class.is_named_only() && !(pattern.as_str().starts_with('/') && pattern.is_exact()) {
            return Err(PolicyError::NamedOnly { class: class.name(), target: pattern.to_string() });
        }
        self.add(class, pattern);
        Ok(())
    }

    /// Allows exactly what a plugin needs.
    pub fn allow_need(&mut self, need: &Need) {
        match &need.target {
            Some(target) => self.add(need.class, Pattern::exactly(target)),
            None => self.add(need.class, Pattern::new(ANY)),
        }
    }

    fn add(&mut self, class: Class, pattern: Pattern) {
        let patterns = self.allowed.entry(class).or_default();
        if !patterns.contains(&pattern) {
            patterns.push(pattern);
        }
    }

    /// Applies a rule of the command line, for example `xdp=eth0`, `pin` or `all`.
    ///
    /// # Errors
    /// [`PolicyError::UnknownClass`]; as [`Policy::allow`].
    pub fn allow_rule(&mut self, rule: &str) -> Result<(), PolicyError> {
        let (name, pattern) = rule.split_once('=').unwrap_or((rule, ANY));
        if name == ALL {
            let mut all = Class::ALL.into_iter().filter(|class| !class.is_named_only());
            return all.try_for_each(|class| self.allow(class, pattern));
        }
        self.allow(Class::named(name)?, pattern)
    }

    /// Applies a limit of the command line, for example `maps=16`.
    ///
    /// # Errors
    /// [`PolicyError::UnknownLimit`]; [`PolicyError::NoNumber`].
    pub fn limit_rule(&mut self, rule: &str) -> Result<(), PolicyError> {
        let (name, number) = rule.split_once('=').unwrap_or((rule, ""));
        let limit = Limit::named(name)?;
        let number =
            limit.number(number).map_err(|reason| PolicyError::NoNumber { name: name.into(), reason })?;
        self.set_limit(limit, number);
        Ok(())
    }

    /// Sets a limit; [`Limit`] has the units.
    pub fn set_limit(&mut self, limit: Limit, number: u64) {
        self.limits.insert(limit, number);
    }

    /// Returns the value of a limit, or its default; [`Limit`] has the units.
    pub fn limit(&self, limit: Limit) -> u64 {
        self.limits.get(&limit).copied().unwrap_or(limit.default())
    }

    /// Lowers a limit to what is there of its resource.
    pub fn lower_limit(&mut self, limit: Limit, most: u64) {
        if self.limit(limit) > most {
            self.set_limit(limit, most);
        }
    }

    /// Returns the longest duration of the run; none for no limit.
    pub fn run_time(&self) -> Option<Duration> {
        let limit = self.limit(Limit::RunMs);
        (limit != u64::MAX).then(|| Duration::from_millis(limit))
    }

    /// Returns the longest duration of compiling the plugin's code.
    pub fn compile_time(&self) -> Duration {
        Duration::from_millis(self.limit(Limit::CompileMs))
    }

    /// Checks an action against the policy.
    ///
    /// # Errors
    /// [`Denied`], with the rule that would allow it.
    pub fn check(&self, class: Class, target: &str) -> Result<(), Denied> {
        let patterns = self.allowed.get(&class).map(Vec::as_slice).unwrap_or_default();
        // `a/../b` is not below `a`, nor `a/./b` below `a/.`: only canonical paths match a pattern.
        let strange = target.split('/').any(|part| matches!(part, "." | ".."));
        let fits = |pattern: &Pattern| pattern.is_any() || !strange && pattern.fits(target);
        if patterns.iter().any(fits) { Ok(()) } else { Err(Denied { class, target: Some(target.into()) }) }
    }

    /// Checks whether some action of a class is allowed, for any target.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn check_class(&self, class: Class) -> Result<(), Denied> {
        if self.allowed.get(&class).is_some_and(|patterns| !patterns.is_empty()) {
            Ok(())
        } else {
            Err(Denied { class, target: None })
        }
    }

    /// Returns whether some event of a family may be allowed: the family itself, or events by names that do
    /// not reveal their family.
    pub(crate) fn may_open(&self, family: &str) -> bool {
        let patterns = self.allowed.get(&Class::Event).map(Vec::as_slice).unwrap_or_default();
        let is_of_families = |pattern: &Pattern| COUNTING_FAMILIES.iter().any(|one| pattern.fits(one));
        patterns.iter().any(|pattern| pattern.fits(family) || !is_of_families(pattern))
    }

    /// Checks one need of a plugin.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn allows(&self, need: &Need) -> Result<(), Denied> {
        match &need.target {
            Some(target) => self.check(need.class, target),
            None => self.check_class(need.class),
        }
    }

    /// Admits a plugin with all its needs, on a machine with this number of possible CPUs. Returns its object
    /// for this machine, if it has one.
    ///
    /// # Errors
    /// The message for a person, with everything that is denied.
    pub fn admit(&self, request: Request, cpus: usize) -> Result<Option<Admitted>, String> {
        let denied = |need: &Need| self.allows(need).err().map(|denied| format!("{}: {denied}", need.by));
        let mut reasons: Vec<String> = request.needs().iter().filter_map(denied).collect();
        reasons.extend(limits::exceeded(self, request.objects(), cpus));
        if !reasons.is_empty() {
            return Err(reasons.join("\n"));
        }
        Ok(request.into_objects().into_admitted(MapLimits::of(self)))
    }

    /// Judges an admitted object again after a change of its model, as [`Policy::admit`] judged it first. The
    /// changed model is written and read again, so that it is one that the strict reader accepts.
    ///
    /// # Errors
    /// [`Readmission`].
    pub fn admit_again(
        &self,
        admitted: &Admitted,
        model: Object,
        cpus: usize,
    ) -> Result<Admitted, Readmission> {
        let objects = admitted.changed(&model).map_err(|error| Readmission::Unsound(error.to_string()))?;
        let request = Request::new(objects, &[]);
        let admitted = self.admit(request, cpus).map_err(Readmission::Denied)?;
        admitted.ok_or_else(|| Readmission::Unsound("there is no object".to_owned()))
    }

    /// Formats the policy as a policy file.
    pub fn to_toml(&self) -> String {
        let mut text = String::from("[allow]\n");
        for (class, patterns) in &self.allowed {
            let patterns: Vec<_> = patterns.iter().map(|pattern| file::quoted(pattern.as_str())).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} = [{}]", class.name(), patterns.join(", "));
        }
        if !self.signers.is_empty() {
            text.push_str("\n[signers]\n");
        }
        for (identity, key) in &self.signers {
            let _ = writeln!(text, "{} = \"{key}\"", file::quoted(identity));
        }
        if !self.limits.is_empty() {
            text.push_str("\n[limits]\n");
        }
        for (limit, number) in &self.limits {
            let _ = writeln!(text, "{} = {number}", limit.name());
        }
        text
    }
}

/// Why a changed object is not admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Readmission {
    /// No object can be made of the changed model.
    #[error("{0}")]
    Unsound(String),
    /// The policy does not allow it; the text has all that is denied.
    #[error("{0}")]
    Denied(String),
}

/// The name for all classes in `--allow`.
const ALL: &str = "all";

/// An action that the policy does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    class: Class,
    /// None if the target is not known yet.
    target: Option<String>,
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let class = self.class.name();
        write!(f, "the policy does not allow `{class}`")?;
        let target = self.target.as_deref().filter(|target| !target.is_empty());
        match target.map(|target| visible(target, MOST_BYTES)) {
            Some(target) => write!(f, " for `{target}`: --allow {class}={target} would"),
            None => write!(f, ": --allow {class}={} would", self.class.targets()),
        }?;
        let helper = self.target.as_deref().filter(|_| self.class == Class::Helper).and_then(helper::named);
        let act = match helper.map(|(_, helper)| helper.class) {
            Some(HelperClass::Steers(act)) => act,
            _ => self.class.act(),
        };
        write!(f, ", if you trust the plugin to {act}")
    }
}

impl std::error::Error for Denied {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_shows_no_family_may_be_an_event_of_any() {
        let policy = |rules: &[&str]| {
            let mut policy = Policy::nothing();
            rules.iter().for_each(|rule| policy.allow_rule(rule).expect("a class"));
            policy
        };
        for (rules, family, expected) in [
            (&[][..], "software", false),
            (&["event=software"], "software", true),
            (&["event=software"], "uprobe", false),
            (&["event=soft*"], "uprobe", false),
            (&["event=cycles"], "uprobe", true),
            (&["event=software", "event=cycles"], "uprobe", true),
            (&["event"], "uprobe", true),
            (&["scope=own"], "uprobe", false),
        ] {
            assert_eq!(policy(rules).may_open(family), expected, "{rules:?} {family}");
        }
    }
}
