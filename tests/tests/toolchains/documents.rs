//! The page about plugins in Rust: its code compiles, and its tests pass.

use ks_tests::{blocks, repository};

/// The first block of Rust is a plugin around the page's script, the block that creates a test's host is the
/// test of the plugin, and the others are statements of the plugin.
#[test]
fn rust_of_the_page_compiles_and_its_tests_pass() {
    let page = std::fs::read_to_string(repository().join("docs/rust.md")).expect("readable");
    let (scripts, blocks) = (blocks(&page, "kernelscript"), blocks(&page, "rust"));
    let ([script], [plugin, others @ ..]) = (&scripts[..], &blocks[..]) else {
        panic!("a script and its plugin: {page}")
    };
    let others = (0..).zip(others).map(|(number, block): (u32, _)| {
        let (test, result) =
            if block.contains("testing::Host::new()") { ("#[test]", "") } else { ("pub", "Ok(())") };
        let returned = if result.is_empty() { "" } else { "-> ks_guest::Result<()> " };
        format!("{test} fn of_the_page_{number}() {returned}{{\n{block}\n{result}\n}}\n")
    });
    let source = format!(
        "{plugin}\n#[cfg(test)]\npub mod tests {{\nuse super::*;\n{}}}\n",
        others.collect::<String>()
    );
    let folder = ks_tests::Folder::new();
    let started = ks_tests::guests::started(&folder.path(""), "ks-page");
    std::fs::write(started.join("src/lib.rs"), source).expect("writable");
    std::fs::write(started.join("src/probe.ks"), script).expect("writable");
    ks_tests::guests::rust_tests(&started);
}
