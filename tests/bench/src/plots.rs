//! The figures as SVG, in colours that can be read on light and on dark pages.

use anyhow::{Result, anyhow, ensure};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::figures::{Curve, Figures};

/// A plot of one measure of a figure.
pub(crate) struct Plot {
    /// The name of the file.
    pub(crate) name: &'static str,
    pub(crate) figure: &'static str,
    pub(crate) measure: &'static str,
    pub(crate) caption: &'static str,
    pub(crate) x: &'static str,
    /// From and to on the vertical axis, if it is not a logarithmic one over all values.
    pub(crate) linear: Option<(f64, f64)>,
}

const SIZE: (u32, u32) = (860, 420);
const LEGEND: u32 = 250;
/// Readable on white and on black.
const GREY: RGBColor = RGBColor(128, 128, 128);
const FONT: (&str, u32) = ("sans-serif", 17);

/// How a structure is drawn.
struct Look {
    colour: RGBColor,
    mark: Mark,
    filled: bool,
}

enum Mark {
    Circle,
    Triangle,
    Cross,
}

/// Arrays and native code are blue, lists and the filter orange, others have their own colours; the marks differ, too.
fn look(structure: &str) -> Look {
    let (red, green, blue, mark, filled) = match structure {
        "leapgate's window" => (20, 150, 190, Mark::Circle, true),
        "array: running counts" | "buckets: strict" => (37, 120, 240, Mark::Circle, true),
        "array: summed" | "buckets: as Sentinel counts" => (110, 170, 250, Mark::Circle, false),
        "list: running total" => (225, 95, 10, Mark::Triangle, true),
        "list: running total; pooled" => (240, 160, 50, Mark::Triangle, false),
        "list: summed" | "buckets: weighted" => (190, 130, 80, Mark::Cross, false),
        "native: admitted" | "native: asked for" | "1 rule" => (37, 120, 240, Mark::Circle, true),
        "native: asked for; no statistics" => (165, 90, 240, Mark::Circle, false),
        "native: refused" | "native: not asked for" => (110, 170, 250, Mark::Circle, false),
        "filter: admitted" | "filter: asked for" | "a key" => (225, 95, 10, Mark::Triangle, true),
        "filter: refused" | "filter: not asked for" => (240, 160, 50, Mark::Triangle, false),
        name if name.starts_with("1 rule") => (110, 170, 250, Mark::Cross, false),
        name if name.starts_with("a key") => (240, 160, 50, Mark::Cross, false),
        "log of instants" => (30, 160, 80, Mark::Circle, true),
        "two-window estimate" => (165, 90, 240, Mark::Circle, false),
        _ => (230, 70, 140, Mark::Cross, false),
    };
    Look {
        colour: RGBColor(red, green, blue),
        mark,
        filled,
    }
}

impl Look {
    fn style(&self) -> ShapeStyle {
        let style = self.colour.stroke_width(2);
        if self.filled { style.filled() } else { style }
    }
}

impl Plot {
    /// The plot as SVG.
    pub(crate) fn draw(&self, figures: &Figures) -> Result<String> {
        let curves = figures.curves(self.figure, self.measure);
        let values = |of: fn(&(f64, f64)) -> f64| {
            curves
                .iter()
                .flat_map(move |curve| curve.points.iter().map(of))
        };
        let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let x = least(&mut values(|point| point.0))..most(&mut values(|point| point.0));
        ensure!(x.start < x.end, "{}: there is nothing to draw", self.name);
        // Zero has no logarithm: it is drawn at the edge.
        let above_zero = &mut values(|point| point.1).filter(|value| *value > 0.0);
        let y = least(above_zero)..most(&mut values(|point| point.1));
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let (left, legend) = area.split_horizontally(SIZE.0 - LEGEND);
            let drawn = match self.linear {
                Some((from, to)) => self.chart(&left, x, from..to, from, curves),
                None => {
                    let edge = y.start / 1.5;
                    self.chart(&left, x, (edge..y.end * 1.5).log_scale(), edge, curves)
                }
            };
            drawn
                .and_then(|()| draw_legend(&legend, curves))
                .map_err(|error| anyhow!("{}: {error}", self.name))?;
            area.present()
                .map_err(|error| anyhow!("{}: {error}", self.name))?;
        }
        svg.push('\n');
        Ok(svg)
    }

    fn chart<Y>(
        &self,
        area: &Area<'_>,
        x: std::ops::Range<f64>,
        y: Y,
        lowest: f64,
        curves: &[Curve],
    ) -> Drawn
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut places: Vec<f64> = curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(|point| point.0))
            .collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let mut chart = ChartBuilder::on(area)
            .caption(self.caption, ("sans-serif", 21).into_font().color(&GREY))
            .margin(12)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d(
                (x.start..x.end * 1.02).log_scale().with_key_points(places),
                y,
            )?;
        chart
            .configure_mesh()
            .bold_line_style(GREY.mix(0.25))
            .light_line_style(TRANSPARENT)
            .axis_style(GREY)
            .label_style(FONT.into_font().color(&GREY))
            .x_desc(self.x)
            .x_label_formatter(&|x| plain(*x))
            .y_label_formatter(&|y| plain(*y))
            .draw()?;
        for curve in curves {
            let look = look(&curve.structure);
            let line: Vec<(f64, f64)> = match curve.points.as_slice() {
                [(_, value)] => [x.start, x.end].map(|x| (x, *value)).to_vec(),
                points => points.to_vec(),
            };
            let points = line.into_iter().map(|(x, y)| (x, y.max(lowest)));
            let points: Vec<(f64, f64)> = points.collect();
            let line = LineSeries::new(points.clone(), look.colour.stroke_width(2));
            chart.draw_series(line)?;
            let (points, style) = (points.into_iter(), look.style());
            match look.mark {
                Mark::Circle => chart.draw_series(points.map(|at| Circle::new(at, 4, style)))?,
                Mark::Triangle => {
                    chart.draw_series(points.map(|at| TriangleMarker::new(at, 5, style)))?
                }
                Mark::Cross => chart.draw_series(points.map(|at| Cross::new(at, 4, style)))?,
            };
        }
        Ok(())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn draw_legend(area: &Area<'_>, curves: &[Curve]) -> Drawn {
    for (number, curve) in curves.iter().enumerate() {
        let look = look(&curve.structure);
        let y = 60 + 26 * number as i32;
        let line = look.colour.stroke_width(2);
        area.draw(&PathElement::new(vec![(4, y), (34, y)], line))?;
        let (at, style) = ((19, y), look.style());
        match look.mark {
            Mark::Circle => area.draw(&Circle::new(at, 4, style))?,
            Mark::Triangle => area.draw(&TriangleMarker::new(at, 5, style))?,
            Mark::Cross => area.draw(&Cross::new(at, 4, style))?,
        }
        let text = FONT.into_font().color(&GREY);
        area.draw(&Text::new(curve.structure.clone(), (42, y - 8), text))?;
    }
    Ok(())
}

/// Without the dot and the zeros that say nothing.
fn plain(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => crate::table::grouped(value),
        value => format!("{}", (value * 1000.0).round() / 1000.0),
    }
}
