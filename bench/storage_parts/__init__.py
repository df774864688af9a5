"""The parts of `bench/storage.py`. Each has NAME, TITLE, BARS (name, sign, limit, unit), `measure() -> data` and
`report(data, bars) -> Markdown`; what it needs of the server it asks for first, with `server.need_...`."""
