//! Vendor event tables: the JSON files that perf is built from (`tools/perf/pmu-events/arch`), which the
//! kernel does not publish.
//!
//! In: the text of one file, a list of objects. Out: names with the PMU and the terms of the event.
//!
//! Source: `tools/perf/pmu-events/jevents.py` for the meaning of the fields.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Events of vendor tables by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventTable {
    /// Keyed by the lower-case name.
    events: BTreeMap<String, TableEvent>,
}

/// One event of a vendor table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableEvent {
    /// The name as the table writes it.
    pub(super) name: String,
    /// The unit of the chip that counts the event; None is the core.
    pub(super) unit: Option<String>,
    /// The event's terms, in the form of `pmu/terms/`.
    pub(super) terms: String,
    /// The table's description of the event.
    pub(super) description: String,
}

/// The reason why a file is not an event table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The file is not a JSON list of objects with text fields.
    #[error("not an event table: {0}")]
    Json(String),
    /// A numeric field contains no number.
    #[error("event `{event}`: `{field}` is `{value}`, which is not a number")]
    Number {
        /// The name of the event.
        event: String,
        /// The name of the field.
        field: &'static str,
        /// The field's text, which is not a number.
        value: String,
    },
    /// The file names no event.
    #[error("the table names no event")]
    Empty,
}

/// An object of the list: an event, or other data of these files (metrics), which has no event name.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Row {
    event_name: Option<String>,
    event_code: Option<String>,
    config_code: Option<String>,
    #[serde(rename = "UMask")]
    umask: Option<String>,
    counter_mask: Option<String>,
    edge_detect: Option<String>,
    invert: Option<String>,
    any_thread: Option<String>,
    #[serde(rename = "MSRIndex")]
    msr_index: Option<String>,
    #[serde(rename = "MSRValue")]
    msr_value: Option<String>,
    unit: Option<String>,
    brief_description: Option<String>,
}

impl EventTable {
    /// Adds the events of a file. An event replaces an earlier one with the same name.
    ///
    /// # Errors
    /// [`TableError`]; the table is then unchanged.
    pub fn add(&mut self, json: &str) -> Result<(), TableError> {
        let rows: Vec<Row> =
            serde_json::from_str(json).map_err(|error| TableError::Json(error.to_string()))?;
        let events = rows.into_iter().filter(|row| row.event_name.is_some()).map(event);
        let events = events.collect::<Result<Vec<_>, _>>()?;
        if events.is_empty() {
            return Err(TableError::Empty);
        }
        self.events.extend(events.into_iter().map(|event| (event.name.to_ascii_lowercase(), event)));
        Ok(())
    }

    /// Returns the event with this name; case is ignored.
    pub(super) fn find(&self, name: &str) -> Option<&TableEvent> {
        self.events.get(&name.to_ascii_lowercase())
    }

    /// Returns every event, ordered by name.
    pub(super) fn events(&self) -> impl Iterator<Item = &TableEvent> {
        self.events.values()
    }
}

fn event(row: Row) -> Result<TableEvent, TableError> {
    let name = row.event_name.unwrap_or_default();
    let mut terms = Vec::new();
    let mut number = |field: &'static str, term: &str, text: Option<String>| {
        let Some(text) = text else { return Ok(()) };
        // If an event has several alternative codes, perf uses the first.
        let first = text.split(',').next().unwrap_or_default().trim();
        let value = integer(first).ok_or_else(|| TableError::Number {
            event: name.clone(),
            field,
            value: text.clone(),
        })?;
        if value != 0 || term == "event" {
            terms.push(format!("{term}={value:#x}"));
        }
        Ok(())
    };
    number("ConfigCode", "config", row.config_code)?;
    number("EventCode", "event", row.event_code)?;
    number("UMask", "umask", row.umask)?;
    number("CounterMask", "cmask", row.counter_mask)?;
    number("EdgeDetect", "edge", row.edge_detect)?;
    number("Invert", "inv", row.invert)?;
    number("AnyThread", "any", row.any_thread)?;
    let register = row.msr_index.as_deref().and_then(|index| integer(index.split(',').next()?.trim()));
    let term = match register {
        Some(0x3f6) => Some("ldlat"),
        Some(0x3f7) => Some("frontend"),
        Some(0x1a6 | 0x1a7) => Some("offcore_rsp"),
        _ => None,
    };
    if let Some(term) = term {
        number("MSRValue", term, row.msr_value)?;
    }
    let terms = terms.join(",");
    Ok(TableEvent { terms, unit: row.unit, description: row.brief_description.unwrap_or_default(), name })
}

/// Parses `0x3C` or `60`.
pub(super) fn integer(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"[
        { "EventName": "CPU_CLK.THREAD", "EventCode": "0x3C", "UMask": "0x00", "BriefDescription": "Cycles." },
        { "EventName": "OFFCORE.DEMAND", "EventCode": "0xB7, 0xBB", "UMask": "0x1",
          "MSRIndex": "0x1a6,0x1a7", "MSRValue": "0x10001", "EdgeDetect": "0", "Invert": "1", "CounterMask": "2" },
        { "EventName": "UNC_CAS", "EventCode": "0x04", "UMask": "3", "Unit": "iMC" },
        { "MetricName": "IPC", "MetricExpr": "a / b" }
    ]"#;

    #[test]
    fn fields_become_terms() {
        let mut table = EventTable::default();
        table.add(TABLE).unwrap();
        let terms = |name: &str| table.find(name).map(|event| event.terms.as_str());
        assert_eq!(terms("cpu_clk.thread"), Some("event=0x3c"));
        assert_eq!(
            terms("OFFCORE.DEMAND"),
            Some("event=0xb7,umask=0x1,cmask=0x2,inv=0x1,offcore_rsp=0x10001")
        );
        assert_eq!(table.find("unc_cas").unwrap().unit.as_deref(), Some("iMC"));
        assert_eq!(terms("IPC"), None);
        assert_eq!(table.events().count(), 3);
    }

    #[test]
    fn malformed_tables_are_refused_and_add_nothing() {
        let mut table = EventTable::default();
        for bad in ["", "{}", "[1]", r#"[{"EventName": 5}]"#] {
            assert!(matches!(table.add(bad), Err(TableError::Json(_))), "{bad}");
        }
        assert_eq!(table.add("[]"), Err(TableError::Empty));
        let number =
            r#"[{ "EventName": "A", "EventCode": "0x1" }, { "EventName": "B", "EventCode": "many" }]"#;
        assert!(matches!(table.add(number), Err(TableError::Number { field: "EventCode", .. })));
        assert_eq!(table, EventTable::default());
    }
}
