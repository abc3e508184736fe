//! The parts of a new script, and their order.

/// A new script and its parts.
pub(super) struct Script {
    /// One sentence about its purpose. Ends with a full stop.
    pub about: String,
    /// The arguments after the plugin's name on the command line of ks-host, with a leading blank; or empty.
    pub usage: &'static str,
    /// Headers to write next to it and to include: path and text.
    pub headers: Vec<(String, String)>,
    /// The declarations, each without surrounding empty lines.
    pub items: Vec<String>,
}

impl Script {
    /// Creates a script without headers that takes no arguments.
    pub(super) fn new(about: impl Into<String>, items: Vec<String>) -> Script {
        Script { about: about.into(), usage: "", headers: Vec::new(), items }
    }

    /// Returns the whole text.
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

/// Returns the declaration of a counter that both halves use.
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
    /// The name of the counter.
    pub counts: &'a str,
    /// The expression that it returns; none for void.
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

/// Returns a `main` that attaches one program and prints its counter every second until it is stopped.
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

/// Like [`watching_main`], with a network interface from the command line: the struct of the arguments, and
/// `main`.
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

/// The arguments after the plugin's name for [`interface_main`].
pub(super) const INTERFACE_USAGE: &str = " -- --interface eth0";
