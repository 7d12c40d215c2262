"""What is said of attacks on features and membership: how well they do, beside the ε accounted for the unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from vflpriv.common import formatting as f
from vflpriv.core.units import Unit
from vflpriv.render import document as d
from vflpriv.render.shared import cell_level, names_of_rows
from vflpriv.report.attacks import FeatureCell, applicable, reasons_of, worst_of

__all__ = [
    "FeatureSection",
    "between",
    "features_section",
    "features_summary",
    "number",
    "refused_cell",
    "refused_line",
]

_NONE = "none"


class FeatureRow(NamedTuple):
    """One system under one defence: ε of each unit, and each attack through the view that gains most."""

    system: str
    defence: str
    epsilons: tuple[float | None, ...]
    cells: tuple[FeatureCell | None, ...]


class FeatureSection:
    """What a report shows of attacks on features, the same for `vflpriv attack` and `vflpriv audit`."""

    def __init__(self, cells: Sequence[FeatureCell]) -> None:
        self.cells = tuple(cells)
        self.attacks = applicable(cells)
        self.units = tuple(dict.fromkeys(c.unit for c in cells))
        self.reasons = reasons_of(cells)
        tried = [c for c in cells if c.success is not None]
        self.about_texts = [c for c in tried if c.measure == "tokens"]
        self.about_features = [c for c in tried if c.unit == Unit.FEATURES and c.measure != "tokens"]
        self.about_properties = [c for c in tried if c.unit == Unit.CLIENT]
        self.about_membership = [c for c in tried if c.unit not in (Unit.FEATURES, Unit.CLIENT)]
        self.with_pictures = [c for c in self.about_features if c.picture]
        self.victims = tuple(dict.fromkeys(c.victim for c in cells if c.victim is not None))

    def attack(self, cell: FeatureCell) -> str:
        """The attack of a cell, with the device whose features it is on if there are several."""
        return cell.attack if len(self.victims) < 2 or cell.victim is None else f"{cell.attack}, device {cell.victim}"

    @property
    def membership_unit(self) -> str:
        """The unit that a coin decided about: one record replaced by another, or present or absent."""
        return next((str(c.unit) for c in self.about_membership), str(Unit.RECORD))

    @property
    def membership_note(self) -> str:
        """What the figures of membership are."""
        coins, neighbours = (
            "Of each pair of candidates, a fair coin decided which one was trained on.",
            "replaced record",
        )
        if self.membership_unit == Unit.ADD_REMOVE:
            coins, neighbours = "Of each candidate, a fair coin decided whether it was trained on.", "record left out"
        return (
            f"{coins} ε is that of one {neighbours} under the view of the trained model, from which predictions are "
            "computed. Advantage is the share of members called members, minus the share of non-members called members."
            " A share found at 1 % errors takes 99 candidates that were left out, one at 0.1 % takes 999."
        )

    @property
    def rows(self) -> list[FeatureRow]:
        """A row for each system and defence; ε is the largest over the views."""
        epsilons: dict[tuple[str, str], dict[Unit, float]] = {}
        for c in self.cells:
            mine = epsilons.setdefault((c.system, c.defence), {})
            mine[c.unit] = max(mine.get(c.unit, 0.0), c.epsilon or 0.0)
        return [
            FeatureRow(*key, tuple(map(e.get, self.units)), tuple(worst_of(self.cells, *key, a) for a in self.attacks))
            for key, e in epsilons.items()
        ]

    def why(self, cell: FeatureCell) -> int:
        """The number, from 1, of the reason why an attack does not apply."""
        return 1 + list(self.reasons).index((cell.attack, cell.not_applicable or ""))

    @property
    def headline(self) -> str:
        """The worst leak in one line."""
        measured = (c for c in self.cells if c.leakage is not None)
        worst = max(measured, key=lambda c: c.leakage or 0.0, default=None)
        if worst is None:
            return "no attack on features applies"
        where = f"{self.attack(worst)} on {worst.system}" + ("" if worst.defence == _NONE else f" with {worst.defence}")
        reached = f"{worst.measure} {number(worst.success)}, {number(worst.leakage)} beyond the adversary by itself"
        accounted = f"accounted ε {f.epsilon(worst.epsilon)} ({worst.unit})"
        return f"worst leak of features: {where} ({worst.adversary}), {reached}; {accounted}"

    @property
    def caption(self) -> str:
        """What the numbers of the matrix are."""
        devices = f"device{'s' if len(self.victims) > 1 else ''} {', '.join(map(str, self.victims))}"
        target = f"the features of {devices}" if self.victims else "the features"
        texts = " Of texts it is the share of right tokens." * bool(self.about_texts)
        return (
            f"R² of {target} (AUC of an attribute, and of membership) through the view that gains most; predicting the "
            f"mean has R² = 0 (a coin has AUC ½).{texts} ε is accounted for the unit, the largest over the views."
        )


def number(value: float | None) -> str:
    """
    >>> number(0.8941), number(-0.02), number(1e-9), number(None)
    ('0.894', '-0.020', '1e-09', '–')
    """
    if value is None:
        return f.NOTHING
    return f"{value:.0e}" if 0 < abs(value) < 5e-4 else f"{value:.3f}"


def features_section(cells: Sequence[FeatureCell], *, folded: bool = False) -> d.Section:
    """The matrix, every number behind it, pictures, and the reasons why some attacks do not apply."""
    return d.Section(
        "Features",
        list(_blocks(FeatureSection(cells))) if cells else (),
        "features",
        contents="Features",
        folded=folded,
        note="attacks on features and membership" if folded else "",
        only=~d.NOTEBOOK,
    )


def _blocks(section: FeatureSection) -> Iterator[d.Block]:
    yield d.Paragraph(section.headline, only=d.PAGE)
    yield d.Paragraph(d.strong(section.headline), only=d.WRITTEN)
    yield d.Paragraph(f"{section.caption} Bold: the interval of the leakage lies above zero.", only=d.WRITTEN)
    yield _matrix(section)
    if section.about_features:
        caption = "Every attempt on features, intervals below"
        yield d.Table(
            _attempts(section), section.about_features, caption=caption, place="features-every", only=_WRITTEN_OR_PAGE
        )
        yield from _pictures(section)
        yield from (_every_feature(section, c) for c in section.about_features if c.columns)
    if section.about_texts:
        yield d.Heading("Texts", 3, only=_WRITTEN_OR_PAGE)
        yield d.Paragraph(_TEXTS, only=_WRITTEN_OR_PAGE)
        caption = "Every attempt on texts, intervals below"
        rows = section.about_texts
        yield d.Table(_texts(section), rows, caption=caption, place="texts-every", only=_WRITTEN_OR_PAGE)
    if section.about_properties:
        yield d.Heading("Properties", 3, only=_WRITTEN_OR_PAGE)
        yield d.Paragraph(_PROPERTIES, only=_WRITTEN_OR_PAGE)
        caption = "Every attempt on a property, intervals below"
        rows = section.about_properties
        yield d.Table(_properties(section), rows, caption=caption, place="properties-every", only=_WRITTEN_OR_PAGE)
    if section.about_membership:
        yield d.Heading("Membership", 3, only=_WRITTEN_OR_PAGE)
        yield d.Paragraph(section.membership_note, only=_WRITTEN_OR_PAGE)
        caption = "Every attempt on membership, intervals below"
        rows = section.about_membership
        yield d.Table(_membership(section), rows, caption=caption, place="membership-every", only=_WRITTEN_OR_PAGE)
    if section.with_pictures:
        yield d.Paragraph("Originals beside reconstructions are on the HTML page.", only=d.WRITTEN)
    yield from _reasons(section)
    yield d.Paragraph(d.strong(section.headline), only=d.TERMINAL)


_WRITTEN_OR_PAGE = d.WRITTEN | d.PAGE


_TEXTS = (
    "Right tokens are a share of all tokens of the texts that were guessed; chance is the share of the commonest one. "
    "Of a whole text every token is right. ROUGE-L is the F-measure of the longest common subsequence."
)


_PROPERTIES = (
    "Of each training a fair coin decided whether a quarter or three quarters of the records have the sensitive "
    "attribute, and as many of each label. ε is that of the whole block of a device: one for a record does not hide "
    "what most records share."
)


def _matrix(section: FeatureSection) -> d.Table:
    """Each attack through the view that gains most."""
    defended = any(c.defence != _NONE for c in section.cells)
    names = names_of_rows((row.system, row.defence) for row in section.rows)
    columns = [
        d.Column("system/  defence" if defended else "system", lambda pair: pair[0], only=d.TERMINAL),
        *_system_columns(lambda pair: pair[1]),
        *(d.Column(f">ε, {unit}", partial(_matrix_epsilon, n), f"ε,/{unit}") for n, unit in enumerate(section.units)),
        *(
            d.Column(f">{attack}", partial(_matrix_cell, section, n), _short(attack), style="breakable")
            for n, attack in enumerate(section.attacks)
        ),
    ]
    title = "Features: R² (AUC for an attribute and membership) through the view that gains most; chance is 0 (½)"
    rows = list(zip(names, section.rows, strict=True)) if section.attacks else []
    return d.Table(columns, rows, title=title, caption=section.caption, place="features-caption")


def _system_columns(row: Callable[[Any], FeatureRow | FeatureCell]) -> list[d.Column]:
    """System and defence: one column on a page, two in Markdown."""

    def both(item: Any) -> d.Cell:
        defence = row(item).defence
        return d.Cell(row(item).system, detail=(defence,) if defence != _NONE else ())

    return [
        d.Column("System, defence", both, only=d.PAGE),
        d.Column("System", lambda item: row(item).system, only=d.WRITTEN),
        d.Column("Defence", lambda item: row(item).defence, only=d.WRITTEN),
    ]


def _matrix_epsilon(place: int, pair: tuple[str, FeatureRow]) -> str:
    return f.epsilon(pair[1].epsilons[place])


def _matrix_cell(section: FeatureSection, place: int, pair: tuple[str, FeatureRow]) -> d.Cell:
    cell = pair[1].cells[place]
    if cell is None or cell.success is None:
        return refused_cell(section.why(cell) if cell else 0, "feature-why")
    return d.Cell(number(cell.success), detail=(cell.adversary,), tone=f"leak{cell_level(cell)}")


def refused_cell(reason: int, place: str) -> d.Cell:
    """That an attack does not apply, with the number of the reason, if it has one, as a link to it."""
    why = d.Span(str(reason), "reference", link=f"{place}-{reason}", label=f"why: reason {reason}")
    return d.Cell(("n/a", why) if reason else "n/a", tone="muted")


def _short(attack: str) -> str:
    """A name for the head of a narrow column, in which / begins a new line."""
    return attack.removeprefix("feature_").replace("_", "/")


def _figure(value: float | None, low: float | None, high: float | None, *, tone: str = "") -> d.Cell:
    """A figure with its interval below it."""
    return d.Cell(number(value), detail=(between(low, high),) if low is not None else (), tone=tone)


def _with_interval(name: str, field: str, low: str, high: str, *, leaks: bool = False) -> list[d.Column]:
    """A figure with its interval, which Markdown has in a column of its own."""

    def figure(c: FeatureCell) -> d.Cell:
        tone = f"leak{cell_level(c)}" if leaks else ""
        return _figure(getattr(c, field), getattr(c, low), getattr(c, high), tone=tone)

    return [
        d.Column(f">{name}", figure, only=d.PAGE),
        d.Column(f">{name}", lambda c: number(getattr(c, field)), only=d.WRITTEN),
        d.Column(">Interval", lambda c: between(getattr(c, low), getattr(c, high)), only=d.WRITTEN),
    ]


def _names(section: FeatureSection, unit: str) -> list[d.Column]:
    return [
        *_system_columns(lambda c: c),
        d.Column("Attack", lambda c: d.Span(section.attack(c), "breakable")),
        d.Column("Seen by", lambda c: c.adversary),
        d.Column(f">ε, {unit}", lambda c: f.epsilon(c.epsilon)),
    ]


def _attempts(section: FeatureSection) -> list[d.Column]:
    return [
        *_names(section, "features"),
        d.Column("Measure", lambda c: c.measure, style="tight"),
        *_with_interval("Success", "success", "success_low", "success_high"),
        d.Column(">Chance", lambda c: number(c.chance)),
        d.Column(">No signal", lambda c: number(c.blind)),
        *_with_interval("Leakage", "leakage", "low", "high", leaks=True),
        d.Column(">MSE", lambda c: number(c.error)),
        d.Column(">MSE of the mean", lambda c: number(c.mean_error)),
        d.Column(">PSNR", lambda c: number(c.psnr)),
        d.Column(">SSIM", lambda c: _figure(c.ssim, c.ssim_low, c.ssim_high)),
        d.Column(">Features better than their mean", lambda c: _by_feature(c)[0]),
        d.Column(">Best feature", lambda c: _by_feature(c)[1], only=d.WRITTEN),
    ]


def _membership(section: FeatureSection) -> list[d.Column]:
    return [
        *_names(section, section.membership_unit),
        *_with_interval("AUC", "success", "success_low", "success_high", leaks=True),
        d.Column(">Chance", lambda c: number(c.chance)),
        *_with_interval("Advantage", "advantage", "advantage_low", "advantage_high"),
        *_with_interval("Found at 1 % errors", "found", "found_low", "found_high"),
        *_with_interval("Found at 0.1 % errors", "rarely_found", "rarely_found_low", "rarely_found_high"),
        d.Column(">Candidates", lambda c: f.count(c.guesses)),
    ]


def _properties(section: FeatureSection) -> list[d.Column]:
    return [
        *_names(section, "client"),
        *_with_interval("AUC", "success", "success_low", "success_high", leaks=True),
        d.Column(">Chance", lambda c: number(c.chance)),
        d.Column(">Trainings", lambda c: f.count(c.guesses)),
    ]


def _texts(section: FeatureSection) -> list[d.Column]:
    return [
        *_names(section, "features"),
        *_with_interval("Right tokens", "success", "success_low", "success_high"),
        d.Column(">Chance", lambda c: number(c.chance)),
        *_with_interval("Leakage", "leakage", "low", "high", leaks=True),
        *_with_interval("Whole texts", "exact", "exact_low", "exact_high"),
        *_with_interval("ROUGE-L", "rouge", "rouge_low", "rouge_high"),
        d.Column(">Texts", lambda c: f.count(c.guesses)),
    ]


def _pictures(section: FeatureSection) -> Iterator[d.Block]:
    """Originals above reconstructions, and the R² of each pixel where there is a map of it."""
    if not section.with_pictures:
        return
    pictures = []
    for c in section.with_pictures:
        originals = f"records of device {c.victim}: originals above, {c.attack}’s reconstructions below"
        images = [(c.picture or "", originals)]
        reached = f"SSIM {number(c.ssim)}, ε {f.epsilon(c.epsilon)}."
        caption = f"{_where(c)}: {section.attack(c)}, {c.adversary}. {reached}"
        if c.map:
            images.append((c.map, "R² of each pixel, from black, the mean, to white, exact"))
            caption += " Last, the R² of each pixel: black is the mean, white is exact."
        pictures.append(d.Picture(images, caption))
    yield d.Heading("Originals above reconstructions", 3, only=d.PAGE)
    yield d.Group("small-plots sheets", pictures, only=d.PAGE)


def _where(c: FeatureCell) -> str:
    return c.system if c.defence == _NONE else f"{c.system}, {c.defence}"


def _every_feature(section: FeatureSection, c: FeatureCell) -> d.Fold:
    columns = [
        d.Column(">Feature", lambda pair: str(pair[0])),
        d.Column(">R², by chance 0", lambda pair: _figure(pair[1].value, pair[1].low, pair[1].high)),
        d.Column(">MSE", lambda pair: number(pair[1].error)),
        d.Column(">MSE of the mean", lambda pair: number(pair[1].mean_error)),
    ]
    caption = f"Each feature of device {c.victim}, intervals below"
    table = d.Table(columns, list(enumerate(c.columns)), caption=caption, style="narrow sortable")
    return d.Fold(f"Every feature: {section.attack(c)} on {_where(c)}, seen by {c.adversary}", (table,), only=d.PAGE)


def _reasons(section: FeatureSection) -> Iterator[d.Block]:
    """Why some attacks do not apply; terminals name those that apply nowhere."""
    yield from refused_line([name for name, _ in section.reasons if name not in section.attacks])
    if section.reasons:
        number_of_them = f"{len(section.reasons)} reason{'s' if len(section.reasons) > 1 else ''}"
        reasons = [
            (d.strong(attack), f" does not apply to {', '.join(who)}: {why}")
            for (attack, why), who in section.reasons.items()
        ]
        yield d.Fold(f"What does not apply, for {number_of_them}", (d.Bullets(reasons, "feature-why"),), only=d.PAGE)
        yield d.Bullets([(text.text, said) for text, said in reasons], only=d.WRITTEN)


def refused_line(names: Sequence[str]) -> Iterator[d.Block]:
    """One line of a terminal for all attacks that apply nowhere; the reports say why."""
    distinct = list(dict.fromkeys(f.shorten(name, 40) for name in names))
    if distinct:
        reasons = f"Not applicable, for reasons that the report gives: {', '.join(distinct)}."
        yield d.Paragraph(reasons, only=d.TERMINAL)


def features_summary(cells: Sequence[FeatureCell]) -> d.Section:
    """One table over all systems for a step summary: R², or the AUC of an attribute or of membership, and ε."""
    tried = [cell for cell in cells if cell.success is not None]
    columns = (
        d.Column("System", lambda c: c.system),
        d.Column("Attack", lambda c: c.attack),
        d.Column("Seen by", lambda c: c.adversary),
        d.Column("Measure", lambda c: c.measure),
        d.Column(">Success", lambda c: number(c.success)),
        d.Column(">Interval", lambda c: between(c.success_low, c.success_high)),
        d.Column(">No signal", lambda c: number(c.chance if c.blind is None else c.blind)),
        d.Column(">ε accounted", lambda c: f.epsilon(c.epsilon)),
        d.Column("Unit", lambda c: c.unit),
    )
    title = "What attacks on features and membership reach"
    return d.Section(title, (d.Table(columns, tried),) if tried else (), only=d.SUMMARY)


def between(low: float | None, high: float | None) -> str:
    """An interval over seeds, or that there are too few of them.

    >>> between(0.42, 0.627), between(-0.238, 1.0), between(None, None)
    ('0.420 to 0.627', 'too few seeds', '–')
    """
    if low is None or high is None:
        return f.NOTHING
    return f.TOO_FEW if f.too_wide(low, high) else f"{number(low)} to {number(high)}"


def _by_feature(c: FeatureCell) -> tuple[str, str]:
    """How many features are reconstructed better than by their mean, and the R² of the best one."""
    k = c.best_feature
    if k is None:
        return f.NOTHING, f.NOTHING
    best = c.columns[k]
    return f"{c.features_above} of {len(c.columns)}", f"{k}: {number(best.value)} ({between(best.low, best.high)})"
