// Each card's `_esm`, under 1 kB: takes the code from the one shared widget that carries it, once for each page.

interface Context {
  readonly model: {
    get(name: string): unknown;
    readonly widget_manager: { get_model(id: string): Promise<{ get(name: string): unknown }> };
  };
  readonly signal?: AbortSignal;
  readonly el?: HTMLElement;
}

type Off = (() => void) | undefined;

interface Card {
  initialize(context: Context): Off;
  render(context: Context): Off;
}

const page = globalThis as { __agentWidgets?: Record<string, Promise<Card>> };
page.__agentWidgets ??= {};
const cards = page.__agentWidgets;

function load({ model }: Context): Promise<Card> {
  const key = String(model.get("bundle_key"));
  cards[key] ??= fetchCard(model).catch((error: unknown) => {
    delete cards[key]; // the next card tries again
    throw error;
  });
  return cards[key];
}

async function fetchCard(model: Context["model"]): Promise<Card> {
  const id = String(model.get("_bundle")).replace("IPY_MODEL_", "");
  for (let tries = 0; ; tries += 1) {
    try {
      const code = (await model.widget_manager.get_model(id)).get("code");
      const url = URL.createObjectURL(new Blob([String(code)], { type: "text/javascript" }));
      const loaded = (await import(url)) as { readonly default: Card };
      URL.revokeObjectURL(url);
      return loaded.default;
    } catch (error) {
      if (tries === 50) {
        throw error; // for 5 s: after a reload the shared widget may be registered later than this card
      }
      await new Promise((resume) => setTimeout(resume, 100));
    }
  }
}

export default {
  // Returns at once: anywidget 0.11 gives `initialize` 2 s, and drops all later messages of a model that took longer.
  initialize(context: Context): () => Promise<Off> {
    const started = load(context).then((card) => (context.signal?.aborted ? undefined : card.initialize(context)));
    started.catch(() => undefined); // `render` says it
    return () => started.then((off) => off?.() as Off);
  },
  async render(context: Context): Promise<Off> {
    try {
      const card = await load(context);
      return context.signal?.aborted ? undefined : card.render(context);
    } catch (error) {
      context.el?.append(`agent-widgets: this card's code did not arrive. Run its cell again. (${error})`);
      return undefined;
    }
  },
};
