"""The parts of `bench/cluster.py`. Each has NAME, TITLE, BARS (name, sign, limit, unit), `measure() -> data` and
`report(data, bars) -> Markdown`."""
