//! How grants come to nothing in a storm and come back, drawn from what runs wrote with `--json`.

use std::fmt::Write;

use anyhow::Context;
use serde_json::Value;

const COLUMNS: usize = 3;
const WIDTH: f64 = 260.0;
const HEIGHT: f64 = 110.0;
/// Around each picture: for its title and its numbers.
const MARGIN: f64 = 26.0;

/// One small picture per run: grants per second, by the time since everything had been healed.
pub(crate) fn svg(runs: &[Value]) -> anyhow::Result<String> {
    let rows = runs.len().div_ceil(COLUMNS);
    let (width, height) = (COLUMNS as f64 * (WIDTH + MARGIN) + MARGIN, rows as f64 * (HEIGHT + 2.0 * MARGIN));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (index, run) in runs.iter().enumerate() {
        let left = MARGIN + (index % COLUMNS) as f64 * (WIDTH + MARGIN);
        let top = MARGIN + (index / COLUMNS) as f64 * (HEIGHT + 2.0 * MARGIN);
        picture(&mut svg, run, left, top)?;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn picture(svg: &mut String, run: &Value, left: f64, top: f64) -> anyhow::Result<()> {
    let engine = run["engine"].as_str().context("a run without an engine")?;
    let around = &run["around_healing"];
    let (from, step) = (around["from_ms"].as_f64().unwrap_or(0.0), around["step_ms"].as_f64().unwrap_or(1.0));
    let rates: Vec<f64> =
        around["per_second"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    let highest = rates.iter().copied().fold(1.0, f64::max);
    let span = rates.len().max(2) as f64 - 1.0;
    let x = |nth: f64| left + WIDTH * nth / span;
    let bottom = top + HEIGHT;
    let healed = x(-from / step);
    let end = (from + step * span) / 1000.0;
    let line: Vec<_> = rates
        .iter()
        .enumerate()
        .map(|(nth, rate)| format!("{:.1},{:.1}", x(nth as f64), bottom - HEIGHT * rate / highest))
        .collect();
    writeln!(
        svg,
        "<text x=\"{left}\" y=\"{:.1}\" font-weight=\"bold\">{engine}</text>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">at most {highest:.0}/s</text>\n\
         <rect x=\"{left}\" y=\"{top}\" width=\"{:.1}\" height=\"{HEIGHT}\" fill=\"#fbe9e7\"/>\n\
         <path d=\"M{left} {bottom}H{:.1}M{healed:.1} {top}V{bottom}\" stroke=\"#888\" fill=\"none\"/>\n\
         <polyline points=\"{}\" fill=\"none\" stroke=\"#1565c0\" stroke-width=\"1.5\"/>\n\
         <text x=\"{left}\" y=\"{:.1}\">{:.0} s: faults</text>\n\
         <text x=\"{healed:.1}\" y=\"{:.1}\">0: healed</text>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{end:.0} s</text>",
        top - 6.0,
        left + WIDTH,
        top - 6.0,
        healed - left,
        left + WIDTH,
        line.join(" "),
        bottom + 12.0,
        from / 1000.0,
        bottom + 12.0,
        left + WIDTH,
        bottom + 12.0,
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_a_picture() {
        let run = serde_json::json!({
            "engine": "redis",
            "around_healing": { "from_ms": -500, "step_ms": 250, "per_second": [4.0, 0.0, 8.0] },
        });
        let svg = svg(&[run]).unwrap();
        assert!(
            svg.contains(">redis</text>") && svg.contains("points=\"26.0,81.0 156.0,136.0 286.0,26.0\""),
            "{svg}"
        );
        assert!(svg.ends_with("</svg>\n"));
    }
}
