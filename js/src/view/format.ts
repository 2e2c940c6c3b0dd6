// Numbers, times and arguments as a person reads them. Pure.

const NUMBER = new Intl.NumberFormat("en-US"); // once: to make one costs more than a frame's drawing

/** `1,204`, whatever the browser's language: the rest of the card is English. */
export function count(value: number): string {
  return NUMBER.format(value);
}

/** `1 step`, `3 steps`. */
export function plural(value: number, word: string): string {
  return `${count(value)} ${word}${value === 1 ? "" : "s"}`;
}

/** Seconds as `0.4 s`, `12 s`, `2:05 min`, `1:02:03 h`. */
export function duration(seconds: number): string {
  if (seconds < 10) {
    return `${seconds.toFixed(1)} s`;
  }
  const whole = Math.round(seconds);
  if (whole < 60) {
    return `${whole} s`;
  }
  const two = (part: number) => String(part).padStart(2, "0");
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes}:${two(whole % 60)} min` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(whole % 60)} h`;
}

/** Milliseconds as `12 ms` or `1.2 s`. */
export function milliseconds(value: number): string {
  return value < 1000 ? `${Math.max(1, Math.round(value))} ms` : duration(value / 1000);
}

/** Seconds between two ISO times; `undefined` if one is missing. */
export function between(start: string | undefined, end: string | undefined): number | undefined {
  const seconds = (Date.parse(end ?? "") - Date.parse(start ?? "")) / 1000;
  return Number.isFinite(seconds) && seconds >= 0 ? seconds : undefined;
}

/** `512 bytes`, `8.1 kB`. */
export function size(characters: number): string {
  return characters < 1000 ? plural(characters, "character") : `${(characters / 1000).toFixed(1)} kB`;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: ESC is what an escape sequence begins with
const ANSI = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

/** Terminal colours and cursor moves have no meaning here. */
export function withoutAnsi(text: string): string {
  return text.includes("\u001b") ? text.replace(ANSI, "") : text;
}
