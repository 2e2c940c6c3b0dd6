// When cards draw: in one frame, for a moment, and then the page has time for others. Once for all cards of a page.
//
// Ten cards that draw whenever they hear something lay the page out sixty times a second. Nothing here reads a layout.

/** Something that draws itself when its time has come. */
export interface Drawing {
  draw(): void;
}

const SLICE_MS = 8;
const REST = 3; // times as long as was drawn,
const MOST_REST_MS = 50; // but an end is seen at once

const waiting = new Set<Drawing>();
let rest: ReturnType<typeof setTimeout> | undefined;
let frame: number | undefined;

/** Draw with the next frame, or a later one if drawing takes long. */
export function drawSoon(drawing: Drawing): void {
  waiting.add(drawing);
  ask();
}

/** It has drawn already, or is gone. */
export function drawNoMore(drawing: Drawing): void {
  waiting.delete(drawing);
  if (waiting.size === 0) {
    clearTimeout(rest);
    cancelAnimationFrame(frame ?? 0);
    rest = frame = undefined;
  }
}

function ask(): void {
  if (rest === undefined && frame === undefined && waiting.size > 0) {
    frame = requestAnimationFrame(drawSome);
  }
}

function drawSome(): void {
  frame = undefined;
  const begun = performance.now();
  let took = 0;
  for (const drawing of [...waiting]) {
    waiting.delete(drawing);
    drawing.draw();
    took = performance.now() - begun;
    if (took > SLICE_MS) {
      break;
    }
  }
  if (took > 0) {
    rest = setTimeout(
      () => {
        rest = undefined;
        ask();
      },
      Math.min(took * REST, MOST_REST_MS),
    );
  }
  ask();
}
