//! The shim module, whose functions call through its table, and the fixup module, which fills the table.

use std::borrow::Cow;

use wasm_encoder::{
    CodeSection, ConstExpr, ElementSection, Elements, EntityType, ExportKind, ExportSection, Function,
    FunctionSection, ImportSection, Module, RefType, TableSection, TableType, TypeSection,
};

use super::contract;

/// Export name of the table.
pub const TABLE: &str = "$imports";

/// Returns the shim and the fixup for these functions, which are identified by number.
pub fn modules<'a>(functions: impl Iterator<Item = &'a contract::WitFunction>) -> (Module, Module) {
    let (mut types, mut declared, mut code) =
        (TypeSection::new(), FunctionSection::new(), CodeSection::new());
    let (mut exports, mut imports) = (ExportSection::new(), ImportSection::new());
    let mut signatures = Vec::new();
    let mut count = 0;
    for function in functions {
        let known = signatures.iter().position(|one| *one == function.signature);
        let ty = known.unwrap_or_else(|| {
            types.ty().function(function.core_params.iter().copied(), function.core_results.iter().copied());
            signatures.push(function.signature);
            signatures.len() - 1
        }) as u32;
        declared.function(ty);
        code.function(&through_table(count, ty, function.core_params.len() as u32));
        let name = count.to_string();
        exports.export(&name, ExportKind::Func, count);
        imports.import("", &name, EntityType::Function(ty));
        count += 1;
    }
    let size = u64::from(count);
    let table = TableType {
        element_type: RefType::FUNCREF,
        minimum: size,
        maximum: Some(size),
        table64: false,
        shared: false,
    };
    exports.export(TABLE, ExportKind::Table, 0);
    imports.import("", TABLE, table);
    let (mut tables, mut elements) = (TableSection::new(), ElementSection::new());
    tables.table(table);
    let all = Elements::Functions(Cow::Owned((0..count).collect()));
    elements.active(None, &ConstExpr::i32_const(0), all);
    let mut shim = Module::new();
    shim.section(&types).section(&declared).section(&tables).section(&exports).section(&code);
    let mut fixup = Module::new();
    fixup.section(&types).section(&imports).section(&elements);
    (shim, fixup)
}

fn through_table(number: u32, ty: u32, params: u32) -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    for param in 0..params {
        code.local_get(param);
    }
    code.i32_const(number.cast_signed()).call_indirect(0, ty).end();
    function
}
