//! Kernel memory: members reachable through pointers, copies of structs, pointers to pointers, and several
//! paths to the same member.
//!
//! Linux 6.1 to 6.18 have all these members with these types.

use super::forms::TEXT_END;
use super::rng::Rng;
use super::scope::{Gen, Var};
use super::tree::Node;
use super::types::{I32, I64, Int, Ty, U32, U64};

const U16: Int = Int { bits: 16, signed: false };
const I16: Int = Int { bits: 16, signed: true };

/// The type of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    Number(Int),
    /// An array of this many characters.
    Letters(u32),
    /// A pointer to a struct of this name.
    Pointer(&'static str),
    /// A nested struct of this name.
    Part(&'static str),
    /// A pointer to pointers to structs of this name.
    Pointers(&'static str),
}

use Shape::{Letters, Number, Part, Pointer, Pointers};

#[derive(Debug)]
pub struct Member {
    pub name: &'static str,
    pub shape: Shape,
}

#[derive(Debug)]
pub struct Composite {
    pub name: &'static str,
    members: &'static [Member],
    /// The declaration in scripts that have values of it.
    declared: Option<&'static str>,
    /// Whether it is small enough to be copied as a whole.
    is_small: bool,
}

const fn member(name: &'static str, shape: Shape) -> Member {
    Member { name, shape }
}

const fn composite(name: &'static str, members: &'static [Member]) -> Composite {
    Composite { name, members, declared: None, is_small: false }
}

const fn small(name: &'static str, members: &'static [Member]) -> Composite {
    Composite { is_small: true, ..composite(name, members) }
}

const fn declared(name: &'static str, members: &'static [Member], text: &'static str) -> Composite {
    Composite { declared: Some(text), ..small(name, members) }
}

const STRUCTS: &[Composite] = &[
    composite(
        "task_struct",
        &[
            member("pid", Number(I32)),
            member("tgid", Number(I32)),
            member("static_prio", Number(I32)),
            member("policy", Number(U32)),
            member("start_time", Number(U64)),
            member("timer_slack_ns", Number(U64)),
            member("comm", Letters(16)),
            member("real_parent", Pointer("task_struct")),
            member("group_leader", Pointer("task_struct")),
            member("fs", Pointer("fs_struct")),
            member("files", Pointer("files_struct")),
            member("mm", Pointer("mm_struct")),
            member("cred", Pointer("cred")),
            member("nsproxy", Pointer("nsproxy")),
            member("signal", Pointer("signal_struct")),
            member("thread_pid", Pointer("pid")),
            member("se", Part("sched_entity")),
            member("pending", Part("sigpending")),
        ],
    ),
    small(
        "fs_struct",
        &[member("umask", Number(I32)), member("root", Part("path")), member("pwd", Part("path"))],
    ),
    declared(
        "path",
        &[member("dentry", Pointer("dentry")), member("mnt", Pointer("vfsmount"))],
        "struct path { dentry: *dentry, mnt: *vfsmount }",
    ),
    composite(
        "dentry",
        &[
            member("d_flags", Number(U32)),
            member("d_parent", Pointer("dentry")),
            member("d_inode", Pointer("inode")),
            member("d_sb", Pointer("super_block")),
        ],
    ),
    composite(
        "inode",
        &[
            member("i_mode", Number(U16)),
            member("i_uid", Part("kuid_t")),
            member("i_gid", Part("kgid_t")),
            member("i_ino", Number(U64)),
            member("i_size", Number(I64)),
            member("i_sb", Pointer("super_block")),
        ],
    ),
    composite(
        "super_block",
        &[
            member("s_magic", Number(U64)),
            member("s_blocksize", Number(U64)),
            member("s_dev", Number(U32)),
            member("s_root", Pointer("dentry")),
        ],
    ),
    small(
        "vfsmount",
        &[
            member("mnt_root", Pointer("dentry")),
            member("mnt_sb", Pointer("super_block")),
            member("mnt_flags", Number(I32)),
        ],
    ),
    composite(
        "cred",
        &[
            member("uid", Part("kuid_t")),
            member("gid", Part("kgid_t")),
            member("euid", Part("kuid_t")),
            member("user_ns", Pointer("user_namespace")),
        ],
    ),
    declared("kuid_t", &[member("val", Number(U32))], "struct kuid_t { val: u32 }"),
    declared("kgid_t", &[member("val", Number(U32))], "struct kgid_t { val: u32 }"),
    composite("user_namespace", &[member("level", Number(I32)), member("owner", Part("kuid_t"))]),
    composite("files_struct", &[member("next_fd", Number(U32)), member("fdt", Pointer("fdtable"))]),
    small("fdtable", &[member("max_fds", Number(U32)), member("fd", Pointers("file"))]),
    composite(
        "file",
        &[
            member("f_inode", Pointer("inode")),
            member("f_flags", Number(U32)),
            member("f_pos", Number(I64)),
            member("f_cred", Pointer("cred")),
        ],
    ),
    composite(
        "mm_struct",
        &[
            member("arg_start", Number(U64)),
            member("arg_end", Number(U64)),
            member("env_start", Number(U64)),
            member("start_brk", Number(U64)),
            member("task_size", Number(U64)),
            member("map_count", Number(I32)),
            member("exe_file", Pointer("file")),
        ],
    ),
    composite("nsproxy", &[member("uts_ns", Pointer("uts_namespace"))]),
    composite("uts_namespace", &[member("name", Part("new_utsname"))]),
    composite("new_utsname", &[member("sysname", Letters(65)), member("release", Letters(65))]),
    composite("signal_struct", &[member("nr_threads", Number(I32)), member("oom_score_adj", Number(I16))]),
    composite("pid", &[member("level", Number(U32))]),
    small(
        "sched_entity",
        &[
            member("load", Part("load_weight")),
            member("avg", Part("sched_avg")),
            member("vruntime", Number(U64)),
            member("sum_exec_runtime", Number(U64)),
        ],
    ),
    declared(
        "load_weight",
        &[member("weight", Number(U64)), member("inv_weight", Number(U32))],
        "struct load_weight { weight: u64, inv_weight: u32 }",
    ),
    small("sched_avg", &[member("util_avg", Number(U64)), member("period_contrib", Number(U32))]),
    small("sigpending", &[member("list", Part("list_head"))]),
    small("list_head", &[member("next", Pointer("list_head")), member("prev", Pointer("list_head"))]),
];

/// Stack bytes for a copy of a struct, as most have few members that scripts name.
const COPY: u32 = 24;

fn find(name: &str) -> &'static Composite {
    STRUCTS.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("no struct `{name}` in the table"))
}

/// A member on a path, and the index of its element if it has several.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub member: &'static Member,
    pub index: u32,
}

/// Looks up the members of a path that starts at a `task_struct`; `fd[3]` is the element 3 of `fd`.
pub fn steps(path: &str) -> Vec<Step> {
    let mut at = find("task_struct");
    let mut steps = Vec::new();
    for part in path.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, rest)) => (name, rest.trim_end_matches(']').parse().expect("an index is a number")),
            None => (part, 0),
        };
        let member = at.members.iter().find(|one| one.name == name);
        let member = member.unwrap_or_else(|| panic!("`{}` has no member `{name}` in the table", at.name));
        steps.push(Step { member, index });
        if let Pointer(next) | Part(next) | Pointers(next) = member.shape {
            at = find(next);
        }
    }
    steps
}

/// Generates a path from a struct to a number of a type, or to any number or character, of at most `most`
/// members.
fn random_path(rng: &mut Rng, from: &str, goal: Option<Int>, most: usize) -> Option<Vec<Step>> {
    (0..20).find_map(|_| {
        let mut at = find(from);
        let mut steps = Vec::new();
        for _ in 0..most {
            let fits = |one: &&Member| goal.is_some_and(|int| one.shape == Number(int));
            let fitting: Vec<&'static Member> = at.members.iter().filter(fits).collect();
            let member = match fitting.is_empty() || rng.one_in(2) {
                // Without a goal, prefer members through which the path can continue.
                true if goal.is_none() && rng.one_in(2) => further(rng, at.members),
                true => rng.pick(at.members),
                false => *rng.pick(&fitting),
            };
            let index = rng.below(8) as u32;
            steps.push(Step { member, index });
            match member.shape {
                Pointer(next) | Part(next) | Pointers(next) => at = find(next),
                Number(int) => return goal.is_none_or(|goal| goal == int).then_some(steps),
                Letters(_) => return goal.is_none().then_some(steps),
            }
        }
        None
    })
}

/// Returns a member through which the path can continue, if there is one.
fn further(rng: &mut Rng, members: &'static [Member]) -> &'static Member {
    let leads_on = |one: &&Member| !matches!(one.shape, Number(_) | Letters(_));
    let leading: Vec<&'static Member> = members.iter().filter(leads_on).collect();
    if leading.is_empty() { rng.pick(members) } else { leading[rng.below(leading.len())] }
}

/// The kind of an expression for kernel memory or for a copy of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// A pointer to a struct.
    Pointer,
    /// A struct nested in the pointee of a pointer.
    Part,
    /// A local copy of a struct.
    Copy,
    /// A pointer to pointers to structs.
    Pointers,
}

/// An expression through which a struct can be accessed.
#[derive(Clone, Debug)]
pub struct Lead {
    text: String,
    to: &'static str,
    form: Form,
}

impl Lead {
    /// Wraps a pointer to a struct of the kernel.
    pub fn pointer(text: &str, to: &'static str) -> Lead {
        Lead { text: text.into(), to, form: Form::Pointer }
    }
}

/// Constructs that [`Gen::follow`] generates in addition to members.
pub const CONSTRUCTS: &[&str] = &[
    "kernel member",
    "chain of kernel pointers",
    "copy of a kernel struct",
    "copy of a copy of a kernel struct",
    "copy of what a kernel pointer leads to",
    "kernel struct as parameter and result",
    "kernel struct in a map",
    "kernel struct in a struct",
    "address of a part of a kernel struct",
    "kernel pointer in a variable",
    "kernel pointer set in a branch",
    "kernel pointer set in a loop",
    "kernel pointer set in a loop of any length",
    "kernel pointer in a struct",
    "kernel pointer in an array",
    "address of a kernel pointer",
    "kernel pointer as a number",
    "kernel pointer from a helper",
    "pointers of the kernel, indexed",
    "pointers of the kernel, moved",
    "address of an element of the kernel's pointers",
    "pointers of the kernel as numbers",
    "letters of the kernel",
    "two paths to a kernel member",
];

impl Gen {
    /// Generates the statements from a pointer to the last of the members, and the expression that reads it.
    pub fn follow(&mut self, from: Lead, steps: &[Step], stmts: &mut Vec<Node>) -> String {
        let mut lead = from;
        let mut arrows = 0;
        for step in steps {
            while self.rng.one_in(3) {
                lead = self.detour(lead, stmts);
            }
            arrows += u32::from(lead.form == Form::Pointer);
            let text = match lead.form {
                Form::Pointer if self.rng.one_in(6) => format!("(*{}).{}", lead.text, step.member.name),
                Form::Pointer => format!("{}->{}", lead.text, step.member.name),
                Form::Part | Form::Copy => format!("{}.{}", lead.text, step.member.name),
                Form::Pointers => unreachable!("elements are taken when they are reached"),
            };
            lead = match step.member.shape {
                Number(_) => {
                    let construct = if arrows > 2 { "chain of kernel pointers" } else { "kernel member" };
                    self.marks.push(construct);
                    return text;
                }
                Letters(_) => {
                    self.marks.push("letters of the kernel");
                    let index = self.index_text(step.index);
                    return format!("{text}[{index}]");
                }
                Pointer(to) => Lead { text, to, form: Form::Pointer },
                Part(to) if lead.form == Form::Copy => Lead { text, to, form: Form::Copy },
                Part(to) => Lead { text, to, form: Form::Part },
                Pointers(to) => self.element_of(Lead { text, to, form: Form::Pointers }, step.index, stmts),
            };
        }
        unreachable!("a path ends at a number or a letter")
    }

    /// Returns a variable with the value 1, which the compiler does not know.
    pub fn one(&mut self) -> &'static str {
        self.around.insert("var one: u32 = 1".into());
        "one"
    }

    /// Formats an index, possibly as an expression that the compiler cannot evaluate.
    fn index_text(&mut self, index: u32) -> String {
        match self.rng.below(3) {
            0 => format!("{index} * {}", self.one()),
            _ => index.to_string(),
        }
    }

    /// Declares a variable for an expression on the path.
    fn kept(&mut self, construct: &'static str, text: &str, stmts: &mut Vec<Node>) -> String {
        let name = self.name("k");
        stmts.push(Node::stmt(&format!("var {name} = {text}"), Vec::new()).of(construct));
        name
    }

    /// Generates an access to an element of a pointer array.
    fn element_of(&mut self, mut lead: Lead, index: u32, stmts: &mut Vec<Node>) -> Lead {
        if self.rng.one_in(2) {
            lead.text = self.kept("kernel pointer in a variable", &lead.text, stmts);
        }
        let (text, to) = (lead.text, lead.to);
        let at = self.index_text(index);
        let text = match self.rng.below(6) {
            0 => {
                self.marks.push("pointers of the kernel, moved");
                format!("(*({text} + {at}))")
            }
            1 if index > 0 => {
                let moved = self.kept("pointers of the kernel, moved", &format!("{text} + 1"), stmts);
                format!("{moved}[{}]", index - 1)
            }
            2 => {
                let construct = "address of an element of the kernel's pointers";
                let cell = self.kept(construct, &format!("&{text}[{at}]"), stmts);
                if self.rng.one_in(2) { format!("{cell}[0]") } else { format!("(*{cell})") }
            }
            3 => {
                let pointers =
                    self.kept("pointers of the kernel as numbers", &format!("{text} as *u64"), stmts);
                format!("({pointers}[{at}] as *{to})")
            }
            _ => {
                self.marks.push("pointers of the kernel, indexed");
                format!("{text}[{at}]")
            }
        };
        Lead { text, to, form: Form::Pointer }
    }

    /// Generates another expression for the same struct.
    fn detour(&mut self, lead: Lead, stmts: &mut Vec<Node>) -> Lead {
        let (text, to) = (lead.text.as_str(), lead.to);
        let detour = match lead.form {
            Form::Pointer => self.pointer_detour(text, to, stmts),
            Form::Part => self.part_detour(text, to, stmts),
            Form::Copy => self.copy_detour(text, to, stmts),
            Form::Pointers => None,
        };
        detour.unwrap_or(lead)
    }

    fn pointer_detour(&mut self, text: &str, to: &'static str, stmts: &mut Vec<Node>) -> Option<Lead> {
        if !self.claim_bytes(8) {
            return None;
        }
        let pointer = |text: String| Some(Lead { text, to, form: Form::Pointer });
        match self.rng.below(10) {
            0 if find(to).is_small && self.claim_bytes(COPY) => {
                let construct = "copy of what a kernel pointer leads to";
                let text = self.kept(construct, &format!("*{text}"), stmts);
                Some(Lead { text, to, form: Form::Copy })
            }
            1 => {
                let name = self.kept("kernel pointer in a variable", text, stmts);
                let address = self.kept("address of a kernel pointer", &format!("&{name}"), stmts);
                pointer(if self.rng.one_in(2) { format!("{address}[0]") } else { format!("(*{address})") })
            }
            2 if self.claim_bytes(24) => {
                self.holders.insert(to.into());
                let literal = format!("H{to} {{ n: 1, p: {text}, o: null }}");
                let name = self.kept("kernel pointer in a struct", &literal, stmts);
                pointer(format!("{name}.p"))
            }
            3 if self.claim_bytes(16) => {
                self.holders.insert(to.into());
                let name = self.name("k");
                let at = self.index_text(1);
                let text = format!("var {name}: P{to}[2] = []\n{name}[1] = {text}");
                stmts.push(Node::stmt(&text, Vec::new()).of("kernel pointer in an array"));
                pointer(format!("{name}[{at}]"))
            }
            4 => {
                let number = self.kept("kernel pointer as a number", &format!("{text} as u64"), stmts);
                pointer(format!("({number} as *{to})"))
            }
            5 => {
                self.around.insert(format!("@helper fn same_{to}(p: *{to}) -> *{to} {{ return p }}"));
                let call = format!("same_{to}({text})");
                pointer(self.kept("kernel pointer from a helper", &call, stmts))
            }
            6 | 7 => {
                let one = self.one();
                let (head, construct) = match self.rng.below(3) {
                    0 => (format!("if ({one} == 1)"), "kernel pointer set in a branch"),
                    1 => ("for (step in 0..3)".into(), "kernel pointer set in a loop"),
                    _ => (format!("for (step in 0..{one})"), "kernel pointer set in a loop of any length"),
                };
                let name = self.name("k");
                let declared = Node::stmt(&format!("var {name}: *{to} = null"), Vec::new());
                let set = Node::block(vec![Node::stmt(&format!("{name} = {text}"), Vec::new())]);
                stmts.push(Node::stmt(&format!("$\n{head} $"), vec![declared, set]).of(construct));
                pointer(name)
            }
            _ => {
                let name = self.kept("kernel pointer in a variable", text, stmts);
                self.function.kernel.push(KernelPointer { name: name.clone(), to });
                pointer(name)
            }
        }
    }

    fn part_detour(&mut self, text: &str, to: &'static str, stmts: &mut Vec<Node>) -> Option<Lead> {
        if self.rng.one_in(3) && self.claim_bytes(8) {
            let construct = "address of a part of a kernel struct";
            let text = self.kept(construct, &format!("&{text}"), stmts);
            return Some(Lead { text, to, form: Form::Pointer });
        }
        if !find(to).is_small {
            return None;
        }
        if self.rng.one_in(2) {
            return self.copy_detour(text, to, stmts);
        }
        if !self.claim_bytes(COPY) {
            return None;
        }
        let text = self.kept("copy of a kernel struct", text, stmts);
        Some(Lead { text, to, form: Form::Copy })
    }

    /// Copies a struct that may be a copy already.
    fn copy_detour(&mut self, text: &str, to: &'static str, stmts: &mut Vec<Node>) -> Option<Lead> {
        if !self.claim_bytes(COPY) {
            return None;
        }
        let copy = |text: String| Some(Lead { text, to, form: Form::Copy });
        let Some(declaration) = find(to).declared else {
            return copy(self.kept("copy of a copy of a kernel struct", text, stmts));
        };
        self.around.insert(declaration.into());
        match self.rng.below(4) {
            0 => {
                self.around.insert(format!("@helper fn pass_{to}(v: {to}) -> {to} {{ return v }}"));
                let call = format!("pass_{to}({text})");
                copy(self.kept("kernel struct as parameter and result", &call, stmts))
            }
            1 => {
                self.around.insert(format!("var kept_{to}: hash<u32, {to}>(4)"));
                let stored = format!("kept_{to}[3] = {text}");
                stmts.push(Node::stmt(&stored, Vec::new()).of("kernel struct in a map"));
                copy(format!("kept_{to}[3]"))
            }
            2 => {
                self.around.insert(format!("struct With_{to} {{ n: u32, v: {to}, m: u64 }}"));
                let literal = format!("With_{to} {{ n: 1, v: {text}, m: 2 }}");
                let name = self.kept("kernel struct in a struct", &literal, stmts);
                copy(format!("{name}.v"))
            }
            _ => copy(self.kept("copy of a copy of a kernel struct", text, stmts)),
        }
    }

    /// Combines statements, and adds the constructs of their last expression.
    pub fn in_order(&mut self, stmts: Vec<Node>) -> Node {
        let placeholders = vec!["$"; stmts.len()].join("\n");
        let mut all = Node::stmt(&placeholders, stmts);
        all.constructs.append(&mut self.marks);
        all
    }

    /// Generates a pointer to a struct of the kernel, from the pointers in scope.
    fn kernel_pointer(&mut self, stmts: &mut Vec<Node>) -> Lead {
        if !self.function.kernel.is_empty() && self.rng.one_in(2) {
            let KernelPointer { name, to } = self.rng.pick(&self.function.kernel).clone();
            return Lead::pointer(&name, to);
        }
        let tasks = if self.function.has_context { self.program.tasks } else { &[] };
        if !tasks.is_empty() && self.rng.one_in(2) {
            return Lead::pointer(self.rng.pick::<&str>(tasks), "task_struct");
        }
        self.current_task(stmts)
    }

    /// Generates a variable with the current task.
    pub fn current_task(&mut self, stmts: &mut Vec<Node>) -> Lead {
        let call = match self.rng.below(3) {
            0 => "bpf_get_current_task_btf() as *task_struct",
            1 => "bpf_get_current_task() as *task_struct",
            _ => "bpf_get_current_task_btf()",
        };
        let name = self.kept("kernel pointer from a helper", call, stmts);
        self.function.kernel.push(KernelPointer { name: name.clone(), to: "task_struct" });
        Lead::pointer(&name, "task_struct")
    }
}

/// A variable that points to a struct of the kernel.
#[derive(Clone)]
pub struct KernelPointer {
    pub name: String,
    pub to: &'static str,
}

/// Limit on the members of a path.
const MOST_MEMBERS: usize = 6;

/// Generates `var v = p->a->b.c`, on a path with detours; or a block for the case that two paths agree.
pub fn read(generator: &mut Gen) -> Option<Node> {
    if !generator.kernel_only || generator.function.loops > 1 || !generator.claim_bytes(8) {
        return None;
    }
    let mut stmts = Vec::new();
    let from = generator.kernel_pointer(&mut stmts);
    let Some(steps) = random_path(&mut generator.rng, from.to, None, MOST_MEMBERS) else {
        // The pointer is in scope from here on.
        return (!stmts.is_empty()).then(|| generator.in_order(stmts));
    };
    let last = steps.last().map(|step| step.member.shape);
    let ty = match last {
        Some(Number(int)) => Ty::Int(int),
        _ => Ty::Char,
    };
    let first = generator.follow(from.clone(), &steps, &mut stmts);
    if generator.rng.one_in(3) {
        let second = generator.follow(from, &steps, &mut stmts);
        let body = generator.body();
        let compared = Node::stmt(&format!("if ({first} == {second}) $"), vec![body]);
        stmts.push(compared.of("two paths to a kernel member"));
    } else {
        let name = generator.name("v");
        stmts.push(Node::stmt(&format!("var {name} = {first}"), Vec::new()));
        generator.function.locals.push(Var::writable(name, ty));
    }
    Some(generator.in_order(stmts))
}

/// Generates a read of text or bytes at any address, and asks whether there was one.
pub fn text(generator: &mut Gen) -> Option<Node> {
    const BYTES: u32 = 24;
    if !generator.kernel_only || generator.function.loops > 1 || !generator.claim_bytes(BYTES) {
        return None;
    }
    let address = Ty::Int(U64);
    let mut children = vec![generator.unknown(&address)];
    let name = generator.name("t");
    let (template, ty) = match generator.rng.below(4) {
        0 => {
            let inside = generator.block(|generator| {
                generator.declare(&name, &Ty::Str(BYTES));
                generator.stmts(3)
            });
            children.extend([inside, generator.body()]);
            return Some(Node::stmt(&format!("if (var {name} = str(${TEXT_END}) $ else $"), children));
        }
        1 => {
            children.push(generator.body());
            return Some(Node::stmt(&format!("if (str(${TEXT_END} != null) $"), children));
        }
        2 => (format!("var {name}: u8[{BYTES}] = buf($, $)"), None),
        _ => (format!("var {name} = str(${TEXT_END}"), Some(Ty::Str(BYTES))),
    };
    if ty.is_none() {
        children.push(generator.unknown(&address));
    }
    children.push(generator.body());
    let again = match &ty {
        Some(_) if generator.rng.one_in(2) => {
            children.insert(1, generator.unknown(&address));
            format!("{name} = str(${TEXT_END}\n")
        }
        _ => String::new(),
    };
    let asked = Node::stmt(&format!("{template}\n{again}if ({name} == null) $"), children);
    ty.into_iter().for_each(|ty| generator.declare(&name, &ty));
    Some(asked)
}

/// Generates a member reachable through a pointer to a struct of the kernel.
pub fn number(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    let Ty::Int(int) = ty else { return None };
    if generator.function.kernel.is_empty() {
        return None;
    }
    let KernelPointer { name, to } = generator.rng.pick(&generator.function.kernel).clone();
    let steps = random_path(&mut generator.rng, to, Some(*int), 4)?;
    let mut text = name;
    let mut is_part = false;
    for step in steps {
        let arrow = if is_part { "." } else { "->" };
        text = format!("{text}{arrow}{}", step.member.name);
        is_part = matches!(step.member.shape, Part(_));
        if matches!(step.member.shape, Pointers(_)) {
            text = format!("{text}[{}]", step.index);
        }
    }
    Some(Node::expr(ty, &text, Vec::new()))
}
