import { afterEach, beforeEach, expect, test, vi } from "vitest";
import loader from "../src/loader";

// Node imports no blob: addresses, so here the code travels as a data: address.
class CodeBlob {
  readonly code: string;
  constructor([code]: readonly string[]) {
    this.code = String(code);
  }
}

const page = globalThis as { __agentWidgets?: Record<string, unknown>; calls?: string[] };
const CODE = `
globalThis.calls.push("evaluated");
export default {
  initialize({ model }) { calls.push("initialize " + model.name); return () => calls.push("end " + model.name); },
  render({ model, el }) { calls.push("render " + model.name); return () => calls.push("leave " + model.name); },
};`;

let key = 0;

function context(name: string, getModel: () => Promise<{ get(trait: string): unknown }>, signal?: AbortSignal) {
  const traits: Record<string, unknown> = { _bundle: "IPY_MODEL_shared", bundle_key: `key${key}` };
  const model = { name, get: (trait: string) => traits[trait], widget_manager: { get_model: vi.fn(getModel) } };
  return { model, el: document.createElement("div"), ...(signal && { signal }) };
}

const shared = async () => ({ get: () => CODE });

beforeEach(() => {
  key += 1;
  page.calls = [];
  vi.stubGlobal("Blob", CodeBlob);
  vi.spyOn(URL, "createObjectURL").mockImplementation(
    (blob) => `data:text/javascript,${encodeURIComponent(`${(blob as unknown as CodeBlob).code}\n// ${key}`)}`,
  );
  vi.spyOn(URL, "revokeObjectURL").mockImplementation(() => undefined);
});

afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  vi.useRealTimers();
});

test("thirty cards evaluate the code once, and each is initialised before it is rendered", async () => {
  const contexts = Array.from({ length: 30 }, (_, number) => context(`m${number}`, shared));
  for (const each of contexts) {
    loader.initialize(each);
  }
  await Promise.all(contexts.map((each) => loader.render(each)));
  expect(page.calls?.filter((call) => call === "evaluated")).toHaveLength(1);
  expect(page.calls?.indexOf("initialize m7")).toBeLessThan(page.calls?.indexOf("render m7") ?? -1);
  expect(contexts[0]?.model.widget_manager.get_model).toHaveBeenCalledWith("shared");
});

test("initialize returns at once: anywidget forgets a model that takes more than 2 s", () => {
  const end = loader.initialize(context("m", () => new Promise(() => undefined)));
  expect(end).toBeTypeOf("function");
});

test("what the card returns is passed on", async () => {
  const one = context("m", shared);
  const end = loader.initialize(one);
  const leave = await loader.render(one);
  leave?.();
  await end();
  expect(page.calls?.slice(-2)).toEqual(["leave m", "end m"]);
});

test("a shared widget that is registered later is waited for", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout"] });
  let tries = 0;
  const late = async () => {
    tries += 1;
    if (tries < 5) {
      throw new Error("widget model not found");
    }
    return shared();
  };
  const rendered = loader.render(context("m", late));
  await vi.advanceTimersByTimeAsync(500);
  await rendered;
  expect(page.calls).toContain("render m");
});

test("a failure is said, and the next card tries again", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout"] });
  const one = context("m", () => Promise.reject(new Error("no such model")));
  loader.initialize(one);
  const rendered = loader.render(one);
  await vi.advanceTimersByTimeAsync(6_000);
  await rendered;
  expect(one.el.textContent).toContain("no such model");
  expect(page.__agentWidgets?.[`key${key}`]).toBeUndefined();
  await loader.render(context("m2", shared));
  expect(page.calls).toContain("render m2");
});

test("a view that was closed while the code came is not drawn", async () => {
  const over = new AbortController();
  const one = context("m", shared, over.signal);
  const rendered = loader.render(one);
  over.abort();
  await rendered;
  expect(page.calls).not.toContain("render m");
});
