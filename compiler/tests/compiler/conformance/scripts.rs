//! Helpers of the rows: scripts around a few lines, and assertions about the front end's diagnostics.

use ks_compiler_testing::checked::{Options, Outcome, check};

const STRICT: Options = Options { strict_011: true, tests: false, kernel: false };
const KERNEL: Options = Options { strict_011: false, tests: false, kernel: true };

/// Puts statements into a program of the kernel half, with an empty `main`.
pub fn in_program(declarations: &str, body: &str) -> String {
    let program = format!("@xdp\nfn prog(ctx: *xdp_md) -> xdp_action {{\n{body}\nreturn XDP_PASS\n}}");
    format!("{declarations}\n{program}\nfn main() -> i32 {{ return 0 }}\n")
}

/// Puts statements into `main`, with a program, so that 0.1.1 accepts the script too.
pub fn in_main(declarations: &str, body: &str) -> String {
    let program = "@xdp\nfn beside(ctx: *xdp_md) -> xdp_action { return XDP_PASS }";
    format!("{declarations}\n{program}\nfn main() -> i32 {{\n{body}\nreturn 0\n}}\n")
}

/// Adds an empty `main` to declarations.
pub fn with_empty_main(declarations: &str) -> String {
    format!("{declarations}\nfn main() -> i32 {{ return 0 }}\n")
}

/// Puts the same statements into each half.
pub fn in_both(declarations: &str, body: &str) -> [String; 2] {
    [in_program(declarations, body), in_main(declarations, body)]
}

/// Asserts that there is no error.
#[track_caller]
pub fn accepts(script: impl AsRef<str>) {
    accepted(script.as_ref(), Options::default());
}

/// Asserts that there is no error, checked against a kernel whose types are known.
#[track_caller]
pub fn accepts_with_kernel(script: impl AsRef<str>) {
    accepted(script.as_ref(), KERNEL);
}

/// Returns whether there is this warning, checked against a kernel whose types are known. Asserts that there is no error.
#[track_caller]
pub fn warns_with_kernel(script: impl AsRef<str>, code: &str) -> bool {
    accepted(script.as_ref(), KERNEL).warned(code)
}

/// Asserts that there is no error in the language of 0.1.1.
#[track_caller]
pub fn accepts_strict(script: impl AsRef<str>) {
    accepted(script.as_ref(), STRICT);
}

/// Asserts that there is no error, and this warning.
#[track_caller]
pub fn warns(script: impl AsRef<str>, code: &str) {
    let outcome = accepted(script.as_ref(), Options::default());
    assert!(
        outcome.warned(code),
        "{code} expected, but it warns of {}:\n{}",
        outcome.warnings_in_short(),
        script.as_ref()
    );
}

/// Asserts that there is no error, and not this warning.
#[track_caller]
pub fn accepts_without(script: impl AsRef<str>, code: &str) {
    let outcome = accepted(script.as_ref(), Options::default());
    assert!(!outcome.warned(code), "no {code} expected:\n{}", script.as_ref());
}

/// Asserts that there is no error in either half.
#[track_caller]
pub fn accepts_both(declarations: &str, body: &str) {
    for script in in_both(declarations, body) {
        accepts(script);
    }
}

/// Asserts that there is no error in either half in the language of 0.1.1.
#[track_caller]
pub fn accepts_both_strict(declarations: &str, body: &str) {
    for script in in_both(declarations, body) {
        accepts_strict(script);
    }
}

/// Asserts that there is this warning in each half.
#[track_caller]
pub fn warns_both(declarations: &str, body: &str, code: &str) {
    for script in in_both(declarations, body) {
        warns(script, code);
    }
}

/// Asserts that there are errors of this code and of no other, in each half.
#[track_caller]
pub fn refuses_both(declarations: &str, body: &str, codes: &str) {
    for script in in_both(declarations, body) {
        refuses(script, codes);
    }
}

/// Asserts that there are errors of this code and of no other. `KS0401|KS0402` where the reference leaves a
/// choice.
#[track_caller]
pub fn refuses(script: impl AsRef<str>, codes: &str) {
    refused(&[("script.ks", script.as_ref())], codes, Options::default());
}

/// Like [`refuses`], checked against a kernel whose types are known.
#[track_caller]
pub fn refuses_with_kernel(script: impl AsRef<str>, codes: &str) -> Outcome {
    refused(&[("script.ks", script.as_ref())], codes, KERNEL)
}

/// Like [`refuses`], in the language of 0.1.1.
#[track_caller]
pub fn refuses_strict(script: impl AsRef<str>, codes: &str) {
    refused(&[("script.ks", script.as_ref())], codes, STRICT);
}

/// Asserts that there are errors of this code that contain this text, in headline, label, note or help.
#[track_caller]
pub fn refuses_saying(script: impl AsRef<str>, codes: &str, expected: &str) {
    let outcome = refused(&[("script.ks", script.as_ref())], codes, Options::default());
    says(&outcome, expected);
}

/// Asserts that one of the errors contains this text.
#[track_caller]
pub fn says(outcome: &Outcome, expected: &str) {
    let texts: Vec<_> = outcome.errors.iter().map(|error| error.text.as_str()).collect();
    assert!(texts.iter().any(|text| text.contains(expected)), "`{expected}` expected in {texts:#?}");
}

/// Asserts that there is no error in a script of several files; the first is the main one.
#[track_caller]
pub fn accepts_files(files: &[(&str, &str)]) {
    let outcome = check(files, Options::default());
    assert!(outcome.accepted(), "refused with {}:\n{}", outcome.errors_in_short(), files[0].1);
}

/// Asserts that there are errors of this code in a script of several files.
#[track_caller]
pub fn refuses_files(files: &[(&str, &str)], codes: &str) {
    refused(files, codes, Options::default());
}

/// Asserts that the expression has this type, in both halves: a pointer to a variable of it accepts no other.
#[track_caller]
pub fn has_type(declarations: &str, before: &str, expression: &str, ty: &str) {
    for script in in_both(declarations, &format!("{before}\nvar z_ = {expression}\nvar p_: *{ty} = &z_")) {
        accepts(script);
    }
}

/// Asserts that two patterns are the same value: the second is unreachable.
#[track_caller]
pub fn same_value(declarations: &str, one: &str, other: &str) {
    warns(two_patterns(declarations, one, other), "KS0706");
}

/// Asserts that two patterns are different values.
#[track_caller]
pub fn other_value(declarations: &str, one: &str, other: &str) {
    accepts_without(two_patterns(declarations, one, other), "KS0706");
}

fn two_patterns(declarations: &str, one: &str, other: &str) -> String {
    let body = format!("var n: u64 = 1\nvar r = match (n) {{ {one}: 1, {other}: 2, default: 3 }}");
    in_main(declarations, &body)
}

/// Asserts that the constant expression has this value: it is outside of an array of that length, and inside
/// a longer one.
#[track_caller]
pub fn is_constant(expression: &str, value: u32) {
    let read = |len: u32| in_main("", &format!("var a: u8[{len}] = []\nvar r = a[{expression}]"));
    refuses(read(value), "KS0406");
    accepts(read(value + 1));
}

#[track_caller]
fn accepted(script: &str, options: Options) -> Outcome {
    let outcome = check(&[("script.ks", script)], options);
    assert!(outcome.accepted(), "refused with {}:\n{script}", outcome.errors_in_short());
    outcome
}

#[track_caller]
fn refused(files: &[(&str, &str)], codes: &str, options: Options) -> Outcome {
    let outcome = check(files, options);
    let wanted: Vec<_> = codes.split('|').collect();
    assert!(
        outcome.refused_with(&wanted),
        "{codes} expected, but it says {}:\n{}",
        outcome.errors_in_short(),
        files[0].1
    );
    outcome
}

/// Compiles a script to objects for the small kernel.
#[track_caller]
pub fn objects(script: impl AsRef<str>) -> Vec<Vec<u8>> {
    use ks_compiler::pipeline::{self, Target};
    let options = pipeline::Options {
        kernel: std::sync::Arc::new(ks_compiler_testing::checked::kernel::types()),
        ..pipeline::Options::new("objects")
    };
    let parsed = pipeline::parse("objects.ks", script.as_ref().as_bytes(), options);
    let mut checked = parsed.expect("scripts of tests are short").check();
    let built = checked.build(Target::default()).expect("the script compiles");
    built.objects.iter().map(|(_, object)| object.elf().to_vec()).collect()
}

/// Whether an object has a section of this name.
pub fn has_section(elf: &[u8], name: &str) -> bool {
    let name: Vec<u8> = [name.as_bytes(), b"\0"].concat();
    elf.windows(name.len()).any(|window| window == name)
}
