// What anywidget calls: `initialize` once for each model (the link), `render` once for each view (a card).

import { isObject } from "./decode";
import { followGround } from "./ground";
import { Link, type Model } from "./link";
import css from "./style.css";
import { CardView } from "./view/card";
import { h } from "./view/dom";

interface WidgetModel extends Model {
  readonly widget_manager?: unknown;
}

interface InitializeProps {
  readonly model: WidgetModel;
  readonly signal?: AbortSignal;
}

interface RenderProps extends InitializeProps {
  readonly el: HTMLElement;
}

// anywidget hands out a new proxy of the model each time, so a link is found by what the proxies share. One kernel may be
// open in two documents of a page: the same id, two managers, two comms.
const links = new WeakMap<object, Map<string, Link>>();
const NO_MANAGER = {};

function linksOf(model: WidgetModel): Map<string, Link> {
  const manager = isObject(model.widget_manager) ? model.widget_manager : NO_MANAGER;
  const found = links.get(manager) ?? new Map<string, Link>();
  links.set(manager, found);
  return found;
}

function idOf(model: WidgetModel): string {
  return String(model.get("css_id") ?? "").replace(/[^\w-]/g, ""); // it goes into a selector
}

function initialize({ model, signal }: InitializeProps): () => void {
  const all = linksOf(model);
  const id = idOf(model);
  const link = new Link(model);
  all.get(id)?.dispose();
  all.set(id, link);
  return whenOver(signal, () => {
    link.dispose();
    if (all.get(id) === link) {
      all.delete(id);
    }
  });
}

function render({ model, el, signal }: RenderProps): () => void {
  const id = idOf(model);
  if (!linksOf(model).has(id)) {
    initialize({ model }); // a host that calls render only
  }
  const link = linksOf(model).get(id);
  if (!link) {
    throw new Error("agent-widgets: a card without a model");
  }
  wear(el);
  const card = new CardView(link, { composer: model.get("composer") === true, name: String(model.get("agent") ?? "") });
  el.classList.add("aw-card");
  el.append(twinRule(id), card.root);
  const unfollow = followGround(el);
  link.hello();
  return whenOver(signal, () => {
    unfollow();
    card.dispose();
  });
}

/**
 * While a live view is in the page, its static twin is hidden; the rule goes with the view, and the twin is back.
 * It says how deep to look: `:has` without a limit looks through whole cards whenever they grow.
 */
function twinRule(id: string): HTMLStyleElement {
  const rule = `.aw-run-${id}, .jp-OutputArea-child:has(> * > .aw-run-${id}) { display: none !important; }`;
  return h("style", {}, id ? rule : "");
}

/** Runs `off` once: by the signal of anywidget 0.11, or by the returned function of hosts that know no signal. */
function whenOver(signal: AbortSignal | undefined, off: () => void): () => void {
  let over = false;
  const once = (): void => {
    if (!over) {
      over = true;
      off();
    }
  };
  if (signal?.aborted) {
    once(); // a late listener would never be called
  }
  signal?.addEventListener("abort", once, { once: true });
  return once;
}

/** The style once for each document or shadow root, not once for each card. */
function wear(el: HTMLElement): void {
  adopt(el.ownerDocument);
  requestAnimationFrame(() => {
    const root = el.getRootNode(); // known only when the host has put the element into the page
    if (root instanceof ShadowRoot) {
      adopt(root);
    }
  });
}

const worn = new WeakSet<Document | ShadowRoot>();

function adopt(root: Document | ShadowRoot): void {
  if (!worn.has(root)) {
    worn.add(root);
    (root instanceof ShadowRoot ? root : root.head).append(h("style", {}, css));
  }
}

export default { initialize, render };
