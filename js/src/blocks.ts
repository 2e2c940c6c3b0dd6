// What the fold makes of single values: text joined, images among text, sums of tokens. Pure.

import type {
  Block,
  JsonObject,
  ModelCallEndEvent,
  Part,
  ReplyEndEvent,
  Source,
  TextBlock,
  ToolResultBlock,
  Transcript,
  Usage,
} from "./events";

export function withText(block: Block, text: string): Block {
  switch (block.type) {
    case "text":
      return { ...block, text: block.text + text };
    case "thinking":
      return { ...block, thinking: block.thinking + text };
    case "tool_call":
      return { ...block, input: block.input + text };
    case "tool_result":
      return { ...block, output: typeof block.output === "string" ? block.output + text : withMoreText(block, block.output, text) };
    case "data":
      return block.source.type === "base64" ? { ...block, source: { ...block.source, data: block.source.data + text } } : block;
    case "hint":
      return block;
  }
}

/** Text after an image is one part, however often the transcript was read while it came. */
function withMoreText(result: ToolResultBlock, output: readonly Part[], text: string): readonly Part[] {
  const last = output.at(-1);
  return last?.type === "text"
    ? [...output.slice(0, -1), { ...last, text: last.text + text }]
    : [...output, textPart(result, text, output.length)];
}

export function parts(result: ToolResultBlock): readonly Part[] {
  if (typeof result.output !== "string") {
    return result.output;
  }
  return result.output ? [textPart(result, result.output, 0)] : [];
}

function textPart(result: ToolResultBlock, text: string, number: number): TextBlock {
  return { text, id: `${result.id}-${number}`, type: "text", created_at: result.created_at };
}

export function sourceOf(event: { readonly media_type: string; readonly url?: string; readonly data?: string }): Source {
  const { media_type, url, data } = event;
  return url ? { url, media_type, type: "url" } : { data: data ?? "", media_type, type: "base64" };
}

export function ended(event: ReplyEndEvent, metadata: JsonObject): Partial<Transcript["message"]> {
  const { reply_id: id, finished_reason, created_at: finished_at, error } = event;
  const mark = finished_reason === "interrupted" ? { _is_interrupted: true } : {};
  return { id, finished_at, finished_reason, ...(error && { error }), metadata: { ...metadata, ...event.metadata, ...mark } };
}

export function added(usage: Usage | undefined, end: ModelCallEndEvent): Usage {
  return {
    input_tokens: (usage?.input_tokens ?? 0) + end.input_tokens,
    output_tokens: (usage?.output_tokens ?? 0) + end.output_tokens,
    cache_input_tokens: (usage?.cache_input_tokens ?? 0) + end.cache_input_tokens,
    cache_creation_input_tokens: (usage?.cache_creation_input_tokens ?? 0) + end.cache_creation_input_tokens,
    unknown_calls: (usage?.unknown_calls ?? 0) + (end.metadata["usage"] === "unknown" ? 1 : 0),
  };
}
