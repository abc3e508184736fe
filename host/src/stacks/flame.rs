//! Flame graphs, by crate `inferno`: an SVG that browsers can zoom and search.

use std::io;

use inferno::flamegraph::color::MultiPalette;
use inferno::flamegraph::{self, Options, Palette};

use super::{Profile, folded};

/// Frames narrower than this are left out, in percent of the width.
const NARROWEST: f64 = 0.02;

/// Renders a flame graph as SVG, with different colours for kernel code, process code and inlined code.
///
/// # Errors
/// If there are no samples.
pub fn flame_graph(profile: &Profile, title: &str) -> io::Result<Vec<u8>> {
    if profile.total() == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no stack was counted"));
    }
    let mut options = Options::default();
    options.title = title.to_owned();
    options.count_name = profile.map.clone();
    options.colors = Palette::Multi(MultiPalette::Java);
    // The same stacks produce the same picture.
    options.deterministic = true;
    options.min_width = NARROWEST;
    let mut picture = Vec::new();
    flamegraph::from_lines(&mut options, folded(profile).lines(), &mut picture)?;
    Ok(picture)
}

#[cfg(test)]
mod tests {
    use super::super::tests::profile;
    use super::*;

    #[test]
    fn every_function_is_in_the_picture_with_its_share() {
        let picture = flame_graph(&profile(), "a title").expect("there are stacks");
        let picture = String::from_utf8(picture).expect("SVG is text");
        assert!(picture.starts_with("<?xml") && picture.contains("a title"), "{picture}");
        for frame in ["main (9 seen, 100.00%)", "work (8 seen, 88.89%)", "read (5 seen, 55.56%)"] {
            assert!(picture.contains(frame), "no {frame} in {picture}");
        }
    }

    #[test]
    fn an_empty_profile_has_no_picture() {
        let empty = Profile { map: "seen".into(), samples: Vec::new() };
        assert!(flame_graph(&empty, "").is_err());
    }
}
