//! Scripts whose results are known without a kernel: numbers computed by the compiler, and members of the
//! kernel's structs that userspace can determine, each read on a path of its own.
//!
//! A script has one program, `watch`, which writes a result for each check into the map `seen`.

use super::constants::{Constant, folded, literal};
use super::kernel_memory::{self, Step};
use super::kinds::{self, Program};
use super::scope::{Gen, Halves, ScriptFunction};
use super::tree::Node;
use super::types::{Int, Ty};

/// The expected result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// The number, extended to 64 bits.
    Number(u64),
    /// A number that userspace knows, by its name in [`FACTS`].
    Fact(&'static str),
}

/// A script and the expected results of its program.
pub struct Compared {
    pub script: Node,
    pub expected: Vec<Expected>,
    /// The attribute of its program, as a script spells it.
    pub kind: &'static str,
    /// Whether it has a config block, to be written before the program runs.
    pub has_config: bool,
}

/// Members of the current task that userspace can determine, too, with their paths. `files[N]` are
/// descriptors that the test has opened.
pub const FACTS: &[(&str, &str)] = &[
    ("tid", "pid"),
    ("pid", "tgid"),
    ("parent", "real_parent.tgid"),
    ("pid", "group_leader.tgid"),
    ("umask", "fs.umask"),
    ("root", "fs.root.dentry.d_inode.i_ino"),
    ("root", "fs.root.mnt.mnt_root.d_inode.i_ino"),
    ("uid", "cred.uid.val"),
    ("gid", "cred.gid.val"),
    ("euid", "cred.euid.val"),
    ("size of 40", "files.fdt.fd[40].f_inode.i_size"),
    ("mode of 40", "files.fdt.fd[40].f_inode.i_mode"),
    ("inode of 40", "files.fdt.fd[40].f_inode.i_ino"),
    ("inode of 41", "files.fdt.fd[41].f_inode.i_ino"),
    ("position of 41", "files.fdt.fd[41].f_pos"),
    ("position of 42", "files.fdt.fd[42].f_pos"),
    ("file system of 42", "files.fdt.fd[42].f_inode.i_sb.s_magic"),
    ("block size of 42", "files.fdt.fd[42].f_inode.i_sb.s_blocksize"),
    ("uid of 42", "files.fdt.fd[42].f_inode.i_uid.val"),
    ("start of the arguments", "mm.arg_start"),
    ("end of the arguments", "mm.arg_end"),
    ("start of the environment", "mm.env_start"),
    ("second letter of the name", "comm[1]"),
    ("second letter of the system", "nsproxy.uts_ns.name.sysname[1]"),
    ("third letter of the release", "nsproxy.uts_ns.name.release[2]"),
    ("timer slack", "timer_slack_ns"),
    ("score", "signal.oom_score_adj"),
];

/// Members that do not change while the program runs, so two reads must agree.
const STABLE: &[&str] = &[
    "start_time",
    "static_prio",
    "policy",
    "se.load.weight",
    "se.load.inv_weight",
    "group_leader.start_time",
    "real_parent.real_parent.pid",
    "thread_pid.level",
    "cred.user_ns.level",
    "cred.user_ns.owner.val",
    "fs.pwd.dentry.d_inode.i_ino",
    "fs.pwd.dentry.d_parent.d_inode.i_ino",
    "fs.pwd.mnt.mnt_flags",
    "fs.pwd.mnt.mnt_sb.s_magic",
    "fs.root.dentry.d_sb.s_dev",
    "files.fdt.fd[40].f_cred.uid.val",
    "files.fdt.fd[41].f_flags",
    "mm.exe_file.f_inode.i_size",
    "mm.exe_file.f_inode.i_sb.s_root.d_inode.i_ino",
    "mm.start_brk",
    "mm.task_size",
];

/// Number of checks in a script.
const CHECKS: usize = 8;
/// Stack bytes for the locals of a check.
const STACK: u32 = 200;

/// Generates the script of a seed.
pub fn script(seed: u64) -> Compared {
    let mut generator = Gen::new(seed, Halves::Kernel);
    let kinds: Vec<&'static Program> = kinds::RUNNABLE.iter().filter_map(|name| kinds::find(name)).collect();
    generator.program = *generator.rng.pick(&kinds);
    let mut checks = Checks { generator, items: Vec::new(), expected: Vec::new(), has_config: false };
    let body = checks.body();
    let Checks { mut generator, mut items, expected, has_config } = checks;
    items.push(Node::stmt(&format!("var seen: array<u32, u64>({CHECKS})"), Vec::new()));
    let kind = generator.program.attribute;
    items.push(Node::stmt(&generator.program.header("watch"), vec![body]).of(kind));
    items.extend(generator.items_around());
    Compared { script: Node::script(items), expected, kind, has_config }
}

struct Checks {
    generator: Gen,
    items: Vec<Node>,
    expected: Vec<Expected>,
    has_config: bool,
}

impl Checks {
    fn body(&mut self) -> Node {
        let mut stmts = Vec::new();
        for _ in 0..CHECKS {
            self.generator.function =
                ScriptFunction { has_context: true, stack: STACK, fuel: 20, ..ScriptFunction::default() };
            let check = match self.generator.rng.below(3) {
                0 => self.constant(),
                1 => self.fact(),
                _ => self.pair(),
            };
            // Locals of one check are not visible in the next one.
            let one = self.generator.one();
            stmts.push(Node::stmt(&format!("if ({one} == 1) $"), vec![Node::block(check)]));
        }
        stmts.push(Node::stmt("return 0", Vec::new()));
        Node::block(stmts)
    }

    /// Generates the statement that stores a result.
    fn keep(&mut self, value: &str, expected: Expected) -> Node {
        self.expected.push(expected);
        Node::stmt(&format!("seen[{}] = ({value} as u64)", self.expected.len() - 1), Vec::new())
    }

    fn steps(&mut self, paths: &[&str]) -> Vec<Step> {
        kernel_memory::steps(self.generator.rng.pick::<&str>(paths))
    }

    /// Generates a read of a member that userspace can determine.
    fn fact(&mut self) -> Vec<Node> {
        let (name, path) = *self.generator.rng.pick(FACTS);
        let mut stmts = Vec::new();
        let task = self.generator.current_task(&mut stmts);
        let value = self.generator.follow(task, &kernel_memory::steps(path), &mut stmts);
        stmts.push(self.keep(&value, Expected::Fact(name)));
        vec![self.generator.in_order(stmts)]
    }

    /// Generates two reads of a member on different paths.
    fn pair(&mut self) -> Vec<Node> {
        let steps = self.steps(STABLE);
        let mut stmts = Vec::new();
        let task = self.generator.current_task(&mut stmts);
        let first = self.generator.follow(task.clone(), &steps, &mut stmts);
        let second = self.generator.follow(task, &steps, &mut stmts);
        let equal = format!("({first} == {second})");
        stmts.push(self.keep(&equal, Expected::Number(1)).of("two paths to a kernel member"));
        vec![self.generator.in_order(stmts)]
    }

    /// Generates a use of a constant, in one of the positions where one is allowed.
    fn constant(&mut self) -> Vec<Node> {
        let int = *self.generator.rng.pick(&Int::ALL);
        let ty = Ty::Int(int).name();
        let rng = &mut self.generator.rng;
        let plain = literal(rng, int);
        let constant = if rng.one_in(2) { folded(rng, int) } else { plain.clone() };
        let expected = Expected::Number(constant.value as u64);
        let construct = constant.construct();
        let Constant { text, value } = constant;
        let name = self.generator.name("x");
        let mut stmts = Vec::new();
        let mut stmt = |text: String| stmts.push(Node::stmt(&text, Vec::new()));
        let read = match self.generator.rng.below(14) {
            0 => {
                stmt(format!("var {name}: {ty} = {text}"));
                name
            }
            1 => {
                stmt(format!("const {name}: {ty} = {text}"));
                name
            }
            2 => {
                self.items.push(Node::stmt(&format!("var {name}: {ty} = {text}"), Vec::new()));
                name
            }
            3 => {
                let block = format!("config {name} {{ a: u8 = 1, b: {ty} = {}, c: u32 = 3 }}", plain.text);
                self.items.push(Node::stmt(&block, Vec::new()));
                self.has_config = true;
                return self.kept(Vec::new(), &format!("{name}.b"), &plain);
            }
            4 => {
                let list = [literal(&mut self.generator.rng, int).text, plain.text.clone()].join(", ");
                stmt(format!("var {name}: {ty}[3] = [{list}]"));
                return self.kept(stmts, &format!("{name}[1]"), &plain);
            }
            5 => {
                let helper = format!("@helper fn {name}(a: u8, p: {ty}) -> {ty} {{ return p }}");
                self.items.push(Node::stmt(&helper, Vec::new()));
                format!("{name}(1, {text})")
            }
            6 => {
                let helper = format!("@helper fn {name}() -> {ty} {{ return {text} }}");
                self.items.push(Node::stmt(&helper, Vec::new()));
                format!("{name}()")
            }
            7 => {
                self.items.push(Node::stmt(&format!("struct S{name} {{ a: u8, b: {ty} }}"), Vec::new()));
                stmt(format!("var {name} = S{name} {{ a: 1, b: {text} }}"));
                format!("{name}.b")
            }
            8 => {
                self.items.push(Node::stmt(&format!("var {name}: {ty} = {}", plain.text), Vec::new()));
                let found = format!("match ({name}) {{ {}: 1, default: 2 }}", plain.text);
                return self.kept_as(stmts, &found, &plain, 1);
            }
            9 => {
                // Compares with the variable's value or a neighbouring one.
                let other = if value == int.most() { value - 1 } else { value + 1 };
                self.items.push(Node::stmt(&format!("var {name}: {ty} = {text}"), Vec::new()));
                self.items.push(Node::stmt(&format!("var o{name}: {ty} = {other}"), Vec::new()));
                let order = if other > value { ">" } else { "<" };
                stmt(format!("var c{name}: u32 = 0"));
                stmt(format!("if ({name} == {text}) {{ c{name} |= 1 }}"));
                stmt(format!("if (o{name} {order} {text}) {{ c{name} |= 2 }}"));
                stmt(format!("if (o{name} == {text}) {{ c{name} |= 4 }}"));
                let constant = Constant { text, value };
                return self.kept_as(stmts, &format!("c{name}"), &constant, 3);
            }
            10 => {
                stmt(format!("var {name}: {ty}"));
                stmt(format!("{name} = {text}"));
                name
            }
            11 => {
                let start = literal(&mut self.generator.rng, int);
                self.items.push(Node::stmt(&format!("var {name}: {ty} = {}", start.text), Vec::new()));
                stmt(format!("{name} += {text}"));
                let sum = Constant { text, value: int.cut(start.value + value) };
                return self.kept(stmts, &name, &sum);
            }
            12 => {
                self.items.push(Node::stmt(&format!("var {name}: hash<{ty}, {ty}>(4)"), Vec::new()));
                stmt(format!("{name}[{text}] = {text}"));
                format!("{name}[{text}]")
            }
            _ => {
                stmt(format!("var {name} = (({text}) as {ty})"));
                name
            }
        };
        stmts.push(self.keep(&read, expected).of(construct));
        stmts
    }

    fn kept(&mut self, stmts: Vec<Node>, read: &str, constant: &Constant) -> Vec<Node> {
        self.kept_as(stmts, read, constant, constant.value)
    }

    fn kept_as(&mut self, mut stmts: Vec<Node>, read: &str, constant: &Constant, value: i128) -> Vec<Node> {
        let construct = constant.construct();
        stmts.push(self.keep(read, Expected::Number(value as u64)).of(construct));
        stmts
    }
}
