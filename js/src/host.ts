// The notebook around a card, as JupyterLab and Notebook 7 show it to a widget: whether the card's kernel is still there, and
// the static twins in the document. Each part is looked for first; a host that lacks one costs a sentence and nothing else.

import { isObject } from "./decode";
import type { Model } from "./link";

export interface HostModel extends Model {
  readonly widget_manager?: unknown;
}

/** An output of the document that is the static twin of this card. `seq`: the message up to which it goes. */
export interface Twin {
  readonly seq: number;
  write(data: Readonly<Record<string, string>>): void;
}

interface Signal {
  connect(slot: Slot): unknown;
  disconnect(slot: Slot): unknown;
}
type Slot = (sender: unknown, args: unknown) => void;

const RESTARTED = "The kernel was restarted.";
const SHUT_DOWN = "The kernel was shut down.";
const CHANGED = "The notebook has another kernel now.";
const DIED = "The kernel has died.";
const FROM_FILE = "This card comes from the saved notebook and is not connected to a kernel.";

export class Host {
  #model: HostModel;
  #manager: Readonly<Record<string, unknown>> | undefined;

  constructor(model: HostModel) {
    this.#model = model;
    this.#manager = isObject(model.widget_manager) ? model.widget_manager : undefined;
  }

  /** Calls `lost`, with a sentence that says how, when the card's kernel is gone. Returns the function that ends it. */
  watch(lost: (how: string) => void): () => void {
    const onDisconnect = (): void => lost(RESTARTED); // ipywidgets: the manager has let all comms go
    this.#model.on("comm_live_update", onDisconnect);
    const session = part(part(this.#manager, "context"), "sessionContext");
    const offs = [
      () => this.#model.off("comm_live_update", onDisconnect),
      listen(session, "kernelChanged", (change) => {
        const before = part(change, "oldValue");
        const now = part(change, "newValue");
        if (before && before["id"] !== now?.["id"]) {
          lost(now ? CHANGED : SHUT_DOWN);
        }
      }),
      listen(session, "statusChanged", (status) => (status === "dead" ? lost(DIED) : undefined)),
    ];
    let over = false;
    void this.#wasEverLive().then((live) => (live || over ? undefined : lost(FROM_FILE)));
    return () => {
      over = true;
      for (const off of offs) {
        off();
      }
    };
  }

  /** The twins of this card in the document; none where it cannot be seen, or not be written. */
  twins(css_id: string): Twin[] {
    const document = part(part(this.#manager, "context"), "model");
    if (!document || document["readOnly"] === true) {
      return [];
    }
    return items(document["cells"]).flatMap((cell) => {
      const outputs = part(cell, "outputs");
      return items(outputs).flatMap((output, index) => {
        const seq = seqOf(part(output, "data")?.["text/html"], css_id);
        // What JupyterLab itself does with an `update_display_data`.
        const write = (data: Readonly<Record<string, string>>): void => {
          call(outputs, "set", index, { output_type: "display_data", data, metadata: {} });
        };
        return seq === undefined ? [] : [{ seq, write }];
      });
    });
  }

  /** A model that was made from the saved notebook has no comm. Asked of the code's model: anywidget hides the card's own. */
  async #wasEverLive(): Promise<boolean> {
    try {
      const id = String(this.#model.get("_bundle")).replace("IPY_MODEL_", "");
      const code: unknown = await call(this.#manager, "get_model", id);
      return part({ code }, "code")?.["comm_live"] !== false;
    } catch {
      return true; // a host with other models: a press will tell
    }
  }
}

/** How far a twin goes, by the classes that `export.to_html` gives it. */
function seqOf(html: unknown, css_id: string): number | undefined {
  const text = Array.isArray(html) ? String(html[0]) : html;
  const start = `<div class="aw-static aw-run-${css_id} aw-at-`;
  return typeof text === "string" && text.startsWith(start) ? Number.parseInt(text.slice(start.length), 10) : undefined;
}

function part(value: unknown, name: string): Readonly<Record<string, unknown>> | undefined {
  const found = isObject(value) ? value[name] : undefined;
  return isObject(found) ? found : undefined;
}

/** What a list of JupyterLab's holds: `length` and `get`. */
function items(list: unknown): unknown[] {
  const length = isObject(list) ? Number(list["length"]) : 0;
  return Array.from({ length: length || 0 }, (_, index) => call(list, "get", index));
}

function call(value: unknown, method: string, ...given: readonly unknown[]): unknown {
  const found = isObject(value) ? value[method] : undefined;
  return typeof found === "function" ? found.apply(value, given) : undefined;
}

/** Lumino's signals. */
function listen(value: unknown, name: string, heard: (args: unknown) => void): () => void {
  const signal = part(value, name) as Signal | undefined;
  const slot: Slot = (_, args) => heard(args);
  if (typeof signal?.connect !== "function" || typeof signal.disconnect !== "function") {
    return () => undefined;
  }
  signal.connect(slot);
  return () => signal.disconnect(slot);
}
