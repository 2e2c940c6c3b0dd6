"""agent-widgets: a live, stoppable agent in a notebook cell.

The rooms, from the bottom up; a module imports only from those before it::

    errors, messages, events, eventlog, state, transcript, wire    values: what is said, what happened, how it is spelled
    backends, mainthread, loops, budgets, decisions, waiting       the protocols, the loop and the main thread,
    questions, inbox, carriage, runs, nesting, reading             and one reply being carried out
    schemas, outcomes, threads, isolated, processes, execution,    functions as tools,
    tools                                                          and how they run
    permissions, outputs, cuts, compression, models/               our own agent: its other parts
    memory, results, subagents, calling, answers, acting,          and its loop
    shortening, reasoning, agent
    adapters/                                                      other people's agents
    pacing, store, journal, keeping, sessions                      when a card speaks, files, state across cells
    settings, stdin, inheriting, figures, capture                  the kernel: defaults, what tools print,
    tap, revival, interrupts, cells, unattended, kernel, hosts     early commands, reloads, ■, waiting
    export, widget, chat, magics                                   what is on the screen
"""

from __future__ import annotations

from agent_widgets.agent import Agent
from agent_widgets.budgets import Budget
from agent_widgets.chat import card, chat
from agent_widgets.compression import CompressionConfig
from agent_widgets.errors import (
    AgentBusyError,
    AgentInterruptedError,
    AgentStopped,
    AgentWidgetsError,
    ConfirmationRequiredError,
    ConversationTooLongError,
    InputError,
    MissingPackageError,
    ModelError,
    ModelSetupError,
    NotWaitingError,
    SavedStateError,
    ToolDefinitionError,
)
from agent_widgets.events import (
    ConfirmResult,
    Event,
    ExternalExecutionResultEvent,
    ReplyEndEvent,
    RequireExternalExecutionEvent,
    RequireUserConfirmEvent,
    UserConfirmResultEvent,
    UserInterruptEvent,
)
from agent_widgets.magics import load_ipython_extension, unload_ipython_extension
from agent_widgets.messages import (
    AssistantMsg,
    DataBlock,
    HintBlock,
    Msg,
    PermissionRule,
    SystemMsg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMsg,
)
from agent_widgets.runs import Run
from agent_widgets.sessions import Session, sessions
from agent_widgets.state import AgentState, Summary
from agent_widgets.threads import stop_requested
from agent_widgets.tools import Tool, tool

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentBusyError",
    "AgentInterruptedError",
    "AgentState",
    "AgentStopped",
    "AgentWidgetsError",
    "AssistantMsg",
    "Budget",
    "CompressionConfig",
    "ConfirmResult",
    "ConfirmationRequiredError",
    "ConversationTooLongError",
    "DataBlock",
    "Event",
    "ExternalExecutionResultEvent",
    "HintBlock",
    "InputError",
    "MissingPackageError",
    "ModelError",
    "ModelSetupError",
    "Msg",
    "NotWaitingError",
    "PermissionRule",
    "ReplyEndEvent",
    "RequireExternalExecutionEvent",
    "RequireUserConfirmEvent",
    "Run",
    "SavedStateError",
    "Session",
    "Summary",
    "SystemMsg",
    "TextBlock",
    "ThinkingBlock",
    "Tool",
    "ToolCallBlock",
    "ToolDefinitionError",
    "ToolResultBlock",
    "UserConfirmResultEvent",
    "UserInterruptEvent",
    "UserMsg",
    "card",
    "chat",
    "load_ipython_extension",
    "sessions",
    "stop_requested",
    "tool",
    "unload_ipython_extension",
]
