// The fold: events in, transcript out. Twin of transcript.py; both fold the golden logs to the same transcripts.
//
// Blocks that no event touched keep their identity from one frozen transcript to the next: views compare by `===`.
// Streamed text is gathered with `+=`, which engines keep as a rope and join once per read.

import { added, ended, parts, sourceOf, withText } from "./blocks";
import type {
  AgentEvent,
  Block,
  Child,
  DataBlock,
  JsonObject,
  ModelCallEndEvent,
  Source,
  ToolCallBlock,
  ToolResultDataDeltaEvent,
  Transcript,
  UserInterruptEvent,
} from "./events";
import { AGENT_PATH, LATE_RESULT, NOTICE, TOOL_OUTPUT } from "./events";
import { PrintedBuilder } from "./printed";

const EMPTY: Transcript = {
  message: { name: "assistant", content: [], role: "assistant", id: "", metadata: {}, created_at: "" },
  model: "",
  steps: 0,
  calling: false,
  outputs: [],
  notices: [],
  children: [],
};

type Kind = Block["type"];
type BlockOf<K extends Kind> = Extract<Block, { type: K }>;

/** Folds events into a `Transcript`. Events about unknown blocks are ignored: a damaged log must still be readable. */
export class TranscriptBuilder {
  #base: Transcript;
  #frozen: Transcript | undefined;
  #blocks: Block[];
  #index = new Map<string, number>();
  #pieces = new Map<number, string>();
  #printed: PrintedBuilder;
  #children = new Map<string, TranscriptBuilder>();

  constructor(start: Transcript = EMPTY) {
    this.#base = start;
    this.#frozen = start;
    this.#blocks = [...start.message.content];
    this.#printed = new PrintedBuilder(start.outputs);
    for (const { call_id, transcript } of start.children) {
      this.#children.set(call_id, new TranscriptBuilder(transcript));
    }
    for (const [at, block] of this.#blocks.entries()) {
      this.#index.set(key(block.type, block.id), at);
    }
  }

  /** The transcript so far; the same object until the next event. */
  freeze(): Transcript {
    if (!this.#frozen) {
      for (const at of [...this.#pieces.keys()]) {
        this.#settle(at);
      }
      const message = { ...this.#base.message, content: [...this.#blocks] };
      this.#base = { ...this.#base, message, outputs: this.#printed.freeze(), children: this.#frozenChildren() };
      this.#frozen = this.#base;
    }
    return this.#frozen;
  }

  apply(event: AgentEvent): void {
    this.#frozen = undefined;
    const [call_id, ...below] = pathOf(event);
    if (call_id === undefined) {
      this.#apply(event);
    } else {
      this.#child(call_id, inside(event, below));
    }
  }

  /** A sub-agent's event is its own, but for the tokens, which the parent has used as well. */
  #child(call_id: string, event: AgentEvent): void {
    const child = this.#children.get(call_id) ?? new TranscriptBuilder();
    this.#children.set(call_id, child);
    child.apply(event);
    if (event.type === "MODEL_CALL_END") {
      this.#use(event);
    }
  }

  #use(event: ModelCallEndEvent): void {
    const { message } = this.#base;
    this.#base = { ...this.#base, message: { ...message, usage: added(message.usage, event) } };
  }

  /** A child that no event touched keeps its identity. */
  #frozenChildren(): readonly Child[] {
    const before = this.#base.children;
    return [...this.#children].map(([call_id, builder], at) => {
      const transcript = builder.freeze();
      const known = before[at];
      return known?.transcript === transcript ? known : { call_id, transcript };
    });
  }

  #apply(event: AgentEvent): void {
    switch (event.type) {
      case "TEXT_BLOCK_DELTA":
        return this.#text("text", event.block_id, event.delta);
      case "THINKING_BLOCK_DELTA":
        return this.#text("thinking", event.block_id, event.delta);
      case "TOOL_CALL_DELTA":
        return this.#text("tool_call", event.tool_call_id, event.delta);
      case "TOOL_RESULT_TEXT_DELTA":
        return this.#text("tool_result", event.tool_call_id, event.delta);
      case "REPLY_START":
      case "REPLY_END":
      case "MODEL_CALL_START":
      case "MODEL_CALL_END":
        return this.#frame(event);
      case "CUSTOM":
        return this.#custom(event.name, event.value);
      case "EXCEED_MAX_ITERS":
      case "EXTERNAL_EXECUTION_RESULT": // the results follow as TOOL_RESULT events
        return;
      case "REQUIRE_USER_CONFIRM":
      case "REQUIRE_EXTERNAL_EXECUTION":
      case "USER_CONFIRM_RESULT":
      case "USER_INTERRUPT":
        return this.#pause(event);
      case "DATA_BLOCK_START":
      case "DATA_BLOCK_DELTA":
      case "DATA_BLOCK_END":
      case "TOOL_RESULT_DATA_DELTA":
        return this.#data(event);
      default:
        return this.#edge(event);
    }
  }

  /** A block begins or ends. */
  #edge(
    event: Extract<
      AgentEvent,
      { type: `${"TEXT_BLOCK" | "THINKING_BLOCK" | "TOOL_CALL" | "TOOL_RESULT"}_${"START" | "END"}` | "HINT_BLOCK" }
    >,
  ): void {
    const at = event.created_at;
    switch (event.type) {
      case "TEXT_BLOCK_START":
        return this.#open({ text: "", id: event.block_id, type: "text", created_at: at });
      case "THINKING_BLOCK_START":
        return this.#open({ thinking: "", id: event.block_id, type: "thinking", created_at: at });
      case "TOOL_CALL_START": {
        const { tool_call_id: id, tool_call_name: name } = event;
        return this.#open({ id, name, input: "", state: "pending", suggested_rules: [], type: "tool_call", created_at: at });
      }
      case "TOOL_RESULT_START": {
        const { tool_call_id: id, tool_call_name: name } = event;
        return this.#open({ id, name, output: "", state: "running", metadata: {}, type: "tool_result", created_at: at });
      }
      case "HINT_BLOCK": {
        const { block_id: id, hint, source } = event;
        return this.#open({ hint, ...(source !== undefined && { source }), id, type: "hint", created_at: at, finished_at: at });
      }
      case "TEXT_BLOCK_END":
        return this.#change("text", event.block_id, { finished_at: at, ...(event.text !== undefined && { text: event.text }) });
      case "THINKING_BLOCK_END":
        return this.#change("thinking", event.block_id, { finished_at: at });
      case "TOOL_CALL_END": {
        const { input } = event.metadata;
        return this.#change("tool_call", event.tool_call_id, { finished_at: at, ...(typeof input === "string" && { input }) });
      }
      case "TOOL_RESULT_END": {
        const { state, metadata } = event;
        this.#change("tool_result", event.tool_call_id, { state, finished_at: at, metadata });
        return this.#change("tool_call", event.tool_call_id, { state: "finished" });
      }
    }
  }

  #text(kind: Kind, id: string, delta: string): void {
    const at = this.#index.get(key(kind, id));
    if (at !== undefined) {
      this.#pieces.set(at, (this.#pieces.get(at) ?? "") + delta);
    }
  }

  /** A second start (AgentScope emits one when a tool resumes) goes on in the same block. */
  #open(block: Block): void {
    if (!this.#index.has(key(block.type, block.id))) {
      this.#index.set(key(block.type, block.id), this.#blocks.push(block) - 1);
    }
  }

  #change<K extends Kind>(kind: K, id: string, changes: Partial<BlockOf<K>>): void {
    const at = this.#index.get(key(kind, id));
    const block = at === undefined ? undefined : this.#settle(at);
    if (at !== undefined && block) {
      this.#blocks[at] = { ...block, ...changes } as Block;
    }
  }

  /** Joins the text that came for a block into it. */
  #settle(at: number): Block | undefined {
    const block = this.#blocks[at];
    const text = this.#pieces.get(at);
    if (text === undefined || !block) {
      return block;
    }
    this.#pieces.delete(at);
    const joined = withText(block, text);
    this.#blocks[at] = joined;
    return joined;
  }

  #data(event: Extract<AgentEvent, { type: `DATA_BLOCK_${string}` }> | ToolResultDataDeltaEvent): void {
    switch (event.type) {
      case "DATA_BLOCK_START": {
        const source: Source = { data: "", media_type: event.media_type, type: "base64" };
        const name = event.name === undefined ? {} : { name: event.name };
        return this.#open({ source, ...name, id: event.block_id, type: "data", created_at: event.created_at });
      }
      case "DATA_BLOCK_DELTA":
        if (event.url !== undefined) {
          return this.#change("data", event.block_id, { source: sourceOf(event) });
        }
        return this.#text("data", event.block_id, event.data ?? "");
      case "DATA_BLOCK_END":
        return this.#change("data", event.block_id, { finished_at: event.created_at });
      case "TOOL_RESULT_DATA_DELTA":
        return this.#resultData(event);
    }
  }

  /** An image among a result's text: the text before it stays before it. */
  #resultData(event: ToolResultDataDeltaEvent): void {
    const at = this.#index.get(key("tool_result", event.tool_call_id));
    const block = at === undefined ? undefined : this.#settle(at);
    if (at === undefined || block?.type !== "tool_result") {
      return;
    }
    const { block_id: id, created_at } = event;
    const image: DataBlock = { source: sourceOf(event), id, type: "data", created_at, finished_at: created_at };
    this.#blocks[at] = { ...block, output: [...parts(block), image] };
  }

  #frame(event: Extract<AgentEvent, { type: `REPLY_${string}` | `MODEL_CALL_${string}` }>): void {
    const base = this.#base;
    const message = base.message;
    switch (event.type) {
      case "REPLY_START": {
        const { reply_id: id, name, role, created_at } = event;
        this.#base = { ...base, message: { ...message, id, name, role, created_at } };
        return;
      }
      case "REPLY_END":
        this.#base = { ...base, message: { ...message, ...ended(event, message.metadata) } };
        return;
      case "MODEL_CALL_START":
        // A call with a purpose of its own (it summarises, or is made again) begins no step.
        this.#base = {
          ...base,
          ...(!("purpose" in event.metadata) && { model: event.model_name, steps: base.steps + 1 }),
          calling: true,
        };
        return;
      case "MODEL_CALL_END":
        this.#base = { ...base, calling: false };
        return this.#use(event);
    }
  }

  #pause(event: Extract<AgentEvent, { type: `REQUIRE_${string}` | "USER_CONFIRM_RESULT" | "USER_INTERRUPT" }>): void {
    if (event.type === "USER_INTERRUPT") {
      return this.#endWaiting(event);
    }
    if (event.type === "USER_CONFIRM_RESULT") {
      for (const { confirmed, tool_call } of event.confirm_results) {
        this.#decide(tool_call, confirmed);
      }
      const theirs = event.confirm_results.filter(({ tool_call }) => !this.#index.has(key("tool_call", tool_call.id)));
      for (const child of theirs.length > 0 ? this.#children.values() : []) {
        child.apply({ ...event, confirm_results: theirs });
      }
      return;
    }
    for (const { id, suggested_rules, answer_by, answer_within } of event.tool_calls) {
      const limit = { ...(answer_by !== undefined && { answer_by }), ...(answer_within !== undefined && { answer_within }) };
      if (event.type === "REQUIRE_USER_CONFIRM") {
        this.#change("tool_call", id, { state: "asking", suggested_rules, ...limit });
      } else {
        this.#change("tool_call", id, { state: "submitted", ...limit });
      }
    }
  }

  /** Whether this reply, or that of a sub-agent, has this id. */
  #holds(reply_id: string): boolean {
    return this.#base.message.id === reply_id || [...this.#children.values()].some((child) => child.#holds(reply_id));
  }

  /** Nothing waits any more, also if the results that say so never come: in one sub-agent, or in the whole reply. */
  #endWaiting(event: UserInterruptEvent): void {
    const all = [...this.#children.values()];
    const meant = all.filter((child) => child.#holds(event.reply_id));
    for (const child of meant.length > 0 ? meant : all) {
      child.apply(event);
    }
    for (const block of meant.length > 0 ? [] : [...this.#blocks]) {
      if (block.type === "tool_call" && (block.state === "asking" || block.state === "submitted")) {
        this.#change("tool_call", block.id, { state: "finished" });
      }
    }
  }

  /** What runs is what was approved; what the model had asked for is kept beside it. */
  #decide({ id, input }: ToolCallBlock, confirmed: boolean): void {
    const at = this.#index.get(key("tool_call", id));
    const before = at === undefined ? undefined : this.#settle(at);
    const changed = before?.type === "tool_call" && before.input !== input && before.original_input === undefined;
    this.#change("tool_call", id, {
      state: confirmed ? "allowed" : "finished",
      input,
      ...(changed && { original_input: before.input }),
    });
  }

  #custom(name: string, value: JsonObject): void {
    if (name === TOOL_OUTPUT) {
      return this.#printed.add(value);
    }
    const notice = name === NOTICE ? value["text"] : name === LATE_RESULT ? lateNotice(value) : undefined;
    if (typeof notice === "string") {
      this.#base = { ...this.#base, notices: [...this.#base.notices, notice] };
    }
  }
}

/** The ids of the calls that lead to the agent that said this, outermost first; empty for the run's own. */
function pathOf(event: AgentEvent): readonly string[] {
  const path = event.metadata[AGENT_PATH];
  return Array.isArray(path) && path.every((part) => typeof part === "string") ? path : [];
}

/** The event as the sub-agent said it. */
function inside(event: AgentEvent, below: readonly string[]): AgentEvent {
  const { [AGENT_PATH]: _, ...rest } = event.metadata;
  return { ...event, metadata: below.length > 0 ? { ...rest, [AGENT_PATH]: below } : rest };
}

/** The calls of a run that wait for a person or an outside result, sub-agents' last. */
export function waitingCalls({ message, children }: Transcript): readonly ToolCallBlock[] {
  const own = message.content.filter((block) => block.type === "tool_call" && (block.state === "asking" || block.state === "submitted"));
  return [...(own as readonly ToolCallBlock[]), ...children.flatMap(({ transcript }) => waitingCalls(transcript))];
}

function lateNotice({ name, state, text }: JsonObject): string | undefined {
  if (typeof name !== "string" || typeof state !== "string" || typeof text !== "string") {
    return;
  }
  const ended = state === "error" ? "has failed" : "has ended";
  return `${name}, which was left behind, ${ended} after all${text ? ": " : ""}${text} (not part of the conversation)`;
}

function key(kind: Kind, id: string): string {
  return `${kind} ${id}`;
}
