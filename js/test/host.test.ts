import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { farewell } from "../src/gone";
import { Link } from "../src/link";
import { type Dict, events, FakeModel, full, run, transcriptOf } from "./golden";
import { frame, pick, shown, textOf } from "./shown";

type Slot = (sender: unknown, args: unknown) => void;

/** A signal as Lumino has them. */
class FakeSignal {
  readonly slots = new Set<Slot>();
  connect(slot: Slot): void {
    this.slots.add(slot);
  }
  disconnect(slot: Slot): void {
    this.slots.delete(slot);
  }
  emit(args: unknown): void {
    for (const slot of [...this.slots]) {
      slot(this, args);
    }
  }
}

/** A list as JupyterLab has them. */
class FakeList {
  readonly all: Dict[];
  constructor(all: readonly Dict[]) {
    this.all = [...all];
  }
  get length(): number {
    return this.all.length;
  }
  get(index: number): unknown {
    return this.all[index];
  }
  set(index: number, value: Dict): void {
    this.all[index] = value;
  }
}

const twinHtml = (css_id: string, seq: number): string => `<div class="aw-static aw-run-${css_id} aw-at-${seq}">…</div>`;
const output = (html: unknown): Dict => ({ data: { "text/html": html } });

class FakeJupyterLab {
  readonly kernelChanged = new FakeSignal();
  readonly statusChanged = new FakeSignal();
  readonly outputs: FakeList;
  readonly manager: Dict;

  constructor(outputs: readonly Dict[] = [], more: { readOnly?: boolean; live?: boolean } = {}) {
    this.outputs = new FakeList(outputs);
    const cells = new FakeList([{ type: "markdown" }, { type: "code", outputs: this.outputs }]);
    const { kernelChanged, statusChanged } = this;
    this.manager = {
      context: { sessionContext: { kernelChanged, statusChanged }, model: { readOnly: more.readOnly ?? false, cells } },
      get_model: async (id: string) => ({ id, comm_live: more.live ?? true }),
    };
  }
}

function inLab(lab: FakeJupyterLab, traits: Dict = {}): { model: FakeModel; link: Link } {
  const model = new FakeModel({ css_id: "x1", _bundle: "IPY_MODEL_code", session_name: "orders", stored_in: "", ...traits });
  Object.assign(model, { widget_manager: lab.manager });
  return { model, link: new Link(model) };
}

const RUNNING = full(3, [run(transcriptOf("plain_text"), { state: "running" })]);
const DONE = full(3, [run(transcriptOf("plain_text"), { state: "completed" })]);

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  document.body.replaceChildren();
  vi.useRealTimers();
});

test("a kernel that is restarted is said once, with the time up to which the transcript goes", () => {
  const { model, link } = inLab(new FakeJupyterLab(), { snapshot: RUNNING });
  model.receive(events(4, "run1", []));
  model.trigger("comm_live_update");
  model.trigger("comm_live_update");
  expect(link.state.gone).toMatch(/^The kernel was restarted\. What you see is the transcript up to \d+:\d\d:\d\d/);
  expect(link.state.gone).toContain(
    'was not stored and is lost with the kernel; to keep the next one, call Session.open("orders.session", agent)',
  );
});

test.each([
  [{ oldValue: { id: "a" }, newValue: null }, "The kernel was shut down."],
  [{ oldValue: { id: "a" }, newValue: { id: "b" } }, "The notebook has another kernel now."],
  [{ oldValue: null, newValue: { id: "a" } }, ""],
  [{ oldValue: { id: "a" }, newValue: { id: "a" } }, ""],
])("a kernel that becomes another: %o", (change, told) => {
  const lab = new FakeJupyterLab();
  const { link } = inLab(lab, { snapshot: DONE });
  lab.kernelChanged.emit(change);
  expect(link.state.gone).toBe(told && `${told} What you see is the transcript.`);
});

test("a kernel that died for good is said; a busy one is none that is gone", () => {
  const lab = new FakeJupyterLab();
  const { link } = inLab(lab, { snapshot: DONE });
  lab.statusChanged.emit("busy");
  expect(link.state.gone).toBe("");
  lab.statusChanged.emit("dead");
  expect(link.state.gone).toBe("The kernel has died. What you see is the transcript.");
});

test("a card from the saved notebook says so, and one that is live does not", async () => {
  const { link } = inLab(new FakeJupyterLab([], { live: false }), { snapshot: RUNNING });
  const { link: live } = inLab(new FakeJupyterLab(), { snapshot: RUNNING });
  await vi.advanceTimersByTimeAsync(1);
  expect(link.state.gone).toMatch(
    /^This card comes from the saved notebook and is not connected to a kernel\. What you see is the transcript\.$/,
  );
  expect(live.state.gone).toBe("");
});

test("a host that shows nothing of itself is taken for one whose kernel is there", async () => {
  const { link } = inLab({ manager: {} } as FakeJupyterLab, { snapshot: RUNNING });
  await vi.advanceTimersByTimeAsync(5_000);
  expect(link.state.gone).toBe("");
});

test("a stored session is named with the line that loads it", () => {
  expect(farewell("Gone.", undefined, { name: "a", folder: "my folder/orders.session" })).toBe(
    'Gone. What you see is the transcript. Its session is stored: Session.open("my folder/orders.session", agent) loads it, and chat(agent) goes on.',
  );
});

test("nothing is sent to a kernel that is gone, and what was asked of it is let go", () => {
  const { model, link } = inLab(new FakeJupyterLab(), { snapshot: RUNNING });
  link.stop("run1");
  expect(link.state.asked).toHaveLength(1);
  model.trigger("comm_live_update");
  expect(link.state.asked).toEqual([]);
  link.stop("run1");
  expect(model.sentOf("stop")).toHaveLength(1);
});

test("a card whose kernel is gone has no button that can be pressed, and its clock stands", () => {
  const { model, el } = shown({ snapshot: full(0, [run(transcriptOf("paused"), { state: "paused", elapsed: 2.1 })]) });
  const enabled = () => [
    ...[...el.querySelectorAll<HTMLButtonElement>("button:not(.aw-copy, .aw-more)")].filter((one) => !one.disabled),
    ...[...el.querySelectorAll<HTMLInputElement>("textarea, input")].filter((one) => !one.readOnly), // its text can be copied
  ];
  expect(enabled().length).toBeGreaterThan(3);
  model.trigger("comm_live_update");
  frame();
  expect(enabled()).toEqual([]);
  expect(textOf(el, ".aw-chip")).toBe("kernel gone");
  expect(pick(el, ".aw-stop").style.visibility).toBe("hidden");
  const time = textOf(el, ".aw-time");
  vi.advanceTimersByTime(2_000);
  expect(textOf(el, ".aw-time")).toBe(time);
});

test("a long output can be unfolded when the kernel is gone", () => {
  const output = Array.from({ length: 100 }, (_, line) => `line ${line}`).join("\n");
  const content = [
    { type: "tool_call", id: "c1", name: "look", input: "{}", state: "finished", suggested_rules: [] },
    { type: "tool_result", id: "c1", name: "look", output, state: "success", finished_at: "2026-01-02T03:04:05Z" },
  ];
  const message = { name: "a", role: "assistant", id: "r1", content };
  const { model, el } = shown({ snapshot: full(0, [run({ message }, { state: "completed" })]) });
  model.trigger("comm_live_update");
  frame();
  expect(textOf(el, ".aw-result")).not.toContain("line 40");
  pick<HTMLButtonElement>(el, ".aw-result .aw-more").click();
  expect(textOf(el, ".aw-result")).toContain("line 40");
});

test("a run that had ended keeps how it ended", () => {
  const { model, el } = shown({ snapshot: DONE });
  model.trigger("comm_live_update");
  expect(textOf(el, ".aw-chip")).toBe("done");
});

test("a twin that is too old is asked for once, and written where it stands", () => {
  const lab = new FakeJupyterLab([output("other"), output([twinHtml("x1", 1)]), output(twinHtml("x2", 1))]);
  const { model } = inLab(lab);
  model.receive(DONE);
  vi.advanceTimersByTime(1_000);
  expect(model.sentOf("twin")).toEqual([]); // the kernel's own update may be on its way
  vi.advanceTimersByTime(1_000);
  model.receive({ kind: "rules", rules: [] });
  vi.advanceTimersByTime(5_000);
  expect(model.sentOf("twin")).toHaveLength(1);
  const data = { "text/html": twinHtml("x1", 3), "text/plain": "…" };
  model.receive({ kind: "twin", data });
  vi.advanceTimersByTime(5_000);
  expect(lab.outputs.all).toEqual([output("other"), { output_type: "display_data", data, metadata: {} }, output(twinHtml("x2", 1))]);
  expect(model.sentOf("twin")).toHaveLength(1);
});

test.each([
  ["goes as far as the page", [output(twinHtml("x1", 3))], {}],
  ["is in a document that cannot be written", [output(twinHtml("x1", 1))], { readOnly: true }],
  ["is not there", [output("other"), {}], {}],
])("a twin that %s is not asked for", (_, outputs, more) => {
  const { model } = inLab(new FakeJupyterLab(outputs, more));
  model.receive(DONE);
  vi.advanceTimersByTime(5_000);
  expect(model.sentOf("twin")).toEqual([]);
});

test("while something goes on the twin may be old", () => {
  const { model } = inLab(new FakeJupyterLab([output(twinHtml("x1", 1))]));
  model.receive(DONE);
  model.receive(events(4, "run1", [], { status: { state: "running" } }));
  vi.advanceTimersByTime(5_000);
  expect(model.sentOf("twin")).toEqual([]);
});

test("disposing takes every slot off the host's signals", () => {
  const lab = new FakeJupyterLab([output(twinHtml("x1", 1))]);
  const { model, link } = inLab(lab);
  model.receive(DONE);
  expect(lab.kernelChanged.slots.size + lab.statusChanged.slots.size).toBe(2);
  link.dispose();
  vi.advanceTimersByTime(5_000);
  expect(lab.kernelChanged.slots.size + lab.statusChanged.slots.size + model.listenerCount()).toBe(0);
  expect(model.sentOf("twin")).toEqual([]);
});
