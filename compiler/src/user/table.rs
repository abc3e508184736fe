//! Tables: rows of values that the host aligns, or prints as JSON.

use wasm_encoder::ValType;

use super::cx::Lower;
use super::func::FnCx;
use super::runtime::{push_failed, reset_arena};
use crate::hir::Expr;
use crate::plugin::contract::import;
use crate::source::Span;
use crate::types::ColumnLabel;

impl FnCx<'_, '_> {
    /// Pushes the handle of a new table.
    pub fn new_table(&mut self, title: &str, columns: &[ColumnLabel]) {
        let new = self.cx.host(import::console::TABLE_NEW);
        let shape = self.cx.abi.named("console", "column");
        let (name, unit) = (shape.field("name").offset as usize, shape.field("unit"));
        let (has_unit, unit) = (unit.offset as usize, unit.some().offset as usize);
        let mut list = vec![0; shape.size() as usize * columns.len()];
        for (column, label) in list.chunks_exact_mut(shape.size() as usize).zip(columns) {
            self.put_text(column, name, &label.heading);
            if let Some(text) = &label.unit {
                column[has_unit] = 1;
                self.put_text(column, unit, text);
            }
        }
        let list = self.cx.text(list);
        let title = self.cx.text(title);
        self.push_text(title);
        self.code.u32(list.address).u32(columns.len() as u32).call(new);
    }

    /// Writes the address and the length of a text into a record.
    fn put_text(&mut self, record: &mut [u8], at: usize, text: &str) {
        let text = self.cx.text(text);
        record[at..at + 4].copy_from_slice(&text.address.to_le_bytes());
        record[at + 4..at + 8].copy_from_slice(&text.len.to_le_bytes());
    }

    /// Makes the lines of texts in a column lines of the table.
    pub fn set_lines(&mut self, table: &Expr, column: u32) -> Lower<()> {
        let set = self.cx.host(import::console::TABLE_SET_LINES);
        self.scalar(table)?;
        self.code.u32(column).call(set);
        Ok(())
    }

    /// Gives a column another heading.
    pub fn set_heading(&mut self, table: &Expr, column: u32, heading: &Expr) -> Lower<()> {
        let set = self.cx.host(import::console::TABLE_SET_HEADING);
        let text = self.stable_addr(heading, &[])?;
        self.scalar(table)?;
        self.code.u32(column);
        self.push_text_at(text, heading.ty);
        self.code.call(set);
        Ok(())
    }

    /// Makes rows with the same values in the first columns one row.
    pub fn merge_rows(&mut self, table: &Expr, keys: u32) -> Lower<()> {
        let merge = self.cx.host(import::console::TABLE_MERGE);
        self.scalar(table)?;
        self.code.u32(keys).call(merge);
        Ok(())
    }

    /// Appends a row, and warns if the host has no room for it.
    pub fn append_row(&mut self, table: &Expr, row: &[Expr], span: Span) -> Lower<()> {
        let append = self.cx.host(import::console::TABLE_APPEND);
        let err = self.cx.abi.result(import::console::TABLE_APPEND).err().offset;
        let handle = self.temp(ValType::I32);
        self.scalar(table)?;
        self.code.set(handle);
        let values = self.printed(b"", row)?;
        reset_arena(&mut self.code);
        self.code.get(handle);
        self.push_addr(values);
        self.code.u32(row.len() as u32).u32(self.cx.returned).call(append);
        push_failed(self.cx, &mut self.code);
        self.code.if_();
        self.warn_refused(err, span);
        self.code.end();
        Ok(())
    }

    /// Prints a table, and drops its handle.
    pub fn write_table(&mut self, table: &Expr, sorted: Option<u32>, top: Option<&Expr>) -> Lower<()> {
        let drop = self.cx.drop_handle(import::console::TABLE);
        let handle = self.temp(ValType::I32);
        self.scalar(table)?;
        self.code.tee(handle);
        match (sorted, top) {
            (Some(column), Some(top)) => {
                let write = self.cx.host(import::console::TABLE_WRITE_TOP);
                self.code.u32(column);
                self.scalar(top)?;
                self.code.call(write);
            }
            (Some(column), None) => {
                let write = self.cx.host(import::console::TABLE_WRITE_SORTED);
                self.code.u32(column).call(write);
            }
            (None, _) => {
                let write = self.cx.host(import::console::TABLE_WRITE);
                self.code.call(write);
            }
        }
        self.code.get(handle).call(drop);
        Ok(())
    }
}
