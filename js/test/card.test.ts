import { afterEach, beforeEach, expect, test, vi } from "vitest";
import card from "../src/widget";
import { fingerprint } from "../src/wire";
import { type Dict, events, eventsOf, FakeModel, full, LOGS, pageForm, run, transcriptOf } from "./golden";
import { frame, pick, type Shown, shown, textOf, view } from "./shown";

function waiting(): Shown {
  return shown({ snapshot: full(0, [run(transcriptOf("paused"), { state: "paused", elapsed: 2.1 })]) });
}

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  document.body.replaceChildren();
  vi.useRealTimers();
});

test("a view carries the rule that hides its static twin, and takes it along", () => {
  const { el, model } = shown();
  expect(el.className).toBe("aw-card");
  const id = model.traits["css_id"];
  expect(textOf(el, "style")).toBe(`.aw-run-${id}, .jp-OutputArea-child:has(> * > .aw-run-${id}) { display: none !important; }`);
});

test("a hostile id cannot leave its selector", () => {
  const { el } = shown({ css_id: "x{}*{display:none}" });
  expect(textOf(el, "style")).toContain(".aw-run-xdisplaynone,");
});

test("a view says hello", () => {
  expect(shown({ snapshot: full(7, []) }).model.sentOf("hello")).toMatchObject([{ have: 7 }]);
});

test("Stop says Stopping… at once and is sent once", () => {
  const { el, model } = waiting();
  const stop = pick<HTMLButtonElement>(el, ".aw-stop");
  stop.click();
  stop.click();
  expect([stop.textContent, stop.disabled, textOf(el, ".aw-chip")]).toEqual(["Stopping…", true, "stopping"]);
  expect(model.sentOf("stop")).toMatchObject([{ run_id: "run1", after: "now" }]);
  const stopped = { state: "interrupted", elapsed: 2.2, stop: { source: "user", when: "now", reason: "", stop_ms: 12 } };
  model.receive(events(1, "run1", [], { status: stopped }));
  frame();
  expect(textOf(el, ".aw-chip")).toBe("stopped");
  expect(stop.style.visibility).toBe("hidden");
  expect(textOf(el, ".aw-facts")).toContain("Stopped by you after 12 ms");
  expect(textOf(el, ".aw-resume")).toBe("Continue");
});

test("Esc stops, but not while a person types", () => {
  const { el, model } = waiting();
  const press = (selector: string) =>
    pick(el, selector).dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true, cancelable: true }));
  press(".aw-reason");
  expect(model.sentOf("stop")).toHaveLength(0);
  press(".aw-body");
  press(".aw-body");
  expect(model.sentOf("stop")).toHaveLength(1);
});

test("Deny sends the reason and the fingerprint of the arguments that were seen", () => {
  const { el, model } = waiting();
  const call = { name: "delete_rows", input: `{"table": "orders", "where": "created < '2020-01-01'"}` };
  expect(textOf(el, ".aw-decision .aw-arguments")).toContain('"table": "orders"');
  pick<HTMLInputElement>(el, ".aw-reason").value = " not in production ";
  pick<HTMLButtonElement>(el, ".aw-deny").click();
  pick<HTMLButtonElement>(el, ".aw-approve").click();
  expect(model.sentOf("decide")).toMatchObject([
    { run_id: "run1", call_id: "c1", decision: "deny", reason: "not in production", fingerprint: fingerprint(call.name, call.input) },
  ]);
  expect(textOf(el, ".aw-deny")).toBe("Denying…");
  expect(pick<HTMLButtonElement>(el, ".aw-approve").disabled).toBe(true);
  model.receive({ kind: "notice", id: model.sentOf("decide")[0]?.["id"], text: "That call is not waiting any more." });
  frame();
  expect(textOf(el, ".aw-deny")).toBe("Deny");
  expect(textOf(el, ".aw-fault")).toBe("That call is not waiting any more."); // where it was pressed
  expect(pick(el, ".aw-notice").hidden).toBe(true);
});

test("Enter in the reason denies, and nothing is focused by itself", () => {
  const { el, model } = waiting();
  expect(document.activeElement).toBe(document.body);
  const reason = pick<HTMLInputElement>(el, ".aw-reason");
  reason.value = "no";
  reason.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  expect(model.sentOf("decide")).toMatchObject([{ decision: "deny", reason: "no" }]);
});

test("a second view shows the same, also what was pressed in the first", () => {
  const { el, model } = waiting();
  pick<HTMLButtonElement>(el, ".aw-approve").click();
  const other = view(model);
  expect(pick(other, ".aw").innerHTML).toBe(pick(el, ".aw").innerHTML);
  expect(textOf(other, ".aw-approve")).toBe("Approving…");
  expect(document.querySelectorAll(".aw-card")).toHaveLength(2);
});

test.each(LOGS)("%s: a card that saw it live equals one that got the snapshot", (log) => {
  const live = shown();
  for (const [seq, event] of eventsOf(log).entries()) {
    live.model.receive(
      events(seq, "run1", [pageForm(event)], { status: { state: "running", elapsed: 1 }, ...(seq === 0 && { prompt: "A question" }) }),
    );
    frame();
  }
  const state = (transcriptOf(log)["message"] as Dict)["finished_reason"] ?? "paused";
  const status = { state, elapsed: 3 };
  live.model.receive(events(eventsOf(log).length, "run1", [], { status }));
  frame();
  const late = shown({ snapshot: full(0, [run(transcriptOf(log), status)]) });
  vi.advanceTimersByTime(2_000);
  pick(live.el, ".aw-sr").textContent = ""; // it was spoken while it was new
  pick(late.el, ".aw-sr").textContent = "";
  expect(pick(live.el, ".aw").innerHTML).toBe(pick(late.el, ".aw").innerHTML);
});

test.each(LOGS)("%s: everything sent again changes nothing in the page", async (log) => {
  const again = () => full(1, [run(structuredClone(transcriptOf(log)), { state: "completed", elapsed: 3 })]);
  const { el, model } = shown({ snapshot: again() });
  const touched: MutationRecord[] = [];
  const observer = new MutationObserver((records) => touched.push(...records));
  observer.observe(pick(el, ".aw-blocks"), { subtree: true, childList: true, characterData: true });
  model.receive(again());
  frame();
  await Promise.resolve();
  observer.disconnect();
  const inPrinted = ({ target }: MutationRecord): boolean => target instanceof Element && target.matches(".aw-printed"); // displays are made anew
  expect(touched.filter((record) => !inPrinted(record))).toEqual([]);
});

test("the fold of thinking is the person's: updates leave it", () => {
  const { el, model } = shown();
  const all = eventsOf("two_tools").map(pageForm);
  model.receive(events(0, "run1", all.slice(0, 4)));
  frame();
  const thinking = pick<HTMLDetailsElement>(el, ".aw-thinking");
  expect(thinking.textContent).toBe("Thinking…");
  thinking.open = true;
  thinking.dispatchEvent(new Event("toggle"));
  expect(thinking.textContent).toContain("two cities");
  model.receive(events(1, "run1", all.slice(4)));
  frame();
  expect(pick<HTMLDetailsElement>(el, ".aw-thinking")).toBe(thinking);
  expect(thinking.open).toBe(true);
  expect(thinking.textContent).toMatch(/^Thought for 0\.3 s.*at once\.$/);
});

test("an interrupted call shows its part, not what the model is told", () => {
  const { el } = shown({ snapshot: full(0, [run(transcriptOf("stopped_in_arguments"), { state: "interrupted" })]) });
  expect(el.textContent).not.toContain("system-reminder");
  expect(textOf(el, ".aw-tool .aw-output")).toBe("1 2 3 ");
});

test("what had ended before the view was made is not spoken; what goes on is, and what comes", () => {
  const ended = shown({ snapshot: full(0, [run(transcriptOf("plain_text"), { state: "completed" })]) });
  const going = shown({ snapshot: full(0, [run(transcriptOf("plain_text"), { state: "running" })]) });
  vi.advanceTimersByTime(2_000);
  expect(textOf(ended.el, ".aw-sr")).toBe("");
  expect(textOf(going.el, ".aw-sr")).toBe("Agent: running");
  ended.model.receive(events(1, "run2", [], { status: { state: "running" }, prompt: "More" }));
  vi.advanceTimersByTime(2_000);
  expect(textOf(ended.el, ".aw-sr")).toBe("Agent: running");
});

test.each([">", "1. "])("Markdown that is nested two thousand times over (%s) costs no decision", (mark) => {
  const text = { type: "text", id: "t", text: mark.repeat(2_000), finished_at: "2026-01-02T03:04:05Z" };
  const call = { type: "tool_call", id: "c1", name: "delete_rows", input: "{}", state: "asking", suggested_rules: [] };
  const message = { name: "a", role: "assistant", id: "r1", content: [text, call] };
  const { el } = shown({ snapshot: full(0, [run({ message }, { state: "paused" })]) });
  vi.advanceTimersByTime(1_000);
  expect(pick(el, ".aw-approve").hidden).toBe(false);
  expect(textOf(el, ".aw-md").length).toBeGreaterThan(500);
});

test("the keyboard stays in the card when what it was on goes away", () => {
  const { el, model } = shown({ snapshot: full(0, [run(transcriptOf("plain_text"), { state: "running" })]) });
  const stop = pick<HTMLButtonElement>(el, ".aw-stop");
  stop.focus();
  stop.click();
  frame();
  expect(document.activeElement).toBe(stop);
  expect([stop.disabled, stop.getAttribute("aria-disabled"), stop.textContent]).toEqual([false, "true", "Stopping…"]);
  stop.click();
  expect(model.sentOf("stop")).toHaveLength(1);
  model.receive(events(1, "run1", [], { status: { state: "interrupted" } }));
  frame();
  expect(document.activeElement).toBe(pick(el, ".aw-body"));
});

test("an interrupted call says how long it ran, and nothing if it never began", () => {
  const transcript = structuredClone(transcriptOf("stopped_in_arguments"));
  const { content } = transcript["message"] as { content: Dict[] };
  for (const block of content.filter(({ type, id }) => type === "tool_result" && id === "c2")) {
    block["finished_at"] = block["created_at"];
  }
  const { el } = shown({ snapshot: full(0, [run(transcript, { state: "interrupted" })]) });
  expect([...el.querySelectorAll(".aw-tool-word")].map(({ textContent }) => textContent)).toEqual(["interrupted · 500 ms", "interrupted"]);
});

test("what a tool printed and displayed is shown, nothing is fetched", () => {
  const { el } = shown({ snapshot: full(0, [run(transcriptOf("tool_output"), { state: "exceed_max_iters" })]) });
  const printed = pick(el, ".aw-printed");
  expect(printed.querySelector(".aw-output")?.textContent).toBe("reading 1 of 2\nreading 2 of 2\n");
  expect(printed.querySelector("table.dataframe")).not.toBeNull();
  for (const image of el.querySelectorAll("img")) {
    expect(image.getAttribute("src")).toMatch(/^data:image\//);
  }
  expect(el.querySelectorAll("a[href='https://example.org/a.png']")).toHaveLength(1);
  expect(textOf(el, ".aw-facts")).toContain("used all the steps");
});

test("drawings are pictures, not live SVG", () => {
  const svg = "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>";
  const event = { type: "CUSTOM", name: "tool_output", value: { call_id: "c1", name: "display", data: { "image/svg+xml": svg } } };
  const { el, model } = waiting();
  model.receive(events(1, "run1", [event]));
  frame();
  expect(el.querySelector("svg")).toBeNull();
  expect(pick<HTMLImageElement>(el, ".aw-printed img").getAttribute("src")).toMatch(/^data:image\/svg\+xml,/);
});

/** A card on which a tool has displayed these. */
function displayed(...outputs: Dict[]): HTMLElement {
  const { el, model } = waiting();
  const event = (value: Dict) => ({ type: "CUSTOM", name: "tool_output", value: { call_id: "c1", name: "display", ...value } });
  model.receive(events(1, "run1", outputs.map(event)));
  frame();
  return el;
}

test("Markdown is rendered, HTML without anything to see gives way to its text, and an image is as large as its maker says", () => {
  const image = { data: { "image/png": "AAAA" }, metadata: { "image/png": { width: 40, height: 20 }, needs_background: "light" } };
  const markdown = { data: { "text/markdown": "**bold**", "text/plain": "<Markdown object>" } };
  const script = { data: { "text/html": "<script>draw()</script><div></div>", "text/plain": "Figure()" } };
  const latex = { data: { "text/latex": "$x$", "text/plain": "<Math object>" } };
  const boxes = [...displayed(image, markdown, script, latex).querySelectorAll(".aw-printed .aw-box")];
  const picture = boxes[0]?.querySelector("img");
  expect([picture?.getAttribute("width"), picture?.getAttribute("height"), picture?.className]).toEqual([
    "40",
    "20",
    "aw-image aw-on-light",
  ]);
  expect(boxes[1]?.querySelector("strong")?.textContent).toBe("bold");
  expect(boxes.slice(1).map(({ textContent }) => textContent)).toEqual(["bold", "Figure()", "$x$"]);
});

test("a display that is updated changes in its place, and one that stays is not drawn again", () => {
  const { el, model } = waiting();
  const show = (seq: number, value: Dict) => {
    model.receive(events(seq, "run1", [{ type: "CUSTOM", name: "tool_output", value: { call_id: "c1", name: "display", ...value } }]));
    frame();
  };
  show(1, { data: { "text/plain": "first" }, display_id: "d" });
  show(2, { data: { "text/plain": "stays" } });
  const stays = el.querySelectorAll(".aw-printed .aw-box")[1];
  show(3, { data: { "text/plain": "second" }, display_id: "d", update: true });
  const boxes = [...el.querySelectorAll(".aw-printed .aw-box")];
  expect(boxes.map(({ textContent }) => textContent)).toEqual(["second", "stays"]);
  expect(boxes[1]).toBe(stays);
});

test("a running call says what it waits for", () => {
  const { el, model } = shown({ snapshot: full(0, [run({ message: { name: "a", content: [] } }, { state: "running" })]) });
  const waits = (text: string) => ({ type: "CUSTOM", name: "tool_output", value: { call_id: "c9", name: "waits", text } });
  const start = { type: "TOOL_CALL_START", reply_id: "r", tool_call_id: "c9", tool_call_name: "insert" };
  const begun = { type: "TOOL_RESULT_START", reply_id: "r", tool_call_id: "c9", tool_call_name: "insert" };
  model.receive(events(1, "run1", [start, begun, waits("for the main thread, which is busy")]));
  frame();
  expect(textOf(el, ".aw-tool-word")).toBe("waits for the main thread, which is busy");
  expect(pick(el, ".aw-printed").hidden).toBe(true);
  model.receive(events(2, "run1", [waits("")]));
  frame();
  expect(textOf(el, ".aw-tool-word")).toBe("running");
});

test("an error is said, and tried again", () => {
  const { el, model } = shown({ snapshot: full(0, [run(transcriptOf("error"), { state: "error" })]) });
  expect(textOf(el, ".aw-error")).toBe("No answer: demo: the server closed the connection.");
  expect(textOf(el, ".aw-traceback pre")).toContain("ZeroDivisionError");
  const again = pick<HTMLButtonElement>(el, ".aw-resume");
  expect(again.textContent).toBe("Try again");
  again.click();
  expect(again.disabled).toBe(true);
  expect(model.sentOf("resume")).toMatchObject([{ run_id: "run1" }]);
});

test("only the newest run goes on", () => {
  const runs = ["a", "b"].map((id) => run(transcriptOf("stopped_in_text"), { state: "interrupted" }, id));
  const { el } = shown({ snapshot: full(0, runs) });
  expect([...el.querySelectorAll<HTMLElement>(".aw-resume")].map(({ hidden }) => hidden)).toEqual([true, false]);
});

test("a long result is folded and opens", () => {
  const transcript = structuredClone(transcriptOf("denied"));
  const message = transcript["message"] as { content: Dict[] };
  for (const block of message.content.filter(({ type }) => type === "tool_result")) {
    Object.assign(block, { state: "success", output: Array.from({ length: 500 }, (_, line) => `line ${line}`).join("\n") });
  }
  const { el } = shown({ snapshot: full(0, [run(transcript, { state: "completed" })]) });
  expect(textOf(el, ".aw-result .aw-output").split("\n")).toHaveLength(12);
  const more = pick<HTMLButtonElement>(el, ".aw-more");
  expect(more.textContent).toContain("all 500 lines");
  more.click();
  expect(textOf(el, ".aw-result .aw-output").split("\n")).toHaveLength(500);
});

test("the composer sends with Enter, and gives back what could not be sent", () => {
  const { el, model } = shown({ composer: true, snapshot: full(0, []) });
  const box = pick<HTMLTextAreaElement>(el, "textarea");
  const enter = (shiftKey = false) =>
    box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", shiftKey, bubbles: true, cancelable: true }));
  expect(pick<HTMLButtonElement>(el, ".aw-send").disabled).toBe(true);
  box.value = "Hello";
  box.dispatchEvent(new Event("input"));
  enter(true);
  expect(model.sentOf("send")).toHaveLength(0);
  enter();
  expect(model.sentOf("send")).toMatchObject([{ text: "Hello" }]);
  expect(box.value).toBe("");
  model.receive({ kind: "notice", id: model.sentOf("send")[0]?.["id"], text: "This agent was removed." });
  frame();
  expect(box.value).toBe("Hello");
});

test("no composer unless it is asked for", () => expect(pick(shown().el, ".aw-composer").hidden).toBe(true));

test("states are spoken, tokens are not", () => {
  const { el, model } = waiting();
  vi.advanceTimersByTime(1_500);
  expect(textOf(el, ".aw-sr")).toBe("Agent: waiting for you");
  model.receive(events(1, "run1", [], { status: { state: "running" } }));
  model.receive(events(2, "run1", [], { status: { state: "completed" } }));
  vi.advanceTimersByTime(1_500);
  expect(textOf(el, ".aw-sr")).toBe("Agent: done");
});

test("the clock goes on from what the kernel said, and stands when the run has ended", () => {
  const { el, model } = shown({ snapshot: full(0, [run(transcriptOf("paused"), { state: "running", elapsed: 5 })]) });
  vi.advanceTimersByTime(2_000);
  expect(textOf(el, ".aw-time")).toBe("7.0 s");
  model.receive(events(1, "run1", [], { status: { state: "completed", elapsed: 7.4 } }));
  vi.advanceTimersByTime(5_000);
  expect(textOf(el, ".aw-time")).toBe("7.4 s");
});

test("a cut snapshot says how much is missing", () => {
  const cut = { ...transcriptOf("stopped_in_text"), cut: 12345 };
  expect(textOf(shown({ snapshot: full(0, [run(cut)]) }).el, ".aw-cut")).toBe("… 12,345 earlier characters are not shown");
});

test("what a newer kernel sends is said, not thrown", () => {
  const { el, model } = shown();
  model.receive({ kind: "hologram" });
  frame();
  expect(textOf(el, ".aw-notice")).toContain("made by a newer agent-widgets");
});

test("a queued run says how many are before it", () => {
  const { el } = shown({ snapshot: full(0, [run({ message: { name: "a", role: "assistant" } }, { state: "queued", ahead: 1 })]) });
  expect(textOf(el, ".aw-chip")).toBe("queued: 1 run before it");
  expect(pick(el, ".aw-stop").style.visibility).toBe("visible");
});

test("a call that is carried out elsewhere has a box for its result", () => {
  const { el, model } = waiting();
  const call = { id: "c1", name: "delete_rows", type: "tool_call" };
  model.receive(events(1, "run1", [{ type: "REQUIRE_EXTERNAL_EXECUTION", reply_id: "r1", tool_calls: [call] }]));
  frame();
  expect(textOf(el, ".aw-chip")).toBe("waiting for a result");
  expect(pick<HTMLTextAreaElement>(el, ".aw-tool .aw-entry textarea").getAttribute("aria-label")).toContain("Result of");
  expect(el.querySelector(".aw-decision")).toBeNull();
});

test("copy takes the code of its block", async () => {
  const written: string[] = [];
  vi.stubGlobal("navigator", { clipboard: { writeText: async (text: string) => void written.push(text) } });
  const { el } = shown({ snapshot: full(0, [run(transcriptOf("plain_text"), { state: "completed" })]) });
  pick<HTMLButtonElement>(el, ".aw-copy").click();
  await Promise.resolve();
  await Promise.resolve();
  expect(written).toEqual(["print('hi')"]);
  expect(textOf(el, ".aw-copy")).toBe("Copied");
  vi.unstubAllGlobals();
});

test("the end of a view and of a model takes all listeners and timers away", () => {
  const { el, model, over } = shown({ snapshot: full(0, [run(transcriptOf("paused"), { state: "running" })]) });
  frame();
  pick<HTMLButtonElement>(el, ".aw-stop").click();
  over.abort();
  expect(model.listenerCount()).toBe(0);
  expect(vi.getTimerCount()).toBe(0);
  expect(el.querySelector(".aw")).toBeNull();
});

test("a host without signals ends a card with the returned functions", () => {
  const model = new FakeModel({ css_id: "old-host" });
  const end = card.initialize({ model });
  const el = document.createElement("div");
  const leave = card.render({ model, el });
  leave();
  end();
  expect(model.listenerCount()).toBe(0);
});

test("two documents of one page keep their own links", () => {
  const models = [new FakeModel({ css_id: "same" }), new FakeModel({ css_id: "same" })];
  for (const model of models) {
    card.initialize({ model });
    view(model);
  }
  expect(models.map((model) => model.sentOf("hello").length)).toEqual([1, 1]);
});

// -- sub-agents

/** The golden log of sub-agents up to the moment in which the innermost one waits for a person. */
function family(): Shown {
  const all = eventsOf("sub_agents").map(pageForm);
  const asks = all.findIndex(({ type }) => type === "REQUIRE_USER_CONFIRM");
  const shownCard = shown({ snapshot: full(0, []) });
  shownCard.model.receive(events(1, "run1", all.slice(0, asks + 1), { prompt: "Tidy up", status: { state: "paused", elapsed: 1 } }));
  frame();
  return shownCard;
}

test("what a sub-agent does stands inside its call, and its own sub-agents inside that", () => {
  const { el } = family();
  expect([...el.querySelectorAll(".aw-child-name")].map((name) => name.textContent)).toEqual(["researcher", "helper", "researcher"]);
  expect([...el.querySelectorAll(".aw-child-word")].map((word) => word.textContent)).toEqual([
    "waiting for you · 1 step",
    "waiting for you · 1 step",
    "running · 1 step",
  ]);
  const first = pick(el, ".aw-blocks > .aw-tool > .aw-child");
  expect(textOf(first, ".aw-md")).toContain("I ask for both.");
  expect(pick(first, ".aw-child .aw-decision").getAttribute("aria-label")).toBe("Allow delete_rows?");
});

test("a sub-agent's call is approved by its own id, and bound to its arguments", () => {
  const { el, model } = family();
  pick(el, ".aw-approve").click();
  expect(model.sentOf("decide")).toMatchObject([
    { run_id: "run1", call_id: "deep", decision: "approve", fingerprint: fingerprint("delete_rows", '{"table": "drafts"}') },
  ]);
  expect(textOf(el, ".aw-approve")).toBe("Approving…");
  const rest = eventsOf("sub_agents").map(pageForm);
  const decided = rest.findIndex(({ type }) => type === "USER_CONFIRM_RESULT");
  model.receive(events(2, "run1", rest.slice(decided, decided + 1), { status: { state: "running" } }));
  frame();
  expect(el.querySelector(".aw-decision")).toBeNull();
});

test("a sub-agent is stopped alone, once, and the head of the card does not say stopping", () => {
  const { el, model } = family();
  const stop = [...el.querySelectorAll<HTMLButtonElement>(".aw-child-stop")].at(-1) as HTMLButtonElement;
  stop.click();
  stop.click();
  expect(model.sentOf("stop")).toMatchObject([{ run_id: "run1", after: "now", call_id: "c2" }]);
  expect([stop.textContent, stop.disabled]).toEqual(["Stopping…", true]);
  expect(textOf(el, ".aw-head .aw-stop")).toBe("Stop");
  const end = eventsOf("sub_agents").find(({ type, reply_id }) => type === "REPLY_END" && reply_id === "r1-c2");
  model.receive(events(2, "run1", [pageForm(end as Dict)]));
  frame();
  expect(stop.hidden).toBe(true);
});

test("when all is over nothing of a sub-agent waits, and its text is shown once", () => {
  const { el } = shown({ snapshot: full(0, [run(transcriptOf("sub_agents"), { state: "interrupted" })]) });
  expect(el.querySelector(".aw-decision")).toBeNull();
  expect([...el.querySelectorAll<HTMLElement>(".aw-child-stop")].every(({ hidden }) => hidden)).toBe(true);
  expect(el.textContent?.split("I do not look")).toHaveLength(2);
});
