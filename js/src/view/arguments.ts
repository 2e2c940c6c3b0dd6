// A call's arguments as a person reads them. Pure.
//
// The text is laid out anew, never parsed and written: a parser drops the digits of large numbers and the first of two equal
// keys, and then a person approves something else than what runs.

/** JSON indented for reading. Text that is not JSON stays as it is. */
export function prettyJson(raw: string): string {
  const tokens = jsonTokens(raw);
  if (!tokens) {
    return visible(raw);
  }
  let depth = 0;
  let out = "";
  for (const [at, token] of tokens.entries()) {
    const opens = isOpening(token) && !isClosing(tokens[at + 1]);
    depth += opens ? 1 : 0;
    if (isClosing(token) && !isOpening(tokens[at - 1])) {
      depth -= 1;
      out += newLine(depth);
    }
    out += token === ":" ? ": " : token;
    out += opens || token === "," ? newLine(depth) : "";
  }
  return out;
}

/** Arguments on one line, `city="Paris", days=3`; the raw text while it is not yet whole. */
export function oneLine(raw: string, most = 300): string {
  const tokens = raw.length > 20_000 ? undefined : jsonTokens(raw);
  if (tokens?.[0] !== "{") {
    return visible(raw.slice(0, most));
  }
  let depth = 0;
  let out = "";
  for (const [at, token] of tokens.slice(1, -1).entries()) {
    depth += isOpening(token) ? 1 : isClosing(token) ? -1 : 0;
    out += onLine(token, depth === 0, tokens[at + 2]);
    if (out.length > most) {
      return `${out.slice(0, most)}…`;
    }
  }
  return out;
}

function onLine(token: string, isTop: boolean, next: string | undefined): string {
  if (token === ",") {
    return ", ";
  }
  if (token === ":") {
    return isTop ? "=" : ": ";
  }
  return isTop && next === ":" ? visible(String(JSON.parse(token))) : token;
}

/** The tokens of JSON text. Strings are decoded and encoded again, so that `\u00e9` is read as é; numbers stay as sent. */
function jsonTokens(raw: string): string[] | undefined {
  try {
    JSON.parse(raw);
  } catch {
    return undefined;
  }
  const tokens = raw.match(/"(?:[^"\\]|\\.)*"|[^\s"{}[\],:]+|[{}[\],:]/g) ?? [];
  return tokens.map((token) => (token.startsWith('"') ? visible(JSON.stringify(JSON.parse(token))) : token));
}

/** Characters that hide or reorder others are spelled out, as JSON does: a person must see what she approves, and may edit it. */
function visible(text: string): string {
  return text.replace(/[\p{Cf}\p{Zl}\p{Zp}]|(?![\t\n])\p{Cc}/gu, (character) => {
    return character
      .split("")
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)
      .join("");
  });
}

function newLine(depth: number): string {
  return `\n${"  ".repeat(Math.min(depth, 20))}`; // deeper nesting than this comes from nobody who wants to be read
}

function isOpening(token: string | undefined): boolean {
  return token === "{" || token === "[";
}

function isClosing(token: string | undefined): boolean {
  return token === "}" || token === "]";
}
