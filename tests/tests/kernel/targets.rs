//! A target is identified by what it denotes, not by its spelling.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use ks_compiler::object::write;
use ks_tests::cgroup::Group;
use ks_tests::net::Wire;
use ks_tests::plugins::models::program;
use ks_tests::plugins::{component, with_object};
use ks_tests::refused::{Call, observe};
use ks_tests::{Folder, binary, command, compile, finish};
use nix::libc;

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

/// Returns a plugin that puts its probe at the function `work` of each of these files, and prints a letter for
/// each: `k` if it is there, `D` if the policy denied it, `E` for any other error.
fn probes(paths: &[String]) -> Vec<u8> {
    let mut body = String::from("(data (i32.const 512) \"one\") (data (i32.const 520) \"work\")");
    let mut code = String::new();
    for (index, path) in paths.iter().enumerate() {
        let at = 65_536 + 1024 * index;
        body.push_str(&format!("(data (i32.const {at}) \"{path}\")"));
        code.push_str(&format!(
            "(call $attach_uprobe (local.get $program) (i32.const {at}) (i32.const {}) (i32.const 520)
               (i32.const 4) (i64.const 0) (i32.const 0) (i32.const 0) (i64.const 0) (i32.const 1024))
             (i32.store8 (i32.const {}) (if (result i32) (i32.load8_u (i32.const 1024))
               (then (if (result i32) (i32.eq (i32.load8_u (i32.const 1028)) (i32.const 8))
                 (then (i32.const 68)) (else (i32.const 69))))
               (else (i32.const 107))))",
            path.len(),
            600 + index
        ));
    }
    body.push_str(&format!(
        "(func (export \"run\") (result i32) (local $program i32)
           (call $load (i32.const 512) (i32.const 3) (i32.const 1024))
           (local.set $program (i32.load (i32.const 1028)))
           {code}
           (call $print (i32.const 600) (i32.const {}) (i32.const 0) (i32.const 0)) (i32.const 0))",
        paths.len()
    ));
    with_object(component(&body), write(&program("uprobe", &[])).expect("a sound object"))
}

/// A program with a function `work`.
fn victim(path: &Path) {
    let source = "__attribute__((noinline)) int work(int a) { return a + 1; }\n\
                  int main(int argc, char **argv) { return work(argc) == 0; }\n";
    let file = path.with_extension("c");
    fs::write(&file, source).expect("the folder is ours");
    let built = finish(Command::new("cc").args(["-O1", "-o"]).arg(path).arg(&file));
    assert_eq!(built.code, 0, "{built:#?}");
}

/// Folders `mine` and `theirs` with a program each, and paths from the one to the other.
fn two_folders(folder: &Folder) -> (String, String) {
    let path = |name: &str| folder.path(name).canonicalize().expect("it was made").display().to_string();
    for name in ["mine", "theirs"] {
        fs::create_dir(folder.path(name)).expect("the folder is ours");
        victim(&folder.path(name).join("tool"));
    }
    let (mine, theirs) = (path("mine"), path("theirs"));
    let link = |to: &str, from: &str| symlink(to, format!("{mine}/{from}")).expect("ours");
    link(&format!("{theirs}/tool"), "link");
    link(&theirs, "folder");
    link(&format!("{theirs}/none"), "gone");
    link(&format!("{mine}/tool"), "own");
    fs::write(format!("{theirs}/text"), "no program").expect("ours");
    link(&format!("{theirs}/text"), "text");
    fs::hard_link(format!("{theirs}/tool"), format!("{mine}/hard")).expect("one file system");
    (mine, theirs)
}

#[test]
fn root_a_probed_file_is_the_one_that_the_kernel_finds() {
    let folder = Folder::new();
    let (mine, theirs) = two_folders(&folder);
    let by_link = [
        format!("{mine}/link"),
        format!("{mine}/folder/tool"),
        format!("{mine}/folder/../theirs/tool"),
        // What is behind a link is not told: neither that it is there nor what it is.
        format!("{mine}/gone"),
        format!("{mine}/folder/none"),
        format!("{mine}/text"),
        format!("{theirs}/tool"),
        format!("{mine}/../theirs/tool"),
        format!("/proc/self/root{mine}/tool"),
    ];
    let own = [
        format!("{mine}/tool"),
        format!("{mine}/./tool"),
        format!("{mine}//tool"),
        format!("{mine}/../mine/tool"),
        format!("{mine}/own"),
        // The kernel knows a hard link as the file itself.
        format!("{mine}/hard"),
        format!("{mine}/none"),
    ];
    let file = folder.write("probes.wasm", probes(&[&own[..], &by_link[..]].concat()));
    let run = |rules: &[String]| {
        let mut policy = String::from("[allow]\nimport = [\"*\"]\nuprobe = [");
        rules.iter().for_each(|rule| policy.push_str(&format!("{rule:?}, ")));
        let policy = folder.write("policy.toml", policy + "]\n");
        finish(command("ks-host").arg("--policy").arg(policy).arg(&file))
    };
    let ran = run(&[format!("{mine}/*")]);
    assert_eq!((ran.code, ran.stdout.trim_end()), (0, "kkkkkkEDDDDDDDDD"), "{ran:#?}");
    let ran = run(&["*".into()]);
    assert_eq!((ran.code, ran.stdout.trim_end()), (0, "kkkkkkEkkkEEEkkk"), "{ran:#?}");
    // The link alone names no file, and the file alone allows no other path to it.
    let ran = run(&[format!("{mine}/link:work")]);
    assert_eq!((ran.code, ran.stdout.trim_end()), (0, "DDDDDDDDDDDDDDDD"), "{ran:#?}");
    let ran = run(&[format!("{theirs}/tool:work")]);
    assert_eq!((ran.code, ran.stdout.trim_end()), (0, "DDDDDDDDDDDDDkkD"), "{ran:#?}");
    let ran = run(&[format!("{mine}/link:work"), format!("{theirs}/tool:work")]);
    assert_eq!((ran.code, ran.stdout.trim_end()), (0, "DDDDDDDkDDDDDkkD"), "{ran:#?}");
}

/// The same for events, and for probes whose place is in the object.
#[test]
fn root_probes_of_events_and_objects_are_judged_by_the_file() {
    let folder = Folder::new();
    let (mine, theirs) = two_folders(&folder);
    for (path, allowed) in [("tool", true), ("own", true), ("link", false), ("gone", false), ("text", false)]
    {
        let script = format!(
            "fn main() -> i32 {{\n var one = attach(perf_options {{ event: \
             uprobe_event(\"{mine}/{path}:work\"), pid: 0, cpu: -1 }})\n print(\"%u\", one == null)\n \
             return 0\n}}\n"
        );
        let event = folder.write("event.wasm", compile("event", &script).plugin);
        let script = format!(
            "@uprobe(\"{mine}/{path}:work\")\nfn kstprobed(first: u64) -> i32 {{ return 0 }}\n\
             fn main() -> i32 {{\n var one = load(kstprobed)\n print(\"%u\", attach(one, \"\", 0) != \
             0)\n return 0\n}}\n"
        );
        let own = folder.write("own.wasm", compile("own", &script).plugin);
        let policy = format!(
            "[allow]\nimport = [\"*\"]\nscope = [\"*\"]\nevent = [\"uprobe:{mine}/*\"]\n\
             uprobe = [\"{mine}/*\"]\n"
        );
        let policy = folder.write("policy.toml", policy);
        for file in [event, own] {
            let ran = finish(command("ks-host").arg("--policy").arg(&policy).arg(&file));
            let expected = if allowed { "0\n" } else { "1\n" };
            assert_eq!((ran.code, ran.stdout.as_str()), (0, expected), "{path}: {ran:#?}");
            let says = ran.stderr.contains("to a file that the policy does not name");
            assert!(says != allowed && !ran.stderr.contains(&theirs), "{path}: {ran:#?}");
        }
    }
}

/// A file or group that the policy does not name is not even looked up: that could wait, mount or tell.
#[test]
fn root_nothing_is_opened_that_the_policy_does_not_name() {
    let folder = Folder::new();
    let (mine, theirs) = two_folders(&folder);
    let probes = folder.write("probes.wasm", probes(&[format!("{theirs}/tool")]));
    let joins = folder.write("joins.wasm", joins(&[format!("{theirs}/group")]));
    let calls = [
        ("openat", libc::SYS_openat, 1),
        ("newfstatat", libc::SYS_newfstatat, 1),
        ("statx", libc::SYS_statx, 1),
        ("readlinkat", libc::SYS_readlinkat, 1),
    ];
    let watched = calls.map(|(name, number, _)| Call { name, number });
    for (file, rules) in [(probes, ["uprobe", "cgroup"]), (joins, ["cgroup", "uprobe"])] {
        let mut policy = String::from("[allow]\nimport = [\"*\"]\n");
        rules.iter().for_each(|class| policy.push_str(&format!("{class} = [\"{mine}/*\"]\n")));
        let policy = folder.write("policy.toml", policy);
        let mut seen = Vec::new();
        let mut command = Command::new(binary("ks-host"));
        let ran = observe(command.arg("--policy").arg(&policy).arg(&file), &watched, |asked| {
            let path = asked.memory(asked.args[calls[asked.kind].2], theirs.len()).unwrap_or_default();
            seen.extend((path == theirs.as_bytes()).then_some(calls[asked.kind].0));
            None
        });
        let ran = ran.expect("the kernel has notifications");
        assert!(["D", "0"].contains(&ran.stdout.trim_end()), "{ran:#?}");
        assert!(seen.is_empty(), "{seen:?}: {ran:#?}");
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

/// Another interface may get the name after the policy was asked, so the host looks it up once.
#[test]
fn root_an_interface_is_looked_up_once() {
    let (wire, folder) = (Wire::new(), Folder::new());
    let script = "@xdp fn ksttargo(ctx: *xdp_md) -> xdp_action { return XDP_PASS }\nfn main() -> i32 {\n \
                  var one = load(ksttargo)\n print(\"%d\", attach(one, \"left\", 0) == 0)\n return 0\n}\n";
    let file = folder.write("once.wasm", compile("once", script).plugin);
    let mut looked = 0;
    let mut command = wire.command("ks-host");
    let watched = [Call { name: "ioctl", number: libc::SYS_ioctl }];
    let ran = observe(command.args(["--allow", "xdp=left"]).arg(&file), &watched, |asked| {
        looked += usize::from(asked.args[1] as libc::Ioctl == libc::SIOCGIFINDEX);
        None
    });
    let ran = ran.expect("the kernel has notifications");
    assert_eq!((ran.code, ran.stdout.as_str(), looked), (0, "1\n", 1), "{ran:#?}");
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
    assert!(failed.code == 1 && failed.stdout.contains("ioctl(SIOCGIFNAME): ENXIO"), "{failed:#?}");
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
