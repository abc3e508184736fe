//! Differential test of the halves: generated functions run as `@helper` at a page fault and as plain
//! functions in the plugin, on the same inputs, and must return the same. These tests need root.
//!
//! A large run is `make halves INPUTS=100000`.

pub mod generator;
mod text;

use generator::Generator;
use ks_tests::run_script;

/// Number of scripts, of functions per script, and of inputs for each function.
const SCRIPTS: usize = 12;
const FUNCTIONS: usize = 4;
const INPUTS: usize = 24;

/// Inputs for each function in a script of a large run: each takes a page of the plugin's memory.
const MANY_INPUTS: usize = 4000;

#[test]
fn root_generated_functions_return_the_same_in_both_halves() {
    let (scripts, inputs) = match std::env::var("KS_HALVES_INPUTS") {
        Ok(wanted) => {
            let wanted: usize = wanted.parse().expect("KS_HALVES_INPUTS is a number");
            (wanted.div_ceil(MANY_INPUTS), MANY_INPUTS)
        }
        Err(_) => (SCRIPTS, INPUTS),
    };
    for number in 1..=scripts {
        let script = Generator::new(number as u64).script(FUNCTIONS, inputs);
        let outcome = run_script("halves", &script, &[] as &[&str]);
        let expected = format!("{} results compared\n", FUNCTIONS * inputs);
        let seen = (outcome.code, &outcome.stdout);
        assert_eq!(seen, (0, &expected), "seed {number}: {}\n{script}", outcome.stderr);
    }
    println!("{} inputs, {} results", scripts * inputs, scripts * inputs * FUNCTIONS);
}

#[test]
fn root_a_minus_widens_an_unsigned_number_in_both_halves() {
    let script = include_str!("../scripts/halves_a_minus_widens_an_unsigned_number_in_both_halves.ks");
    let outcome = run_script("minus", script, &[] as &[&str]);
    assert_eq!(outcome.stdout, "-200 -65535 -200 -65535\n", "{}", outcome.stderr);
}
