//! A target is identified by what it denotes, not by its spelling.

use std::os::unix::fs::symlink;

use ks_tests::cgroup::Group;
use ks_tests::net::Wire;
use ks_tests::{Folder, command, compile, finish};

/// Returns a plugin that attaches its program to each of these groups, and prints whether each attach
/// succeeded.
fn joins(groups: &[String]) -> Vec<u8> {
    let attach: String =
        groups.iter().map(|group| format!(" print(\"%d\", attach(one, \"{group}\", 0) == 0)\n")).collect();
    let script = format!(
        "@cgroup(\"connect4\") fn ksttarget(ctx: *bpf_sock_addr) -> i32 {{ return 1 }}\n\
         fn main() -> i32 {{\n var one = load(ksttarget)\n{attach} return 0\n}}\n"
    );
    compile("joins", &script).plugin
}

#[test]
fn root_a_control_group_is_the_one_that_the_kernel_finds() {
    let folder = Folder::new();
    let (mine, theirs) = (Group::new(), Group::new());
    let path = |group: &Group| group.path().display().to_string();
    let link = folder.path("link");
    symlink(theirs.path(), &link).expect("the folder is ours");
    let name = |group: &Group| group.path().file_name().expect("it has one").to_string_lossy().into_owned();
    let (mine_name, theirs_name) = (name(&mine), name(&theirs));
    let root = mine.path().parent().expect("it lies in the hierarchy").display().to_string();
    let spelt = [
        format!("{root}/./{mine_name}/"),
        mine_name.clone(),
        format!("{}/../{theirs_name}", path(&mine)),
        link.display().to_string(),
        path(&theirs),
    ];
    let file = folder.write("joins.wasm", joins(&spelt));
    for allowed in [path(&mine), mine_name.clone(), format!("*/{mine_name}")] {
        let ran = finish(command("ks-host").args(["--allow", &format!("cgroup={allowed}")]).arg(&file));
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "1\n1\n0\n0\n0\n"), "{allowed}: {ran:#?}");
        assert!(ran.stderr.contains(&format!("--allow cgroup={}", path(&theirs))), "{ran:#?}");
    }
}

#[test]
fn root_an_interface_is_the_one_that_the_kernel_finds() {
    let wire = Wire::new();
    let folder = Folder::new();
    let number = wire.index().to_string();
    let script = format!(
        "@xdp fn ksttargx(ctx: *xdp_md) -> xdp_action {{ return XDP_PASS }}\nfn main() -> i32 {{\n \
         var one = load(ksttargx)\n \
         print(\"%d\", attach(one, \"{}\", 0) == 0)\n return 0\n}}\n",
        number.as_str()
    );
    let file = folder.write("numbered.wasm", compile("numbered", &script).plugin);
    for (allowed, printed) in [("left", "1\n"), (number.as_str(), "0\n"), ("right", "0\n")] {
        let ran = finish(wire.command("ks-host").args(["--allow", &format!("xdp={allowed}")]).arg(&file));
        assert_eq!((ran.code, ran.stdout.as_str()), (0, printed), "{allowed}: {ran:#?}");
    }
}

/// A test's packets come from interfaces of the tests' own network; running a program on demand needs the
/// same permission as attaching it.
#[test]
fn root_tests_see_no_interface_of_the_machine() {
    let folder = Folder::new();
    let script = |interface: u32| {
        format!(
            "struct Packet {{ packet_size: u32, ingress_ifindex: u32 }}\n\
             @xdp fn kstisol(ctx: *xdp_md) -> xdp_action {{ return XDP_DROP }}\n\
             @test fn drops() -> i32 {{\n if (test(kstisol, Packet {{ packet_size: 60, ingress_ifindex: \
             {interface} }}) != XDP_DROP) {{\n \
             return 1\n }}\n return 0\n}}\n"
        )
    };
    let own = folder.write("own.ks", script(1));
    let passed = finish(command("ks-host").arg("test").arg(&own));
    assert_eq!(passed.code, 0, "{passed:#?}");
    let policy = folder.write("policy.toml", "[allow]\nimport = [\"*\"]\nxdp = [\"eth7\"]\n");
    let denied = finish(command("ks-host").arg("test").arg("--policy").arg(policy).arg(&own));
    assert!(denied.code == 1 && denied.stdout.contains("--allow xdp=lo"), "{denied:#?}");

    // An interface of another network namespace is refused, whatever its index.
    let wire = Wire::new();
    let number = wire.index();
    assert!(number > 1);
    let foreign = folder.write("foreign.ks", script(number));
    let failed = finish(wire.command("ks-host").arg("test").arg(&foreign));
    assert!(failed.code == 1 && failed.stdout.contains("if_indextoname: ENXIO"), "{failed:#?}");
}

/// The registers at the entry of a system call are an argument of the tracepoint, and a struct of the kernel.
#[cfg(target_arch = "x86_64")]
#[test]
fn root_registers_that_the_kernel_passes_are_read_by_member() {
    let folder = Folder::new();
    let script = include_str!("scripts/targets_passed_registers.ks");
    let file = folder.write("registers.wasm", compile("registers", script).plugin);
    let ran = finish(command("ks-host").arg(file));
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "1 1\n", ""), "{ran:#?}");
}
