"""The early tap in real kernels: beside other taps, without each of the names that it needs, taken out and put in again.

``KERNEL`` makes a comm whose ordinary handler counts too: what the tap hears early, the kernel must have got as well, in
the same order.
"""

from __future__ import annotations

import time

import pytest

from tests.kernel.fakefront import Front
from tests.kernel.page import SETUP, SOON, Page
from tests.kernel.test_stop import is_seven

KERNEL = """
import threading
from IPython import get_ipython
from agent_widgets.kernel import NotebookKernel
from agent_widgets.tap import _NEEDED, EarlyTap, MAX_LINKS
kernel = get_ipython().kernel
stream = kernel.shell_stream
original = stream._recv_callback

def on_owner(action):
    "Do it on the thread where the stream lives, and wait."
    if stream.io_loop is kernel.io_loop:
        return action()
    done = threading.Event()
    stream.io_loop.add_callback(lambda: (action(), done.set()))
    assert done.wait(5)

heard = {'ordinary': [], 'first': [], 'second': []}
def opened(comm, message):
    comm.on_msg(lambda message: heard['ordinary'].append(message['content']['data']['content']))
kernel.comm_manager.register_target('counting', opened)

def told():
    "What each has heard since the last time."
    said = {who: list(clicks) for who, clicks in heard.items()}
    for clicks in heard.values():
        clicks.clear()
    return said

class Lacks:
    "The kernel (or a part of it) without one of its names."
    def __init__(self, real, path, value=None):
        first, _, rest = path.partition('.')
        self.__dict__.update(_real=real, _name=first, _instead=Lacks(getattr(real, first), rest, value) if rest else value)
    def __getattr__(self, name):
        if name != self._name:
            return getattr(self._real, name)
        if self._instead is None:
            raise AttributeError(name)
        return self._instead
    def __setattr__(self, name, value):
        setattr(self._real, name, value)

def use(kernel_seen):
    "Let the tap of this notebook see another kernel."
    notebook = NotebookKernel.get()
    notebook.tap.uninstall()
    cards = notebook.tap._cards
    notebook.tap = EarlyTap(kernel_seen)
    notebook.tap._cards = cards
    notebook.waiter._tap = notebook.tap
    notebook.tap.install()
"""


@pytest.fixture
def page(front: Front) -> Page:
    assert front.run(SETUP + KERNEL) == ""
    return Page(front)


@pytest.fixture
def comm(front: Front, page: Page) -> str:
    """A comm of somebody else's, which two taps listen to."""
    comm_id = front.comm_open("counting")
    front.run(
        "first, second = EarlyTap(kernel), EarlyTap(kernel)\n"
        f"first.hear({comm_id!r}, heard['first'].append); second.hear({comm_id!r}, heard['second'].append)"
    )
    return comm_id


def click(front: Front, comm: str, *clicks: int) -> str:
    """Send them, and give what each has heard of them."""
    for sent in [front.custom(comm, {"n": number}) for number in clicks]:
        front.wait_idle(sent)
    return front.run("print({who: [click['n'] for click in clicks] for who, clicks in told().items()})").strip()


def heard(ordinary: list[int], first: list[int], second: list[int]) -> str:
    return str({"ordinary": ordinary, "first": first, "second": second})


# -- beside other taps ----------------------------------------------------------------------------------------------------


def test_two_taps_hear_each_click_once_and_each_can_be_taken_out_and_put_in_again(front: Front, comm: str) -> None:
    front.run("first.install(); second.install()")
    assert click(front, comm, 1, 2) == heard([1, 2], [1, 2], [1, 2])
    front.run("first.uninstall()")  # it is below: it stays as a pass-through
    assert click(front, comm, 3) == heard([3], [], [3])
    front.run("first.install()")  # on top now; the old link below still passes on
    assert click(front, comm, 4) == heard([4], [4], [4])
    front.run("first.uninstall(); second.uninstall()")
    assert click(front, comm, 5) == heard([5], [], [])
    front.run("second.install()")
    assert click(front, comm, 6) == heard([6], [], [6])
    assert front.run("print(first.reason, second.reason, sep='|')") == "it was taken out (%unload_ext)|\n"


def test_two_thousand_clicks_during_a_blocking_cell_stay_in_order_for_everybody(front: Front, comm: str) -> None:
    front.run("first.install(); second.install()")
    busy = front.execute("began = len(heard['first'])\ntime.sleep(0.5)\nearly = len(heard['first']) - began")
    numbers = list(range(2000))
    sent = [front.custom(comm, {"n": number}) for number in numbers]
    front.wait(busy)
    front.wait_idle(sent[-1], 60)
    assert front.run("print([[click['n'] for click in clicks] == list(range(2000)) for clicks in told().values()])") == (
        "[True, True, True]\n"
    )
    assert (int(front.run("print(early)")) > 0) is is_seven(front)


FOREIGN = """
passed = []
def foreign(below):
    def tap(message):
        passed.append(1)
        return below(message)
    return tap
def put(callback):
    on_owner(lambda: stream.on_recv(callback, copy=stream._recv_copy))
"""


def test_a_library_that_replaces_the_tap_is_noticed_at_the_next_run(front: Front, page: Page) -> None:
    front.run(FOREIGN + "NotebookKernel.get()\nput(foreign(original))")
    cell = front.execute("run = aw.chat(aw.Agent(slow()), 'tell me'); run.wait()")
    page.wait_for_text()
    pressed = time.monotonic()
    page.stop()
    assert page.wait_for_state("interrupted").time - pressed < SOON
    assert front.wait(cell)["status"] == "ok"
    assert front.run("print(bool(passed))") == "True\n"


def test_two_libraries_that_insist_on_the_top_do_not_make_the_chain_longer_for_ever(front: Front, comm: str) -> None:
    front.run(FOREIGN + "for _ in range(3 * MAX_LINKS):\n    first.install()\n    put(foreign(stream._recv_callback))")
    assert click(front, comm, 1, 2) == heard([1, 2], [1, 2], [])  # each click once, however long the chain
    assert front.run("first.install(); print(first.reason)").startswith("another library has put its callback on top")
    assert front.run("first.uninstall(); print('still', 'alive')") == "still alive\n"


def test_threads_that_put_one_tap_in_at_the_same_time_make_one_link(front: Front, page: Page) -> None:
    front.run(
        "tap = EarlyTap(kernel); threads = [threading.Thread(target=tap.install) for _ in range(20)]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "done = threading.Event(); stream.io_loop.add_callback(done.set)"
    )
    assert front.run("print(done.wait(10), tap._links_made, repr(tap.reason))") == "True 1 ''\n"
    front.run("tap.uninstall()")
    assert front.run("print(stream._recv_callback == original)") == "True\n"


# -- without the names that it needs ----------------------------------------------------------------------------------------

NEEDED = (
    "shell_stream",
    "session",
    "io_loop",
    "shell_stream.io_loop",
    "shell_stream.on_recv",
    "shell_stream.flush",
    "shell_stream._recv_callback",
    "shell_stream._recv_copy",
    "session.feed_identities",
    "session.deserialize",
    "session.unpack",
)
HELPFUL = (
    "shell_channel_thread",
    "shell_channel_thread.manager",
    "shell_channel_thread.manager._shell_socket",
    "shell_stream.socket",
)


def test_without_any_one_of_its_names_clicks_come_by_the_ordinary_handler_and_the_reason_can_be_read(
    front: Front, page: Page
) -> None:
    front.run("%load_ext agent_widgets")
    assert front.run("print(sorted(f'{part}.{name}'.lstrip('.') for part in _NEEDED for name in _NEEDED[part]))") == (
        f"{sorted(NEEDED)}\n"
    )
    for name in NEEDED:
        front.run(f"use(Lacks(kernel, {name!r}))")
        page = Page(front)
        front.run("run = aw.chat(aw.Agent(slow()), 'tell me')")
        page.wait_for_text()
        front.wait_idle(page.stop())
        page.wait_for_state("interrupted")
        assert page.states().count("interrupted") == 1
        assert front.run("print(run.status)") == "interrupted\n"
        assert front.run("%agent list").endswith(f"Clicks may wait until the kernel is idle: this kernel has no {name}.\n")
    front.run("use(kernel)")
    assert "Clicks" not in front.run("%agent list")


def test_without_the_names_that_only_help_clicks_are_heard_early(front: Front, page: Page) -> None:
    front.run("%load_ext agent_widgets")
    for name in HELPFUL if is_seven(front) else HELPFUL[-1:]:
        front.run(
            f"try:\n    use(Lacks(kernel, {name!r}))\nexcept AttributeError:\n    use(kernel)  # this version has it no more"
        )
        page = Page(front)
        cell = front.execute("run = aw.chat(aw.Agent(slow()), 'tell me'); run.wait()")
        page.wait_for_text()
        page.stop()
        page.wait_for_state("interrupted")
        assert front.wait(cell)["status"] == "ok"
        assert "Clicks" not in front.run("%agent list")


def test_a_peek_that_fails_costs_the_kernel_no_message_and_is_told(front: Front, page: Page) -> None:
    front.run("%load_ext agent_widgets")
    front.run(
        "def breaks(*args, **kwargs):\n    raise RuntimeError('changed since')\nuse(Lacks(kernel, 'session.unpack', breaks))"
    )
    front.run("run = aw.chat(aw.Agent(slow()), 'tell me')")
    page.wait_for_text()
    page.stop()
    page.wait_for_state("interrupted")
    told = front.run("%agent list")
    assert told.endswith("could not be read: 1, the last one: RuntimeError: changed since.\n")
    assert "until the kernel is idle" not in told  # clicks are heard early, but for that one


# -- taken out and put in again ---------------------------------------------------------------------------------------------


def test_unload_takes_everything_out_and_load_puts_it_back(front: Front, page: Page) -> None:
    front.run("import sys; kind = type(sys.stdout); ip = get_ipython(); publish = ip.display_pub.publish")
    front.run("manager = getattr(getattr(kernel, 'shell_channel_thread', None), 'manager', None)")
    front.run("reply_socket = getattr(manager, '_shell_socket', None)")
    is_out = "print(stream._recv_callback == original, type(sys.stdout) is kind, ip.display_pub.publish == publish, "
    is_out += "getattr(manager, '_shell_socket', None) is reply_socket)"
    front.run("%load_ext agent_widgets")
    assert front.run(is_out).startswith("False False False")
    front.run("%unload_ext agent_widgets")
    assert front.run(is_out) == "True True True True\n"
    front.run("%load_ext agent_widgets\nagent = aw.Agent(slow())\nrun = aw.chat(agent, 'tell me')")
    page.wait_for_text()
    page.stop()
    page.wait_for_state("interrupted")


def test_unload_during_a_run_leaves_its_card_to_the_ordinary_handler_until_load(front: Front, page: Page) -> None:
    front.run("%load_ext agent_widgets\none, two = aw.Agent(slow()), aw.Agent(slow())\nfirst = aw.chat(one, 'one')")
    page.wait_for_text()
    other = Page(front)
    front.run("second = aw.chat(two, 'two')")
    other.wait_for_text()
    front.run("%unload_ext agent_widgets")
    page.stop()
    page.wait_for_state("interrupted")
    assert front.run("print(stream._recv_callback == original, first.status, second.status)") == "True interrupted running\n"
    front.run("%load_ext agent_widgets")
    busy = front.execute("time.sleep(1)\nbefore_its_end = second.status")
    front.wait_for(lambda message: message.parent_id == busy and message.type == "execute_input")
    other.stop()
    front.wait(busy)
    other.wait_for_state("interrupted")
    assert front.run("print(before_its_end)") == ("interrupted\n" if is_seven(front) else "running\n")


# -- other ways of the kernels ----------------------------------------------------------------------------------------------


def test_a_click_on_a_subshell_needs_the_tap_on_7_4_only_in_a_sync_cell(front: Front, page: Page) -> None:
    """7.4 sends it to the shell from which the comm sent last (``comm._reply_subshell_for``): to the cell that blocks."""
    if not is_seven(front):
        assert not front.has_subshells
        return
    routes = front.run("import ipykernel; print(ipykernel.version_info >= (7, 4))") == "True\n"
    subshell = front.create_subshell()
    front.run("run = aw.chat(aw.Agent(slow()), 'tell me')")
    page.wait_for_text()
    front.run("NotebookKernel.get().tap.uninstall()")
    busy = front.execute("time.sleep(1)\nbefore_its_end = run.status")
    page.stop(subshell=subshell)
    front.wait(busy)
    page.wait_for_state("interrupted")
    assert front.run("print(before_its_end)") == ("running\n" if routes else "interrupted\n")
    page = Page(front)
    cell = front.execute("run = aw.chat(aw.Agent(slow()), 'tell me'); run.wait()")  # puts the tap in again
    page.wait_for_text()
    pressed = time.monotonic()
    page.stop(subshell=subshell)
    assert page.wait_for_state("interrupted").time - pressed < SOON
    front.wait(cell)


def test_other_libraries_clicks_during_a_sync_cell_keep_their_order_with_the_cells(front: Front, page: Page, comm: str) -> None:
    busy = front.execute("run = aw.chat(aw.Agent(slow()), 'tell me'); run.wait(); heard['ordinary'].append('run')")
    page.wait_for_text()
    front.custom(comm, {"n": 1})
    queued = front.execute("heard['ordinary'].append('cell')")
    front.custom(comm, {"n": 2})
    page.stop()
    front.wait_idle(front.custom(comm, {"n": 3}))
    front.wait(busy)
    front.wait(queued)
    assert front.run("print(told()['ordinary'])") == "['run', {'n': 1}, 'cell', {'n': 2}, {'n': 3}]\n"


FROM_THREADS = """
def in_thread(action):
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()
"""


def test_what_plain_threads_do_is_sent_in_the_context_of_the_card(front: Front, page: Page) -> None:
    """On ipykernel 7.0 a thread that no cell started has no parent, and a send there would raise ``LookupError``."""
    front.run(FROM_THREADS + "script = [[call('delete_rows', {'table': 'orders'})], [say('as you say')]]")
    front.run("agent = aw.Agent(ScriptedModel(script * 3), tools=[delete_rows])\nfirst = aw.chat(agent, 'one')")
    page.wait_for_state("paused")
    other = Page(front)
    front.run("second = aw.chat(agent, 'two')")
    other.wait_for_state("queued")
    front.run("in_thread(second.stop)")
    other.wait_for_state("interrupted")
    front.run("in_thread(lambda: first.approve(always=True))")
    page.wait_for_state("completed")
    page.wait_for_messages("rules")
    front.run("in_thread(lambda: agent.forget_rule(agent.state.rules[0]))")
    page.wait_for_messages("rules", 2)
    third = Page(front)
    front.run("third = aw.chat(agent, 'three')")
    third.wait_for_state("paused")
    front.run("in_thread(third.stop)")
    third.wait_for_state("interrupted")
    fourth = Page(front)
    front.run("fourth = aw.chat(aw.Agent(slow()), 'four')")
    fourth.wait_for_text()
    front.run("in_thread(lambda: fourth.steer('and the customers'))")
    front.run("in_thread(lambda: fourth.stop())")
    fourth.wait_for_state("interrupted")
    assert not [message for message in front.messages if "LookupError" in str(message.content)]
    assert "LookupError" not in front.kernel_log()


def test_a_request_right_after_a_cells_end_is_always_heard(front: Front, page: Page) -> None:
    """By themselves ipykernel 7.0 to 7.3 go deaf within some hundred of them (ipykernel#1529)."""
    front.run("%load_ext agent_widgets")
    for number in range(300):
        cell = front.execute("pass")
        front.wait_for(lambda m, cell=cell: m.parent_id == cell and m.type == "status")
        time.sleep(number % 40 / 10_000)  # somewhere around the reply, which takes about 2 ms
        front.wait_idle(front.comm_msg("nobody's", {}), 5)
        front.wait(cell)
        front.forget()
