//! `console`: text for the person who runs the plugin.

use tracing::Level;
use wasmtime::component::Resource;

use super::bindings::kernelscript::host::console::{Column, Host, HostHistograms, HostTable, Scale, Value};
use super::error::{self, HostError};
use super::format;
use super::histogram::Histogram;
use super::histograms::{Histograms, KeyedCounts};
use super::state::State;
use super::table::Table;
use crate::host_bytes::Charged;
use crate::plugin::Abort;
use crate::text::indented;

/// Upper limit of a histogram's slots, each of which is a line of output.
const MAX_SLOTS: usize = 4096;

/// Host side of a `table` handle.
pub type TableHandle = Charged<Table>;

impl HostTable for State {
    fn new(&mut self, title: String, columns: Vec<Column>) -> wasmtime::Result<Resource<TableHandle>> {
        let table = Table::new(&title, columns, &self.host_bytes);
        let bytes = table.text_bytes();
        let table = self.host_bytes.keep(table, bytes).map_err(error::too_much)?;
        self.table.push(table).map_err(error::no_room)
    }

    fn set_lines(&mut self, this: Resource<TableHandle>, column: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.set_lines(column as usize);
        Ok(())
    }

    fn set_heading(
        &mut self,
        this: Resource<TableHandle>,
        column: u32,
        heading: String,
    ) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.set_heading(column as usize, &heading);
        Ok(())
    }

    fn merge(&mut self, this: Resource<TableHandle>, keys: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.merge_by(keys as usize);
        Ok(())
    }

    fn append(&mut self, this: Resource<TableHandle>, row: Vec<Value>) -> Result<(), HostError> {
        let table = self.table.get_mut(&this)?;
        let (given, width) = (row.len(), table.width());
        if given != width {
            return Err(HostError::invalid(format!(
                "a row of {given} values: the table has {width} columns"
            )));
        }
        Ok(table.append(row).map_err(crate::bpf::BpfError::from)?)
    }

    fn write(&mut self, this: Resource<TableHandle>) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.merge();
        self.write_table(&this)
    }

    fn write_sorted(&mut self, this: Resource<TableHandle>, column: u32) -> wasmtime::Result<()> {
        let table = self.table.get_mut(&this)?;
        table.merge();
        table.sort(column as usize);
        self.write_table(&this)
    }

    fn write_top(&mut self, this: Resource<TableHandle>, column: u32, rows: u32) -> wasmtime::Result<()> {
        let table = self.table.get_mut(&this)?;
        table.merge();
        table.sort(column as usize);
        table.cut(rows as usize);
        self.write_table(&this)
    }

    fn drop(&mut self, this: Resource<TableHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl State {
    /// Writes the rows of a table as they are, and removes them.
    fn write_table(&mut self, this: &Resource<TableHandle>) -> wasmtime::Result<()> {
        self.show_prints();
        let table = self.table.get_mut(this)?;
        self.output.print_table(table);
        table.clear();
        Ok(())
    }
}

/// Host side of a `histograms` handle.
pub type HistogramsHandle = Charged<Histograms>;

impl HostHistograms for State {
    fn new(&mut self, name: String, scale: Scale) -> wasmtime::Result<Resource<HistogramsHandle>> {
        let histograms = Histograms::new(&name, scale, &self.host_bytes);
        let bytes = histograms.text_bytes();
        let histograms = self.host_bytes.keep(histograms, bytes).map_err(error::too_much)?;
        self.table.push(histograms).map_err(error::no_room)
    }

    fn append(
        &mut self,
        this: Resource<HistogramsHandle>,
        key: Vec<Value>,
        below_zero: u64,
        sum: i64,
        counts: Vec<u64>,
    ) -> Result<(), HostError> {
        let histograms = self.table.get_mut(&this)?;
        let counts = KeyedCounts { key, below_zero, sum, counts };
        Ok(histograms.append(counts).map_err(crate::bpf::BpfError::from)?)
    }

    fn write(&mut self, this: Resource<HistogramsHandle>) -> wasmtime::Result<()> {
        self.show_prints();
        self.output.print_histograms(self.table.get_mut(&this)?);
        Ok(())
    }

    fn write_top(&mut self, this: Resource<HistogramsHandle>, histograms: u32) -> wasmtime::Result<()> {
        self.show_prints();
        let all = self.table.get_mut(&this)?;
        all.cut(histograms as usize);
        self.output.print_histograms(all);
        Ok(())
    }

    fn drop(&mut self, this: Resource<HistogramsHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl Host for State {
    fn redraw(&mut self) -> wasmtime::Result<()> {
        self.show_prints();
        self.output.redraw();
        Ok(())
    }

    fn line(&mut self, text: Vec<u8>) -> wasmtime::Result<()> {
        self.show_prints();
        self.output.print(&format::plain_line(&text));
        Ok(())
    }

    fn print(&mut self, format: Vec<u8>, values: Vec<Value>) -> wasmtime::Result<()> {
        let line = format::line(&format, &values);
        self.show_prints();
        self.output.print_values(&line, &values);
        Ok(())
    }

    fn histogram(&mut self, title: Vec<u8>, scale: Scale, counts: Vec<u64>) -> wasmtime::Result<()> {
        if counts.len() > MAX_SLOTS {
            let text = format!("a histogram has at most {MAX_SLOTS} slots, not {}", counts.len());
            return Err(wasmtime::Error::new(Abort(text)));
        }
        let histogram = Histogram::new(&String::from_utf8_lossy(&title), scale, &counts);
        self.show_prints();
        self.output.print_histogram(&histogram);
        Ok(())
    }

    fn warn(&mut self, message: String) -> wasmtime::Result<()> {
        self.output.plugin_warn(&message);
        Ok(())
    }

    fn fail(&mut self, message: String) -> wasmtime::Result<()> {
        self.output.plugin_fails(&message);
        Ok(())
    }

    fn info(&mut self, message: String) -> wasmtime::Result<()> {
        // `--verbose` enables this level, and the next one if it is given twice.
        if tracing::enabled!(Level::DEBUG) {
            self.output.plugin_warn(&message);
        }
        Ok(())
    }

    fn debug(&mut self, message: String) -> wasmtime::Result<()> {
        if tracing::enabled!(Level::TRACE) {
            self.output.plugin_warn(&message);
        }
        Ok(())
    }

    fn warn_once(&mut self, key: u64, message: String) -> wasmtime::Result<()> {
        self.output.plugin_warn_once(key, &message);
        Ok(())
    }

    fn abort(&mut self, message: String) -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(Abort(indented(&message))))
    }
}
