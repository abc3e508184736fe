//! What programs at functions are given: arguments in registers and on the stack, and the registers.

use std::process::Command;

use ks_tests::Folder;
use ks_tests::watched::Running;

use super::{build, run};

/// The probed program prints the same lines of its own arguments, stack pointer, address and result.
#[test]
fn root_arguments_on_the_stack_and_registers_are_those_of_the_call() {
    const SCRIPT: &str = include_str!("scripts/arguments.ks");
    let folder = Folder::new();
    let program = build(&folder, "arguments", &[], &["arguments.c"]);
    let script = SCRIPT.replace("PROGRAM", &program.display().to_string());
    let running = Running::start("arguments", &script, &[] as &[&str]);
    let own = run(&mut Command::new(&program)).stdout;
    let seen = running.stop().stdout;
    let own: Vec<&str> = own.lines().collect();
    let [called, stack, code, result] = own[..] else { panic!("{own:#?}") };
    let register = result.replace("result", "register");
    // The return takes its address from the stack.
    let after = stack.replace("stack", "after");
    let expected = ["ready", called, stack, code, result, &register, &after];
    assert_eq!(seen.lines().collect::<Vec<_>>(), expected, "{own:#?}");
}
