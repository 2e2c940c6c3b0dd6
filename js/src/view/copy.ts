// The copy buttons of code blocks: one listener for all of a card.

const COPIED_MS = 1_500;

export function copyOnClick(event: Event): void {
  const target = event.target instanceof Element ? event.target.closest(".aw-copy") : null;
  const code = target?.closest(".aw-code")?.querySelector("code");
  if (!target || !code) {
    return;
  }
  void copy(code).then((done) => {
    target.textContent = done ? "Copied" : "Selected";
    setTimeout(() => {
      target.textContent = "Copy";
    }, COPIED_MS);
  });
}

/** Without a secure context there is no clipboard: then the code is selected, and the person presses Ctrl+C. */
async function copy(code: Element): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(code.textContent ?? "");
    return true;
  } catch {
    getSelection()?.selectAllChildren(code);
    return false;
  }
}
