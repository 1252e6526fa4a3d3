"""The modelled engine against closed forms, a naive twin that steps through every token, and its own invariants."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from engines.performance.catalog import node
from engines.performance.engine import Ended, EngineLimits, FirstToken, ModelledEngine, Progress, Retracted
from engines.performance.job import Job
from engines.performance.roofline import Roofline, pairs

ROOFLINE = Roofline(node("70b-fp8-8xh100"))


def drive(engine: ModelledEngine, arrivals: Sequence[tuple[float, Job]]) -> list[tuple[float, Progress]]:
    """Every arrival submitted at its time, until nothing is left to do."""
    left, news = list(arrivals), []
    while left or engine.step_ends_at is not None:
        if left and (engine.step_ends_at is None or left[0][0] < engine.step_ends_at):
            at, job = left.pop(0)
            engine.submit(job, at)
        else:
            now = engine.step_ends_at
            assert now is not None
            news += [(now, each) for each in engine.finish_step(now)]
            assert engine.used_tokens <= engine.capacity_tokens
    return news


def arrivals_of(seed: int, count: int, per_s: float) -> list[tuple[float, Job]]:
    source, at, made = random.Random(seed), 0.0, []
    for number in range(count):
        at += source.expovariate(per_s)
        prompt = source.randint(1, 12_000)
        made.append((at, Job(str(number), prompt, source.randint(1, 300))))
    return made


def test_one_request_alone_takes_what_the_roofline_says() -> None:
    engine = ModelledEngine(ROOFLINE)
    news = drive(engine, [(5.0, Job("a", 3_000, 100))])
    first_at = 5.0 + ROOFLINE.prefill_s(3_000)
    assert [type(each) for _, each in news] == [FirstToken, Ended]
    assert news[0][0] == pytest.approx(first_at)
    decode = sum(ROOFLINE.decode_s(1, 3_001 + step) for step in range(99))
    assert news[1][0] == pytest.approx(first_at + decode)


def test_a_long_prompt_takes_the_sum_of_its_chunks() -> None:
    engine = ModelledEngine(ROOFLINE, EngineLimits(batch_tokens=1_000))
    news = drive(engine, [(0.0, Job("a", 2_500, 1))])
    chunks = [(1_000, 0), (1_000, 1_000), (500, 2_000)]
    assert news[0][0] == pytest.approx(sum(ROOFLINE.step_s(new, pairs(new, before), 0, 0) for new, before in chunks))


def test_a_cached_prefix_saves_its_share() -> None:
    engine = ModelledEngine(ROOFLINE, EngineLimits(block_tokens=512))
    blocks = [bytes([each]) for each in range(8)]
    first = drive(engine, [(0.0, Job("a", 4_200, 1, blocks))])
    second = Job("b", 4_200, 1, blocks)
    again = drive(engine, [(10.0, second)])
    assert second.cached_tokens == 4_096
    assert again[0][0] - 10.0 == pytest.approx(ROOFLINE.prefill_s(104, 4_096))
    assert again[0][0] - 10.0 < first[0][0]


def test_a_prompt_of_cached_blocks_only_still_computes_its_last_token() -> None:
    engine = ModelledEngine(ROOFLINE, EngineLimits(block_tokens=512))
    blocks = [bytes([each]) for each in range(4)]
    drive(engine, [(0.0, Job("a", 2_048, 1, blocks))])
    again = Job("b", 2_048, 1, blocks)
    drive(engine, [(9.0, again)])
    assert again.cached_tokens == 1_536


class StepByStep:
    """The naive twin: no memory, no cache, one token at a time for every sequence."""

    def __init__(self, limits: EngineLimits) -> None:
        self.limits = limits
        self.now = 0.0
        self.waiting: list[Job] = []
        self.prefilling: list[list[int]] = []
        self.jobs: list[Job] = []
        self.running: list[tuple[Job, list[int]]] = []
        self.times: dict[str, list[float]] = {}

    def run(self, arrivals: Sequence[tuple[float, Job]]) -> dict[str, list[float]]:
        left = list(arrivals)
        while left or self.waiting or self.prefilling or self.running:
            if not (self.waiting or self.prefilling or self.running):
                self.now = max(self.now, left[0][0])
            while left and left[0][0] <= self.now:
                self.waiting.append(left.pop(0)[1])
            self.step()
        return self.times

    def step(self) -> None:
        budget = self.limits.batch_tokens - len(self.running)
        begun = sum(job.prompt_tokens - done[0] for job, done in zip(self.jobs, self.prefilling, strict=True))
        while self.waiting and budget > begun and len(self.running) + len(self.prefilling) < self.limits.max_running:
            job = self.waiting.pop(0)
            begun += job.prompt_tokens
            self.jobs.append(job)
            self.prefilling.append([0])
        chunks, tokens, looked = [], 0, 0.0
        for job, done in zip(self.jobs, self.prefilling, strict=True):
            take = min(budget, job.prompt_tokens - done[0])
            if take > 0:
                chunks.append((job, done, take))
                looked += pairs(take, done[0])
                tokens += take
                budget -= take
        context = sum(job.prompt_tokens + made[0] for job, made in self.running)
        self.now += ROOFLINE.step_s(tokens, looked, len(self.running), context)
        for _, made in self.running:
            made[0] += 1
        for job, made in list(self.running):
            if made[0] == job.output_tokens:
                self.times[job.id].append(self.now)
                self.running = [each for each in self.running if each[0] is not job]
        for job, done, take in chunks:
            done[0] += take
            if done[0] == job.prompt_tokens:
                at = self.jobs.index(job)
                del self.jobs[at], self.prefilling[at]
                self.times[job.id] = [self.now] + ([self.now] if job.output_tokens == 1 else [])
                if job.output_tokens > 1:
                    self.running.append((job, [1]))


@pytest.mark.parametrize(("seed", "per_s"), [(1, 0.5), (2, 3.0), (3, 8.0), (4, 40.0)])
def test_stretches_of_steps_end_when_single_steps_would(seed: int, per_s: float) -> None:
    limits = EngineLimits(max_running=24)
    naive = StepByStep(limits).run(arrivals_of(seed, 120, per_s))
    news = drive(ModelledEngine(ROOFLINE, limits), arrivals_of(seed, 120, per_s))
    times: dict[str, list[float]] = {}
    for at, each in news:
        times.setdefault(each.job.id, []).append(at)
    assert times.keys() == naive.keys()
    for name, expected in naive.items():
        assert times[name] == pytest.approx(expected, rel=1e-9, abs=1e-9), name


def test_where_reading_costs_nothing_nobody_is_answered_before_he_came() -> None:
    """Measured prices may have no term for it: an arrival then cut a stretch of steps to its first."""
    times = Roofline(node("70b-fp8-8xh100"))
    times.read_s_per_token = 0.0
    arrivals = [(0.0, Job("streams", 1, 300)), (1.0, Job("comes later", 1_000, 2))]
    first = {each.job.id: at for at, each in drive(ModelledEngine(times), arrivals) if isinstance(each, FirstToken)}
    assert 1.0 < first["comes later"] <= 1.0 + times.decode_s(1, 300) + times.step_s(1_000, pairs(1_000, 0), 1, 300)


@pytest.mark.parametrize("seed", range(6))
def test_every_job_ends_once_with_all_its_tokens_and_gives_its_memory_back(seed: int) -> None:
    source = random.Random(seed)
    limits = EngineLimits(capacity_tokens=30_000, block_tokens=128, max_running=40)
    arrivals = arrivals_of(seed, 300, 20.0)
    for _, job in arrivals:
        family = source.randrange(5)
        job.blocks = [bytes([family, each]) for each in range(min(job.prompt_tokens // 128, source.randrange(1, 80)))]
    engine = ModelledEngine(ROOFLINE, limits)
    news = drive(engine, arrivals)
    ended = [each.job for _, each in news if isinstance(each, Ended)]
    first = [each.job.id for _, each in news if isinstance(each, FirstToken)]
    assert sorted(job.id for job in ended) == sorted(job.id for _, job in arrivals)
    assert len(set(first)) == len(first) == 300
    assert all(job.generated == job.output_tokens for job in ended)
    assert engine.used_tokens == 0
    assert engine.running == 0


def test_a_full_pool_retracts_the_newest_and_finishes_it_later() -> None:
    engine = ModelledEngine(ROOFLINE, EngineLimits(capacity_tokens=4_000, block_tokens=128, watermark=0.0))
    news = drive(engine, [(0.0, Job("old", 1_500, 900)), (0.1, Job("new", 1_500, 900))])
    assert {each.job.id for _, each in news if isinstance(each, Retracted)} == {"new"}
    ended = [each.job for _, each in news if isinstance(each, Ended)]
    assert [job.id for job in ended] == ["old", "new"]
    assert [job.generated for job in ended] == [900, 900]


@pytest.mark.parametrize("seed", range(4))
def test_aborted_jobs_free_their_memory_wherever_they_are(seed: int) -> None:
    source = random.Random(seed)
    engine = ModelledEngine(ROOFLINE, EngineLimits(capacity_tokens=60_000, max_running=8))
    arrivals = arrivals_of(seed, 80, 30.0)
    doomed = [(at + source.uniform(0, 5), job) for at, job in arrivals if source.random() < 0.5]
    todo = sorted(
        [(at, "submit", job) for at, job in arrivals] + [(at, "abort", job) for at, job in doomed],
        key=lambda each: each[0],
    )
    ended = set()
    while todo or engine.step_ends_at is not None:
        if todo and (engine.step_ends_at is None or todo[0][0] < engine.step_ends_at):
            at, action, job = todo.pop(0)
            engine.submit(job, at) if action == "submit" else engine.abort(job, at)
        else:
            assert engine.step_ends_at is not None
            ended |= {each.job.id for each in engine.finish_step(engine.step_ends_at) if isinstance(each, Ended)}
    assert all(job.ended for _, job in arrivals)
    assert {job.id for _, job in arrivals} - ended <= {job.id for _, job in doomed}
    assert engine.used_tokens == 0
