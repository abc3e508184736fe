//! File URIs, and paths with `/` between their parts.

use std::str::FromStr;

use lsp_types::Uri;

/// Returns the path of a `file:` URI. Any other URI is returned unchanged: a text that is not a file needs a
/// name, too.
pub fn path(uri: &Uri) -> String {
    let text = uri.as_str();
    let Some(rest) = text.strip_prefix("file://") else { return text.to_owned() };
    // The name of this machine may stand between the slashes.
    let path = rest.find('/').map_or(rest, |at| &rest[at..]);
    decode(path)
}

/// Returns the URI of a path.
pub fn of_path(path: &str) -> Option<Uri> {
    if !path.starts_with('/') {
        return Uri::from_str(path).ok();
    }
    let mut text = "file://".to_owned();
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(byte.into())
            }
            _ => text += &format!("%{byte:02X}"),
        }
    }
    Uri::from_str(&text).ok()
}

/// Returns the path that `relative` denotes in a file at `from`.
pub fn sibling_path(from: &str, relative: &str) -> String {
    if relative.starts_with('/') {
        return relative.to_owned();
    }
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.len() > 1 => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_its_address() {
        for name in ["/tmp/a b/%41.ks", "/\u{e9}t\u{e9}/x.ks", "/plain.ks"] {
            assert_eq!(path(&of_path(name).expect("an address")), name);
        }
        assert_eq!(path(&Uri::from_str("untitled:One").expect("an address")), "untitled:One");
    }

    #[test]
    fn relative_paths_start_in_the_folder_of_the_file() {
        assert_eq!(sibling_path("/a/b/main.ks", "lib/m.ks"), "/a/b/lib/m.ks");
        assert_eq!(sibling_path("/a/b/main.ks", "../m.ks"), "/a/m.ks");
        assert_eq!(sibling_path("/a/b/main.ks", "./m.ks"), "/a/b/m.ks");
        assert_eq!(sibling_path("/main.ks", "../../m.ks"), "/m.ks");
    }
}
