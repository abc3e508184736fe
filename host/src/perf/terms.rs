//! Parsing the terms of a PMU's event: `event=0x3c,umask=1,inv`.

use super::event::InvalidEvent;
use super::pmu::{CONFIGS, Pmu};
use super::table::{EventTable, integer};
use crate::near::near;

/// How deep names may expand to further terms: a name of the table to terms of the PMU.
const DEPTH: u32 = 2;

/// Returns the config words that terms of a PMU produce: `term=value`, `term` alone for 1, a whole word by
/// `config=..`, or the name of one of the PMU's events. Later terms override earlier ones. `name=..` is
/// accepted and ignored.
///
/// Errors: [`InvalidEvent::UnknownTerm`], [`InvalidEvent::TermValue`], [`InvalidEvent::Form`].
pub(super) fn config(pmu: &Pmu, table: &EventTable, text: &str) -> Result<[u64; 3], InvalidEvent> {
    let mut words = [0; 3];
    fill(pmu, table, text, &mut words, DEPTH)?;
    Ok(words)
}

fn fill(
    pmu: &Pmu,
    table: &EventTable,
    text: &str,
    words: &mut [u64; 3],
    depth: u32,
) -> Result<(), InvalidEvent> {
    for term in text.split(',').map(str::trim) {
        let (name, value) = match term.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (term, None),
        };
        if name == "name" && value.is_some() {
            continue;
        }
        let whole = CONFIGS.iter().position(|config| *config == name);
        let named = value.is_none().then(|| pmu.events.get(name).or(table.find(name).map(|row| &row.terms)));
        if let (Some(terms), true) = (named.flatten(), depth > 0) {
            fill(pmu, table, terms, words, depth - 1)?;
        } else if let Some(format) = pmu.formats.get(name) {
            let number = value.map_or(Some(1), integer);
            let filled = number.and_then(|number| format.put(number, words[format.word]));
            words[format.word] = filled.ok_or_else(|| bad_value(pmu, name, value, format.largest()))?;
        } else if let Some(word) = whole {
            words[word] = value.and_then(integer).ok_or_else(|| bad_value(pmu, name, value, u64::MAX))?;
        } else {
            return Err(InvalidEvent::UnknownTerm {
                pmu: pmu.name.clone(),
                term: name.to_owned(),
                near: near(name, pmu.term_names()),
            });
        }
    }
    Ok(())
}

fn bad_value(pmu: &Pmu, term: &str, value: Option<&str>, largest: u64) -> InvalidEvent {
    InvalidEvent::TermValue {
        pmu: pmu.name.clone(),
        term: term.to_owned(),
        value: value.unwrap_or_default().to_owned(),
        largest,
    }
}

/// Returns the PMU that a unit of a vendor's table stands for.
///
/// Source: `tools/perf/pmu-events/jevents.py`, `unit_to_pmu`.
pub(super) fn pmu_of_unit(unit: &str) -> String {
    let known = [
        ("cbo", "uncore_cbox"),
        ("qpi ll", "uncore_qpi"),
        ("sbo", "uncore_sbox"),
        ("imph-u", "uncore_arb"),
        ("cpu_core", "cpu_core"),
        ("cpu_atom", "cpu_atom"),
        ("hisi_sccl,ddrc", "hisi_sccl,ddrc"),
        ("l3pmc", "amd_l3"),
        ("dfpmc", "amd_df"),
    ];
    let unit = unit.to_ascii_lowercase();
    match known.iter().find(|(name, _)| *name == unit) {
        Some((_, pmu)) => (*pmu).to_owned(),
        None => format!("uncore_{unit}"),
    }
}
