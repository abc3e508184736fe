//! The errors of `globals`.

use nix::errno::Errno;

use super::case::{BPF, Case, Of, case};
use super::maps::{EMPTY_BPFFS, MAP_CREATE, NO_BPFFS};

const OPEN: &[&str] = &["globals.variable.open"];
const WRITE: &[&str] = &["globals.variable.write"];
const SET_OR_WRITE: &[&str] = &["globals.variable.set", "globals.variable.write"];

pub fn cases() -> Vec<Case> {
    let pinned = |kind, reason| case(kind, reason).of(OPEN).with("kept_number").pinned();
    vec![
        case("not-found", "no such variable").of(OPEN).with("absent").says("has no variable `absent`"),
        case("invalid", "a name of more than 4096 bytes").of(OPEN).with("LONG").says("4097 bytes"),
        case("limit", "`handles`")
            .of(OPEN)
            .with("counted many")
            .host(&["--limit", "handles=9"])
            .says("too many handles"),
        case("limit", "`host_bytes`")
            .of(OPEN)
            .with("counted many")
            .host(&["--limit", "host_bytes=9000"])
            .says("`host_bytes` of the plugin is 9000"),
        pinned("not-found", "bpffs is not mounted")
            .within(NO_BPFFS)
            .says("the BPF file system is not mounted"),
        pinned("not-permitted", "CAP_BPF")
            .within(EMPTY_BPFFS)
            .by_nobody("-all,+perfmon")
            .errno("EPERM")
            .says("CAP_BPF"),
        pinned("invalid", "a pin of other variables")
            .within(&format!(
                "{}\nmkdir -p /sys/fs/bpf/test/globals\n\
                 bpftool map create /sys/fs/bpf/test/globals/pinned_globals \
                 type array key 4 value 16 entries 1 name other",
                EMPTY_BPFFS
            ))
            .says("the pin of all variables has another shape"),
        pinned("kernel", "")
            .within(EMPTY_BPFFS)
            .refused(BPF, Of::First(MAP_CREATE), Errno::EIO)
            .errno("EIO")
            .says("cannot load the BPF object"),
        pinned("unsupported", "the kernel lacks something that the object needs")
            .within(EMPTY_BPFFS)
            .refused(BPF, Of::First(MAP_CREATE), Errno::EOPNOTSUPP)
            .errno("EOPNOTSUPP")
            .says("this kernel was built without it"),
        pinned("limit", "memory of the kernel")
            .within(EMPTY_BPFFS)
            .refused(BPF, Of::First(MAP_CREATE), Errno::ENOMEM)
            .errno("ENOMEM")
            .says("cannot load the BPF object"),
        case("invalid", "a variable of another size")
            .of(&["globals.variable.set"])
            .with("text")
            .says("a number of `text` has 100 bytes, not 8"),
        case("not-permitted", "a loaded `.rodata` variable")
            .of(SET_OR_WRITE)
            .with("fixed loaded")
            .says("`fixed` is a constant"),
        case("limit", "`host_bytes`, before the load")
            .of(SET_OR_WRITE)
            .with("counted")
            .host(&["--limit", "host_bytes=4000"])
            .says("`host_bytes` of the plugin is 4000"),
        case("invalid", "outside the variable")
            .of(WRITE)
            .with("text outside")
            .says("the variable of `text` has 100 bytes, not 101"),
    ]
}
