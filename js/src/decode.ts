// unknown -> trusted types: walks the generated shapes. A value that does not fit is dropped and counted, never thrown.

import type { JsonObject, Named } from "./events";
import { SHAPES, TAGS } from "./events";

/** How many parts of what was read did not fit: a newer kernel, or a hostile one. */
export interface Doubt {
  strange: number;
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Read a value of the type `name`; `undefined` when it is not one. */
export function decode<Name extends keyof Named>(name: Name, value: unknown, doubt: Doubt): Named[Name] | undefined {
  return decodeNamed(name, value, doubt) as Named[Name] | undefined;
}

function decodeNamed(name: string, value: unknown, doubt: Doubt): unknown {
  if (!isObject(value)) {
    return strange(doubt);
  }
  const tags = TAGS[name];
  const shape = SHAPES[tags ? (own(tags, value["type"]) ?? "") : name];
  if (!shape) {
    return strange(doubt);
  }
  const decoded: Record<string, unknown> = {};
  for (const [field, code] of Object.entries(shape)) {
    const given = value[field];
    const read = given === undefined || given === null ? absent(code) : decodeField(code, given, doubt);
    if (read === undefined) {
      return strange(doubt);
    }
    if (read !== LEFT_OUT) {
      decoded[field] = read;
    }
  }
  return decoded;
}

const LEFT_OUT = Symbol("left out");

/** What a missing field means; `undefined`: it may not be missing. */
function absent(code: string): unknown {
  if (code.endsWith("?")) {
    return LEFT_OUT;
  }
  const at = code.indexOf("=");
  if (at < 0) {
    return code.endsWith("[]") ? [] : code === "object" ? {} : undefined;
  }
  const word = code.slice(at + 1);
  const kind = code.slice(0, at);
  return kind === "number" ? Number(word) : kind === "boolean" ? word === "true" : word;
}

function decodeField(code: string, value: unknown, doubt: Doubt): unknown {
  const kinds = code.replace(/[?]$|=.*$/, "").split("|");
  for (const kind of kinds) {
    if (kind === typeof value || (kind === "object" && isObject(value)) || kind === `'${String(value)}'`) {
      return kind === "object" && !isObject(value) ? undefined : value;
    }
    if (kind.endsWith("[]") && Array.isArray(value)) {
      return decodeList(kind.slice(0, -2), value, doubt);
    }
    if (/^[A-Z]/.test(kind)) {
      return decodeNamed(kind, value, doubt);
    }
  }
  return undefined;
}

function decodeList(kind: string, values: readonly unknown[], doubt: Doubt): unknown[] {
  return values.flatMap((value) => {
    const read = kind === "string" && typeof value === "string" ? value : decodeNamed(kind, value, doubt);
    return read === undefined ? [] : [read];
  });
}

/** A field of an object made by somebody else: "constructor" and the like are not in it. */
function own(record: Readonly<Record<string, string>>, key: unknown): string | undefined {
  return typeof key === "string" && Object.hasOwn(record, key) ? record[key] : undefined;
}

function strange(doubt: Doubt): undefined {
  doubt.strange += 1;
  return undefined;
}

/** A JSON object from outside: its inside is checked where it is used. */
export function asObject(value: unknown): JsonObject {
  return isObject(value) ? (value as JsonObject) : {};
}
