"""The charts of the page, each drawn for a given width so that its letters stay legible on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from massmover.evaluation.summary import Goal
from massmover.paper import VICTIMS
from massmover.report.intervals import percent
from massmover.report.published import RADII_PIXELS, PaperCurve, curves_for
from massmover.report.runs import Between, Run
from massmover.report.svg import Frame, RadiusScale, element, path_of, words

GOALS: dict[Goal, str] = {"wrong": "answered wrongly", "target": "target reached"}
STOOD: dict[Goal, str] = {"wrong": "never answered wrongly", "target": "target never reached"}


class Bar(NamedTuple):
    """One bar of the distribution."""

    name: str
    images: int
    kind: str  # "mistake", "broken" or "standing"


def number(value: float) -> str:
    """A radius or a count, short."""
    return f"{value:.4g}"


def accuracy_chart(runs: Sequence[Run], *, width: int, height: int, paper: Sequence[PaperCurve] = ()) -> Markup:
    """Accuracy against radius x pixels with 95 % intervals: the runs as solid lines, the paper's curves dashed."""
    frame = Frame(left=46, top=14, right=width - 18, bottom=height - 46)
    radii = [radius for run in runs for radius, _ in run.curve() if radius > 0] + (list(RADII_PIXELS) if paper else [])
    scale = RadiusScale(low=min(radii, default=1.0), high=max(radii, default=10.0), frame=frame)
    pieces = [_grid(frame, scale)]
    for series, curve in enumerate(paper):
        pieces.extend(_paper_line(curve, series, frame=frame, scale=scale))
    for series, run in enumerate(runs):
        pieces.append(_band(run, series, frame=frame, scale=scale))
    for series, run in enumerate(runs):
        pieces.extend(_run_line(run, series, frame=frame, scale=scale))
    label = "Accuracy against radius"
    return element(
        "svg", *pieces, viewBox=f"0 0 {width} {height}", role="img", aria_label=label, class_="chart accuracy-chart"
    )


def bracket_chart(run: Run, *, width: int, height: int) -> Markup:
    """What is proved, what is broken, and what neither half knows, stacked over the radius."""
    frame = Frame(left=46, top=14, right=width - 18, bottom=height - 46)
    points = [point for point in run.summary["accuracy"] if point["radius_pixels"] > 0]
    radii = [point["radius_pixels"] for point in points]
    scale = RadiusScale(low=min(radii, default=1.0), high=max(radii, default=10.0), frame=frame)
    clean = run.summary["clean_accuracy"]
    ends = [(frame.left, clean, clean), *((scale(p["radius_pixels"]), p["certified"], p["accuracy"]) for p in points)]
    floor, ceiling = [0.0] * len(ends), [1.0] * len(ends)
    proved, standing = [held for _, held, _ in ends], [left for _, _, left in ends]
    layers = []
    for kind, low, high in (("proved", floor, proved), ("unknown", proved, standing), ("broken", standing, ceiling)):
        above = [(x, _up(frame, share)) for (x, _, _), share in zip(ends, high, strict=True)]
        below = [(x, _up(frame, share)) for (x, _, _), share in zip(ends, low, strict=True)]
        layers.append(element("path", d=f"{path_of([*above, *reversed(below)])} Z", class_=f"layer {kind}"))
    dots = [
        _dot(
            scale(p["radius_pixels"]),
            _up(frame, p["certified"]),
            f"{number(p['radius_pixels'])}: {p['certified']:.1%} proved, {1 - p['accuracy']:.1%} broken",
            class_="dot held",
        )
        for p in points
    ]
    pieces = [*layers, _grid(frame, scale), *dots]
    label = "Proved, unknown and broken over the radius"
    return element(
        "svg", *pieces, viewBox=f"0 0 {width} {height}", role="img", aria_label=label, class_="chart bracket"
    )


def between_chart(run: Run, *, width: int, rows: int) -> Markup:
    """One line an image: proved to where, broken from where, and what lies between."""
    chosen = spread(run.between(), most=rows)
    frame = Frame(left=46, top=14, right=width - 18, bottom=60 + 6 * len(chosen) - 46)
    edges = [point["radius_pixels"] for point in run.summary["accuracy"] if point["radius_pixels"] > 0]
    scale = RadiusScale(low=min(edges, default=1.0), high=max(edges, default=10.0), frame=frame)
    pieces = [_radius_axis(frame, scale)]
    for place, row in enumerate(chosen):
        y = frame.top + 6.0 * place
        low = within(scale, row.proved)
        high = frame.right if row.broken is None else max(low, within(scale, row.broken))
        ends = (("proved", frame.left, low), ("unknown", low, high), ("broken", high, frame.right))
        boxes = [
            element("rect", x=start, y=y, width=end - start, height=5, class_=f"layer {kind}")
            for kind, start, end in ends
            if end > start
        ]
        pieces.append(element("g", *boxes, class_="tip image-row", data_tip=told(run, row)))
    label = "Proved and broken, image by image"
    return element(
        "svg",
        *pieces,
        viewBox=f"0 0 {width} {frame.bottom + 46:.0f}",
        role="img",
        aria_label=label,
        class_="chart between",
    )


def spread(rows: Sequence[Between], *, most: int) -> list[Between]:
    """As many rows as there is place for, the first and the last among them, evenly spaced."""
    if len(rows) <= most:
        return list(rows)
    return [rows[round(place * (len(rows) - 1) / (most - 1))] for place in range(most)]


def within(scale: RadiusScale, radius: float) -> float:
    """Where a radius is drawn; one below the first of the axis goes into the gap before it, in proportion."""
    if radius >= scale.low:
        return scale(min(radius, scale.high))
    return scale.frame.left + scale.zero_width * max(radius, 0.0) / scale.low


def told(run: Run, row: Between) -> str:
    """One image in words."""
    name = f"image {row.image}, {run.class_name(row.label)}"
    if row.broken == 0:
        return f"{name}: a clean mistake"
    proved = "at every radius" if row.proved > 1e9 else f"up to {number(row.proved)}"
    end = f"stood at {number(row.stood)}" if row.broken is None else f"broken at {number(row.broken)}"
    return f"{name}: proved {proved}, {end}"


def _paper_line(curve: PaperCurve, series: int, *, frame: Frame, scale: RadiusScale) -> list[Markup]:
    pairs = list(zip(RADII_PIXELS, curve.percent, strict=True))
    points = [(scale(radius), _up(frame, value / 100)) for radius, value in pairs]
    dots = [
        _dot(*point, f"{curve.name}, {number(radius)}: {value} %", class_=f"paper-dot p{series}")
        for point, (radius, value) in zip(points, pairs, strict=True)
    ]
    return [element("path", d=path_of(points), class_=f"paper p{series}", fill="none"), *dots]


def _band(run: Run, series: int, *, frame: Frame, scale: RadiusScale) -> Markup:
    """The 95 % intervals as one area."""
    intervals = [(scale(radius), run.interval(accuracy)) for radius, accuracy in run.curve()]
    above = [(x, _up(frame, interval.high)) for x, interval in intervals]
    below = [(x, _up(frame, interval.low)) for x, interval in reversed(intervals)]
    return element("path", d=f"{path_of([*above, *below])} Z", class_=f"band s{series}")


def _run_line(run: Run, series: int, *, frame: Frame, scale: RadiusScale) -> list[Markup]:
    points = [(scale(radius), _up(frame, accuracy)) for radius, accuracy in run.curve()]
    dots = [
        _dot(
            *point,
            f"{run.name}, {number(radius) if radius else 'clean'}: {accuracy:.1%} ({percent(run.interval(accuracy))})",
            class_=f"dot s{series}",
        )
        for point, (radius, accuracy) in zip(points, run.curve(), strict=True)
    ]
    return [element("path", d=path_of(points), class_=f"line s{series}", fill="none"), *dots]


def paper_curves(runs: Sequence[Run], *, asked: bool = False) -> tuple[PaperCurve, ...]:
    """The paper's curves: for its own victim, or when asked for, where every run is on the data they belong to."""
    found = {curves_for(run.settings.data, run.shape) for run in runs}
    own = all(run.manifest["weights"]["checksum"] in VICTIMS for run in runs)
    return found.pop() if len(found) == 1 and (own or asked) else ()


def _up(frame: Frame, share: float) -> float:
    return frame.bottom - share * frame.height


def _dot(x: float, y: float, tip: str, *, class_: str) -> Markup:
    visible = element("circle", cx=x, cy=y, r=4, class_=class_)
    return element("g", visible, element("circle", cx=x, cy=y, r=13, class_="target"), class_="tip", data_tip=tip)


def _grid(frame: Frame, scale: RadiusScale) -> Markup:
    pieces = []
    for height in (0, 25, 50, 75, 100):
        y = _up(frame, height / 100)
        pieces.append(element("line", x1=frame.left, x2=frame.right, y1=y, y2=y, class_="grid"))
        pieces.append(words(frame.left - 8, y + 4, f"{height} %", text_anchor="end"))
    return element("g", *pieces, _radius_axis(frame, scale))


def _radius_axis(frame: Frame, scale: RadiusScale) -> Markup:
    pieces = [words(frame.left, frame.bottom + 18, "clean", text_anchor="middle")]
    middle = frame.left + scale.zero_width / 2
    for x in (middle - 3, middle + 3):  # the axis is broken between 0 and the first radius
        pieces.append(element("line", x1=x - 3, x2=x + 3, y1=frame.bottom + 6, y2=frame.bottom - 6, class_="tick"))
    end = frame.left + 14  # of the last name written
    for mark in scale.ticks():
        x, half = scale(mark), 3.6 * len(number(mark))
        pieces.append(element("line", x1=x, x2=x, y1=frame.bottom, y2=frame.bottom + 4, class_="tick"))
        if x - half > end + 4:
            pieces.append(words(x, frame.bottom + 18, number(mark), text_anchor="middle"))
            end = x + half
    centre = (frame.left + frame.right) / 2
    pieces.append(words(centre, frame.bottom + 38, "radius × pixels", text_anchor="middle", class_="axis"))
    return element("g", *pieces)


def breaking_bars(run: Run, goal: Goal = "wrong") -> list[Bar]:
    """How many images break in each interval of radii."""
    radii = run.breaking(goal)
    edges = [float(point["radius_pixels"]) for point in run.summary["accuracy"] if point["radius_pixels"] > 0]
    found = [radius for radius in radii.values() if radius is not None and radius > 0]
    mistakes = sum(radius == 0 for radius in radii.values())
    bars = [Bar("0", mistakes, "mistake")]
    low = 0.0
    for edge in edges:
        inside = sum(low < radius <= edge * (1 + 1e-9) for radius in found)
        bars.append(Bar(f"≤ {number(edge)}", inside, "broken"))
        low = edge * (1 + 1e-9)
    standing = sum(radius is None or radius > low for radius in radii.values())
    return [*bars, Bar(f"> {number(edges[-1] if edges else 0)}", standing, "standing")]


def breaking_chart(run: Run, goal: Goal = "wrong", *, width: int, height: int) -> Markup:
    """The distribution of smallest radii as bars."""
    bars = breaking_bars(run, goal)
    frame = Frame(left=14, top=24, right=width - 14, bottom=height - 46)
    highest = max(max(bar.images for bar in bars), 1)
    step = frame.width / len(bars)
    crowded = step < 36  # the names of the bars would touch
    pieces = [element("line", x1=frame.left, x2=frame.right, y1=frame.bottom, y2=frame.bottom, class_="tick")]
    for place, bar in enumerate(bars):
        tall = frame.height * bar.images / highest
        x = frame.left + place * step
        tip = f"{bar.images} images: {TIPS[goal][bar.kind].format(bar.name)}"
        box = element(
            "rect",
            x=x + step * 0.1,
            y=frame.bottom - tall,
            width=step * 0.8,
            height=tall,
            rx=2,
            class_=f"bar {bar.kind}",
        )
        pieces.append(element("g", box, class_="tip", data_tip=tip))
        middle = x + step / 2
        pieces.append(words(middle, frame.bottom - tall - 6, str(bar.images), text_anchor="middle", class_="count"))
        name = bar.name.replace(" ", "") if crowded else bar.name
        pieces.append(words(middle, frame.bottom + 18, name, text_anchor="middle"))
    centre = (frame.left + frame.right) / 2
    pieces.append(words(centre, frame.bottom + 38, "smallest radius × pixels", text_anchor="middle", class_="axis"))
    label = f"Distribution of smallest radii, {GOALS[goal]}"
    return element("svg", *pieces, viewBox=f"0 0 {width} {height}", role="img", aria_label=label, class_="chart")


TIPS = {
    "wrong": {
        "mistake": "wrong before anything moved",
        "broken": "smallest breaking radius {}",
        "standing": "not broken, radius {}",
    },
    "target": {
        "mistake": "answered as the target before anything moved",
        "broken": "smallest radius that reaches the target {}",
        "standing": "target not reached, radius {}",
    },
}
