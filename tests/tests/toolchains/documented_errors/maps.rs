//! The errors of `maps`.

use nix::errno::Errno;

use super::case::{BPF, Case, MEMBARRIER, Of, case};

/// Takes the BPF file system away.
pub const NO_BPFFS: &str = "mount -t bpf none /sys/fs/bpf\nmount -t tmpfs none /sys/fs/bpf";
/// Mounts a BPF file system that every user may write.
pub const EMPTY_BPFFS: &str = "mount -t bpf bpf /sys/fs/bpf -o mode=0777";

/// Pins a map of another shape where the host pins `kept`.
pub const OTHER_PIN: &str = "mkdir -p /sys/fs/bpf/test/maps\n\
                             bpftool map create /sys/fs/bpf/test/maps/kept type hash key 4 value 8 entries 9 name kept";

const OPEN: &[&str] = &["maps.bpf-map.open"];
const ITERATE: &[&str] = &["maps.bpf-map.iterate"];
const NEXT: &[&str] = &["maps.cursor.next"];
const FREEZE: &[&str] = &["maps.bpf-map.freeze"];
const CONTAINS: &[&str] = &["maps.bpf-map.contains"];
const SUM: &[&str] = &["maps.bpf-map.update-sum"];
const BATCH: &[&str] = &["maps.bpf-map.update-batch"];
const DELETE_BATCH: &[&str] = &["maps.bpf-map.delete-batch"];
const LOOKUPS: &[&str] =
    &["maps.bpf-map.lookup", "maps.bpf-map.lookup-locked", "maps.bpf-map.lookup-and-delete"];
const UPDATES: &[&str] = &["maps.bpf-map.update", "maps.bpf-map.update-locked"];
const CREATE_INNER: &[&str] = &["maps.bpf-map.create-inner"];
const DELETE_INNER: &[&str] = &["maps.bpf-map.delete-inner"];
const RESIZES: &[&str] = &["maps.set-max-entries", "maps.set-value-size"];

pub fn cases() -> Vec<Case> {
    [
        opening(),
        sizes(),
        keys_and_values(),
        entries(),
        limits(),
        kinds(),
        refused(),
        resizing(),
        settling(),
        inner_maps(),
    ]
    .concat()
}

/// Inner maps of maps of maps.
fn inner_maps() -> Vec<Case> {
    let create = |kind, reason| case(kind, reason).of(CREATE_INNER).with("groups");
    let other = &[CREATE_INNER, &["maps.bpf-map.has-inner"], DELETE_INNER].concat();
    vec![
        case("invalid", "no map of maps").of(other).with("small").says("`small` has no inner maps"),
        create("invalid", "no whole number of keys").with("groups short-key").says("no whole number"),
        case("invalid", "key of another size")
            .of(&[&["maps.bpf-map.has-inner"], DELETE_INNER].concat())
            .with("groups short-key")
            .says("a key of `groups`"),
        case("invalid", "an array, which keeps its maps")
            .of(DELETE_INNER)
            .with("slots")
            .errno("EINVAL")
            .says("cannot remove"),
        create("limit", "`maps` or `map_bytes`").with("groups thousand").says("--limit maps="),
        create("limit", "the map is full")
            .refused(BPF, Of::First(MAP_UPDATE_ELEM), Errno::E2BIG)
            .errno("E2BIG")
            .says("declare the map with more entries"),
        create("limit", "an array's index beyond its end")
            .with("slots beyond")
            .errno("E2BIG")
            .says("cannot store"),
        create("limit", "memory of the kernel")
            .refused(BPF, Of::First(MAP_CREATE), Errno::ENOMEM)
            .errno("ENOMEM")
            .says("cannot create an inner map"),
        create("kernel", "").refused(BPF, Of::First(MAP_CREATE), Errno::EIO).errno("EIO").says("EIO"),
        case("kernel", "")
            .of(DELETE_INNER)
            .with("groups created")
            .refused(BPF, Of::First(MAP_DELETE_ELEM), Errno::EIO)
            .errno("EIO")
            .says("EIO"),
    ]
}

/// How the kernel refuses to say when programs have ended.
fn settling() -> Vec<Case> {
    let settle = |kind, reason, errno: Errno| {
        let case = case(kind, reason).of(&["maps.settle"]).with("now").refused(MEMBARRIER, Of::Any, errno);
        case.says("cannot wait for the runs of programs that have begun")
    };
    vec![
        settle("unsupported", "a kernel with CPUs in `nohz_full`", Errno::EINVAL).errno("EINVAL"),
        settle("unsupported", "without membarrier(2)", Errno::ENOSYS).errno("ENOSYS"),
        settle("kernel", "", Errno::EIO).errno("EIO"),
    ]
}

/// How the load of the object fails, for `open`.
fn opening() -> Vec<Case> {
    let open = |kind, reason| case(kind, reason).of(OPEN).with("bare");
    let kept = |kind, reason| case(kind, reason).of(OPEN).with("kept").pinned();
    vec![
        open("not-found", "no such map").with("absent").says("has no map `absent`"),
        kept("not-found", "bpffs is not mounted").within(NO_BPFFS).says("the BPF file system is not mounted"),
        open("not-permitted", "CAP_BPF").by_nobody("-all,+perfmon").errno("EPERM").says("CAP_BPF"),
        kept("invalid", "a pin of another shape")
            .within(&format!("{EMPTY_BPFFS}\n{OTHER_PIN}"))
            .says("has another shape (entries 9\u{2192}2)"),
        open("invalid", "a name of more than 4096 bytes").with("LONG").says("4097 bytes"),
        open("invalid", "a size that the kernel refuses")
            .refused(BPF, Of::First(MAP_CREATE), Errno::EINVAL)
            .errno("EINVAL")
            .says("cannot load the BPF object"),
        open("unsupported", "the kernel lacks something that the object needs")
            .refused(BPF, Of::First(MAP_CREATE), Errno::EOPNOTSUPP)
            .errno("EOPNOTSUPP")
            .says("this kernel was built without it"),
        open("limit", "memory of the kernel")
            .refused(BPF, Of::First(MAP_CREATE), Errno::ENOMEM)
            .errno("ENOMEM")
            .says("cannot load the BPF object"),
        open("limit", "`handles`").with("bare many").host(&["--limit", "handles=9"]).says("too many handles"),
        open("limit", "`host_bytes`")
            .with("bare many")
            .host(&["--limit", "host_bytes=9000"])
            .says("`host_bytes` of the plugin is 9000"),
        open("kernel", "")
            .refused(BPF, Of::First(MAP_CREATE), Errno::EIO)
            .errno("EIO")
            .says("cannot load the BPF object"),
    ]
}

/// Keys and values of other sizes than those of the map.
fn sizes() -> Vec<Case> {
    let key = || case("invalid", "key of another size").says("a key of `").with("small short-key");
    let value = || case("invalid", "value of another size").says("a value of `").with("small short-value");
    vec![
        key().of(&[LOOKUPS, UPDATES, &["maps.bpf-map.delete"]].concat()),
        key().of(SUM).with("sums short-key"),
        value().of(UPDATES),
        value().of(SUM).with("sums short-value"),
        value().of(CONTAINS).with("seen short-value"),
        case("invalid", "no whole number of entries")
            .of(BATCH)
            .with("small short-value")
            .says("no whole number"),
        case("invalid", "no whole number of keys")
            .of(DELETE_BATCH)
            .with("small short-key")
            .says("no whole number"),
        case("invalid", "an entry does not fit `most`")
            .of(NEXT)
            .with("bare small-room")
            .says("an entry of `bare`"),
    ]
}

/// Keys that are there or not, and maps without room.
fn keys_and_values() -> Vec<Case> {
    let updates = || [UPDATES, BATCH].concat();
    let there =
        || case("busy", "`no-exist`, and the key is there").errno("EEXIST").says("cannot update the map");
    let absent =
        || case("not-found", "`exist`, and the key is not there").errno("ENOENT").says("cannot update");
    let full = || case("limit", "the map is full").errno("E2BIG").says("declare the map with more entries");
    let beyond =
        || case("limit", "an array's index beyond its end").errno("E2BIG").says("cannot update the map");
    vec![
        there().of(&updates()).with("small there"),
        there().of(SUM).with("sums there"),
        absent().of(&updates()).with("small absent"),
        absent().of(SUM).with("sums absent"),
        full().of(&updates()).with("small full"),
        full().of(SUM).with("sums full"),
        beyond().of(&updates()).with("numbers beyond"),
        beyond().of(SUM).with("cells beyond"),
    ]
}

/// Maps whose entries a plugin may not write, remove or list.
fn entries() -> Vec<Case> {
    let frozen = || case("not-permitted", "a frozen map").says("`bare` was frozen").with("bare frozen");
    let descriptors = || case("not-permitted", "a kind of descriptors").says("`events` holds descriptors");
    let fixed =
        || case("invalid", "a kind whose entries cannot be removed").errno("EINVAL").says("delete from");
    let keyless = || case("unsupported", "a kind without keys").says("it has no keys").with("line");
    let many = || case("limit", "more than 1048576 entries of a kind without batches").with("many_events");
    let removing = ["maps.bpf-map.delete", "maps.bpf-map.delete-batch"];
    vec![
        frozen().of(&[UPDATES, BATCH, &removing, &["maps.bpf-map.lookup-and-delete"]].concat()),
        frozen().of(SUM).with("sums frozen").says("`sums` was frozen"),
        frozen().of(&["maps.bpf-map.clear"]).with("bare filled-frozen"),
        descriptors().of(&[LOOKUPS, UPDATES, BATCH, &removing].concat()).with("events"),
        descriptors().of(&["maps.cursor.next", "maps.bpf-map.count", "maps.bpf-map.clear"]).with("events"),
        fixed().of(&removing).with("numbers"),
        fixed().of(&["maps.bpf-map.clear"]).with("numbers"),
        keyless().of(&["maps.bpf-map.iterate", "maps.bpf-map.count", "maps.bpf-map.clear"]),
        many()
            .of(&["maps.cursor.next", "maps.bpf-map.count", "maps.bpf-map.clear"])
            .says("more than 1048576 entries"),
    ]
}

/// Limits of the policy.
fn limits() -> Vec<Case> {
    let bytes = || {
        case("limit", "`host_bytes`")
            .host(&["--limit", "host_bytes=60000"])
            .says("`host_bytes` of the plugin is 60000")
    };
    vec![
        bytes().of(&[LOOKUPS, UPDATES].concat()).with("large"),
        bytes().of(SUM).with("wide_cells"),
        bytes().of(CONTAINS).with("large_seen"),
        bytes().of(&[BATCH, DELETE_BATCH].concat()).with("small long"),
        bytes().of(&["maps.cursor.next", "maps.bpf-map.count", "maps.bpf-map.clear"]).with("crowd"),
        bytes().of(ITERATE).with("bare many"),
        case("limit", "`handles`")
            .of(ITERATE)
            .with("bare many")
            .host(&["--limit", "handles=9"])
            .says("too many handles"),
    ]
}

/// Calls that a kind of map does not have.
fn kinds() -> Vec<Case> {
    let unlocked = case("invalid", "a value without `struct bpf_spin_lock`").errno("EINVAL").with("bare");
    vec![
        unlocked.of(&["maps.bpf-map.lookup-locked", "maps.bpf-map.update-locked"]).says("the map `bare`"),
        case("invalid", "a kind with one value for all CPUs")
            .of(SUM)
            .with("bare")
            .says("one value for all CPUs"),
        case("invalid", "no bloom filter").of(CONTAINS).with("line").says("`line` is no bloom filter"),
        case("unsupported", "a kind that this kernel takes nothing out of: hash tables since 5.14")
            .of(&["maps.bpf-map.lookup-and-delete"])
            .with("numbers")
            .says("this kernel cannot take entries out of `numbers`"),
        case("busy", "a map that is mapped, as by `share`")
            .of(FREEZE)
            .with("plain mapped")
            .errno("EBUSY")
            .says("cannot freeze the map"),
        case("unsupported", "values with a lock, a timer or a pointer of the kernel")
            .of(FREEZE)
            .with("small")
            .says("this kernel cannot freeze `small`"),
    ]
}

/// Numbers of `enum bpf_cmd` in include/uapi/linux/bpf.h.
pub const MAP_CREATE: u64 = 0;
const MAP_LOOKUP_ELEM: u64 = 1;
pub const MAP_UPDATE_ELEM: u64 = 2;
const MAP_DELETE_ELEM: u64 = 3;
const MAP_LOOKUP_AND_DELETE_ELEM: u64 = 21;
const MAP_FREEZE: u64 = 22;
const MAP_LOOKUP_BATCH: u64 = 24;
const MAP_UPDATE_BATCH: u64 = 26;

/// Any other answer of the kernel.
fn refused() -> Vec<Case> {
    let refused = |command, functions: &[&'static str], words| {
        let case = case("kernel", "").of(functions).with(words).refused(BPF, Of::First(command), Errno::EIO);
        case.errno("EIO").says("EIO")
    };
    let memory = |command, functions: &[&'static str], words| {
        let case = case("limit", "memory of the kernel").of(functions).with(words);
        case.refused(BPF, Of::First(command), Errno::ENOMEM).errno("ENOMEM").says("cannot update the map")
    };
    vec![
        memory(MAP_UPDATE_ELEM, UPDATES, "small"),
        memory(MAP_UPDATE_ELEM, SUM, "sums"),
        memory(MAP_UPDATE_BATCH, BATCH, "bare"),
        refused(MAP_LOOKUP_ELEM, &LOOKUPS[..2], "small"),
        refused(MAP_LOOKUP_ELEM, CONTAINS, "seen"),
        refused(MAP_LOOKUP_AND_DELETE_ELEM, &LOOKUPS[2..], "bare"),
        refused(MAP_UPDATE_ELEM, UPDATES, "small"),
        refused(MAP_UPDATE_ELEM, SUM, "sums"),
        refused(MAP_UPDATE_BATCH, BATCH, "bare"),
        refused(MAP_DELETE_ELEM, &["maps.bpf-map.delete", "maps.bpf-map.delete-batch"], "bare"),
        refused(MAP_FREEZE, FREEZE, "bare"),
        refused(MAP_LOOKUP_BATCH, &["maps.cursor.next", "maps.bpf-map.count", "maps.bpf-map.clear"], "bare"),
    ]
}

/// Sizes of maps before the load.
fn resizing() -> Vec<Case> {
    let entries = |kind, reason| case(kind, reason).of(&["maps.set-max-entries"]);
    let value = |kind, reason| case(kind, reason).of(&["maps.set-value-size"]);
    let both = |kind, reason| case(kind, reason).of(RESIZES);
    vec![
        both("not-found", "no such map").with("absent 4").says("has no map `absent`"),
        both("invalid", "a number that the kind cannot have").with("untyped 2147483648").says("2147483648"),
        both("invalid", "a name of more than 4096 bytes").with("LONG 4").says("a name of 4097 bytes"),
        value("invalid", "values with a type in BTF").with("bare 4").says("the values of `bare` have a type"),
        both("stale", "the maps exist already").with("untyped 16 loaded").says("`untyped` exists already"),
        entries("limit", "`map_bytes` or `ring_bytes`").with("bare 1000000000").says("map_bytes"),
        value("limit", "`map_bytes` or `ring_bytes`").with("untyped 600000000").says("map_bytes"),
    ]
}
