//! Rows of the conformance table, computed in both halves.

use std::fmt::Write as _;

use crate::run_script;

/// The cases of one row, and the declarations that they share.
#[derive(Default)]
pub struct Row {
    shared: String,
    cases: Vec<(String, u64)>,
}

impl Row {
    /// Creates a row with declarations. Functions among them carry `@HELPER` and have names that begin with
    /// `X_`.
    pub fn with(shared: &str) -> Row {
        Row { shared: shared.to_owned(), cases: Vec::new() }
    }

    /// Adds a case: the body of a function that returns a number. Its parameter `zero` is 0, which is unknown
    /// at compile time.
    pub fn case(mut self, body: &str, expected: impl Into<i128>) -> Row {
        self.cases.push((body.to_owned(), expected.into() as u64));
        self
    }

    /// Returns the script that runs each case as a helper of the kernel half at a page fault, and in the
    /// plugin.
    pub fn script(&self) -> String {
        // Types and maps are declared once; functions, and the variables that they write, once for each half.
        let (once, twice): (Vec<_>, Vec<_>) =
            self.shared.split("\n\n").partition(|part| !part.contains("X_"));
        let mut text = format!("{}\nvar results : u64[{}]\n", once.join("\n"), self.cases.len());
        text += "var nothing : u32 = 0\nvar armed : bool = false\nvar memory : u8[65536]\n";
        let mut functions = twice.join("\n");
        for (index, (body, _)) in self.cases.iter().enumerate() {
            let _ = write!(functions, "\n@HELPER\nfn X_case{index}(zero: u32) -> u64 {{\n{body}\n}}\n");
        }
        for (half, attribute) in [("k_", "@helper\n"), ("u_", "")] {
            text += &functions.replace("@HELPER\n", attribute).replace("X_", half);
        }
        text += "@perf_event\nfn program(ctx: *bpf_perf_event_data) -> i32 {\nif (!armed) { return 0 }\n\
                 armed = false\n";
        for index in 0..self.cases.len() {
            let _ = writeln!(text, "results[{index}] = k_case{index}(nothing)");
        }
        text += "return 0\n}\nfn main() -> i32 {\nvar h = load(program)\n\
                 attach(h, perf_options { event: page_faults, pid: 0, cpu: -1, period: 1 }, 0)\n\
                 armed = true\nmemory[32768] = 1\n";
        for index in 0..self.cases.len() {
            let _ = writeln!(text, "print(\"%u %u\", results[{index}], u_case{index}(nothing))");
        }
        text + "return 0\n}\n"
    }

    /// Runs the cases; panics if one does not return its expected number in both halves. Needs root.
    #[track_caller]
    pub fn holds(self, row: &str) {
        let script = self.script();
        let outcome = run_script(row, &script, &[] as &[&str]);
        assert_eq!(outcome.code, 0, "{}\n{script}", outcome.stderr);
        let lines: Vec<_> = outcome.stdout.lines().collect();
        assert_eq!(lines.len(), self.cases.len(), "{lines:?}");
        for ((body, expected), line) in self.cases.iter().zip(lines) {
            assert_eq!(line, format!("{expected} {expected}"), "kernel half and userspace half of:\n{body}");
        }
    }
}
