"""The rule of who starts and who leaves in plain lists: the reference for the scheduler."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class Job:
    """A sequence, running or waiting."""

    name: str
    organization: str
    priority: int
    due_s: float
    order: int
    most_pages: int
    """Pages reserved for it, or to be reserved at its start."""
    again_pages: int
    """Pages to be reserved when it starts again."""
    pages: int = 0
    """Pages that it owns."""

    @property
    def held(self) -> int:
        return max(self.most_pages, self.pages)


class NaiveShares:
    """The running and the waiting sequences at one moment."""

    def __init__(self, running: list[Job], waiting: list[Job], pages: int, places: int, ageing_s: float) -> None:
        self.running, self.waiting = running, waiting
        self.started: list[Job] = []
        self.left: list[Job] = []
        self._pages, self._places, self._ageing_s = pages, places, ageing_s

    def parts(self, organization: str, more_pages: int = 0, more_places: int = 0) -> float:
        """An organization's holding in multiples of its share: pages or slots, the larger of the two."""
        own = [job for job in self.running if job.organization == organization]
        sharing = len({job.organization for job in (*self.running, *self.waiting)})
        pages = (sum(job.held for job in own) + more_pages) * sharing / self._pages
        return max(pages, (len(own) + more_places) * sharing / self._places)

    def room(self) -> int:
        """Unreserved pages."""
        return self._pages - sum(job.held for job in self.running)

    def last(self, jobs: list[Job]) -> Job:
        """The sequence that is preempted first."""
        return max(jobs, key=lambda job: (-job.priority, self.parts(job.organization), job.due_s, job.order))

    def leave(self, job: Job) -> None:
        """Preempt a sequence: it returns to the queue."""
        self.running.remove(job)
        self.waiting.append(job)
        self.left.append(job)
        job.pages, job.most_pages = 0, job.again_pages

    def start_all(self) -> None:
        """Start sequences until no further one can."""
        while (job := self._next()) is not None:
            self.waiting.remove(job)
            self.running.append(job)
            self.started.append(job)

    def _next(self) -> Job | None:
        lines: dict[str, list[Job]] = {}
        for job in sorted(self.waiting, key=lambda job: (job.due_s, job.order)):
            lines.setdefault(job.organization, []).append(job)
        in_turn = sorted(
            lines.values(),
            key=lambda line: (line[0].due_s + self._ageing_s * self.parts(line[0].organization), line[0].order),
        )
        stopped: list[Job] = []
        """Sequences for which all sequences due `ageing_s` later wait."""
        for line in in_turn:
            own: list[Job] = []
            for job in line[:8]:
                if any(job.due_s >= other.due_s + self._ageing_s for other in (*stopped, *own)):
                    break
                if self._makes_room(job):
                    return job
                own.append(job)
                runs_nothing = all(other.organization != job.organization for other in self.running)
                if runs_nothing or self.parts(job.organization, job.most_pages, 1) <= 1:
                    stopped.append(job)
        return None

    def _makes_room(self, job: Job) -> bool:
        def has_room() -> bool:
            return not self.running or (job.most_pages <= self.room() and len(self.running) < self._places)

        if has_room():
            return True
        if self.parts(job.organization, job.most_pages, 1) > 1:
            return False
        before = [(other, other.pages, other.most_pages) for other in self.running]
        left_before = len(self.left)
        while not has_room():
            others = [
                other
                for other in self.running
                if other.organization != job.organization
                and other.priority <= job.priority
                and self.parts(other.organization) > 1
                and sum(one.organization == other.organization for one in self.running) > 1
            ]
            if not others:
                # in vain: nobody leaves
                for other in self.left[left_before:]:
                    self.waiting.remove(other)
                self.running[:], self.left[left_before:] = [other for other, _, _ in before], []
                for other, pages, most_pages in before:
                    other.pages, other.most_pages = pages, most_pages
                return False
            self.leave(self.last(others))
        return True
