"""A table with the checks that follow from it, for the terminal and as Markdown."""

from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

console = Console(width=None if Console().is_terminal else 150)


@dataclass
class Table:
    """Columns, rows of text, and checks; a check that fails is a missed target."""

    title: str
    text: str
    columns: tuple
    claim: str
    """What the checks add up to."""
    rows: list = field(default_factory=list)
    passed: int = 0
    missed: list = field(default_factory=list)

    def add(self, *cells):
        assert len(cells) == len(self.columns)
        self.rows.append([str(c) for c in cells])

    def check(self, holds, what):
        """Note whether `what`, a sentence with both numbers, holds."""
        if holds:
            self.passed += 1
        else:
            self.missed.append(what)

    @property
    def verdict(self):
        if not self.missed:
            return f"Verdict: yes, {self.claim} ({self.passed} checks)."
        share = f"{len(self.missed)} of {self.passed + len(self.missed)} checks MISSED"
        return f"Verdict: NO, it does not hold that {self.claim}: {share}."

    def show(self):
        shown = RichTable(title=escape(self.title), title_justify="left", header_style="bold")
        for place, column in enumerate(self.columns):
            left = place == 0 or column == "workload"
            shown.add_column(
                column,
                justify="left" if left else "right",
                style="bold" if column == "ours" else None,
            )
        for row in self.rows:
            shown.add_row(*map(escape, row))
        console.print(shown)
        console.print(
            escape(self.verdict), highlight=False, style="green" if not self.missed else "bold white on red"
        )
        for what in self.missed:
            console.print(escape(f"  MISSED: {what}"), style="bold red", highlight=False)
        console.print()

    def markdown(self):
        bold = [c == "ours" for c in self.columns]
        lines = [f"## {self.title}", "", self.text, ""]
        lines.append(f"| {' | '.join(self.columns)} |")
        lines.append(f"|{'|'.join('---' if i == 0 else '---:' for i in range(len(self.columns)))}|")
        for row in self.rows:
            cells = [f"**{c}**" if b and c else c for c, b in zip(row, bold, strict=True)]
            lines.append(f"| {' | '.join(cells)} |")
        lines += ["", f"**{self.verdict}**", ""]
        lines += [f"- **MISSED**: {what}" for what in self.missed]
        return "\n".join(lines).rstrip() + "\n"


def number(value, digits=2):
    """Write a number of the paper; NI where there is none."""
    return "NI" if value is None else f"{value:.{digits}f}"


def gap(value):
    return "exact" if value < 1e-12 else f"{value:.0e}"


def seconds(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"
