//! The table of targets as a chart: the part of its limit that each path uses.

use std::fmt::Write as _;

use crate::target::TargetResult;

/// Heights and widths, in SVG user units.
const ROW: usize = 26;
const BAR: usize = 16;
const NAMES: usize = 300;
const SCALE: usize = 260;
const FIGURES: usize = 150;
const MARGIN: usize = 12;
const HEAD: usize = 44;
/// The end of the scale, as a multiple of the limit. Longer bars are cut.
const LONGEST: f64 = 2.0;

const HOLDS: &str = "#3a7d44";
const MISSED: &str = "#b5423b";

/// Returns the chart as SVG: a bar for each target, scaled by its limit, and a line at the limit. The text
/// below says where the figures come from.
pub fn svg(results: &[TargetResult], machine: &str) -> String {
    let height = HEAD + results.len() * ROW + ROW + MARGIN;
    let width = 2 * MARGIN + NAMES + SCALE + FIGURES;
    let limit = MARGIN + NAMES + (SCALE as f64 / LONGEST) as usize;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n\
         <title>Measured ratios beside the most that is promised</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{limit}\" y=\"{}\" text-anchor=\"middle\" fill=\"#333333\">promised</text>\n",
        HEAD - 18
    );
    for (index, result) in results.iter().enumerate() {
        row(&mut svg, HEAD + index * ROW, result);
    }
    let end = HEAD + results.len() * ROW;
    // Writing to a string cannot fail.
    let _ = write!(
        svg,
        "<line x1=\"{limit}\" y1=\"{}\" x2=\"{limit}\" y2=\"{end}\" stroke=\"#333333\" stroke-dasharray=\"3 \
         3\"/>\n\
         <text x=\"{MARGIN}\" y=\"{}\" fill=\"#333333\">{}</text>\n</svg>\n",
        HEAD - 10,
        end + ROW - 6,
        escaped(machine)
    );
    svg
}

fn row(svg: &mut String, top: usize, result: &TargetResult) {
    let base = top + BAR - 4;
    let start = MARGIN + NAMES;
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\" fill=\"#111111\">{}</text>",
        start - 8,
        escaped(result.target.what)
    );
    let figure = match result.ratio {
        Some(ratio) => {
            let share = (ratio / result.target.at_most).min(LONGEST);
            let length = (share / LONGEST * SCALE as f64).max(1.0);
            let colour = if result.holds { HOLDS } else { MISSED };
            let _ = writeln!(
                svg,
                "<rect x=\"{start}\" y=\"{top}\" width=\"{length:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>"
            );
            format!("{ratio:.3} of {}", result.target.at_most)
        }
        None => "not measured".to_owned(),
    };
    let _ = writeln!(svg, "<text x=\"{}\" y=\"{base}\" fill=\"#111111\">{figure}</text>", start + SCALE + 8);
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target;

    #[test]
    fn every_target_has_a_row_and_only_what_was_measured_a_bar() {
        let mut results = target::judge(&[]);
        results[0].ratio = Some(results[0].target.at_most);
        results[1].ratio = Some(1e9);
        let picture = svg(&results, "a <machine> & more");
        assert_eq!(picture.matches("<rect").count(), 3, "the ground and two bars:\n{picture}");
        assert_eq!(picture.matches("not measured").count(), results.len() - 2, "{picture}");
        assert!(picture.contains("width=\"130.0\""), "what is promised is half of the scale:\n{picture}");
        assert!(picture.contains("width=\"260.0\""), "what is longer is cut:\n{picture}");
        assert!(picture.contains("a &lt;machine> &amp; more"), "{picture}");
    }
}
