// The golden logs that pytest and vitest share, and a widget model without a kernel.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Model } from "../src/link";

const FOLDER = join(import.meta.dirname, "../../tests/golden");

export const LOGS: readonly string[] = readdirSync(FOLDER)
  .filter((name) => name.endsWith(".jsonl"))
  .map((name) => name.replace(".jsonl", ""));

export type Dict = Record<string, unknown>;

/** The events of a log, in full form. */
export function eventsOf(log: string): Dict[] {
  const lines = readFileSync(join(FOLDER, `${log}.jsonl`), "utf8")
    .trimEnd()
    .split("\n");
  return lines.map((line) => JSON.parse(line) as Dict);
}

export function transcriptOf(log: string): Dict {
  return JSON.parse(readFileSync(join(FOLDER, `${log}.transcript.json`), "utf8")) as Dict;
}

/** Twin of `wire.page_event`. */
export function pageForm(event: Dict): Dict {
  const { id, ...rest } = event;
  const { type, block_id, tool_call_id, delta, metadata } = rest;
  if (/^(TEXT_BLOCK|THINKING_BLOCK|TOOL_CALL|TOOL_RESULT_TEXT)_DELTA$/.test(String(type))) {
    const where = (metadata as Dict)["agent_path"] === undefined ? {} : { metadata };
    return block_id === undefined ? { type, tool_call_id, delta, ...where } : { type, block_id, delta, ...where };
  }
  return withoutEmpty(rest) as Dict;
}

/** Twin of `wire._without_empty`. */
export function withoutEmpty(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(withoutEmpty);
  }
  if (typeof value !== "object" || value === null) {
    return value;
  }
  const isEmpty = (part: unknown) =>
    part === null || part === undefined || (typeof part === "object" && Object.keys(part as object).length === 0);
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, part]) => !isEmpty(part))
      .map(([key, part]) => [key, withoutEmpty(part)]),
  );
}

/** A widget model: `traits` as the kernel set them, `sent` what the page asked for. */
export class FakeModel implements Model {
  readonly sent: Dict[] = [];
  readonly traits: Dict;
  readonly widget_manager = {};
  #listeners = new Map<string, Set<(message: unknown) => void>>();

  constructor(traits: Dict = {}) {
    this.traits = { css_id: "x1", composer: false, snapshot: {}, ...traits };
  }

  get(name: string): unknown {
    return this.traits[name];
  }

  on(name: string, callback: (message: unknown) => void): void {
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners.add(callback));
  }

  off(name: string, callback: (message: unknown) => void): void {
    this.#listeners.get(name)?.delete(callback);
  }

  set(name: string, value: unknown): void {
    this.traits[name] = value;
  }

  send(content: unknown): void {
    this.sent.push(content as Dict);
  }

  /** The kernel sends a custom message. */
  receive(message: unknown): void {
    for (const listener of [...(this.#listeners.get("msg:custom") ?? [])]) {
      listener(message);
    }
  }

  /** The kernel sets a trait. */
  change(name: string, value: unknown): void {
    this.traits[name] = value;
    this.trigger(`change:${name}`);
  }

  /** The widget manager triggers an event. */
  trigger(name: string): void {
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      listener(undefined);
    }
  }

  listenerCount(): number {
    return [...this.#listeners.values()].reduce((sum, listeners) => sum + listeners.size, 0);
  }

  sentOf(kind: string): Dict[] {
    return this.sent.filter((message) => message["kind"] === kind);
  }
}

export function events(seq: number, run_id: string, list: readonly Dict[], more: Dict = {}): Dict {
  return { kind: "events", seq, run_id, events: list, ...more };
}

export function full(seq: number, runs: readonly Dict[]): Dict {
  return { kind: "full", seq, runs };
}

export function run(transcript: Dict, status: Dict = { state: "running" }, run_id = "run1", prompt = "A question"): Dict {
  return { run_id, prompt, status, transcript };
}
