// Colours for code, in the languages that agents write in notebooks. Once per block, when its fence has closed.

import bash from "@speed-highlight/core/languages/bash.js";
import diff from "@speed-highlight/core/languages/diff.js";
import js from "@speed-highlight/core/languages/js.js";
import json from "@speed-highlight/core/languages/json.js";
import py from "@speed-highlight/core/languages/py.js";
import sql from "@speed-highlight/core/languages/sql.js";
import xml from "@speed-highlight/core/languages/xml.js";
import yaml from "@speed-highlight/core/languages/yaml.js";
import { type ShjLanguageData, tokenizeWith } from "@speed-highlight/core/tokenize";

const LANGUAGES = { bash, diff, js, json, py, sql, xml, yaml } as Readonly<Record<string, ShjLanguageData>>;
const ALIASES: Readonly<Record<string, string>> = {
  console: "bash",
  html: "xml",
  ipython: "py",
  javascript: "js",
  jsx: "js",
  python: "py",
  python3: "py",
  sh: "bash",
  shell: "bash",
  svg: "xml",
  ts: "js",
  tsx: "js",
  typescript: "js",
  yml: "yaml",
  zsh: "bash",
};
const MOST = 50_000; // characters; colouring more than this is felt as a stall, and nobody reads it

/** Colour the text of `code` in place. An unknown language stays plain. */
export function highlight(code: Element, language: string): void {
  const name = language.toLowerCase();
  const key = ALIASES[name] ?? name;
  const source = code.textContent ?? "";
  const grammar = Object.hasOwn(LANGUAGES, key) ? LANGUAGES[key] : undefined;
  if (!grammar || source.length > MOST) {
    return;
  }
  const coloured = document.createDocumentFragment();
  const add = (text: string, type?: string): void => {
    if (!type) {
      coloured.append(text);
      return;
    }
    const span = document.createElement("span");
    span.className = `aw-t-${type}`;
    span.textContent = text;
    coloured.append(span);
  };
  tokenizeWith(source, grammar, add, { languages: LANGUAGES });
  code.replaceChildren(coloured);
}
