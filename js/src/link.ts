// One model's side of the wire: sequence numbers, runs, commands. Once per model; views subscribe.
//
// Messages count up by one. A gap means that something was lost (a slow page, a reload): the card asks once for
// everything, and ignores events until it comes, because folding around a hole shows text that nobody wrote.

import { type Asked, type Notice, Presses } from "./asked";
import type { Doubt } from "./decode";
import type { ToolCallBlock, Transcript } from "./events";
import { farewell } from "./gone";
import { ENDED, hasHappened } from "./happened";
import { Host } from "./host";
import { TranscriptBuilder } from "./transcript";
import { TwinKeeper } from "./twin";
import {
  type Command,
  type Decision,
  decodeMessage,
  type FullRun,
  fingerprint,
  type Incoming,
  newId,
  type Rule,
  type Status,
  type Verdict,
} from "./wire";

/** The part of a widget model that a card uses. */
export interface Model {
  get(name: string): unknown;
  on(name: string, callback: (message: unknown) => void): void;
  off(name: string, callback: (message: unknown) => void): void;
  set(name: string, value: unknown): void;
  send(content: unknown): void;
}

/** One run as views see it. `since` is the page's clock, in ms, when `status` came. */
export interface RunView {
  readonly run_id: string;
  readonly prompt: string;
  readonly status: Status;
  readonly since: number;
  readonly transcript: Transcript;
  readonly cut: number;
}

/**
 * All that a view shows. `notice` is the newest sentence for the person; `newer` says that something could not be read; `gone`
 * says what became of the kernel, and is empty while it is there.
 */
export interface CardState {
  readonly runs: readonly RunView[];
  readonly rules: readonly Rule[];
  readonly asked: readonly Asked[];
  readonly notice: Notice | undefined;
  readonly newer: boolean;
  readonly gone: string;
}

/** `urgent`: a person pressed something, do not wait for the next frame. */
export type Listener = (urgent: boolean) => void;

interface Run {
  prompt: string;
  status: Status;
  since: number;
  cut: number;
  builder: TranscriptBuilder;
  view: RunView | undefined;
}

const RESYNC_MS = 3_000;
/** So long a run may say nothing before the kernel is asked: a server drops messages that come too fast, also the last one. */
const SILENT_MS = 15_000;
const UNSENT = "Nothing was sent: this card is not connected to a kernel. Run its cell again.";
const SETTLED = [...ENDED, "paused"];

export class Link {
  #model: Model;
  #have = -1;
  #resyncAt: number | undefined;
  #helloAt: number | undefined;
  #runs = new Map<string, Run>();
  #rules: readonly Rule[] = [];
  #presses = new Presses(() => this.#tell(true));
  #doubt: Doubt = { strange: 0 };
  #listeners = new Set<Listener>();
  #twin: TwinKeeper;
  #unwatch: () => void;
  #silence: ReturnType<typeof setTimeout> | undefined;
  #heardAt: Date | undefined;
  #gone = "";

  constructor(model: Model) {
    this.#model = model;
    const host = new Host(model);
    this.#twin = new TwinKeeper(host, String(model.get("css_id")), () => this.#post({ kind: "twin" }));
    this.#unwatch = host.watch((how) => this.#lose(how));
    model.on("msg:custom", this.#onMessage);
    model.on("change:snapshot", this.#onSnapshot);
    this.#onSnapshot();
  }

  /** Whether the page may load images at an address, in what a model writes. */
  get remoteImages(): boolean {
    return this.#model.get("remote_images") === true;
  }

  dispose(): void {
    this.#model.off("msg:custom", this.#onMessage);
    this.#model.off("change:snapshot", this.#onSnapshot);
    this.#unwatch();
    clearTimeout(this.#silence);
    this.#twin.dispose();
    this.#presses.dispose();
    this.#listeners.clear();
  }

  /** Returns the function that ends the subscription. */
  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get state(): CardState {
    const runs = [...this.#runs].map(([run_id, run]) => viewOf(run_id, run));
    const { asked, notice } = this.#presses;
    return { runs, rules: this.#rules, asked, notice, newer: this.#doubt.strange > 0, gone: this.#gone };
  }

  // -- page to kernel

  /** A view has appeared. */
  hello(): void {
    this.#helloAt = performance.now();
    const isWhole = [...this.#runs.values()].every(({ cut }) => cut === 0);
    this.#post({ kind: "hello", have: isWhole ? this.#have : -1, page: pageId() });
  }

  /** With `call_id`, only what this call runs. */
  stop(run_id: string, call_id?: string): void {
    const about = call_id === undefined ? [] : [call_id];
    this.#ask("stop", run_id, about, { kind: "stop", run_id, after: "now", ...(call_id !== undefined && { call_id }) });
  }

  resume(run_id: string): void {
    this.#ask("resume", run_id, [], { kind: "resume", run_id });
  }

  /** Returns the command's id: a notice with this id says that it could not be carried out. */
  prompt(text: string): string | undefined {
    return this.#ask("send", "", [], { kind: "send", text });
  }

  /** A decision is bound to the arguments that the person saw. */
  decide(run_id: string, { id, name, input }: Pick<ToolCallBlock, "id" | "name" | "input">, verdict: Verdict): void {
    const seen = fingerprint(name, input);
    this.#ask(verdict.decision, run_id, [id], { kind: "decide", run_id, call_id: id, fingerprint: seen, ...verdict });
  }

  /** One decision about all calls that wait; with `stop` it ends the run. */
  decideAll(run_id: string, calls: readonly ToolCallBlock[], decision: Decision, reason = "", stop = false): void {
    const seen = Object.fromEntries(calls.map(({ id, name, input }) => [id, fingerprint(name, input)]));
    this.#ask(decision, run_id, Object.keys(seen), { kind: "decide_all", run_id, calls: seen, decision, reason, stop });
  }

  answer(run_id: string, call_id: string, text: string): string | undefined {
    return this.#ask("answer", run_id, [call_id], { kind: "answer", run_id, call_id, text });
  }

  steer(run_id: string, text: string): string | undefined {
    return this.#ask("steer", run_id, [text], { kind: "steer", run_id, text });
  }

  withdraw(run_id: string, steer_id: string): void {
    this.#ask("withdraw", run_id, [steer_id], { kind: "withdraw", run_id, steer_id });
  }

  forget(rule: Rule): void {
    this.#ask("forget", "", [ruleKey(rule)], { kind: "forget", rule });
  }

  #ask(what: Asked["what"], run_id: string, about: readonly string[], command: Command): string | undefined {
    const id = this.#gone === "" ? this.#presses.ask(what, run_id, about, JSON.stringify(command)) : undefined;
    if (id !== undefined && !this.#post(command, id)) {
      this.#presses.answer(id, UNSENT);
    }
    this.#tell(true);
    return id;
  }

  /** ipywidgets throws, or rejects, when the comm is closed. */
  #post(command: Command, id = newId()): boolean {
    try {
      const sent: unknown = this.#model.send({ ...command, id });
      if (sent instanceof Promise) {
        sent.catch(() => this.#presses.answer(id, UNSENT));
      }
      return true;
    } catch {
      return false;
    }
  }

  // -- kernel to page

  #onSnapshot = (): void => {
    const value = this.#model.get("snapshot");
    this.#guard(() => {
      const message = isEmpty(value) ? undefined : decodeMessage(value, this.#doubt);
      if (message?.kind === "full" && message.seq > this.#have) {
        this.#replace(message);
      }
    });
  };

  #onMessage = (value: unknown): void => {
    this.#heardAt = new Date();
    this.#guard(() => {
      const message = decodeMessage(value, this.#doubt);
      if (message) {
        this.#take(message);
        this.#keep();
      }
    });
  };

  /** Whatever the kernel sends, nothing is thrown into the host's message loop: it would stop all later messages. */
  #guard(handle: () => void): void {
    try {
      handle();
    } catch (error) {
      this.#doubt.strange += 1;
      console.warn("[agent-widgets] a message could not be read", error);
    }
    this.#twin.rest(this.#isSettled() && this.#gone === "" ? this.#have : undefined);
    this.#watchSilence();
    this.#tell(false);
  }

  /** While something goes on: ask what has become of it when nothing is heard any more. */
  #watchSilence(): void {
    if (this.#isSettled() || this.#gone !== "") {
      clearTimeout(this.#silence);
      this.#silence = undefined;
    } else {
      this.#silence ??= setTimeout(() => this.#askIfSilent(), SILENT_MS);
    }
  }

  #askIfSilent(): void {
    this.#silence = undefined;
    if (Date.now() - (this.#heardAt?.getTime() ?? 0) >= SILENT_MS) {
      this.hello();
    }
    this.#watchSilence();
  }

  #take(message: Incoming): void {
    switch (message.kind) {
      case "notice":
        return this.#presses.say(message.id, message.text);
      case "full":
        return message.seq >= this.#have ? this.#replace(message) : undefined;
      case "rules":
        this.#helloAt = undefined;
        this.#rules = message.rules;
        return this.#settle(false);
      case "twin":
        return this.#twin.write(message.data);
      case "events":
        if (message.seq > this.#have + 1) {
          return this.#resync();
        }
        if (message.seq === this.#have + 1 && this.#resyncAt === undefined) {
          this.#have = message.seq;
          this.#fold(message);
        }
    }
  }

  /** Once per gap, and not if the answer to a hello will fill it; again only if the answer itself seems to be lost. */
  #resync(): void {
    const now = performance.now();
    const asked = this.#resyncAt ?? this.#helloAt;
    if (asked === undefined || now - asked > RESYNC_MS) {
      this.#resyncAt = now;
      this.#post({ kind: "resync", have: this.#have });
    }
  }

  #fold(message: Extract<Incoming, { kind: "events" }>): void {
    const known = this.#runs.get(message.run_id);
    const run = known ?? newRun(message.prompt ?? "");
    this.#runs.set(message.run_id, run);
    for (const event of message.events) {
      run.builder.apply(event);
    }
    if (message.status) {
      run.status = message.status;
      run.since = performance.now();
    }
    run.view = undefined;
    this.#settle(!known);
  }

  #isSettled(): boolean {
    return [...this.#runs.values()].every(({ status }) => SETTLED.includes(status.state));
  }

  /** The kernel is gone, and with it everything that was asked of it. What is shown stays. */
  #lose(how: string): void {
    if (this.#gone === "") {
      const goesOn = [...this.#runs.values()].some(({ status }) => !ENDED.includes(status.state));
      const origin = { name: String(this.#model.get("session_name") ?? ""), folder: String(this.#model.get("stored_in") ?? "") };
      this.#gone = farewell(how, goesOn ? this.#heardAt : undefined, origin);
      this.#presses.release(() => true);
      this.#watchSilence();
      this.#twin.dispose();
      this.#tell(true);
    }
  }

  /** For "Save Widget State": what is saved is the model's traits, and the kernel sends the snapshot once, at the start. */
  #keep(): void {
    if (!this.#isSettled()) {
      return;
    }
    const runs = this.state.runs.map(({ run_id, prompt, status, transcript, cut }) => {
      return { run_id, prompt, status, transcript: { ...transcript, cut } };
    });
    this.#model.set("snapshot", { kind: "full", seq: this.#have, runs, rules: this.#rules });
  }

  #replace({ seq, runs, rules }: { readonly seq: number; readonly runs: readonly FullRun[]; readonly rules: readonly Rule[] }): void {
    this.#have = seq;
    this.#rules = rules;
    this.#resyncAt = this.#helloAt = undefined;
    const grew = runs.some(({ run_id }) => !this.#runs.has(run_id));
    this.#runs = new Map(
      runs.map(({ run_id, transcript, ...rest }) => [
        run_id,
        { ...rest, since: performance.now(), builder: new TranscriptBuilder(transcript), view: undefined },
      ]),
    );
    this.#settle(grew);
  }

  /** Lets go of what has happened: the run ended, the call was decided, the new run is there. */
  #settle(grew: boolean): void {
    if (!this.#presses.areOpen) {
      return;
    }
    this.#presses.release((press) => {
      const run = this.#runs.get(press.run_id);
      switch (press.what) {
        case "send":
          return grew;
        case "forget":
          return !this.#rules.some((rule) => press.about.includes(ruleKey(rule)));
        default:
          return !run || hasHappened(press, viewOf(press.run_id, run), grew);
      }
    });
  }

  #tell(urgent: boolean): void {
    for (const listener of this.#listeners) {
      listener(urgent);
    }
  }
}

function newRun(prompt: string): Run {
  return { prompt, status: { state: "running" }, since: performance.now(), cut: 0, builder: new TranscriptBuilder(), view: undefined };
}

function viewOf(run_id: string, run: Run): RunView {
  const transcript = run.builder.freeze();
  if (run.view?.transcript !== transcript) {
    const { prompt, status, since, cut } = run;
    run.view = { run_id, prompt, status, since, cut, transcript };
  }
  return run.view;
}

export function ruleKey({ tool_name, rule_content }: Rule): string {
  return rule_content === undefined ? tool_name : `${tool_name}(${rule_content})`;
}

function isEmpty(value: unknown): boolean {
  return typeof value !== "object" || value === null || Object.keys(value).length === 0;
}

/** One id for each page load, whatever number of cards and of bundles it holds: the kernel learns of a reload by it. */
function pageId(): string {
  const page = globalThis as { __agentWidgetsPage?: string };
  page.__agentWidgetsPage ??= newId();
  return page.__agentWidgetsPage;
}
