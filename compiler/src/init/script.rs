//! The parts of a new script, and their order.

/// A script to be written.
pub(super) struct Script {
    /// One sentence: what it does. Ends with a full stop.
    pub about: String,
    /// What follows the plugin's name on the command line of ks-host, with a blank before it; or nothing.
    pub usage: &'static str,
    /// Headers to write beside it and to include: path and text.
    pub headers: Vec<(String, String)>,
    /// Its declarations, each without an empty line around it.
    pub items: Vec<String>,
}

impl Script {
    /// A script without headers that takes no arguments.
    pub(super) fn new(about: impl Into<String>, items: Vec<String>) -> Script {
        Script { about: about.into(), usage: "", headers: Vec::new(), items }
    }

    /// The whole text.
    pub(super) fn text(&self) -> String {
        let mut parts = vec![format!("// {}", self.about)];
        let includes: Vec<_> = self.headers.iter().map(|(path, _)| format!("include \"{path}\"")).collect();
        if !includes.is_empty() {
            parts.push(includes.join("\n"));
        }
        parts.extend(self.items.iter().cloned());
        let mut text = parts.join("\n\n");
        text.push('\n');
        text
    }
}

/// A counter that both halves see.
pub(super) fn counter(name: &str) -> String {
    format!("var {name} : u64 = 0")
}

/// A program that counts its calls. `note` lines go above it, without `//`.
pub(super) struct Program<'a> {
    pub note: Option<String>,
    pub attribute: String,
    pub name: &'a str,
    pub params: String,
    pub result: &'a str,
    /// The counter.
    pub counts: &'a str,
    /// What it returns, if anything.
    pub returns: Option<&'a str>,
}

impl Program<'_> {
    pub(super) fn text(&self) -> String {
        let Program { note, attribute, name, params, result, counts, returns } = self;
        let note = note.as_ref().map(|note| format!("// {note}\n")).unwrap_or_default();
        let returns = returns.map(|value| format!("    return {value}\n")).unwrap_or_default();
        format!("{note}{attribute}\nfn {name}({params}) -> {result} {{\n    {counts} += 1\n{returns}}}")
    }
}

/// A `main` that attaches one program and prints its counter every second until it is stopped.
pub(super) fn watching_main(program: &str, target: &str, counts: &str, what: &str) -> String {
    format!(
        r#"fn main() -> i32 {{
    var program = load({program})
    if (program == null) {{
        return 1
    }}
    if (attach(program, "{target}", 0) != 0) {{
        return 1
    }}
    while (sleep(1000) == 0) {{
        print("%llu {what}", {counts})
    }}
    detach(program)
    return 0
}}"#
    )
}

/// The same with a network interface from the command line: the struct of the arguments, and `main`.
pub(super) fn interface_main(program: &str, counts: &str) -> [String; 2] {
    let args = "struct Args {\n    interface: str(16),\n}".to_owned();
    let main = format!(
        r#"fn main(args: Args) -> i32 {{
    var program = load({program})
    if (program == null) {{
        return 1
    }}
    if (attach(program, args.interface, 0) != 0) {{
        print("cannot attach to the interface %s", args.interface)
        return 1
    }}
    while (sleep(1000) == 0) {{
        print("%llu packets", {counts})
    }}
    detach(program)
    return 0
}}"#
    );
    [args, main]
}

/// What follows the plugin's name for [`interface_main`].
pub(super) const INTERFACE_USAGE: &str = " -- --interface eth0";
