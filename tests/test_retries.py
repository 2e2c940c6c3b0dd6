"""A model call that fails for a while: tried again where nothing was said yet, visibly, and a stop cuts the wait (C26, C7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.backends import ModelDelta, ModelRequest, TextPiece
from agent_widgets.errors import ModelError, ModelSetupError
from agent_widgets.reasoning import MAX_BACK_OFF_SECONDS, MAX_RETRIES
from agent_widgets.runs import Run
from tests.validator import faults


class Failing:
    """A model whose calls fail with these errors, in order, after these pieces, and then answer."""

    name = "failing"

    def __init__(self, *failures: ModelError, before: Sequence[str] = ()) -> None:
        self.failures = list(failures)
        self.before = before
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.failures:
            for text in self.before:
                yield TextPiece(text)
            raise self.failures.pop(0)
        yield TextPiece("there you are")


def busy(retry_after_s: float | None = 0) -> ModelError:
    return ModelError("failing", "too many requests.", "Wait.", is_temporary=True, retry_after_s=retry_after_s)


def notices(run: Run) -> tuple[str, ...]:
    return run.transcript.notices


def started(model: Failing) -> tuple[Run, Agent]:
    agent = Agent(model)
    run = Run(agent, "go", loop=asyncio.get_running_loop())
    run.start()
    return run, agent


async def test_a_busy_server_is_asked_again_and_the_person_sees_it() -> None:
    run, agent = started(Failing(busy(), busy()))
    assert (await run).text == "there you are"
    assert notices(run) == (
        "too many requests. Trying again in 0 s (1 of 2).",
        "too many requests. Trying again in 0 s (2 of 2).",
    )
    assert agent.state.check() == ()
    assert [event.type for event in run.events].count("MODEL_CALL_START") == 1


async def test_after_the_last_retry_the_reply_ends_with_the_error_and_the_next_prompt_works() -> None:
    model = Failing(*(busy() for _ in range(MAX_RETRIES + 1)))
    run, agent = started(model)
    with pytest.raises(ModelError, match="too many requests"):
        await run
    assert run.status == "error"
    assert len(model.requests) == MAX_RETRIES + 1
    assert (await agent.reply(None)).text == "there you are"
    assert faults(model.requests[-1].messages) == []


async def test_what_has_been_said_is_never_said_twice() -> None:
    model = Failing(busy(), before=["half an ans"])
    run, agent = started(model)
    with pytest.raises(ModelError):
        await run
    assert (len(model.requests), run.text) == (1, "half an ans")
    assert agent.state.check() == ()


async def test_what_a_person_has_to_mend_is_not_tried_again() -> None:
    model = Failing(ModelSetupError("failing", "there is no API key."))
    run, _ = started(model)
    with pytest.raises(ModelSetupError):
        await run
    assert len(model.requests) == 1


async def test_a_stop_during_the_wait_for_a_retry_takes_effect() -> None:
    model = Failing(busy(retry_after_s=3600))
    run, agent = started(model)
    waiting = asyncio.Event()
    run.listen(lambda _, event: waiting.set() if isinstance(event, ev.CustomEvent) else None)
    await waiting.wait()
    assert f"Trying again in {MAX_BACK_OFF_SECONDS:g} s" in notices(run)[0]
    run.stop()
    assert (await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(run.ended)), 1)) is None
    assert (run.status, len(model.requests), agent.state.check()) == ("interrupted", 1, ())


async def test_a_stop_after_the_step_does_not_wait_for_a_step_that_has_not_begun() -> None:
    model = Failing(busy(retry_after_s=3600))
    run, agent = started(model)
    waiting = asyncio.Event()
    run.listen(lambda _, event: waiting.set() if isinstance(event, ev.CustomEvent) else None)
    await waiting.wait()
    run.stop("step")
    await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(run.ended)), 1)
    assert (run.status, len(model.requests), agent.state.check()) == ("interrupted", 1, ())
    assert run.reply.metadata["when"] == "step"


async def test_a_model_that_takes_its_cancel_for_a_lost_connection_is_not_asked_again() -> None:
    class Mistaken(Failing):
        async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
            self.requests.append(request)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:  # noqa: ASYNC103 - the planted mistake
                raise ModelError("mistaken", "it was lost.", is_temporary=True, retry_after_s=60) from None  # noqa: ASYNC104
            yield TextPiece("never")

    model = Mistaken()
    run, agent = started(model)
    while not model.requests:
        await asyncio.sleep(0)
    run.stop(reason="enough")
    async with asyncio.timeout(1):
        await run
    assert (run.status, len(model.requests), notices(run)) == ("interrupted", 1, ())
    assert agent.state.check() == ()
