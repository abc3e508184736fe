//! `ks init rust NAME`: a new plugin in Rust.

use super::{InitError, is_script_name};

const MANIFEST: &str = r#"[package]
name = "{name}"
version = "0.1.0"
edition = "2024"

[lib]
crate-type = ["cdylib"]

[dependencies]
ks-guest = { path = {sdk} }

# Small: the host compiles what is in the file.
[profile.release]
opt-level = "s"
lto = true
panic = "abort"
strip = "debuginfo"

# On its own, whatever folder it lies in.
[workspace]
"#;

const CARGO_CONFIG: &str = r#"# Comes with the compiler. What it makes is a component, which is what ks-host runs.
[target.wasm32-unknown-unknown]
linker = "wasm-component-ld"
"#;

const SOURCE: &str = r#"//! Counts the page faults of this plugin's own thread, and the time it ran, once a second until it is stopped.

use std::time::Duration;

use ks_guest::{Event, Group, PerfOptions, Result, clock, println};

#[ks_guest::main]
fn main() -> Result<()> {
    let own_thread = PerfOptions::new().own_thread();
    let faults = Group::open(&Event::named("page_faults")?, &own_thread)?;
    let time = faults.join(&Event::named("task_clock")?, &own_thread)?;
    while clock::sleep(Duration::from_secs(1)).is_ok() {
        println!("{} page faults in {} ns", faults.read()?.raw, time.read()?.raw);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ks_guest::testing::Host;

    /// Needs no kernel: the host says what the test tells it to say.
    #[test]
    fn a_line_is_printed_every_second() {
        let host = Host::new();
        host.counter("page_faults", [3, 8]);
        host.counter("task_clock", [1000, 2500]);
        host.stop_after(Duration::from_millis(2500));
        assert_eq!(host.run(main), 0);
        assert_eq!(host.output(), "3 page faults in 1000 ns\n8 page faults in 2500 ns\n");
    }
}
"#;

const README: &str = r"# {name}

Counts the page faults of its own thread, once a second.

Made by `ks init rust {name}`.

    rustup target add wasm32-unknown-unknown
    cargo test
    cargo build --release --target wasm32-unknown-unknown
    ks-host target/wasm32-unknown-unknown/release/{file}.wasm

If it has a kernel half whose variables or arrays it reads often, `ks share` makes that a load instead of a call:

    ks share target/wasm32-unknown-unknown/release/{file}.wasm

The documentation of what a plugin can do: `cargo doc --open -p ks-guest`.
";

/// Names that a package cannot have, or that would conflict with the plugin's own dependencies.
const TAKEN: [&str; 6] = ["test", "core", "std", "alloc", "ks-guest", "ks_guest"];

/// The files of a new plugin: path relative to its folder, and text. `sdk` is the folder of the crate
/// `ks-guest`.
///
/// # Errors
/// A name that cannot be used.
pub fn project(name: &str, sdk: &str) -> Result<Vec<(String, String)>, InitError> {
    if !is_script_name(name) {
        return Err(InitError::Name(name.to_owned()));
    }
    if TAKEN.contains(&name) {
        return Err(InitError::Taken(name.to_owned()));
    }
    let file = name.replace('-', "_");
    let filled = |path: &str, text: &str| {
        let text = text.replace("{name}", name).replace("{file}", &file).replace("{sdk}", &quoted(sdk));
        (path.to_owned(), text)
    };
    Ok(vec![
        filled("Cargo.toml", MANIFEST),
        filled(".cargo/config.toml", CARGO_CONFIG),
        filled("src/lib.rs", SOURCE),
        filled(".gitignore", "/target\n"),
        filled("README.md", README),
    ])
}

/// Quotes text for TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_and_the_crates_folder_are_filled_in() {
        let files = project("two-words", "/a \"b\"\\c\n").expect("a name");
        let text = |path: &str| &files.iter().find(|(found, _)| found == path).expect("it is written").1;
        assert!(text("Cargo.toml").contains("name = \"two-words\"\n"));
        assert!(text("Cargo.toml").contains(r#"ks-guest = { path = "/a \"b\"\\c\u000a" }"#));
        assert!(text("README.md").contains("release/two_words.wasm\n"));
        assert!(files.iter().all(|(_, text)| !text.contains("{name}") && !text.contains("{sdk}")));
    }

    #[test]
    fn names_that_cargo_refuses_are_refused() {
        for name in ["", "1st", "a b"] {
            assert_eq!(project(name, "/sdk"), Err(InitError::Name(name.to_owned())));
        }
        for name in TAKEN {
            assert_eq!(project(name, "/sdk"), Err(InitError::Taken(name.to_owned())));
        }
    }
}
