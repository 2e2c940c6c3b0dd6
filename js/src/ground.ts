// Light or dark: asked of the page around the card, because a host's theme is not the system's.

const DARK = "aw-dark";
const TRANSITION_MS = 400; // hosts fade from one theme to the other

/** Keeps the class `aw-dark` on `el` true; call the result to stop. `el` may not be in the page yet. */
export function followGround(el: HTMLElement): () => void {
  const page = el.ownerDocument;
  const look = (): void => {
    if (el.isConnected) {
      el.classList.toggle(DARK, isDark(el));
    }
  };
  let later: ReturnType<typeof setTimeout> | undefined;
  const changed = new MutationObserver(() => {
    clearTimeout(later);
    later = setTimeout(look, TRANSITION_MS);
  });
  const frame = requestAnimationFrame(look);
  for (const element of [page.documentElement, page.body]) {
    changed.observe(element, { attributes: true }); // where hosts write the name of their theme
  }
  return () => {
    cancelAnimationFrame(frame);
    clearTimeout(later);
    changed.disconnect();
  };
}

/** By the first ground under the card that is not transparent; where there is none, by the colour of the text on it. */
function isDark(el: HTMLElement): boolean {
  for (let below = above(el); below; below = above(below)) {
    const ground = lightness(getComputedStyle(below).backgroundColor);
    if (ground !== undefined) {
      return ground < 0.5;
    }
  }
  const text = lightness(getComputedStyle(above(el) ?? el).color);
  return text !== undefined && text > 0.5;
}

function above(element: Element): Element | null {
  if (element.parentElement) {
    return element.parentElement;
  }
  const root = element.getRootNode();
  return root instanceof ShadowRoot ? root.host : null;
}

const LUMA = [0.2126, 0.7152, 0.0722] as const; // as the eye weighs red, green and blue

/** From 0 to 1, of a computed colour; `undefined` for one that lets through more than half. */
function lightness(color: string): number | undefined {
  const [first, second = 0, third = 0, alpha = 1] = (color.match(/(?<![\w.-])-?[\d.]+/g) ?? []).map(Number);
  if (first === undefined || alpha < 0.5) {
    return undefined;
  }
  if (/^(ok)?(lab|lch)/.test(color)) {
    return color.startsWith("ok") ? first : first / 100;
  }
  const luma = first * LUMA[0] + second * LUMA[1] + third * LUMA[2];
  return color.startsWith("rgb") ? luma / 255 : luma; // color(srgb …) goes from 0 to 1
}
