// One run: the prompt, its blocks in order, the notices, the footer. Changes only what changed.

import type { Asked, Notice } from "../asked";
import type { Block, HintBlock, ToolCallBlock, ToolOutput, ToolResultBlock } from "../events";
import type { Link, RunView } from "../link";
import { ENDED, isCall } from "../link";
import { dataElement } from "./data";
import { button, fold, h, setText, show } from "./dom";
import { FooterView } from "./footer";
import { count } from "./format";
import { NotesView } from "./notes";
import { MarkdownStream } from "./text";
import { ThinkingView } from "./thinking";
import { type CallActions, ToolView } from "./tool";

interface BlockView {
  readonly root: HTMLElement;
  update(block: Block): void;
  dispose?(): void;
}

interface Tool {
  call: ToolCallBlock | undefined;
  result: ToolResultBlock | undefined;
  outputs: ToolOutput[];
}

export class RunElement {
  readonly root = h("article", { class: "aw-run" });
  #prompt = h("blockquote", { class: "aw-prompt" });
  #cut = h("p", { class: "aw-cut" });
  #note = h("p", { class: "aw-note" });
  #body = h("div", { class: "aw-blocks" });
  #notices = h("div", { class: "aw-notices" });
  #busy = h("div", { class: "aw-busy", "aria-hidden": "true" }, h("i"), h("i"), h("i"));
  #all = new TogetherView((decision, stop) => this.#link.decideAll(this.#run_id, this.#waiting(), decision, "", stop));
  #pending: NotesView;
  #footer: FooterView;
  #views = new Map<string, BlockView | ToolView>();
  #seen: RunView | undefined;
  #seenAsked = "";
  #seenNotice: Notice | undefined;
  #link: Link;
  #run_id: string;

  constructor(link: Link, run_id: string) {
    this.#link = link;
    this.#run_id = run_id;
    this.#footer = new FooterView(() => link.resume(run_id));
    this.#pending = new NotesView((id) => link.withdraw(run_id, id));
    this.root.append(this.#prompt, this.#note, this.#cut, this.#body, this.#all.root, this.#busy, this.#pending.root);
    this.root.append(this.#notices, this.#footer.root);
  }

  dispose(): void {
    for (const view of this.#views.values()) {
      disposeOf(view);
    }
    this.root.remove();
  }

  /** True when something has changed. */
  update(run: RunView, last: boolean, asked: readonly Asked[], notice: Notice | undefined): boolean {
    const mine = asked.filter(({ run_id }) => run_id === this.#run_id);
    const key = `${last} ${mine.map(({ id }) => id).join()}`;
    if (run === this.#seen && key === this.#seenAsked && notice === this.#seenNotice) {
      return false;
    }
    this.#head(run);
    this.#blocks(run, mine, notice);
    this.#tail(run, mine);
    this.#footer.update(
      run,
      last,
      mine.some(({ what }) => what === "resume"),
    );
    this.#seen = run;
    this.#seenAsked = key;
    this.#seenNotice = notice;
    return true;
  }

  #head({ prompt, cut, status }: RunView): void {
    setText(this.#prompt, prompt);
    show(this.#prompt, prompt !== "");
    setText(this.#note, status.note ?? "");
    show(this.#note, Boolean(status.note));
    setText(this.#cut, `… ${count(cut)} earlier characters are not shown`);
    show(this.#cut, cut > 0);
  }

  #waiting(): ToolCallBlock[] {
    const { transcript } = this.#seen ?? {};
    return transcript?.message.content.filter((block) => isCall(block, "asking")) ?? [];
  }

  #tail({ status, transcript }: RunView, asked: readonly Asked[]): void {
    const { content } = transcript.message;
    const open = content.some((block) => block.finished_at === undefined);
    show(this.#busy, status.state === "running" && !open);
    const over = ENDED.includes(status.state);
    this.#pending.update(over ? [] : (status.steering ?? []), asked);
    const waiting = over ? 0 : content.filter((block) => isCall(block, "asking")).length;
    this.#all.update(
      waiting,
      asked.some(({ what }) => what === "approve" || what === "deny"),
    );
    if (transcript.notices !== this.#seen?.transcript.notices) {
      this.#notices.replaceChildren(...transcript.notices.map((text) => h("p", {}, text)));
    }
  }

  #blocks(run: RunView, asked: readonly Asked[], notice: Notice | undefined): void {
    const tools = toolsOf(run);
    const alone = run.transcript.message.content.filter((block) => isCall(block, "asking")).length === 1;
    const over = ENDED.includes(run.status.state) || run.transcript.message.finished_reason !== undefined;
    const wanted = new Set<string>();
    for (const block of run.transcript.message.content) {
      const key = keyOf(block);
      if (wanted.has(key)) {
        continue; // a result is shown with its call
      }
      const view = this.#view(key, block);
      const before = this.#body.children[wanted.size] ?? null;
      if (before !== view.root) {
        this.#body.insertBefore(view.root, before);
      }
      wanted.add(key);
      if (view instanceof ToolView) {
        const facts = tools.get(block.id) ?? { call: undefined, result: undefined, outputs: [] };
        const pressed = asked.find(({ about }) => about.includes(block.id))?.what;
        view.update({ ...facts, over, asked: pressed, notice: notice?.about.includes(block.id) ? notice : undefined, alone });
      } else {
        view.update(block);
      }
    }
    for (const [key, view] of this.#views) {
      if (!wanted.has(key)) {
        disposeOf(view);
        view.root.remove();
        this.#views.delete(key);
      }
    }
  }

  #view(key: string, block: Block): BlockView | ToolView {
    const known = this.#views.get(key);
    if (known) {
      return known;
    }
    const isTool = block.type === "tool_call" || block.type === "tool_result";
    const view = isTool ? new ToolView(this.#actions) : viewFor(block);
    this.#views.set(key, view);
    return view;
  }

  #actions: CallActions = {
    decide: (call, verdict) => this.#link.decide(this.#run_id, call, verdict),
    denyAndStop: (reason) => this.#link.decideAll(this.#run_id, this.#waiting(), "deny", reason, true),
    answer: (call_id, text) => this.#link.answer(this.#run_id, call_id, text),
  };
}

/** Several calls wait: one press for all of them, below the last. */
class TogetherView {
  readonly root = h("div", { class: "aw-answer aw-together", role: "group", "aria-label": "All waiting calls" });
  #approve: HTMLButtonElement;
  #others: HTMLButtonElement[];

  constructor(decide: (decision: "approve" | "deny", stop: boolean) => void) {
    this.#approve = button("", "aw-button aw-approve", () => decide("approve", false));
    this.#others = [
      button("Deny all", "aw-button aw-deny", () => decide("deny", false)),
      button("Deny all and stop", "aw-button aw-deny", () => decide("deny", true)),
    ];
    this.root.append(this.#approve, ...this.#others);
  }

  update(waiting: number, asked: boolean): void {
    setText(this.#approve, `Approve all (${waiting})`);
    for (const control of [this.#approve, ...this.#others]) {
      control.disabled = asked;
    }
    show(this.root, waiting > 1);
  }
}

function disposeOf(view: BlockView | ToolView): void {
  if (!(view instanceof ToolView)) {
    view.dispose?.();
  }
}

function keyOf(block: Block): string {
  return `${block.type === "tool_result" ? "tool_call" : block.type} ${block.id}`;
}

function toolsOf({ transcript }: RunView): Map<string, Tool> {
  const tools = new Map<string, Tool>();
  const of = (id: string): Tool => {
    const tool = tools.get(id) ?? { call: undefined, result: undefined, outputs: [] };
    tools.set(id, tool);
    return tool;
  };
  for (const block of transcript.message.content) {
    if (block.type === "tool_call") {
      of(block.id).call = block;
    } else if (block.type === "tool_result") {
      of(block.id).result = block;
    }
  }
  for (const output of transcript.outputs) {
    of(output.call_id).outputs.push(output);
  }
  return tools;
}

function viewFor(block: Block): BlockView {
  switch (block.type) {
    case "text":
      return textView();
    case "thinking": {
      const view = new ThinkingView();
      return { root: view.root, update: (now) => now.type === "thinking" && view.update(now) };
    }
    case "hint":
      return fixedView(block, hintElement(block));
    default:
      return fixedView(block, h("div", { class: "aw-data" }));
  }
}

function textView(): BlockView {
  const stream = new MarkdownStream();
  let seen: Block | undefined;
  const update = (block: Block): void => {
    if (block !== seen && block.type === "text") {
      seen = block;
      stream.update(block.text, block.finished_at !== undefined);
    }
  };
  return { root: stream.root, update, dispose: () => stream.dispose() };
}

/** A hint does not change; an image is shown once it is whole. */
function fixedView(first: Block, root: HTMLElement): BlockView {
  let done = first.type === "hint";
  const update = (block: Block): void => {
    if (!done && block.type === "data" && (block.finished_at !== undefined || block.source.type === "url")) {
      done = true;
      root.append(dataElement(block));
    }
  };
  return { root, update };
}

function hintElement({ hint, source }: HintBlock): HTMLElement {
  const parts = typeof hint === "string" ? [hint] : hint.map((part) => (part.type === "text" ? part.text : dataElement(part)));
  if (source === "user") {
    return h("blockquote", { class: "aw-prompt" }, ...parts); // a person's own words, as those at the top
  }
  return fold("aw-hint", source ? `Hint for the model, from ${source}` : "Hint for the model", ...parts);
}
