// What the kernel sends and what the page asks for: the only file that knows wire spelling. Twin of wire.py.

import { asObject, type Doubt, decode, isObject } from "./decode";
import type { AgentEvent, JsonObject, Transcript } from "./events";

type RunState = "queued" | "running" | "stopping" | "paused" | "completed" | "interrupted" | "exceed_max_iters" | "error";

const RUN_STATES: readonly string[] = [
  "queued",
  "running",
  "stopping",
  "paused",
  "completed",
  "interrupted",
  "exceed_max_iters",
  "error",
] satisfies RunState[];

/** Who ended a run, and how long it took. */
export interface StopInfo {
  readonly source: string;
  readonly when: string;
  readonly reason: string;
  readonly stop_ms?: number;
}

/** What a person added while the agent works; the model has not read it. */
export interface Note {
  readonly id: string;
  readonly text: string;
}

/** Calls that run without asking: all of a tool, or those that a pattern matches. */
export interface Rule {
  readonly tool_name: string;
  readonly rule_content?: string;
}

/**
 * How a run stands. `elapsed` is in seconds, at the time of sending; `ahead` counts the runs before it in the queue.
 * `steering` waits for the next step; of a run that has ended, it was not sent.
 */
export interface Status {
  readonly state: RunState;
  readonly elapsed?: number;
  readonly ahead?: number;
  readonly stop?: StopInfo;
  readonly note?: string;
  readonly steerable?: boolean;
  readonly steering?: readonly Note[];
}

/** One run of a snapshot. `cut` counts the characters that a capped snapshot lacks. */
export interface FullRun {
  readonly run_id: string;
  readonly prompt: string;
  readonly status: Status;
  readonly transcript: Transcript;
  readonly cut: number;
}

export type Incoming =
  | { readonly kind: "full"; readonly seq: number; readonly runs: readonly FullRun[]; readonly rules: readonly Rule[] }
  | { readonly kind: "rules"; readonly rules: readonly Rule[] }
  | { readonly kind: "twin"; readonly data: Readonly<Record<string, string>> }
  | {
      readonly kind: "events";
      readonly seq: number;
      readonly run_id: string;
      readonly events: readonly AgentEvent[];
      readonly status?: Status;
      readonly prompt?: string;
    }
  | { readonly kind: "notice"; readonly id: string; readonly text: string };

export type Decision = "approve" | "deny";

/** What a person decided about a call. An approval may come with other arguments, and with a rule to keep. */
export interface Verdict {
  readonly decision: Decision;
  readonly reason: string;
  readonly arguments?: string;
  readonly rule?: Rule;
}

export type Command =
  | { readonly kind: "hello"; readonly have: number; readonly page: string }
  | { readonly kind: "resync"; readonly have: number }
  | { readonly kind: "twin" }
  | { readonly kind: "stop"; readonly run_id: string; readonly after: "now"; readonly call_id?: string }
  | ({ readonly kind: "decide"; readonly run_id: string; readonly call_id: string; readonly fingerprint: string } & Verdict)
  | {
      readonly kind: "decide_all";
      readonly run_id: string;
      readonly calls: Readonly<Record<string, string>>;
      readonly decision: Decision;
      readonly reason: string;
      readonly stop: boolean;
    }
  | { readonly kind: "answer"; readonly run_id: string; readonly call_id: string; readonly text: string }
  | { readonly kind: "steer"; readonly run_id: string; readonly text: string }
  | { readonly kind: "withdraw"; readonly run_id: string; readonly steer_id: string }
  | { readonly kind: "forget"; readonly rule: Rule }
  | { readonly kind: "send"; readonly text: string }
  | { readonly kind: "resume"; readonly run_id: string };

/** Read a message of the kernel; `undefined` when it is none that this card knows. */
export function decodeMessage(value: unknown, doubt: Doubt): Incoming | undefined {
  if (!isObject(value)) {
    return undefined;
  }
  const { kind, seq, runs, id, text, rules, data } = value;
  if (kind === "full" && isCount(seq) && Array.isArray(runs)) {
    return { kind, seq, runs: runs.flatMap((run) => decodeRun(run, doubt) ?? []), rules: decodeRules(rules) };
  }
  if (kind === "rules") {
    return { kind, rules: decodeRules(rules) };
  }
  if (kind === "events" && isCount(seq)) {
    return decodeEvents(value, seq, doubt);
  }
  if (kind === "notice" && typeof id === "string" && typeof text === "string") {
    return { kind, id, text };
  }
  if (kind === "twin" && isObject(data)) {
    return { kind, data: Object.fromEntries(Object.entries(data).map(([mime, part]) => [mime, String(part)])) };
  }
  doubt.strange += 1;
  return undefined;
}

function decodeEvents(value: Readonly<Record<string, unknown>>, seq: number, doubt: Doubt): Incoming | undefined {
  const { run_id, events, status, prompt } = value;
  if (typeof run_id !== "string" || !Array.isArray(events)) {
    doubt.strange += 1;
    return undefined;
  }
  return {
    kind: "events",
    seq,
    run_id,
    events: events.flatMap((event) => decode("AgentEvent", event, doubt) ?? []),
    ...(isObject(status) && { status: decodeStatus(status) }),
    ...(typeof prompt === "string" && { prompt }),
  };
}

function decodeRun(value: unknown, doubt: Doubt): FullRun | undefined {
  const { run_id, prompt, status, transcript } = asObject(value);
  const read = decode("Transcript", transcript, doubt);
  if (typeof run_id !== "string" || !read) {
    return undefined;
  }
  const { cut } = asObject(transcript);
  return {
    run_id,
    prompt: typeof prompt === "string" ? prompt : "",
    status: isObject(status) ? decodeStatus(status) : statusOf(read),
    transcript: read,
    cut: isCount(cut) ? cut : 0,
  };
}

function decodeRules(value: unknown): Rule[] {
  return listOf(value).flatMap(({ tool_name, rule_content }) =>
    typeof tool_name === "string" ? [{ tool_name, ...(typeof rule_content === "string" && { rule_content }) }] : [],
  );
}

function decodeNotes(value: unknown): Note[] {
  return listOf(value).flatMap(({ id, text }) => (typeof id === "string" && typeof text === "string" ? [{ id, text }] : []));
}

function listOf(value: unknown): Readonly<Record<string, unknown>>[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

function decodeStatus(value: Readonly<Record<string, unknown>>): Status {
  const { state, elapsed, ahead, stop, note, steerable, steering } = value;
  return {
    state: isRunState(state) ? state : "running",
    ...(isNumber(elapsed) && { elapsed }),
    ...(isCount(ahead) && { ahead }),
    ...(isObject(stop) && { stop: stopInfo(stop) }),
    ...(typeof note === "string" && { note }),
    ...(steerable === true && { steerable }),
    ...(steering !== undefined && { steering: decodeNotes(steering) }),
  };
}

/** Who stopped it, from a status or from the metadata of `REPLY_END`. */
export function stopInfo(value: Readonly<Record<string, unknown>>): StopInfo {
  const { source, when, reason, stop_ms } = value;
  const text = (part: unknown): string => (typeof part === "string" ? part : "");
  return { source: text(source), when: text(when), reason: text(reason), ...(isNumber(stop_ms) && { stop_ms }) };
}

/** How a run stands when nobody says so: a replayed or an old one. */
function statusOf(transcript: Transcript): Status {
  return { state: transcript.message.finished_reason ?? "running" };
}

function isRunState(value: unknown): value is RunState {
  return typeof value === "string" && RUN_STATES.includes(value);
}

function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= -1;
}

/** A member of a JSON object, if it is text. */
export function textOf(value: JsonObject, key: string): string {
  const part = value[key];
  return typeof part === "string" ? part : "";
}

/** What a decision is bound to: the 64-bit FNV-1a of the tool's name and its arguments. Twin of `wire.fingerprint`. */
export function fingerprint(name: string, input: string): string {
  let value = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(`${name}\n${input}`)) {
    value = BigInt.asUintN(64, (value ^ BigInt(byte)) * 0x100000001b3n);
  }
  return value.toString(16).padStart(16, "0");
}

/** A fresh id. `crypto.randomUUID` is missing on plain http, where many a JupyterHub lives. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
