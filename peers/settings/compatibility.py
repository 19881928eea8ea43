"""Which settings go together. All other combinations are refused, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from ...aggregation.codecs.registry import parse_codec
from ...aggregation.periods.fixed import Fixed
from ...aggregation.periods.registry import parse_period
from .fields import Fields, SettingsError


def check(wished: Fields) -> None:
    """Raises SettingsError for the first setting that does not go with another."""
    watched = parse_period(wished.period).watches
    if wished.quorum is not None and wished.quorum > wished.peers:
        raise SettingsError(f"must be at most the number of peers, {wished.peers}, got {wished.quorum}", "quorum")
    if (wished.outer, wished.fragments) != ("plain", 1) and watched:
        raise SettingsError(f"{wished.period} looks at means of whole models: leave out --outer, --fragments", "period")
    if wished.drift == "corrected":
        whole = {"codec": "none", "outer": "plain", "fragments": 1, "overlap": False}
        _as_usual(wished, whole, "does not go with corrected drift, which is seen in the mean of whole models")
    if wished.pace == "own" and (watched or wished.fragments > 1):
        other = f"period {wished.period}" if watched else "fragments"
        raise SettingsError(f"own lets peers go differently far, and {other} compares them: leave out one", "pace")
    if wished.inner == "averaged":
        whole = {"codec": "none", "fragments": 1}
        _as_usual(wished, whole, "does not go with an averaged inner state, whose squares must come whole")
    if wished.average == "gradients":
        _synchronous(wished)
    if wished.site_period is not None:
        _hierarchical(wished, wished.site_period)
    if wished.overlap:
        _overlapped(wished)
    elif wished.overlap_share is not None:
        raise SettingsError("is for --overlap, where local steps go on before a mean is there", "overlap_share")
    if wished.fragments > 1 and wished.codec != "none" and parse_codec(wished.codec).family == "sketch":
        raise SettingsError(f"cannot be with {wished.codec}, which needs the whole model: leave out one", "fragments")
    for name in ("key", "authorized", "invite_uses", "invite_for"):
        if wished.insecure and getattr(wished, name) is not None:
            raise SettingsError("has no use in an insecure run: leave out one of the two", name)


def _as_usual(wished: Fields, usual: Mapping[str, object], why: str) -> None:
    for name, value in usual.items():
        if (got := getattr(wished, name)) != value:
            raise SettingsError(f"{why}, got {got}; leave it out", name)


def _synchronous(wished: Fields) -> None:
    """Gradients are averaged in every step, unmodified."""
    if wished.period not in ("adaptive", "1"):
        raise SettingsError(f"must be 1 when gradients are averaged, got {wished.period}", "period")
    if wished.codec != "none":
        raise SettingsError(f"cannot carry gradients, only changes of models, got {wished.codec}", "codec")
    usual = {"outer": "plain", "fragments": 1, "inner": "kept", "overlap": False, "pace": "equal", "drift": "left",
             "site_period": None}  # fmt: skip
    _as_usual(wished, usual, "is for averages of models, not of gradients")


def _hierarchical(wished: Fields, site_period: int) -> None:
    """Peers of a site take equal steps, and may compare only whole models."""
    policy = parse_period(wished.period)
    if wished.site is None:
        raise SettingsError("needs to know who is where: say so with --site or in [[groups]]", "site_period")
    if isinstance(policy, Fixed) and site_period >= policy.steps:
        raise SettingsError(f"must be below the period, {policy.steps}, got {site_period}", "site_period")
    refused = {
        f"period {wished.period}, which looks at how far single peers go": policy.watches,
        "fragments": wished.fragments > 1,
        "overlap": wished.overlap,
        "pace own": wished.pace == "own",
        "drift corrected, whose mean is that of all": wished.drift == "corrected",
    }
    for what, is_wished in refused.items():
        if is_wished:
            raise SettingsError(f"cannot be with {what}: leave out one of the two", "site_period")


def _overlapped(wished: Fields) -> None:
    """When a round ends, the number of local steps under way is already fixed."""
    if not isinstance(parse_period(wished.period), Fixed):
        raise SettingsError(
            f"must be a number of local steps with --overlap, got {wished.period}; as in --period 16", "period"
        )
    if wished.inner != "kept":
        raise SettingsError(f"cannot be {wished.inner} with --overlap: a round ends amid the next local steps", "inner")
    if wished.pace == "own":
        raise SettingsError("cannot be own with --overlap: how many steps are next is agreed on too late", "pace")
