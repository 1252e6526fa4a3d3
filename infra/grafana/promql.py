"""PromQL queries that several boards use."""

from __future__ import annotations

from infra.grafana.board import Query

WINDOW = "[$__rate_interval]"


def rate(metric: str, *by: str, where: str = "", legend: str = "", quiet: str = "") -> Query:
    """A counter's increase per second, by these labels."""
    labels = f" by ({', '.join(by)})" if by else ""
    named = legend or " ".join(f"{{{{{label}}}}}" for label in by) or "all"
    return Query(f"sum{labels} (rate({metric}{_chosen(where)}{WINDOW}))", named, quiet)


def quantiles(
    metric: str,
    *by: str,
    where: str = "",
    of: tuple[float, ...] = (0.5, 0.95, 0.99),
    name: str = "",
    quiet: str = "",
) -> tuple[Query, ...]:
    """Quantiles of a histogram over all its processes, by these labels. name: the legend; empty for the labels."""
    labels = ", ".join(("le", *by))
    named = name or " ".join(f"{{{{{label}}}}}" for label in by)
    return tuple(
        Query(
            f"histogram_quantile({part}, sum by ({labels}) (rate({metric}_bucket{_chosen(where)}{WINDOW})))",
            f"{named} p{part * 100:g}".strip(),
            quiet,
        )
        for part in of
    )


def share(part: str, whole: str, *by: str, legend: str = "", quiet: str = "") -> Query:
    """One counter's rate divided by another's, both with their label filters. It has no value where the whole is 0."""
    labels = f" by ({', '.join(by)})" if by else ""
    named = legend or " ".join(f"{{{{{label}}}}}" for label in by)
    return Query(
        f"sum{labels} (rate({part}{WINDOW})) / (sum{labels} (rate({whole}{WINDOW})) > 0)", named or "all", quiet
    )


def _chosen(where: str) -> str:
    return f"{{{where}}}" if where else ""
