// What tools print and show, folded. Twin of printed.py.

import { asObject, isObject } from "./decode";
import type { JsonObject, ToolOutput } from "./events";
import { textOf } from "./wire";

/** Folds the values of `TOOL_OUTPUT` events. */
export class PrintedBuilder {
  #outputs: ToolOutput[];

  constructor(start: readonly ToolOutput[]) {
    this.#outputs = [...start];
  }

  /** What is to be seen, in the order in which it came. */
  freeze(): readonly ToolOutput[] {
    return [...this.#outputs];
  }

  /** One more; a value that is not of this kind is ignored. */
  add(value: JsonObject): void {
    const { call_id, name, data } = value;
    if (typeof call_id !== "string" || typeof name !== "string" || !["string", "undefined"].includes(typeof value["text"])) {
      return;
    }
    const text = textOf(value, "text");
    if (name === "clear" || name === "waits") {
      this.#outputs = this.#outputs.filter((output) => output.call_id !== call_id || (name === "waits" && output.name !== name));
      if (name === "clear" || text === "") {
        return;
      }
    }
    if (isObject(data)) {
      this.#display({ call_id, name, text: "", data: asObject(data) }, value);
      return;
    }
    const at = this.#outputs.findLastIndex((output) => output.call_id === call_id);
    const last = this.#outputs[at];
    if (last && last.name === name && !last.data) {
      this.#outputs[at] = { ...last, text: overwritten(last.text + text) };
    } else {
      this.#outputs.push({ call_id, name, text: overwritten(text) });
    }
  }

  #display(bare: ToolOutput, { metadata, display_id, update }: JsonObject): void {
    const output: ToolOutput = {
      ...bare,
      ...(isObject(metadata) && { metadata: asObject(metadata) }),
      ...(typeof display_id === "string" && { display_id }),
    };
    if (update !== true) {
      this.#outputs.push(output);
      return;
    }
    for (const [at, before] of this.#outputs.entries()) {
      if (before.call_id === output.call_id && before.display_id !== undefined && before.display_id === output.display_id) {
        this.#outputs[at] = output;
      }
    }
  }
}

/** Printed text as a terminal leaves it: what follows a carriage return takes the place of its line. */
function overwritten(text: string): string {
  if (!text.includes("\r")) {
    return text;
  }
  const lines = text.split("\n");
  const last = lines.pop() ?? "";
  const bare = last.replace(/\r+$/, "");
  const leftOf = (line: string) => line.slice(line.lastIndexOf("\r") + 1);
  // The carriage return that ends the last line stays: the next text takes the place of this line.
  return [...lines.map((line) => leftOf(line.replace(/\r+$/, ""))), leftOf(bare) + last.slice(bare.length)].join("\n");
}
