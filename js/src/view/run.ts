// One run: the prompt, its blocks in order, the notices, the footer. Changes only what changed.

import type { Asked } from "../asked";
import type { Block, HintBlock, ToolCallBlock, ToolOutput, ToolResultBlock } from "../events";
import type { Link, RunView } from "../link";
import { ENDED } from "../link";
import type { Decision } from "../wire";
import { dataElement } from "./data";
import { fold, h, setText, show } from "./dom";
import { FooterView } from "./footer";
import { count } from "./format";
import { MarkdownStream } from "./text";
import { ThinkingView } from "./thinking";
import { ToolView } from "./tool";

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
  #footer: FooterView;
  #views = new Map<string, BlockView | ToolView>();
  #seen: RunView | undefined;
  #seenAsked = "";
  #link: Link;
  #run_id: string;

  constructor(link: Link, run_id: string) {
    this.#link = link;
    this.#run_id = run_id;
    this.#footer = new FooterView(() => link.resume(run_id));
    this.root.append(this.#prompt, this.#note, this.#cut, this.#body, this.#busy, this.#notices, this.#footer.root);
  }

  dispose(): void {
    for (const view of this.#views.values()) {
      disposeOf(view);
    }
    this.root.remove();
  }

  /** True when something has changed. */
  update(run: RunView, last: boolean, asked: readonly Asked[]): boolean {
    const mine = asked.filter(({ run_id }) => run_id === this.#run_id);
    const key = `${last} ${mine.map(({ what, call_id }) => `${what} ${call_id}`).join()}`;
    if (run === this.#seen && key === this.#seenAsked) {
      return false;
    }
    this.#head(run);
    this.#blocks(run, mine);
    this.#tail(run);
    this.#footer.update(
      run,
      last,
      mine.some(({ what }) => what === "resume"),
    );
    this.#seen = run;
    this.#seenAsked = key;
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

  #tail({ status, transcript }: RunView): void {
    const { content } = transcript.message;
    const open = content.some((block) => block.finished_at === undefined);
    show(this.#busy, status.state === "running" && !open);
    if (transcript.notices !== this.#seen?.transcript.notices) {
      this.#notices.replaceChildren(...transcript.notices.map((text) => h("p", {}, text)));
    }
  }

  #blocks(run: RunView, asked: readonly Asked[]): void {
    const tools = toolsOf(run);
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
        view.update({ ...facts, over, asked: decisionOn(block.id, asked) });
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
    const view = isTool ? new ToolView((call, what, reason) => this.#link.decide(this.#run_id, call, what, reason)) : viewFor(block);
    this.#views.set(key, view);
    return view;
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

function decisionOn(call_id: string, asked: readonly Asked[]): Decision | undefined {
  const what = asked.find((one) => one.call_id === call_id)?.what;
  return what === "approve" || what === "deny" ? what : undefined;
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
  return fold("aw-hint", source ? `Hint for the model, from ${source}` : "Hint for the model", ...parts);
}
