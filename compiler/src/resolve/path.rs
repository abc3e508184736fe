//! Paths of source files: parts separated by `/`, relative to the folder of the main file.

/// Returns the path that `path` denotes in a file of `folder`, without `.` and with each `..` resolved where
/// possible, so that a file has one path however it is named.
pub(super) fn join(folder: &str, path: &str) -> String {
    let absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    let before = if absolute { "" } else { folder };
    let rooted = absolute || before.starts_with('/');
    for part in before.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    if rooted { format!("/{joined}") } else { joined }
}

/// Returns the folder of a file; empty for that of the main file.
pub(super) fn folder(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_has_one_path() {
        let cases = [
            ("", "a.ks", "a.ks"),
            ("", "./a.ks", "a.ks"),
            ("lib", "../a.ks", "a.ks"),
            ("lib/x", "../y//b.kh", "lib/y/b.kh"),
            ("", "../../a.ks", "../../a.ks"),
            ("..", "../a.ks", "../../a.ks"),
            ("lib", "/etc/a.kh", "/etc/a.kh"),
            ("/", "../a.kh", "/a.kh"),
        ];
        for (folder, path, wanted) in cases {
            assert_eq!(join(folder, path), wanted, "{folder} and {path}");
        }
        assert_eq!((folder("a.ks"), folder("lib/a.ks"), folder("/a.ks")), ("", "lib", "/"));
    }
}
