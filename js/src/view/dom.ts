// Elements by hand: one way to make them, one way to change them without losing what the person selected.

type Attributes = Readonly<Record<string, string>>;

/** An element with attributes and children. Strings become text, never HTML. */
export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: readonly (Node | string)[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** A real button. JupyterLab binds Enter and letters in command mode: with the attribute it leaves them to the button. */
export function button(label: string, className: string, onPress: () => void): HTMLButtonElement {
  const element = h("button", { type: "button", class: className, "data-lm-suppress-shortcuts": "true" }, label);
  element.addEventListener("click", onPress);
  return element;
}

/** Keys typed here are not the host's shortcuts. `onEnter`: what Enter does; Shift+Enter and an input method keep theirs. */
export function keepKeys(element: HTMLElement, onEnter?: () => void): void {
  element.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (onEnter && event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      onEnter();
    }
  });
}

/** A foldable part; its fold is the person's and is never set again after this. */
export function fold(className: string, label: Node | string, ...children: readonly (Node | string)[]): HTMLDetailsElement {
  return h("details", { class: className }, h("summary", { "data-lm-suppress-shortcuts": "true" }, label), ...children);
}

/** Sets the text only if it differs: writing the same text again drops a selection and costs a layout. */
export function setText(node: Node, text: string): void {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

export function show(element: HTMLElement, shown: boolean): void {
  if (element.hidden === shown) {
    element.hidden = !shown; // written in vain, it would have its style computed in each frame
  }
}

/** Whether the keyboard is in there. In a shadow root too: marimo has one. */
export function hasFocus(element: Node): boolean {
  return element.contains(focused(element));
}

/** Whether it is on something in there that is shown: a browser takes it from what is hidden, but later. */
export function isFocusShown(element: Node): boolean {
  const active = focused(element);
  const isHidden = active instanceof HTMLElement && (active.closest("[hidden]") !== null || active.style.visibility === "hidden");
  return element.contains(active) && !isHidden;
}

function focused(element: Node): Element | null {
  return (element.getRootNode() as Partial<DocumentOrShadowRoot>).activeElement ?? null;
}

/** A control that cannot be used for now. If the keyboard is there it stays there: what is disabled loses the focus to the page. */
export function setBusy(control: HTMLButtonElement | HTMLInputElement | HTMLSelectElement, busy: boolean): void {
  const keeps = busy && hasFocus(control);
  control.disabled = busy && !keeps;
  if (keeps) {
    control.setAttribute("aria-disabled", "true");
  } else {
    control.removeAttribute("aria-disabled");
  }
}

/** Makes the children of `from` like those of `to`, and keeps every node that is already right. */
export function patch(from: Node, to: Node): void {
  const wanted = [...to.childNodes];
  const present = [...from.childNodes];
  for (const [at, child] of wanted.entries()) {
    const old = present[at];
    if (!old) {
      from.appendChild(child);
    } else if (old.nodeType !== child.nodeType || old.nodeName !== child.nodeName) {
      from.replaceChild(child, old);
    } else if (child instanceof Text && old instanceof Text) {
      patchText(old, child.data);
    } else if (child instanceof Element && old instanceof Element && !old.isEqualNode(child)) {
      patchAttributes(old, child);
      patch(old, child);
    }
  }
  for (const extra of present.slice(wanted.length)) {
    extra.remove();
  }
}

/** Appending keeps a selection inside the text; setting `data` does not. */
export function patchText(node: Text, text: string): void {
  if (text.startsWith(node.data)) {
    if (text.length > node.data.length) {
      node.appendData(text.slice(node.data.length));
    }
  } else {
    node.data = text;
  }
}

function patchAttributes(from: Element, to: Element): void {
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name)) {
      from.removeAttribute(name);
    }
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) {
      from.setAttribute(name, value);
    }
  }
}
