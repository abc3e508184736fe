//! Maps (language reference, 5.4 and 11.8).

use super::Checker;
use super::globals::local_and_pin;
use super::implied::DEFAULT_ENTRIES;
use super::items::MAX_OBJECT_BYTES;
use super::names::Symbol;
use super::stacks::MAX_DEPTH;
use super::types::Position;
use crate::ast::{self, Size, TypeExpr};
use crate::diag::Diagnostic;
use crate::hir::{Map, MapKind};
use crate::object::table::MAX_ENTRIES;
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Maximum size of a map's key in bytes (kernel/bpf/hashtab.c, MAX_BPF_STACK).
const MAX_KEY_BYTES: u64 = 512;
/// Maximum size of a value in per-CPU kinds, in bytes (mm/percpu.c, PCPU_MIN_UNIT_SIZE).
const MAX_PER_CPU_VALUE_BYTES: u64 = 32 << 10;
/// Maximum size of a value of local storage in bytes: 64 KiB minus the kernel's own header
/// (include/linux/bpf_local_storage.h, BPF_LOCAL_STORAGE_MAX_VALUE_SIZE).
const MAX_STORED_BYTES: u64 = (64 << 10) - 512;
/// Maximum number of bytes after the prefix length in the key of an lpm_trie (kernel/bpf/lpm_trie.c,
/// LPM_DATA_SIZE_MAX).
const MAX_PREFIX_BYTES: u64 = 256;

const NO_PREALLOC: u32 = 1;
const BPF_F_NUMA_NODE: u32 = 4;
const RDONLY: u32 = 8;
const WRONLY: u32 = 16;

/// A flag that a map declaration may have.
struct MapFlag {
    keyword: &'static str,
    /// The flag's bit (`include/uapi/linux/bpf.h`, BPF_F_...).
    bit: u32,
    /// Whether a number in parentheses follows.
    numbered: bool,
    /// Whether a map kind accepts the flag.
    fits: fn(MapKind) -> bool,
}

const fn flag(keyword: &'static str, bit: u32, fits: fn(MapKind) -> bool) -> MapFlag {
    MapFlag { keyword, bit, numbered: false, fits }
}

const FLAGS: &[MapFlag] = &[
    flag("no_prealloc", NO_PREALLOC, |kind| {
        matches!(kind, MapKind::Hash | MapKind::PercpuHash | MapKind::LpmTrie) || kind.is_storage()
    }),
    flag("no_common_lru", 2, |kind| matches!(kind, MapKind::LruHash | MapKind::LruPercpuHash)),
    MapFlag {
        numbered: true,
        ..flag("numa_node", BPF_F_NUMA_NODE, |kind| !kind.is_per_cpu() && !kind.is_storage())
    },
    flag("rdonly", RDONLY, |kind| !kind.is_storage()),
    flag("wronly", WRONLY, |kind| !kind.is_storage()),
    flag("clone", 0x200, |kind| kind == MapKind::SkStorage),
];

impl Checker<'_> {
    pub(super) fn declare_map(
        &mut self,
        global: &ast::Global,
        keyword: &ast::Ident,
        (key, value): (&TypeExpr, &TypeExpr),
        size: Option<&Size>,
    ) {
        let key_ty = self.type_expr(key, Position::Value);
        let value_ty = self.type_expr(value, Position::Value);
        let kind = self.map_kind(keyword).filter(|kind| {
            if !kind.is_keyed() {
                let help = format!("write `{}`", shape(*kind));
                let text = format!("`{}` has no key", kind.name());
                self.report(Diagnostic::error(602, key.span, text).help(help));
            }
            kind.is_keyed()
        });
        let entries = size.map_or(Some(DEFAULT_ENTRIES), |size| self.entries(size));
        let (Some(kind), Some(entries)) = (kind, entries) else {
            self.declare_name(&global.name, Symbol::Error);
            return;
        };
        self.check_key(kind, key_ty, key.span);
        self.check_value(kind, value_ty, value.span);
        self.add_map(global, kind, (key_ty, value_ty), entries);
        self.note_size_option(global, kind, size);
    }

    /// Declares a map whose keys the script does not choose: `queue<V>(N)`, `stack_trace(N)`,
    /// `task_storage<V>`.
    pub(super) fn declare_keyless(
        &mut self,
        global: &ast::Global,
        keyword: &ast::Ident,
        value: Option<&TypeExpr>,
        size: Option<&Size>,
    ) {
        let value_ty = value.map(|value| (self.type_expr(value, Position::Value), value.span));
        let entries = size.map(|size| self.entries(size));
        let kind = self.map_kind(keyword).filter(|kind| {
            let (wants_value, wants_size) = (*kind != MapKind::StackTrace, !kind.is_storage());
            let fits = !kind.is_keyed() && wants_value == value.is_some() && wants_size == size.is_some();
            if !fits {
                let code = if kind.is_keyed() || wants_value != value.is_some() { 602 } else { 204 };
                let text = format!("`{}` is declared otherwise", kind.name());
                self.report(
                    Diagnostic::error(code, keyword.span, text).help(format!("write `{}`", shape(*kind))),
                );
            }
            fits
        });
        let (Some(kind), Some(entries)) = (kind, entries.unwrap_or(Some(0))) else {
            self.declare_name(&global.name, Symbol::Error);
            return;
        };
        let common = self.types.common();
        let key = match kind.owner() {
            Some(owner) => {
                let owner = self.kernel_struct(owner);
                self.types.intern(TypeKind::Ptr(owner))
            }
            None if kind == MapKind::StackTrace => common.i64,
            None => common.void,
        };
        let value = match value_ty {
            Some((ty, span)) => {
                self.check_value(kind, ty, span);
                ty
            }
            None => self.types.intern(TypeKind::Array(common.u64, MAX_DEPTH.into())),
        };
        self.add_map(global, kind, (key, value), entries);
        self.note_size_option(global, kind, size);
    }

    pub(super) fn add_map(
        &mut self,
        global: &ast::Global,
        kind: MapKind,
        types: (TypeId, TypeId),
        max_entries: u32,
    ) {
        self.check_map_modifiers(global);
        let (mut flags, numa_node) = self.map_flags(global.flags.as_ref(), kind);
        if kind == MapKind::LpmTrie || kind.is_storage() {
            // The kernel accepts these kinds only with this flag.
            flags |= NO_PREALLOC;
        }
        if self.types.is_error(types.0) || self.types.is_error(types.1) {
            self.declare_name(&global.name, Symbol::Error);
            return;
        }
        let name = (self.full_name(&global.name), global.name.span);
        let column = self.label_of_global(global, types.1);
        let id = self.maps.push(Map {
            flags,
            numa_node,
            column,
            pinned: global.pin.is_some(),
            kernel_only: global.local.is_some(),
            ..Map::new(name, kind, types.0, types.1, max_entries)
        });
        self.declare_name(&global.name, Symbol::Map(id));
    }

    pub(super) fn check_map_modifiers(&mut self, global: &ast::Global) {
        if let Some(local) = global.local {
            self.strict(local, "`local` before a map");
            if let Some(pin) = global.pin {
                self.report(local_and_pin(local, pin));
            }
        }
        if let Some(init) = &global.init {
            self.report(Diagnostic::error(619, init.span, "a map has no initial value"));
        }
    }

    /// Returns the number of entries; `None` if an error was reported.
    pub(super) fn entries(&mut self, size: &Size) -> Option<u32> {
        if let Size::Option { .. } = size {
            // The number is known when `main` is.
            return Some(1);
        }
        let size = self.literal_size(size)?;
        let entries = if size.negative { 0 } else { u32::try_from(size.value).unwrap_or(0) };
        if !(1..=MAX_ENTRIES).contains(&entries) {
            self.report(Diagnostic::error(606, size.span, format!("size must be 1 to {MAX_ENTRIES}")));
        }
        // The map is declared all the same, so that its uses are not reported, too.
        Some(entries.clamp(1, MAX_ENTRIES))
    }

    pub(super) fn check_key(&mut self, kind: MapKind, ty: TypeId, span: Span) {
        if self.types.is_error(ty) {
            return;
        }
        let name = self.types.name(ty);
        let integer = matches!(self.types.kind(ty), TypeKind::Int(_) | TypeKind::Enum(_));
        if kind.is_array() && !integer {
            let text = format!("the key of `{}` must be an integer, not `{name}`", kind.name());
            self.report(Diagnostic::error(602, span, text));
            return;
        }
        if kind == MapKind::LpmTrie && !self.is_prefix(ty) {
            let text = format!(
                "the key of `lpm_trie` must be a struct that starts with `prefix: u32`, not `{name}`"
            );
            self.report(Diagnostic::error(602, span, text).note("its other fields are what is matched"));
            return;
        }
        if self.any_part(ty, |kind| !is_data(kind)) {
            let text = format!("`{name}` cannot be a key");
            self.report(Diagnostic::error(602, span, text).note("a key holds no pointers and no handles"));
            return;
        }
        let limit = if kind == MapKind::LpmTrie { MAX_PREFIX_BYTES + 4 } else { MAX_KEY_BYTES };
        self.check_size(ty, limit, span);
    }

    fn is_prefix(&self, ty: TypeId) -> bool {
        let TypeKind::Struct(id) = self.types.kind(ty) else { return false };
        let fields = &self.types.struct_def(*id).fields;
        let first =
            fields.first().is_some_and(|first| first.name == "prefix" && first.ty == self.types.common().u32);
        first && fields.len() > 1
    }

    pub(super) fn check_value(&mut self, kind: MapKind, ty: TypeId, span: Span) {
        // A pointer owns its object, which lies in the map; a pointer within a struct is a plain number in
        // userspace.
        let held = match self.types.kind(ty) {
            TypeKind::Ptr(to) => *to,
            _ => ty,
        };
        if self.types.is_error(ty) {
            return;
        }
        if kind.is_per_cpu() && self.any_part(ty, |part| self.is_stats(part)) {
            let text = format!("statistics cannot be the value of `{}`", kind.name());
            let error = Diagnostic::error(602, span, text);
            self.report(
                error
                    .note("userspace reads the sum of all CPUs, and the least value is no sum")
                    .help("use `hash` or `array`: every value counts, on whatever CPU"),
            );
            return;
        }
        let handle = |kind: &TypeKind| matches!(kind, TypeKind::Program | TypeKind::Null | TypeKind::Void);
        let function = matches!(self.types.kind(held), TypeKind::Fn(..));
        let pointer = held != ty;
        let unowned = pointer && (!kind.is_keyed() || matches!(self.types.kind(held), TypeKind::Ptr(_)));
        if function || unowned || self.any_part(held, handle) || self.types.size(held) == 0 {
            let text = format!("`{}` cannot be the value of `{}`", self.types.name(ty), kind.name());
            self.report(Diagnostic::error(602, span, text));
            return;
        }
        if pointer && !self.check_owned(kind, ty, held, span) {
            return;
        }
        let limit = match kind {
            _ if kind.is_per_cpu() => MAX_PER_CPU_VALUE_BYTES,
            _ if kind.is_storage() => MAX_STORED_BYTES,
            _ => MAX_OBJECT_BYTES,
        };
        self.check_size(held, limit, span);
    }

    fn is_stats(&self, part: &TypeKind) -> bool {
        matches!(part, TypeKind::Struct(id) if self.types.is_stats(*id))
    }

    /// Reports a map of pointers whose kind cannot own objects, or whose objects cannot be owned.
    fn check_owned(&mut self, kind: MapKind, pointer: TypeId, object: TypeId, span: Span) -> bool {
        let name = self.types.name(pointer);
        let reason = match kind {
            MapKind::Hash | MapKind::LruHash if self.any_part(object, |kind| !is_data(kind)) => {
                let text = format!("objects with pointers in them cannot lie in a map: `{name}`");
                self.report(
                    Diagnostic::error(601, span, text)
                        .note("the object lies in the map, where both halves reach it")
                        .help("keep the key of the other entry instead of its address"),
                );
                return false;
            }
            MapKind::Hash | MapKind::LruHash => return true,
            _ if kind.is_per_cpu() => "the entry is another object on each CPU",
            _ if kind.is_array() => "every entry is there from the start, so none could be null",
            _ => "a pointer would not tell which entry it leads to",
        };
        let text = format!("`{name}` cannot be the value of `{}`", kind.name());
        self.report(
            Diagnostic::error(602, span, text)
                .note(reason)
                .help("`hash` and `lru_hash` own objects; other maps hold the struct itself"),
        );
        false
    }

    fn check_size(&mut self, ty: TypeId, limit: u64, span: Span) {
        let size = self.types.size(ty);
        if size == 0 || size > limit {
            let text = format!("`{}` has {size} bytes; 1 to {limit} fit here", self.types.name(ty));
            self.report(Diagnostic::error(602, span, text));
        }
    }

    fn map_flags(&mut self, flags: Option<&ast::MapFlags>, kind: MapKind) -> (u32, u32) {
        let (mut bits, mut node) = (0, 0);
        for (name, number) in flags.into_iter().flat_map(|flags| &flags.flags) {
            let Some(flag) = FLAGS.iter().find(|flag| flag.keyword == name.name) else {
                let text = format!("there is no map flag `{}`", name.name);
                let names = FLAGS.iter().map(|flag| flag.keyword);
                self.report(
                    Diagnostic::error(203, name.span, text)
                        .suggest_near(name.span, "flag", &name.name, names),
                );
                continue;
            };
            if number.is_some() != flag.numbered {
                let text = if flag.numbered { "needs a number in parentheses" } else { "takes no number" };
                self.report(Diagnostic::error(203, name.span, format!("map flag `{}` {text}", name.name)));
            }
            if !(flag.fits)(kind) {
                let text = format!("`{}` does not take the flag `{}`", kind.name(), name.name);
                self.report(Diagnostic::error(602, name.span, text));
            }
            if bits & flag.bit != 0 {
                let text = format!("map flag `{}` is given twice", name.name);
                self.report(Diagnostic::warning(203, name.span, text));
            }
            bits |= flag.bit;
            if let Some(number) = number {
                node = u32::try_from(number.value).unwrap_or(u32::MAX);
            }
        }
        if let (Some(flags), true) = (flags, bits & RDONLY != 0 && bits & WRONLY != 0) {
            let text = "`rdonly` and `wronly` leave userspace nothing to do";
            self.report(Diagnostic::error(602, flags.span, text));
        }
        (bits, node)
    }
}

/// Whether a value of this kind is plain data.
fn is_data(kind: &TypeKind) -> bool {
    !matches!(kind, TypeKind::Ptr(_) | TypeKind::Fn(..) | TypeKind::Program | TypeKind::Null | TypeKind::Void)
}

/// Returns the form of a kind's declaration, for messages.
fn shape(kind: MapKind) -> String {
    let name = kind.name();
    match kind {
        MapKind::StackTrace => format!("var name : {name}(1024)"),
        _ if kind.is_storage() => format!("var name : {name}<V>"),
        _ if kind.is_keyed() => format!("var name : {name}<K, V>(1024)"),
        _ => format!("var name : {name}<V>(1024)"),
    }
}
