// The blocks of one transcript in order: of a run, or of a sub-agent inside the call that it works for.

import type { Block, HintBlock, ToolCallBlock, ToolOutput, ToolResultBlock, Transcript } from "../events";
import { dataElement } from "./data";
import { fold, h } from "./dom";
import { MarkdownStream } from "./text";
import { ThinkingView } from "./thinking";
import { type Around, type CallActions, type ToolFacts, ToolView } from "./tool";

interface BlockView {
  readonly root: HTMLElement;
  update(block: Block): void;
  dispose?(): void;
}

interface Tool {
  call: ToolCallBlock | undefined;
  result: ToolResultBlock | undefined;
  outputs: ToolOutput[];
  child: Transcript | undefined;
}

export class BlocksView {
  readonly root = h("div", { class: "aw-blocks" });
  #views = new Map<string, BlockView | ToolView>();
  #actions: CallActions;
  #remoteImages: boolean;

  /** `remoteImages`: whether images at an address are loaded, in what a model writes. */
  constructor(actions: CallActions, remoteImages: boolean) {
    this.#actions = actions;
    this.#remoteImages = remoteImages;
  }

  dispose(): void {
    for (const view of this.#views.values()) {
      view.dispose?.();
    }
  }

  /** `over`: the reply has ended, so nothing in it waits any more. */
  update(transcript: Transcript, over: boolean, around: Around): void {
    const tools = toolsOf(transcript);
    const wanted = new Set<string>();
    for (const block of transcript.message.content) {
      const key = keyOf(block);
      if (wanted.has(key)) {
        continue; // a result is shown with its call
      }
      const view = this.#view(key, block);
      const before = this.root.children[wanted.size] ?? null;
      if (before !== view.root) {
        this.root.insertBefore(view.root, before);
      }
      wanted.add(key);
      try {
        if (view instanceof ToolView) {
          view.update({ ...(tools.get(block.id) ?? newTool()), ...about(block.id, around), over, around });
        } else {
          view.update(block);
        }
      } catch (error) {
        console.warn("[agent-widgets] a block could not be shown", error); // the others can, and their buttons
      }
    }
    for (const [key, view] of this.#views) {
      if (!wanted.has(key)) {
        view.dispose?.();
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
    const view = isTool
      ? new ToolView(this.#actions, (actions) => new BlocksView(actions, this.#remoteImages))
      : viewFor(block, this.#remoteImages);
    this.#views.set(key, view);
    return view;
  }
}

/** What of the run's presses and notices is about one call. */
function about(call_id: string, { asked, notice, alone }: Around): Pick<ToolFacts, "asked" | "notice" | "alone"> {
  const pressed = asked.find((press) => press.about.includes(call_id))?.what;
  return { asked: pressed, notice: notice?.about.includes(call_id) ? notice : undefined, alone };
}

function keyOf(block: Block): string {
  return `${block.type === "tool_result" ? "tool_call" : block.type} ${block.id}`;
}

function newTool(): Tool {
  return { call: undefined, result: undefined, outputs: [], child: undefined };
}

function toolsOf(transcript: Transcript): Map<string, Tool> {
  const tools = new Map<string, Tool>();
  const of = (id: string): Tool => {
    const tool = tools.get(id) ?? newTool();
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
  for (const { call_id, transcript: child } of transcript.children) {
    of(call_id).child = child;
  }
  return tools;
}

function viewFor(block: Block, remoteImages: boolean): BlockView {
  switch (block.type) {
    case "text":
      return textView(remoteImages);
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

function textView(remoteImages: boolean): BlockView {
  const stream = new MarkdownStream(remoteImages);
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
