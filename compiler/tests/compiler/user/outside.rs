//! Calls of the host: attaching programs to targets, names of tasks and addresses, and refusals.

use crate::user::programs::lines;
use ks_compiler_testing::machine::{Outcome, run};
use ks_compiler_testing::user_half::compile;

/// Runs two programs and a `main` with these statements.
fn with_programs(body: &str) -> Outcome {
    let text = format!(
        "@xdp\nfn first(ctx: *xdp_md) -> xdp_action {{ return XDP_PASS }}\n\
         @xdp\nfn second(ctx: *xdp_md) -> xdp_action {{ return XDP_PASS }}\n\
         fn main() -> i32 {{\n{body}\nreturn 0\n}}\n"
    );
    run(&compile(&text).core)
}

#[test]
fn a_program_is_loaded_once() {
    let outcome = with_programs("var a = load(first)\nvar b = load(first)\nvar c = load(second)\ndetach(a)");
    assert_eq!(outcome.calls, ["load first", "load second", "detach 5"]);
}

#[test]
fn a_program_is_detached_from_its_targets_the_newest_first_and_others_stay() {
    let body = "var a = load(first)\nvar b = load(second)\nvar where: str(16) = \"one\"\n\
                print(\"%u %u\", attach(a, where, 0), attach(b, where, 2))\nattach(a, \"two\", 4)\n\
                detach(a)\ndetach(a)\nattach(a, \"three\", 0)\ndetach(b)\ndetach(a)";
    let outcome = with_programs(body);
    assert_eq!((outcome.code, lines(&outcome)), (Some(0), vec!["0 0".to_owned()]));
    let expected = "load first,load second,attach 5 one in mode 0,attach 6 one in mode 1,attach 5 two in mode 2,drop 5,\
                    drop 3,detach 5,detach 5,attach 5 three in mode 0,drop 4,detach 6,drop 10,detach 5";
    assert_eq!(outcome.calls.join(","), expected);
}

#[test]
fn a_refused_attach_returns_an_errno_and_prints_a_line() {
    // No errno, one of the kernel's, flags that xdp has not, and no program at all.
    let body = "var a = load(first)\nvar none = a\nnone = null\n\
                print(\"%u %u %u %u\", attach(a, \"gone\", 0), attach(a, \"taken\", 1), \
                attach(a, \"taken\", 0x100000001), attach(none, \"one\", 0))\ndetach(none)";
    let outcome = with_programs(body);
    assert_eq!(lines(&outcome), ["2 17 22 22"]);
    assert_eq!(outcome.calls, ["load first", "attach 5 gone in mode 0", "attach 5 taken in mode 0"]);
    let null = "test.ks:9: cannot attach to `one`: the program is not loaded: test the handle that `load` \
                returned for null";
    let flags = "test.ks:9: cannot attach: xdp has no flags 4294967297: pass 0, 2 (generic), 4 (driver) or 8 \
                 (hardware)";
    assert_eq!(outcome.warned, ["test.ks:9: ", "test.ks:9: ", flags, null]);
}

#[test]
fn tasks_have_ids_and_names() {
    let text = "fn main() -> i32 {\n    var name: str(8) = \"walnut\"\n    \
                print(\"%d %d %u\", pid_of(name), pid_of(\"none\"), cpu_count())\n    \
                print(\"%s|%s|\", comm_of(7), comm_of(8))\n    return 0\n}\n";
    let outcome = run(&compile(text).core);
    assert_eq!(lines(&outcome), ["42 -1 3", "fifteen_letters "]);
}

#[test]
fn addresses_have_names() {
    let text = "fn note(name: str(128)) {\n    print(\"%s\", name)\n}\nfn main() -> i32 {\n    \
                defer note(symbol(0xffffffff81000000))\n    print(\"%s\", symbol(-1, 16))\n    return 0\n}\n";
    assert_eq!(lines(&run(&compile(text).core)), ["1 -1 10", "0 0 ffffffff81000000"]);
}

/// The operands of texts that the host makes, and where the texts go.
#[test]
fn texts_of_numbers_are_made_of_their_operands() {
    let text = "var six: u8[16]\nfn main() -> i32 {\n    var four: u8[4] = [10, 0, 0, 1]\n    six[15] = 255\n    \
                var error: i32 = -2\n    var words: u32[4] = [1, 2, 3, 4]\n    var kept: str(8) = ipv4(four)\n    \
                print(\"%s %s %s\", kept, ipv4(7), errno_name(error))\n    \
                print(\"%s %s\", ipv6(six), ipv6(words))\n    \
                print(\"%s %s\", ksym(4096), usym(-1, 16))\n    \
                print(\"%s|%s\", enum_name(pid_type, 5), enum_name(TCP_LISTEN, error))\n    \
                print(\"%s %u\", strftime(\"%H %%\", 5), len(human_bytes(four[0])))\n    \
                defer print(\"%s\", signal_name(four[0]))\n    four[0] = 11\n    return 0\n}\n";
    let zeros = |bytes: usize| vec!["00"; bytes].join(", ");
    let words: Vec<String> = (1..=4).map(|word| format!("{word:02x}, {}", zeros(3))).collect();
    let expected = [
        "ipv4 01 ipv4 00000007 n-2".to_owned(),
        // The text is cut where it does not fit.
        format!("bytes [{}, ff]|bytes [{}]", zeros(15), words.join(", "))
            .split('|')
            .map(|one| one.chars().take(45).collect::<String>())
            .collect::<Vec<_>>()
            .join(" "),
        "n4096 -1 10".into(),
        "pid_type 5 TCP_LISTEN -2".into(),
        "%H %% 5 3".into(),
        "n10".into(),
    ];
    assert_eq!(lines(&run(&compile(text).core)), expected);
}

#[test]
fn a_refused_exec_prints_a_line_and_the_script_continues() {
    let text = "import util from \"dir/util.py\"\nfn main() -> i32 {\n    exec(\"./report.py\")\n    \
                var word: str(4) = \"ab\"\n    print(\"%u %u\", util.f(), util.allowed(-3, word))\n    \
                return 0\n}\n";
    let outcome = run(&compile(text).core);
    assert_eq!(lines(&outcome), ["0 0"]);
    assert_eq!(outcome.calls, [""; 0]);
    let refused = [
        "test.ks:3: cannot run `./report.py`\n",
        "test.ks:5: cannot call `f` of the Python module `util.py`\n",
        "test.ks:5: cannot call `allowed` of the Python module `util.py`\n",
    ];
    assert_eq!(outcome.warned.len(), refused.len(), "{:?}", outcome.warned);
    for (warned, refused) in outcome.warned.iter().zip(refused) {
        assert!(warned.starts_with(refused), "{warned}");
    }
}

/// Every kind of invalid sequence, and valid ones next to it; the standard library decides which are valid.
#[test]
fn a_target_that_is_not_utf_8_is_an_error() {
    let seconds = [0x20, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff];
    let mut texts: Vec<Vec<u8>> = (1..=255).map(|byte| vec![byte]).collect();
    for first in [0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5] {
        for second in seconds {
            let tails: &[&[u8]] =
                &[&[], &[0x80], &[0x80, 0xbf], &[0x41, 0x80], &[0x80, 0xc0], &[0xbf, 0xbf, 0x41]];
            texts.extend(tails.iter().map(|tail| [&[first, second], *tail].concat()));
        }
    }
    for part in texts.chunks(100) {
        let attach = |text: &Vec<u8>| {
            let escaped: String = text.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("    print(\"%u\", attach(p, \"{escaped}\", 0))\n")
        };
        let calls: String = part.iter().map(attach).collect();
        let script = format!(
            "@xdp\nfn see(ctx: *xdp_md) -> xdp_action {{\n    return XDP_PASS\n}}\nfn main() -> i32 {{\n    \
             var p = load(see)\n{calls}    return 0\n}}\n"
        );
        let outcome = run(&compile(&script).core);
        let expected: Vec<_> =
            part.iter().map(|text| if std::str::from_utf8(text).is_ok() { "0" } else { "22" }).collect();
        assert_eq!(lines(&outcome), expected, "{part:x?}");
        assert!(
            outcome.warned.iter().all(|line| line.ends_with("the target is not UTF-8")),
            "{:?}",
            outcome.warned
        );
        assert_eq!(outcome.warned.len(), expected.iter().filter(|code| **code == "22").count());
    }
}
