//! What a plugin's author gets wrong does not compile, and the compiler says why.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
