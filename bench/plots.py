"""Plots of lines: SVG, written by hand."""

import math

COLOURS = ["#2a7f4f", "#b3392f", "#2f5fb3", "#b07d1a", "#6b3fa0", "#3a8c8c"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 420, 90, 250, 50, 40


def lines(title, at, series):
    """A line for each of `series` (name: values), a value for each place of `at`. The axis of values is logarithmic."""
    values = [value for each in series.values() for value in each if value > 0]
    low = math.floor(math.log10(min(values, default=1)))
    high = max(math.ceil(math.log10(max(values, default=10))), low + 1)
    x = lambda index: LEFT + index * (WIDTH - LEFT - RIGHT) / max(len(at) - 1, 1)
    y = lambda value: HEIGHT - BOTTOM - (math.log10(max(value, 10**low)) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>', f'<text x="16" y="28" font-size="17">{title}</text>',
    ]
    for power in range(low, high + 1):
        level = y(10**power)
        out.append(f'<line x1="{LEFT}" y1="{level:.1f}" x2="{WIDTH - RIGHT}" y2="{level:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{level + 4:.1f}" text-anchor="end" fill="#555">{10**power:,g}</text>')
    for index, label in enumerate(at):
        out.append(f'<text x="{x(index):.1f}" y="{HEIGHT - 14}" text-anchor="middle" fill="#555">{label}</text>')
    for number, (name, each) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(index):.1f},{y(value):.1f}" for index, value in enumerate(each))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x(index):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>' for index, value in enumerate(each)]
        level = TOP + 10 + number * 20
        out.append(f'<rect x="{WIDTH - RIGHT + 20}" y="{level - 10}" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 40}" y="{level}">{name}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"
